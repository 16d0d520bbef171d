"""A TCP proxy that forwards bytes, and simulates network failures between a client and any service."""

from __future__ import annotations

import asyncio

from tests.support.loopback import CHUNK_BYTES, LoopbackProxy


class ByteProxy(LoopbackProxy):
    """Forwards bytes, until told to withhold replies.

    Attributes:
        requested_bytes: number of bytes received from clients.
    """

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port)
        self._answering = asyncio.Event()
        self._answering.set()
        self.requested_bytes = 0

    def silence(self) -> None:
        """Withhold replies until `answer`; requests are still forwarded."""
        self._answering.clear()

    def answer(self) -> None:
        self._answering.set()

    async def to_server(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            self.requested_bytes += len(data)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError("the client has gone")

    async def to_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._answering.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError("the server has gone")
