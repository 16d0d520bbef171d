"""A proxy that moves the entries of a topic to the end of a ledger's first million, as seen by consumers."""

from __future__ import annotations

import asyncio

from magnetar.wire.frames import FrameDecoder, encode_frame
from magnetar.wire.pulsar_api_pb2 import BaseCommand, MessageIdData

from tests.client.proxy import ANY_SIZE, Proxy
from tests.support.loopback import CHUNK_BYTES

NONE = 2**64 - 1
LATEST = 2**63 - 1


class ShiftingProxy(Proxy):
    """Adds a number to entry ids sent to consumers, and subtracts it from entry ids received from them.

    A test cannot write ledgers of two million entries, but it can use their positions.
    """

    def __init__(self, target_url: str, entries: int) -> None:
        super().__init__(target_url)
        self._entries = entries

    def _shift(self, message_id: MessageIdData, entries: int) -> None:
        if message_id.entryId not in (NONE, LATEST):
            message_id.entryId += entries

    async def to_server(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder(ANY_SIZE)
        while data := await reader.read(CHUNK_BYTES):
            for command, payload in decoder.feed(data):
                self.sent.append(command)
                self._count_down(command)
                if command.type == BaseCommand.ACK:
                    for message_id in command.ack.message_id:
                        self._shift(message_id, -self._entries)
                elif command.type == BaseCommand.SEEK and command.seek.HasField("message_id"):
                    self._shift(command.seek.message_id, -self._entries)
                elif command.type == BaseCommand.SUBSCRIBE and command.subscribe.HasField("start_message_id"):
                    self._shift(command.subscribe.start_message_id, -self._entries)
                writer.write(encode_frame(command, payload))
            await writer.drain()
        raise ConnectionResetError("the client has gone")

    async def to_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder(ANY_SIZE)
        while data := await reader.read(CHUNK_BYTES):
            for command, payload in decoder.feed(data):
                if command.type == BaseCommand.MESSAGE:
                    self._shift(command.message.message_id, self._entries)
                elif command.type == BaseCommand.LOOKUP_RESPONSE:
                    command.lookupTopicResponse.proxy_through_service_url = True
                elif command.type == BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE:
                    answer = command.getLastMessageIdResponse
                    self._shift(answer.last_message_id, self._entries)
                    if answer.HasField("consumer_mark_delete_position"):
                        self._shift(answer.consumer_mark_delete_position, self._entries)
                writer.write(encode_frame(command, payload))
            await writer.drain()
        raise ConnectionResetError("the broker has gone")
