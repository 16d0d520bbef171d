"""A TCP proxy that knows nothing of what it passes on: the network between a client and any service, on a bad day."""

from __future__ import annotations

import asyncio
from types import TracebackType

CHUNK_BYTES = 65536


class ByteProxy:
    """Passes bytes on, until it is told not to.

    Attributes:
        requested_bytes: how many came from clients.
        connections: how many were made in all.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._answering = asyncio.Event()
        self._answering.set()
        self.requested_bytes = 0
        self.connections = 0

    async def __aenter__(self) -> ByteProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.answer()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def silence(self) -> None:
        """Keep answers back until `answer`; requests go on."""
        self._answering.clear()

    def answer(self) -> None:
        self._answering.set()

    def cut(self) -> None:
        """End all connections now, with whatever was on its way."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        there_writer: asyncio.StreamWriter | None = None
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers |= {writer, there_writer}
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, there_writer, is_answer=False))
                group.create_task(self._pass(there_reader, writer, is_answer=True))
        except* OSError:
            pass  # one side has gone, and the other goes with it
        finally:
            self._tasks.discard(task)
            for one in (writer, there_writer):
                if one is not None:
                    self._writers.discard(one)
                    one.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if is_answer:
                await self._answering.wait()
            else:
                self.requested_bytes += len(data)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError("one side has gone")
