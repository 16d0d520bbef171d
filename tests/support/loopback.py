"""A TCP server for tests, on a free local port; subclasses handle the connections."""

from __future__ import annotations

import abc
import asyncio
import ssl
from types import TracebackType
from typing import Self

CHUNK_BYTES = 65536


class LoopbackServer(abc.ABC):
    """Listens inside a with block; a connection ends when `handle` returns or raises OSError.

    Attributes:
        connections: number of connections so far.
        tls: TLS settings, or None.
    """

    tls: ssl.SSLContext | None = None

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def service_url(self) -> str:
        return f"pulsar{'+ssl' if self.tls else ''}://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Close all connections immediately, including data in flight."""
        for writer in list(self._writers):
            writer.transport.abort()

    @abc.abstractmethod
    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle the connection of a client."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            await self.handle(reader, writer)
        except OSError:
            pass  # one side has gone
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()


class LoopbackProxy(LoopbackServer):
    """Passes bytes between clients and a server, concurrently in both directions."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self._target = (host, port)

    @abc.abstractmethod
    async def to_server(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on data of a client; connections are numbered from 1."""

    @abc.abstractmethod
    async def to_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on data of the server."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self.connections
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        self._writers.add(there_writer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.to_server(number, reader, there_writer))
                group.create_task(self.to_client(there_reader, writer))
        except* OSError:
            pass  # one side has gone; the other goes with it
        finally:
            self._writers.discard(there_writer)
            there_writer.transport.abort()
