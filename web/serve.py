"""HTTP server in a running event loop: uvicorn without its signal handlers, logging and ten wake-ups per second.

`http_protocol` limits slow clients; `same_site` rejects requests from other sites.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import InvalidConfig
from ..tasks import TaskSet, within
from .answers import Refused, refusal
from .http_protocol import HttpLimits, HttpProtocol
from .same_site import AllowedNames, allowed_names, refusal_of
from .uvicorn_import import Config, Server

if TYPE_CHECKING:
    import ssl

    from ..security.tls_listener import TlsListener

SHUTDOWN_TIMEOUT_S = 3
"""Timeout for pending requests when the server stops."""
HANDSHAKE_TIMEOUT_S = 10.0
"""Timeout of a TLS handshake."""
KEEP_ALIVE_S = 60
"""Time that an idle connection remains open; longer than in client pools, so that clients close first."""
BACKLOG = 1024
MAX_PATH_BYTES = 8192
MAX_QUERY_BYTES = 32 * 1024
HEADERS = (
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("content-security-policy", "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"),
)
"""Headers of every response, which disable content sniffing, embedding in other pages, and the referrer."""
_BAD_ESCAPE = re.compile(rb"%(?![0-9a-fA-F]{2})")
_POLL_S = 0.005


class WebServer(Server):
    """A server in a running event loop, created by `serve` and stopped by `stop`."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()
        self._tasks = TaskSet("web server")
        self._running: asyncio.Task[None] | None = None
        self._tls: ssl.SSLContext | None = None
        self._listeners: list[asyncio.Server | TlsListener] = []

    async def start(self, listener: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Start serving on a bound socket."""
        self.config.load()
        self._tls = tls
        self.lifespan = self.config.lifespan_class(self.config)
        await self.on_tick(0)
        await self.startup(sockets=[listener])
        self._running = self._tasks.start(self._run(listener), "ticks and shutdown")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening. Overridden because uvicorn does not limit TLS handshakes."""
        make: Callable[[], asyncio.Protocol] = partial(
            cast(Callable[..., asyncio.Protocol], self.config.http_protocol_class),
            config=self.config,
            server_state=self.server_state,
            app_state={},
        )
        if self._tls is not None:
            from ..security.tls_listener import TlsListener

            self._listeners.append(TlsListener(sockets or (), self._tls, make, HANDSHAKE_TIMEOUT_S))
        else:
            loop = asyncio.get_running_loop()
            self._listeners += [await loop.create_server(make, sock=one, backlog=BACKLOG) for one in sockets or ()]
        self.started = True

    async def stop(self) -> None:
        """Stop listening, wait for pending requests, and close all connections. Stopping twice is harmless."""
        self.should_exit = True
        self._stopping.set()
        if self._running is not None:
            await asyncio.shield(self._running)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the process handles signals itself."""
        yield

    async def main_loop(self) -> None:
        """Refresh the response date once a second until `stop`."""
        while not await self.on_tick(0):
            await within(1, self._stopping.wait())

    async def _run(self, listener: socket.socket) -> None:
        await self.main_loop()
        for server in self._listeners:
            server.close()
        if self._tls is None:
            listener.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()  # closes idle connections immediately, others after their response
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_TIMEOUT_S):
                while state.connections or state.tasks:  # noqa: ASYNC110 (uvicorn keeps no event for it)
                    await asyncio.sleep(_POLL_S)
        for task in list(state.tasks):
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)
        for connection in list(state.connections):
            connection.transport.abort()
        for server in self._listeners:
            await server.wait_closed()


class CheckedRequests:
    """ASGI middleware that rejects invalid requests.

    It applies the rules common to all requests: target host and origin, path length, and valid UTF-8 in path and query.
    Applications may then decode these without further checks.
    """

    def __init__(self, app: ASGIApp, names: AllowedNames) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request and pass it on."""
        if scope["type"] != "http":  # uvicorn is configured to serve HTTP only
            return
        try:
            reason = refusal_of(scope["headers"], self._names)
            if reason is not None:
                raise Refused(403, reason, {"connection": "close"})
            _check_target(scope)
        except Refused as error:
            await refusal(error)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _check_target(scope: Scope) -> None:
    """Reject a path or query that is too long, or is not valid UTF-8 when decoded."""
    path: bytes = scope["raw_path"].split(b"?")[0]
    query: bytes = scope["query_string"]
    for what, text, longest in (("path", path, MAX_PATH_BYTES), ("query", query, MAX_QUERY_BYTES)):
        if len(text) > longest:
            raise Refused(414, f"the {what} of {len(text)} bytes exceeds the limit of {longest}")
        if _BAD_ESCAPE.search(text):
            raise Refused(400, f"the {what} contains a % that is not followed by two hexadecimal digits")
        try:
            unquote_to_bytes(text).decode()
        except UnicodeDecodeError as error:
            raise Refused(400, f"the {what} is not valid UTF-8: {error.reason} at byte {error.start}") from error


async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    names: AllowedNames | None = None,
    limits: HttpLimits | None = None,
    tls: ssl.SSLContext | None = None,
) -> tuple[WebServer, int]:
    """Serve ``app`` in the running event loop, and return the server and its port.

    Args:
        app: ASGI application.
        host: address to listen on.
        port: port to listen on; 0 picks a free port.
        names: names by which requests may address this server; derived from `host` by default.
        limits: limits for clients.
        tls: certificates for HTTPS; None serves plain HTTP.

    Raises:
        InvalidConfig: the server cannot listen on the address.
    """
    listener = _bind(host, port)
    config = Config(
        CheckedRequests(app, names or allowed_names(host)),
        http=partial(HttpProtocol, limits=limits or HttpLimits()),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        headers=list(HEADERS),
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    server = WebServer(config)
    try:
        await server.start(listener, tls)
    except BaseException:
        listener.close()
        raise
    return server, listener.getsockname()[1]


def _bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to the first address of ``host``."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidConfig(f"cannot serve HTTP on {host}:{port}: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise InvalidConfig(f"cannot serve HTTP on {host}:{port}: {error.strerror}: choose another port") from error
    return listener
