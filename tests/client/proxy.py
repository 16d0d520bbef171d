"""A TCP proxy that simulates network failures between client and broker.

It makes clients connect to brokers through it, as Pulsar does behind a proxy.
"""

from __future__ import annotations

import asyncio

from magnetar.client.connections.service_url import parse_service_url
from magnetar.wire.frames import Frame, FrameDecoder, encode_frame
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from tests.support.loopback import CHUNK_BYTES, LoopbackProxy

ANY_SIZE = 1 << 30


class Proxy(LoopbackProxy):
    """Forwards bytes, until told to withhold them.

    Attributes:
        sent: commands sent by clients, in order, over all connections.
        frames: the same with connection number (starting at 1) and payload.
        lose_receipts: whether to drop SEND_RECEIPT frames.
        refuses: whether to close new connections immediately.
        cut_after_sends: number of further SENDs after which their connection is closed.
    """

    def __init__(self, target_url: str) -> None:
        super().__init__(*parse_service_url(target_url).hosts[0])
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._requesting = asyncio.Event()
        self._requesting.set()
        self.sent: list[BaseCommand] = []
        self.frames: list[tuple[int, Frame]] = []
        self.lose_receipts = False
        self.refuses = False
        self.cut_after_sends: int | None = None

    def hold(self) -> None:
        """Forward nothing until `resume`."""
        self._flowing.clear()

    def hold_requests(self) -> None:
        """Forward nothing to the broker until `resume`; the broker's own frames are still forwarded."""
        self._requesting.clear()

    def resume(self) -> None:
        self._flowing.set()
        self._requesting.set()

    def count(self, kind: int) -> int:
        """Return how many commands of a kind clients have sent."""
        return sum(command.type == kind for command in self.sent)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            self.connections -= 1
        else:
            await super().handle(reader, writer)

    async def to_server(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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

    async def to_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
