"""The table service: gRPC over a `TableStore`.

Threads, not an event loop: a call waits in its thread for the disk, and nothing of SQLite can stop anybody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from ..errors import BadVersion, ClosedError, FencedByPosition, MagnetarError, StateRefused, StateStoreFailed
from ..wire import state_pb2 as pb
from .access import KEY_SETTING, TableKey
from .client import KEY_OF_ERROR, NAME_OF_ERROR, SERVICE, TABLE, TOKEN
from .codec import encode_outbox, encode_position, encode_values
from .limits import MESSAGE_BYTES_MAX, SCHEME, TABLE_CHARACTERS_MAX, check_table
from .store import TableStore

THREADS = 32
"""Calls that are served at once; each waiting one holds a thread."""
CALLS_MAX = 2_048
"""Calls that wait or are served; more are told to come again."""
STOP_S = 2.0
_REACHABLE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 (compared with, not bound to)

_CODES: dict[type[MagnetarError], grpc.StatusCode] = {
    FencedByPosition: grpc.StatusCode.FAILED_PRECONDITION,
    BadVersion: grpc.StatusCode.ABORTED,
    StateRefused: grpc.StatusCode.INVALID_ARGUMENT,
    StateStoreFailed: grpc.StatusCode.INTERNAL,
    ClosedError: grpc.StatusCode.UNAVAILABLE,
}

_OF_WORKERS = (
    pb.TablesRequest, pb.StatisticsRequest, pb.KeepRequest, pb.RestoreRequest, pb.KeptRequest, pb.DropRequest,
)  # fmt: skip
"""Requests that no instance makes: the token of a single table is not enough for them."""


class TableServer:
    """The service on a port, over the tables below a directory.

    Attributes:
        port: that it listens on.
        url: by which this machine reaches it, ``bk://host:port``.
    """

    def __init__(self, store: TableStore, server: grpc.Server, host: str, port: int) -> None:
        self.port = port
        self.url = f"{SCHEME}{_REACHABLE.get(host, host)}:{port}"
        self._store = store
        self._server = server

    @classmethod
    def start(cls, directory: Path, host: str = "127.0.0.1", port: int = 0, key: TableKey | None = None) -> TableServer:
        """Open the tables, then listen.

        Args:
            directory: of the tables.
            host: address to listen on.
            port: 0 takes a free one.
            key: of the tokens that callers must show; None takes every call.

        Raises:
            StateStoreFailed: the database cannot be opened.
            OSError: the port cannot be listened on.
        """
        store = TableStore.open(directory)
        server = grpc.server(
            ThreadPoolExecutor(THREADS, "state"),
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
                ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ],
            maximum_concurrent_rpcs=CALLS_MAX,
            interceptors=None if key is None else [_Doorkeeper(key)],
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, _handlers(store, key)),))
        try:
            bound = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            store.close()
            raise OSError(f"cannot listen on {host}:{port}") from error
        server.start()
        return cls(store, server, host, bound)

    def __repr__(self) -> str:
        return f"TableServer(port={self.port}, store={self._store!r})"

    def stop(self) -> None:
        """Take no more calls, finish those under way for two seconds, and close the tables."""
        self._server.stop(STOP_S).wait()
        self._store.close()


class _Doorkeeper(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """Refuses calls by their metadata, before a thread waits for a request that may never come.

    What the request says is looked at once it is there (`_check_token`).
    """

    def __init__(self, key: TableKey) -> None:
        self._key = key
        self._refuse = grpc.stream_stream_rpc_method_handler(_refuse)

    def intercept_service(self, continuation: Callable[[Any], Any], call: Any) -> Any:
        """Return the handler of a call."""
        shown = dict(call.invocation_metadata)
        token, table = str(shown.get(TOKEN, "")), shown.get(TABLE, b"")
        name = bytes(table).decode("utf-8", "replace") if isinstance(table, bytes) else ""
        known = len(name) <= TABLE_CHARACTERS_MAX and self._key.allows(token, name or None)
        return continuation(call) if known else self._refuse


def _refuse(_: Any, context: grpc.ServicerContext) -> Iterator[Any]:
    shown = next((str(value) for name, value in context.invocation_metadata() if name == TOKEN), "")
    _abort(context, _token_refusal("this call of the state store", is_shown=bool(shown)))
    yield


def _token_refusal(what: str, *, is_shown: bool) -> StateRefused:
    how = "another one" if is_shown else "none"
    return StateRefused(f"{what} needs a token, and the caller has {how}; give its worker the service's {KEY_SETTING}")


def _handlers(store: TableStore, key: TableKey | None) -> dict[str, Any]:
    unary = partial(_unary, key)

    def put(request: pb.PutRequest) -> pb.PutResponse:
        expected = request.expected_version if request.HasField("expected_version") else None
        version = store.put(request.table, request.key, request.data, expected, request.epoch)
        return pb.PutResponse(version=version)

    def read(request: pb.ReadRequest) -> pb.ReadResponse:
        # Before the values: a change between the two is then told of by the next answer.
        generation = store.generation(request.table, request.writer) if request.writer else 0
        answer = encode_values(store.read(request.table, request.keys))
        answer.generation = generation
        return answer

    def restore(request: pb.RestoreRequest) -> pb.RestoreResponse:
        return pb.RestoreResponse(is_kept=store.restore(request.table, request.version, request.epoch))

    return {
        "Read": unary(read, pb.ReadRequest),
        "Apply": unary(store.apply, pb.ApplyRequest),
        "Commit": unary(store.commit, pb.CommitRequest),
        "Put": unary(put, pb.PutRequest),
        "Keep": unary(lambda request: store.keep(request.table, request.version), pb.KeepRequest),
        "Restore": unary(restore, pb.RestoreRequest),
        "Kept": unary(lambda request: pb.KeptResponse(versions=store.kept(request.table)), pb.KeptRequest),
        "Drop": unary(lambda request: store.drop(request.table), pb.DropRequest),
        "Tables": unary(
            lambda request: pb.TablesResponse(names=store.names(request.prefix, request.after)), pb.TablesRequest
        ),
        "Statistics": unary(lambda _: store.statistics(), pb.StatisticsRequest),
        "Open": grpc.unary_stream_rpc_method_handler(
            lambda request, context: _open(store, key, request, context),
            request_deserializer=pb.OpenRequest.FromString,
            response_serializer=pb.OpenResponse.SerializeToString,
        ),
    }


def _unary(key: TableKey | None, method: Callable[[Any], Any], request_type: Any) -> Any:
    """Return the handler of a call; a method that returns nothing is answered with `Done`."""
    is_of_worker = request_type in _OF_WORKERS

    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            if key is not None:
                _check_token(key, context, None if is_of_worker else request.table)
            result = method(request)
            return pb.Done() if result is None else result
        except MagnetarError as error:
            _abort(context, error)

    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=request_type.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


def _check_token(key: TableKey, context: grpc.ServicerContext, table: str | None) -> None:
    """Refuse a call whose token does not open a table; None: what is kept to workers."""
    if table is not None:
        check_table(table)
    shown = next((str(value) for name, value in context.invocation_metadata() if name == TOKEN), "")
    if key.allows(shown, table):
        return
    what = "this call of the state store" if table is None else f"the state table {table[:100]!r}"
    raise _token_refusal(what, is_shown=bool(shown))


def _abort(context: grpc.ServicerContext, error: MagnetarError) -> None:
    metadata: list[tuple[str, str | bytes]] = [(NAME_OF_ERROR, type(error).__name__)]
    if isinstance(error, StateRefused) and error.key is not None:
        metadata.append((KEY_OF_ERROR, error.key))
    context.set_trailing_metadata(tuple(metadata))
    context.abort(_CODES.get(type(error), grpc.StatusCode.INTERNAL), str(error))


def _open(
    store: TableStore, key: TableKey | None, request: pb.OpenRequest, context: grpc.ServicerContext
) -> Iterator[pb.OpenResponse]:
    try:
        if key is not None:
            _check_token(key, context, request.table)
        opened = store.open_partition(request.table, request.function_uuid, request.partition)
    except MagnetarError as error:
        _abort(context, error)
        return
    yield pb.OpenResponse(position=encode_position(opened.position))
    for entry in opened.outbox:
        yield pb.OpenResponse(outbox=encode_outbox((entry,)))
