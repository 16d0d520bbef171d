"""The table service: gRPC over a `TableStore`.

It uses threads instead of an event loop, so that a call waiting for the disk or SQLite does not block others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from ..errors import BadVersion, ClosedError, FencedByPosition, MagnetarError, StateRefused, StateStoreFailed
from ..security.server_tls_settings import ServerTls
from ..tasks import Room
from ..wire import state_pb2 as pb
from .access import KEY_SETTING, TableKey
from .calls import CALLS_MAX, CallThreads, RequestWatch
from .client import KEY_OF_ERROR, NAME_OF_ERROR, SERVICE, TABLE, TOKEN
from .codec import encode_outbox, encode_position, encode_values
from .limits import MESSAGE_BYTES_MAX, SCHEME, TABLE_CHARACTERS_MAX, TLS_SCHEME, check_table
from .store import TableStore

HANDSHAKE_TIMEOUT_MS = 10_000
"""Timeout of a client's handshake, with or without TLS, in milliseconds."""
STOP_S = 2.0
_REACHABLE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 (only compared, not bound)

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
"""Requests that only workers may make: a table's token is not sufficient."""


class TableServer:
    """The table service, listening on a port for the tables in a directory.

    Attributes:
        port: the port it listens on.
        url: its URL on this machine, ``bk://host:port``, or ``bk+ssl://host:port`` with TLS.
    """

    def __init__(self, store: TableStore, server: grpc.Server, watch: RequestWatch, place: str, port: int) -> None:
        self.port = port
        self._watch = watch
        self.url = f"{place}:{port}"
        self._store = store
        self._server = server

    @classmethod
    def start(
        cls,
        directory: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        key: TableKey | None = None,
        tls: ServerTls | None = None,
    ) -> TableServer:
        """Open the tables, then listen.

        Args:
            directory: directory of the tables.
            host: address to listen on.
            port: 0 chooses a free one.
            key: key that checks the clients' tokens; None accepts all calls.
            tls: TLS settings of the port; None disables TLS.

        Raises:
            InvalidConfig: the TLS settings are invalid or unsupported, or their files cannot be used.
            StateStoreFailed: the database cannot be opened.
            OSError: listening on the port failed.
        """
        credentials = _credentials(tls)
        store = TableStore.open(directory)
        threads, watch = CallThreads(has_tenants=key is not None), RequestWatch()
        server = grpc.server(
            threads,
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
                ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
                ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
            ],
            maximum_concurrent_rpcs=CALLS_MAX,
            interceptors=[_Doorkeeper(key, threads)],
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, _handlers(store, key, watch)),))
        try:
            address = f"{host}:{port}"
            if credentials is None:
                bound, scheme = server.add_insecure_port(address), SCHEME
            else:
                bound, scheme = server.add_secure_port(address, credentials), TLS_SCHEME
        except RuntimeError as error:
            watch.close()
            store.close()
            raise OSError(f"cannot listen on {host}:{port}") from error
        server.start()
        return cls(store, server, watch, f"{scheme}{_REACHABLE.get(host, host)}", bound)

    def __repr__(self) -> str:
        return f"TableServer(port={self.port}, store={self._store!r})"

    def stop(self) -> None:
        """Reject new calls, wait up to two seconds for pending ones, and close the tables."""
        self._server.stop(STOP_S).wait()
        self._watch.close()
        self._store.close()


def _credentials(tls: ServerTls | None) -> grpc.ServerCredentials | None:
    if tls is None:
        return None
    from .server_certificates import ServerCertificates  # this imports ssl, which is slow

    return ServerCertificates(tls).credentials()


