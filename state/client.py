"""Client of the table service: blocking, for the threads that run functions.

Create it in the process that uses it, after a fork: a gRPC channel does not survive one. Every call has a deadline.
There are four types of failures: the service is unreachable (retry), its disk failed (needs an operator), it rejected
the call (fix the call), or another instance took over (stop).
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
"""Trailing metadata: class name of an error raised by the service; missing if the connection failed."""
TOKEN = "magnetar-token"  # noqa: S105 (a name)
"""Metadata of a call: the token of its table (see `access`)."""
TABLE = "magnetar-table-bin"
"""Metadata of a call with a token: its table, so that the service can reject it before the request arrives."""
KEY_OF_ERROR = "key-bin"
"""Trailing metadata: the key that caused an error."""
ERRORS: dict[str, type[MagnetarError]] = {
    kind.__name__: kind for kind in (BadVersion, FencedByPosition, StateRefused, StateStoreFailed)
}

_Request = TypeVar("_Request", bound=Message)
_Answer = TypeVar("_Answer")


class TableClient:
    """A connection to the table service; thread-safe."""

    def __init__(self, url: str, security: ClientSecurity | None = None) -> None:
        """Create a client; the first call connects.

        Args:
            url: ``bk://host:port``, or ``bk+ssl://host:port`` with TLS; ``TOKEN@`` may precede the host.
            security: trusted authorities and client certificate; None trusts the system's authorities and sends no
                certificate.

        Raises:
            InvalidConfig: the URL is invalid, or the settings do not apply to it.
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
        """Return the values of keys, in order; None for a missing key.

        Raises:
            StateStoreUnavailable: no response within ``timeout_s``; retry.
            StateStoreFailed: the database cannot be read.
            StateRefused: a key, or the number of keys, exceeds the limits.
        """
        check_keys(keys)
        table, _ = split_epoch(table)
        values: list[Value | None] = []
        while len(values) < len(keys):  # a response that would be too large is truncated
            request = pb.ReadRequest(table=table, keys=keys[len(values) :] if values else keys)
            answer = self._call(self._read, request, timeout_s)
            values += decode_values(answer)
        return values

    def look(self, table: str, keys: Sequence[bytes], writer: bytes, timeout_s: float = 5.0) -> Reading:
        """Return the values of keys, and the table's generation before the read; without keys only the generation.

        While the generation is unchanged, values read earlier are still valid, except for changes by ``writer``.

        Args:
            table: the table's name, see `instance.identity.table_of`.
            keys: keys to read.
            writer: writer id, as passed to `apply` and `commit`.
            timeout_s: timeout.

        Raises:
            StateStoreUnavailable: no response within ``timeout_s``; retry.
            StateStoreFailed: the database cannot be read.
            StateRefused: a key, or the number of keys, exceeds the limits.
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
        """Apply changes atomically; durable when the call returns.

        A sequence number that this writer has used before is confirmed without applying the changes again, so after a
        lost response repeat the call with the same number.

        Args:
            table: the table's name, see `instance.identity.table_of`.
            writer: 16 random bytes, identifying one incarnation of an instance; it must make one call at a time.
            sequence: increases with each call, from 1 on.
            changes: the changes, in order.
            timeout_s: timeout.

        Raises:
            FencedByPosition: the table's epoch is later than the one in ``table``.
            StateStoreUnavailable: no response within ``timeout_s``; repeat the call.
            StateStoreFailed: the disk is full or failed; repeat the call later.
            StateRefused: a change exceeds the limits, or increments a value that is not a number.
        """
        columns = encode_changes(changes)
        check_changes(columns)
        table, epoch = split_epoch(table)
        request = pb.ApplyRequest(table=table, writer=writer, sequence=sequence, changes=columns, epoch=epoch)
        self._call(self._apply, request, timeout_s)

    def open(self, table: str, function_uuid: str, partition: str, timeout_s: float = 10.0) -> Opened:
        """Return an input partition's committed position, and the outputs of its last commits.

        Raises:
            StateStoreUnavailable: no response within ``timeout_s``; retry.
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
        """Atomically commit an input partition's position, state changes and outputs; durable when the call returns.

        A repeated call is recognised by ``new`` and has no further effect.

        Args:
            table: the table's name, see `instance.identity.table_of`.
            function_uuid: uuid of the function's creation.
            partition: name of the input partition.
            expected: the position from `open` or the last commit, or None.
            new: the last input entry of this commit.
            changes: state changes, in order.
            outbox: the outputs to publish after this.
            published: remove the outputs of inputs up to this position from the outbox; None removes nothing.
            timeout_s: timeout.
            writer: the writer whose `look` ignores these changes; if empty, no reader ignores them.

        Raises:
            FencedByPosition: the stored position is neither ``expected`` nor ``new``, or the table's epoch is later.
            StateStoreUnavailable: no response within ``timeout_s``; repeat the call.
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
            table: the table's name, see `instance.identity.table_of`.
            key: the key.
            data: the value.
            expected_version: required version of the key; 0 means that it must not exist, None disables the check.
            timeout_s: timeout.

        Raises:
            BadVersion: the key has another version; nothing was changed. Also raised by a repeated call whose first
                response was lost: read the key to find out.
            FencedByPosition: the table's epoch is later than the one in ``table``.
            StateStoreUnavailable: no response within ``timeout_s``; it is unknown whether the key was set.
            StateStoreFailed: the disk is full or failed.
            StateRefused: the key or the value is too long.
        """
        check_put(key, data)
        table, epoch = split_epoch(table)
        request = pb.PutRequest(table=table, key=key, data=data, expected_version=expected_version, epoch=epoch)
        return self._call(self._put, request, timeout_s).version

    def keep(self, table: str, version: int, timeout_s: float = 10.0) -> None:
        """Store a copy of a table under a version number; durable when the call returns.

        Does nothing if a copy of this version or a later one exists.

        Raises:
            StateStoreUnavailable: no response within ``timeout_s``, but the copy may still be made; repeat the call.
            StateStoreFailed: the disk is full or failed, or another copy is in progress; repeat the call later.
        """
        table, _ = split_epoch(table)
        self._call(self._keep, pb.KeepRequest(table=table, version=version), timeout_s)

    def restore(self, table: str, version: int, epoch: int, timeout_s: float = 10.0) -> bool:
        """Replace a table's contents by the copy of a version; durable when the call returns.

        After that only clients with this epoch or a later one can change the table, see `names.with_epoch`.

        Args:
            table: the table's name; an epoch in it is ignored.
            version: the version of the copy.
            epoch: increases with each restore of the table; a repeated epoch has no further effect.
            timeout_s: timeout.

        Returns:
            whether a copy of that version exists; if not, nothing was changed.

        Raises:
            StateStoreUnavailable, StateStoreFailed: as `keep`.
        """
        table, _ = split_epoch(table)
        request = pb.RestoreRequest(table=table, version=version, epoch=epoch)
        return self._call(self._restore, request, timeout_s).is_kept

    def kept(self, table: str, timeout_s: float = 5.0) -> list[int]:
        """Return the versions of a table's copies, newest first.

        Raises:
            StateStoreUnavailable: no response within ``timeout_s``; retry.
        """
        table, _ = split_epoch(table)
        return list(self._call(self._kept, pb.KeptRequest(table=table), timeout_s).versions)

    def drop(self, table: str, timeout_s: float = 10.0) -> None:
        """Delete a table, if it exists, with its copies, positions and outputs.

        Raises:
            StateStoreUnavailable: no response within ``timeout_s``; repeat the call.
            StateStoreFailed: the disk is full or failed.
        """
        self._call(self._drop, pb.DropRequest(table=split_epoch(table)[0]), timeout_s)

    def tables(self, prefix: str = "", timeout_s: float = 5.0) -> list[str]:
        """Return the names of the tables that begin with ``prefix``, sorted.

        Raises:
            StateStoreUnavailable: no response within ``timeout_s``.
        """
        names: list[str] = []
        while True:
            request = pb.TablesRequest(prefix=prefix, after=names[-1] if names else "")
            more = self._call(self._tables, request, timeout_s).names
            names += more
            if len(more) < NAMES_PER_ANSWER:
                return names

    def statistics(self, timeout_s: float = 2.0) -> dict[str, int | str]:
        """Return the service's statistics; also a health check.

        Raises:
            StateStoreUnavailable: the service does not respond.
        """
        answer = self._call(self._statistics, pb.StatisticsRequest(), timeout_s)
        return {field.name: getattr(answer, field.name) for field in answer.DESCRIPTOR.fields}

    def close(self) -> None:
        """Close the connection; calls in flight fail."""
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
                raise ClosedError(f"client of state store {self._url} is closed") from error
            if "closed" not in str(error):
                raise
            # Another thread has replaced the channel since this call obtained it.
            raise StateStoreUnavailable(
                f"the connection to the state store at {self._url} was reopened during the call: retry it"
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
            return ClosedError(f"client of state store {self._url} is closed")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return StateStoreUnavailable(
                f"the state store at {self._url} did not answer within {timeout_s:g} s: check that it is running and"
                " that its disk is fast enough"
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
            f"the state store at {self._url} cannot be reached ({details or code.name}): check that `magnetar"
            " state-store` is running there and that stateStorageServiceUrl is correct"
        )
