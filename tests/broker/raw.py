"""A bare connection that sends hand-made frames and returns decoded ones."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from typing import Any

from magnetar.wire.frames import Frame, FrameDecoder, encode_frame
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import BaseCommand, MessageMetadata

FIELDS = {
    BaseCommand.Type.Name(number): field.name
    for number in BaseCommand.Type.values()
    for field in BaseCommand.DESCRIPTOR.fields
    if field.name.lower().replace("_", "") == BaseCommand.Type.Name(number).lower().replace("_", "")
} | {"PARTITIONED_METADATA": "partitionMetadata", "LOOKUP": "lookupTopic"}
TIMEOUT_S = 30.0


class Raw:
    """One connection to a broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader = reader
        self.writer = writer
        self.decoder = FrameDecoder()
        self.frames: list[Frame] = []

    @classmethod
    async def open(cls, port: int) -> Raw:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        return cls(reader, writer)

    @classmethod
    async def connected(cls, port: int, version: int = 21) -> Raw:
        raw = await cls.open(port)
        raw.send("CONNECT", client_version="raw", protocol_version=version)
        assert (await raw.receive()).command.HasField("connected")
        return raw

    def send(self, kind: str, **fields: Any) -> None:
        field = FIELDS[kind]
        message = BaseCommand()
        message.type = BaseCommand.Type.Value(kind)  # type: ignore[assignment]  # the stubs know no plain number
        target = getattr(message, field)
        target.SetInParent()
        target.MergeFrom(type(target)(**fields))
        self.writer.write(encode_frame(message))

    def send_message(
        self, body: bytes, producer_id: int = 1, sequence_id: int = 0, metadata: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:  # fmt: skip
        head: dict[str, Any] = {
            "producer_name": "raw", "sequence_id": sequence_id, "publish_time": int(time.time() * 1000)
        }  # fmt: skip
        command = BaseCommand(type=BaseCommand.SEND)
        command.send.producer_id = producer_id
        command.send.sequence_id = sequence_id
        for name, value in fields.items():
            setattr(command.send, name, value)
        self.writer.write(encode_frame(command, seal(MessageMetadata(**(head | (metadata or {}))), body)))

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    def send_command_bytes(self, data: bytes) -> None:
        """Return a well-formed frame around arbitrary bytes."""
        self.writer.write(struct.pack(">II", len(data) + 4, len(data)) + data)

    async def receive(self, timeout_s: float = TIMEOUT_S) -> Frame:
        """Return the next frame; fail if the broker closes the connection or stays silent."""
        frame = await self.receive_or_end(timeout_s)
        assert frame is not None, "the broker closed the connection"
        return frame

    async def receive_or_end(self, timeout_s: float = TIMEOUT_S) -> Frame | None:
        """Return the next frame, or None at the end of the connection."""
        async with asyncio.timeout(timeout_s):
            while not self.frames:
                try:
                    data = await self.reader.read(1 << 18)
                except ConnectionError:
                    return None
                if not data:
                    return None
                self.frames += self.decoder.feed(data)
        return self.frames.pop(0)

    async def request(self, kind: str, **fields: Any) -> BaseCommand:
        """Send a command and return the next received one."""
        self.send(kind, **fields)
        return (await self.receive()).command

    async def barrier(self) -> list[Frame]:
        """Send a PING and return every frame received before its answer."""
        self.send("PING")
        before = []
        while (frame := await self.receive()).command.type != BaseCommand.PONG:
            before.append(frame)
        return before

    async def is_closed(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Return whether the broker closes the connection next."""
        return await self.receive_or_end(timeout_s) is None

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
