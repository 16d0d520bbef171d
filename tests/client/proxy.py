"""A TCP proxy that cuts connections: the network between client and broker, when it is having a bad day.

It tells clients that brokers are reached through it, as Pulsar does behind a proxy.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from magnetar.client.connections.service_url import parse_service_url
from magnetar.wire.frames import Frame, FrameDecoder, encode_frame
from magnetar.wire.pulsar_api_pb2 import BaseCommand

CHUNK_BYTES = 65536
ANY_SIZE = 1 << 30


class Proxy:
    """Passes bytes on, until it is told not to.

    Attributes:
        connections: how many were made in all.
        sent: commands that clients sent, in order, over all connections.
        frames: the same with connection number (from 1) and payload.
        lose_receipts: swallow SEND_RECEIPT frames.
        refuses: end new connections at once.
        cut_after_sends: end the connection on which so many more SENDs have passed.
    """

    def __init__(self, target_url: str) -> None:
        self._host, self._port = parse_service_url(target_url)[0]
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._requesting = asyncio.Event()
        self._requesting.set()
        self.connections = 0
        self.sent: list[BaseCommand] = []
        self.frames: list[tuple[int, Frame]] = []
        self.lose_receipts = False
        self.refuses = False
        self.cut_after_sends: int | None = None

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.resume()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def service_url(self) -> str:
        assert self._server is not None
        return f"pulsar://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """End all connections now, with whatever was on its way."""
        for writer in list(self._writers):
            writer.transport.abort()

    def hold(self) -> None:
        """Pass nothing on until `resume`."""
        self._flowing.clear()

    def hold_requests(self) -> None:
        """Pass nothing on to the broker until `resume`; what it sends goes on."""
        self._requesting.clear()

    def resume(self) -> None:
        self._flowing.set()
        self._requesting.set()

    def count(self, kind: int) -> int:
        """How many commands of a kind clients sent."""
        return sum(command.type == kind for command in self.sent)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if self.refuses:
                return
            self.connections += 1
            number = self.connections
            there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
            self._writers.add(there_writer)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._to_broker(number, reader, there_writer))
                    group.create_task(self._to_client(there_reader, writer))
            except* OSError:
                pass  # one side has gone; the other goes with it
            finally:
                self._writers.discard(there_writer)
                there_writer.transport.abort()
        except OSError:
            pass  # nobody listens there at the moment
        finally:
            self._writers.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _to_broker(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder(ANY_SIZE)
        while data := await reader.read(CHUNK_BYTES):
            for frame in decoder.feed(data):
                self.sent.append(frame.command)
                self.frames.append((number, frame))
                self._count_down(frame.command)
            await self._flowing.wait()
            await self._requesting.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError("the client has gone")

    def _count_down(self, command: BaseCommand) -> None:
        if command.type == BaseCommand.SEND and self.cut_after_sends is not None:
            self.cut_after_sends -= 1
            if self.cut_after_sends < 0:
                self.cut_after_sends = None
                raise ConnectionResetError("the test wants it cut here")

    async def _to_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder(ANY_SIZE)
        while data := await reader.read(CHUNK_BYTES):
            await self._flowing.wait()
            for command, payload in decoder.feed(data):
                if self.lose_receipts and command.type == BaseCommand.SEND_RECEIPT:
                    continue
                if command.type == BaseCommand.LOOKUP_RESPONSE:
                    command.lookupTopicResponse.proxy_through_service_url = True
                writer.write(encode_frame(command, payload))
            await writer.drain()
        raise ConnectionResetError("the broker has gone")