class _Doorkeeper(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """Rejects calls based on their metadata, before a thread waits for a request that may never arrive.

    The request itself is checked on arrival (`_check_token`).
    """

    def __init__(self, key: TableKey | None, threads: CallThreads) -> None:
        self._key = key
        self._threads = threads
        self._refuse = grpc.stream_stream_rpc_method_handler(_refuse)
        self._refuse_share = grpc.stream_stream_rpc_method_handler(partial(_refuse_share, threads.calls_per_tenant))

    def intercept_service(self, continuation: Callable[[Any], Any], call: Any) -> Any:
        """Return the handler of a call."""
        tenant = ""
        if self._key is not None:
            shown = dict(call.invocation_metadata)
            token, table = str(shown.get(TOKEN, "")), shown.get(TABLE, b"")
            name = bytes(table).decode("utf-8", "replace") if isinstance(table, bytes) else ""
            if len(name) > TABLE_CHARACTERS_MAX or not self._key.allows(token, name or None):
                self._threads.expect(None)
                return self._refuse
            tenant = name.partition("/")[0]
        if self._threads.expect(tenant) is Room.SHARE_USED:
            return self._refuse_share
        return continuation(call)  # gRPC itself rejects calls beyond `CALLS_MAX`


def _refuse(_: Any, context: grpc.ServicerContext) -> Iterator[Any]:
    shown = next((str(value) for name, value in context.invocation_metadata() if name == TOKEN), "")
    _abort(context, _token_refusal("this call", is_shown=bool(shown)))
    yield


def _refuse_share(share: int, _: Any, context: grpc.ServicerContext) -> Iterator[Any]:
    reason = f"the tenant has {share} pending calls to the state store, the maximum: retry later"
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)
    yield


def _token_refusal(what: str, *, is_shown: bool) -> StateRefused:
    how = "an invalid one" if is_shown else "none"
    return StateRefused(
        f"{what} requires a token, and the caller sent {how}: configure its worker with the service's {KEY_SETTING}"
    )


def _handlers(store: TableStore, key: TableKey | None, watch: RequestWatch) -> dict[str, Any]:
    unary = partial(_unary, key, watch)

    def put(request: pb.PutRequest) -> pb.PutResponse:
        expected = request.expected_version if request.HasField("expected_version") else None
        version = store.put(request.table, request.key, request.data, expected, request.epoch)
        return pb.PutResponse(version=version)

    def read(request: pb.ReadRequest) -> pb.ReadResponse:
        # Read the generation before the values: a change in between then shows in the generation of the next response.
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
        "Open": grpc.stream_stream_rpc_method_handler(
            lambda requests, context: _open(store, key, watch.next(requests, context), context),
            request_deserializer=pb.OpenRequest.FromString,
            response_serializer=pb.OpenResponse.SerializeToString,
        ),
    }


def _unary(key: TableKey | None, watch: RequestWatch, method: Callable[[Any], Any], request_type: Any) -> Any:
    """Return the handler of a unary call; if the method returns None, the response is `Done`.

    For gRPC it is a streaming handler that reads one request, so it is called before the request has arrived.
    """
    is_of_worker = request_type in _OF_WORKERS

    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        request = watch.next(requests, context)
        if request is None:
            return pb.Done()  # the call has ended
        try:
            if key is not None:
                _check_token(key, context, None if is_of_worker else request.table)
            result = method(request)
            return pb.Done() if result is None else result
        except MagnetarError as error:
            _abort(context, error)

    return grpc.stream_unary_rpc_method_handler(
        answer,
        request_deserializer=request_type.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


def _check_token(key: TableKey, context: grpc.ServicerContext, table: str | None) -> None:
    """Reject a call without a valid token for a table; None means operations reserved for workers."""
    if table is not None:
        check_table(table)
    shown = next((str(value) for name, value in context.invocation_metadata() if name == TOKEN), "")
    if key.allows(shown, table):
        return
    what = "this call" if table is None else f"state table {table[:100]!r}"
    raise _token_refusal(what, is_shown=bool(shown))


def _abort(context: grpc.ServicerContext, error: MagnetarError) -> None:
    metadata: list[tuple[str, str | bytes]] = [(NAME_OF_ERROR, type(error).__name__)]
    if isinstance(error, StateRefused) and error.key is not None:
        metadata.append((KEY_OF_ERROR, error.key))
    context.set_trailing_metadata(tuple(metadata))
    context.abort(_CODES.get(type(error), grpc.StatusCode.INTERNAL), str(error))


def _open(
    store: TableStore, key: TableKey | None, request: pb.OpenRequest | None, context: grpc.ServicerContext
) -> Iterator[pb.OpenResponse]:
    if request is None:
        return  # the call has ended
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
