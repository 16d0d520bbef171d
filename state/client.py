"""The client of the table service: blocking, for the threads that functions run on.

Made in the process that uses it, after a fork: a gRPC channel does not survive one. Every call has a deadline, and
every failure is one of four: the service cannot be reached (try again), its disk failed (look at it), it does not take
the call (change the call), another instance went on (stop).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from ..errors import (
    BadVersion,
    ClosedError,
    FencedByPosition,
    MagnetarError,
    StateRefused,
    StateStoreFailed,
    StateStoreUnavailable,
)
from ..security.credentials.client_security import ClientSecurity
from ..wire import state_pb2 as pb
from ..wire.position import Position
from .access import StoreAddress, token_in, without_token
from .channels import Channels, Method
from .codec import (
    decode_contents,
    decode_outbox,
    decode_position,
    decode_values,
    encode_changes,
    encode_outbox,
    encode_position,
)
from .limits import (
    COMMIT_CHANGES_MAX,
    NAMES_PER_ANSWER,
    check_changes,
    check_keys,
    check_put,
)
from .names import split_epoch
from .values import Change, Delete, Increment, Opened, OutboxEntry, Put, Reading, Value

__all__ = [
    "Change", "Delete", "Increment", "Opened", "OutboxEntry", "Position", "Put", "TableClient", "Value",
]  # fmt: skip

SERVICE = "magnetar.state.TableService"
NAME_OF_ERROR = "magnetar-error"
"""Trailing metadata: the class of an error that the service raised; without it the way to the service failed."""
TOKEN = "magnetar-token"  # noqa: S105 (a name)
"""Metadata of a call: the token of the table that it is about, see `access`."""
TABLE = "magnetar-table-bin"
"""Metadata of a call with a token: that table, so that the service need not wait for the request to refuse it."""
KEY_OF_ERROR = "key-bin"
"""Trailing metadata: the key that a refusal is about."""
ERRORS: dict[str, type[MagnetarError]] = {
    kind.__name__: kind for kind in (BadVersion, FencedByPosition, StateRefused, StateStoreFailed)
}

_Request = TypeVar("_Request", bound=Message)
_Answer = TypeVar("_Answer")


class TableClient:
    """One connection to the table service; its methods may be called from any thread."""

    def __init__(self, url: str, security: ClientSecurity | None = None) -> None:
        """Create a client; the first call connects.

        Args:
            url: ``bk://host:port``, or ``bk+ssl://host:port`` with TLS; ``TOKEN@`` may precede the host.
            security: TLS trust and client certificate; None trusts the system's authorities, without a certificate.

        Raises:
            InvalidConfig: the URL is invalid, or the settings do not fit it.
        """
        self._channels = Channels(StoreAddress(url, security or ClientSecurity()))
        self._url = without_token(url)
        self._token = token_in(url)
        self._is_closed = False
        self._read = self._unary("Read", pb.ReadResponse.FromString)
        self._apply = self._unary("Apply", pb.Done.FromString)
        self._commit = self._unary("Commit", pb.Done.FromString)
        self._put = self._unary("Put", pb.PutResponse.FromString)
        self._keep = self._unary("Keep", pb.Done.FromString)
        self._restore = self._unary("Restore", pb.RestoreResponse.FromString)
        self._kept = self._unary("Kept", pb.KeptResponse.FromString)
        self._drop = self._unary("Drop", pb.Done.FromString)
        self._tables = self._unary("Tables", pb.TablesResponse.FromString)
        self._statistics = self._unary("Statistics", pb.StatisticsResponse.FromString)
        self._open = Method(
            self._channels,
            lambda channel: channel.unary_stream(
                f"/{SERVICE}/Open",
                request_serializer=pb.OpenRequest.SerializeToString,
                response_deserializer=pb.OpenResponse.FromString,
            ),
        )

    def __repr__(self) -> str:
        return f"TableClient({self._url!r})"

    def read(self, table: str, keys: Sequence[bytes], timeout_s: float = 5.0) -> list[Value | None]:
        """Return what keys hold, in their order; None for one that is missing.

        Raises:
            StateStoreUnavailable: no answer within ``timeout_s``; ask again.
            StateStoreFailed: the database cannot be read.
            StateRefused: a key or their number is beyond the limits.
        """
        check_keys(keys)
        table, _ = split_epoch(table)
        values: list[Value | None] = []
        while len(values) < len(keys):  # an answer has fewer where it would be too large
            request = pb.ReadRequest(table=table, keys=keys[len(values) :] if values else keys)
            answer = self._call(self._read, request, timeout_s)
            values += decode_values(answer)
        return values

    def look(self, table: str, keys: Sequence[bytes], writer: bytes, timeout_s: float = 5.0) -> Reading:
        """Return what keys hold, and the generation of the table as it was before; without keys that alone.

        As long as the generation is the same, everything that was read before holds, but for what ``writer`` changed.

        Args:
            table: its name, see `instance.identity.table_of`.
            keys: what is asked for.
            writer: as given to `apply` and `commit`.
            timeout_s: how long to wait.

        Raises:
            StateStoreUnavailable: no answer within ``timeout_s``; ask again.
            StateStoreFailed: the database cannot be read.
            StateRefused: a key or their number is beyond the limits.
        """
        check_keys(keys)
        table, _ = split_epoch(table)
        answer = self._call(self._read, pb.ReadRequest(table=table, keys=keys, writer=writer), timeout_s)
        generation, contents = answer.generation, decode_contents(answer)
        while len(contents) < len(keys):
            answer = self._call(self._read, pb.ReadRequest(table=table, keys=keys[len(contents) :]), timeout_s)
            contents += decode_contents(answer)
        return Reading(contents, generation)

    def apply(
        self, table: str, writer: bytes, sequence: int, changes: Sequence[Change], timeout_s: float = 10.0
    ) -> None:
        """Make changes, all or none; durable when it returns.

        A sequence that this writer already had is answered and not made again, so a call whose answer was lost is
        repeated with the same sequence.

        Args:
            table: its name, see `instance.identity.table_of`.
            writer: 16 random bytes of one incarnation of an instance; one call of it at a time.
            sequence: grows from call to call, from 1 on.
            changes: in their order.
            timeout_s: how long to wait.

        Raises:
            FencedByPosition: the table's epoch is later than the one that its name here tells.
            StateStoreUnavailable: no answer within ``timeout_s``; repeat the call.
            StateStoreFailed: the disk is full or failed; repeat the call later.
            StateRefused: a change is beyond the limits, or counts on bytes that are no number.
        """
        columns = encode_changes(changes)
        check_changes(columns)
        table, epoch = split_epoch(table)
        request = pb.ApplyRequest(table=table, writer=writer, sequence=sequence, changes=columns, epoch=epoch)
        self._call(self._apply, request, timeout_s)

    def open(self, table: str, function_uuid: str, partition: str, timeout_s: float = 10.0) -> Opened:
        """Return how far an input partition was committed, and the outputs of its last commits.

        Raises:
            StateStoreUnavailable: no answer within ``timeout_s``; ask again.
            StateStoreFailed: the database cannot be read.
        """
        table, _ = split_epoch(table)
        request = pb.OpenRequest(table=table, function_uuid=function_uuid, partition=partition)
        parts = self._call(lambda message, **how: list(self._open(message, **how)), request, timeout_s)
        position = next((decode_position(part.position) for part in parts if part.HasField("position")), None)
        return Opened(position, [entry for part in parts for entry in decode_outbox(part.outbox)])

    def commit(  # noqa: PLR0913 - one transaction, and each of these is part of it
        self,
        table: str,
        function_uuid: str,
        partition: str,
        expected: Position | None,
        new: Position,
        changes: Sequence[Change],
        outbox: Sequence[OutboxEntry],
        published: Position | None,
        timeout_s: float = 10.0,
        writer: bytes = b"",
    ) -> None:
        """Move the position of an input partition with changes and outputs, all or none; durable when it returns.

        A repeated call is recognised by ``new`` and not made again.

        Args:
            table: its name, see `instance.identity.table_of`.
            function_uuid: of the create.
            partition: name of the input partition.
            expected: the position that `open` or the last commit gave; None if there was none.
            new: the last input entry that is part of this commit.
            changes: of the state, in their order.
            outbox: the outputs to be published after this.
            published: the outbox is cleared of the outputs of inputs up to this one; None leaves it.
            timeout_s: how long to wait.
            writer: whose `look` does not tell of these changes; empty: everybody's does.

        Raises:
            FencedByPosition: the stored position is neither ``expected`` nor ``new``, or the table's epoch is later.
            StateStoreUnavailable: no answer within ``timeout_s``; repeat the call.
            StateStoreFailed: the disk is full or failed; repeat the call later.
            StateRefused: as `apply`.
        """
        columns, entries = encode_changes(changes), encode_outbox(outbox)
        check_changes(columns, entries, (expected, new), COMMIT_CHANGES_MAX)
        table, epoch = split_epoch(table)
        request = pb.CommitRequest(
            table=table,
            function_uuid=function_uuid,
            partition=partition,
            expected=encode_position(expected),
            new=encode_position(new),
            changes=columns,
            outbox=entries,
            published=encode_position(published),
            writer=writer,
            epoch=epoch,
        )
        self._call(self._commit, request, timeout_s)

    def put(
        self, table: str, key: bytes, data: bytes, expected_version: int | None = None, timeout_s: float = 10.0
    ) -> int:
        """Set a key and return its version.

        Args:
            table: its name, see `instance.identity.table_of`.
            key: the key.
            data: its bytes.
            expected_version: that the key must have; 0: it must not exist; None: whatever is there.
            timeout_s: how long to wait.

        Raises:
            BadVersion: the key has another version; nothing was changed. Also the answer to a repeated call whose
                first answer was lost: read the key to tell.
            FencedByPosition: the table's epoch is later than the one that its name here tells.
            StateStoreUnavailable: no answer within ``timeout_s``; whether it was written is not known.
            StateStoreFailed: the disk is full or failed.
            StateRefused: the key or the value is too long.
        """
        check_put(key, data)
        table, epoch = split_epoch(table)
        request = pb.PutRequest(table=table, key=key, data=data, expected_version=expected_version, epoch=epoch)
        return self._call(self._put, request, timeout_s).version

    def keep(self, table: str, version: int, timeout_s: float = 10.0) -> None:
        """Keep a copy of what a table holds under the number of a version; durable when it returns.

        There is one copy of a version, and a call that is repeated, or comes after that of a later version, makes none.

        Raises:
            StateStoreUnavailable: no answer within ``timeout_s``, though the copy may still be made; repeat the call.
            StateStoreFailed: the disk is full or failed, or another copy is being made; repeat the call later.
        """
        table, _ = split_epoch(table)
        self._call(self._keep, pb.KeepRequest(table=table, version=version), timeout_s)

    def restore(self, table: str, version: int, epoch: int, timeout_s: float = 10.0) -> bool:
        """Put the copy of a version in the place of what a table holds; durable when it returns.

        From then on the table is changed only by those who know this epoch, or a later one, by `names.with_epoch`.

        Args:
            table: its name; an epoch in it does not count.
            version: of which a copy was kept.
            epoch: grows from one restoration of the table to the next; one that is repeated is not made again.
            timeout_s: how long to wait.

        Returns:
            whether there is a copy of that version; if not, nothing was changed.

        Raises:
            StateStoreUnavailable, StateStoreFailed: as `keep`.
        """
        table, _ = split_epoch(table)
        request = pb.RestoreRequest(table=table, version=version, epoch=epoch)
        return self._call(self._restore, request, timeout_s).is_kept

    def kept(self, table: str, timeout_s: float = 5.0) -> list[int]:
        """Return of which versions of a table there are copies, the newest first.

        Raises:
            StateStoreUnavailable: no answer within ``timeout_s``; ask again.
        """
        table, _ = split_epoch(table)
        return list(self._call(self._kept, pb.KeptRequest(table=table), timeout_s).versions)

    def drop(self, table: str, timeout_s: float = 10.0) -> None:
        """Remove a table, if it is there, with its copies and the positions and outputs of its function.

        Raises:
            StateStoreUnavailable: no answer within ``timeout_s``; repeat the call.
            StateStoreFailed: the disk is full or failed.
        """
        self._call(self._drop, pb.DropRequest(table=split_epoch(table)[0]), timeout_s)

    def tables(self, prefix: str = "", timeout_s: float = 5.0) -> list[str]:
        """Return the names of the tables that begin with ``prefix``, sorted.

        Raises:
            StateStoreUnavailable: no answer within ``timeout_s``.
        """
        names: list[str] = []
        while True:
            request = pb.TablesRequest(prefix=prefix, after=names[-1] if names else "")
            more = self._call(self._tables, request, timeout_s).names
            names += more
            if len(more) < NAMES_PER_ANSWER:
                return names

    def statistics(self, timeout_s: float = 2.0) -> dict[str, int | str]:
        """Return figures of the service; also a health check.

        Raises:
            StateStoreUnavailable: it does not answer.
        """
        answer = self._call(self._statistics, pb.StatisticsRequest(), timeout_s)
        return {field.name: getattr(answer, field.name) for field in answer.DESCRIPTOR.fields}

    def close(self) -> None:
        """End the connection; calls under way fail."""
        self._is_closed = True
        self._channels.close()

    def _unary(self, method: str, parse: Callable[[bytes], _Answer]) -> Method[_Answer]:
        return Method(
            self._channels,
            lambda channel: channel.unary_unary(
                f"/{SERVICE}/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=parse,
            ),
        )

    def _call(self, method: Callable[..., _Answer], request: _Request, timeout_s: float) -> _Answer:
        try:
            return method(request, timeout=timeout_s, metadata=self._credentials(request))
        except grpc.RpcError as error:
            raise self._translate(error, timeout_s) from error
        except ValueError as error:
            if self._is_closed:
                raise ClosedError(f"the client of the state store at {self._url} was closed") from error
            if "closed" not in str(error):
                raise
            # Another thread has renewed it since this call took it.
            raise StateStoreUnavailable(
                f"the connection to the state store at {self._url} was reopened: try again"
            ) from error

    def _credentials(self, request: Message) -> tuple[tuple[str, str | bytes], ...] | None:
        if not self._token:
            return None
        table: str = getattr(request, "table", "")
        return (TOKEN, self._token), (TABLE, table.encode())

    def _translate(self, error: Any, timeout_s: float) -> MagnetarError:
        code, details = error.code(), error.details() or ""
        metadata = dict(error.trailing_metadata() or ())
        kind = ERRORS.get(metadata.get(NAME_OF_ERROR, ""))
        if kind is StateRefused:
            return StateRefused(details, metadata.get(KEY_OF_ERROR))
        if kind is not None:
            return kind(details)
        if self._is_closed:
            return ClosedError(f"the client of the state store at {self._url} was closed")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return StateStoreUnavailable(
                f"the state store at {self._url} did not answer within {timeout_s:g} s;"
                " is it running, and is its disk fast enough?"
            )
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return StateStoreUnavailable(
                f"the server at {self._url} is not a state store of this version:"
                " check stateStorageServiceUrl and the service's version"
            )
        if code is grpc.StatusCode.UNAVAILABLE:
            reason = self._channels.why(details)
            self._channels.renew()
            if reason:
                return StateStoreUnavailable(f"the state store at {self._url} cannot be reached: {reason}")
        return StateStoreUnavailable(
            f"the state store at {self._url} cannot be reached ({details or code.name}); is `magnetar state-store`"
            " running there, and is stateStorageServiceUrl right?"
        )
