"""HTTP in the loop of whoever serves: uvicorn without its signal handlers, its logging and its ten wake-ups a second.

What uvicorn leaves open is bounded here: the size of a request's head, and how many requests are under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ...errors import InvalidConfig

SHUTDOWN_TIMEOUT_S = 3
"""How long requests under way may take to end once the server stops."""
KEEP_ALIVE_S = 60
"""How long an idle connection stays open; longer than clients' pools keep one, so that they close first."""
BACKLOG = 1024
MAX_CONNECTIONS = 2048
"""`maxHttpServerConnections`: beyond it requests are answered 503."""
MAX_HEAD_BYTES = 64 * 1024
"""Request line and headers of one request."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_READ_BYTES = 256 * 1024
"""The most that a loop hands over at once; the end of a body may be in there, before the head that is counted."""
_POLL_S = 0.005


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol with a bound on what it collects before it knows what is asked."""

    _head_bytes = 0
    _is_in_body = False

    def data_received(self, data: bytes) -> None:
        """Parse, unless the head has grown too large."""
        if not self._is_in_body:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES + _READ_BYTES:
                self.transport.write(_TOO_LARGE)
                self.transport.close()
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Begin the request; what follows is its body."""
        self._is_in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the request; what follows is the head of the next one."""
        self._is_in_body = False
        self._head_bytes = 0
        super().on_message_complete()


class WebServer(uvicorn.Server):
    """A server in a loop that somebody else runs; made by `serve`, ended by `stop`."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self, listener: socket.socket) -> None:
        """Begin to serve on a bound socket."""
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.on_tick(0)
        await self.startup(sockets=[listener])
        self._running = asyncio.create_task(self._run(listener), name="web-server")

    async def stop(self) -> None:
        """Stop listening, let requests under way end, close every connection. Stopping twice is harmless."""
        self.should_exit = True
        self._stopping.set()
        if self._running is not None:
            await asyncio.shield(self._running)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process."""
        yield

    async def main_loop(self) -> None:
        """Refresh the date of answers once a second until told to stop."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._stopping.wait()

    async def _run(self, listener: socket.socket) -> None:
        await self.main_loop()
        for server in self.servers:
            server.close()
        listener.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()  # idle ones at once, the others after their answer
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_TIMEOUT_S):
                while state.connections or state.tasks:  # noqa: ASYNC110 (uvicorn keeps no event for it)
                    await asyncio.sleep(_POLL_S)
        for task in list(state.tasks):
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)
        for connection in list(state.connections):
            connection.transport.abort()
        for server in self.servers:
            await server.wait_closed()


async def serve(app: ASGIApp, host: str, port: int) -> tuple[WebServer, int]:
    """Serve ``app`` in the running loop and return the server and its port.

    Raises:
        InvalidConfig: the address cannot be listened on.
    """
    listener = _bind(host, port)
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    server = WebServer(config)
    try:
        await server.start(listener)
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
        raise InvalidConfig(f"cannot serve HTTP on {host}:{port}: {error.strerror}; choose another port") from error
    return listener
