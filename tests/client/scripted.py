"""A broker on a real socket whose responses a test controls, to simulate rare errors of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar.wire.bulk import message_frame_head, receipt_frame
from magnetar.wire.frames import FrameDecoder, encode_frame
from magnetar.wire.pulsar_api_pb2 import (
    BaseCommand,
    CommandConnected,
    CommandError,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    CommandProducerSuccess,
    CommandSendError,
    CommandSuccess,
)

from tests.support.loopback import CHUNK_BYTES, LoopbackServer

Answer = Callable[[BaseCommand, bytes], list[bytes]]
LEDGER = 7


class ScriptedBroker(LoopbackServer):
    """Responds to ordinary requests like a broker; tests replace single responses.

    Attributes:
        answers: how to respond to each kind of command.
        received: commands in order of arrival, with their payload sections.
    """

    def __init__(self) -> None:
        super().__init__()
        self.received: list[tuple[BaseCommand, bytes]] = []
        self.entries = 0
        self.answers: dict[int, Answer] = {
            BaseCommand.CONNECT: lambda _c, _p: [connected()],
            BaseCommand.PARTITIONED_METADATA: lambda c, _p: [partitions(c.partitionMetadata.request_id)],
            BaseCommand.LOOKUP: lambda c, _p: [self.located(c.lookupTopic.request_id)],
            BaseCommand.PRODUCER: lambda c, _p: [producer_success(c.producer.request_id)],
            BaseCommand.SUBSCRIBE: lambda c, _p: [success(c.subscribe.request_id)],
            BaseCommand.SEND: self.stored,
            BaseCommand.CLOSE_PRODUCER: lambda c, _p: [success(c.close_producer.request_id)],
            BaseCommand.CLOSE_CONSUMER: lambda c, _p: [success(c.close_consumer.request_id)],
        }

    def commands(self, kind: int) -> list[BaseCommand]:
        """Return the received commands of a kind."""
        return [command for command, _ in self.received if command.type == kind]

    def say(self, *frames: bytes) -> None:
        """Send frames on every connection."""
        for writer in self._writers:
            writer.write(b"".join(frames))

    def located(self, request_id: int) -> bytes:
        answer = CommandLookupTopicResponse(
            brokerServiceUrl="" if self.tls else self.service_url,
            brokerServiceUrlTls=self.service_url if self.tls else "",
            response=CommandLookupTopicResponse.Connect,
            request_id=request_id,
            authoritative=True,
        )
        return encode_frame(BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=answer))

    def stored(self, command: BaseCommand, _payload: bytes) -> list[bytes]:
        self.entries += 1
        return [receipt_frame(command.send.producer_id, command.send.sequence_id, None, LEDGER, self.entries - 1)]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = FrameDecoder()
        while data := await reader.read(CHUNK_BYTES):
            for command, payload in decoder.feed(data):
                self.received.append((command, payload))
                answer = self.answers.get(command.type)
                if answer is not None:
                    writer.write(b"".join(answer(command, payload)))


def connected(max_message_size: int = 5 * 1024 * 1024) -> bytes:
    answer = CommandConnected(server_version="scripted", protocol_version=21, max_message_size=max_message_size)
    return encode_frame(BaseCommand(type=BaseCommand.CONNECTED, connected=answer))


def partitions(request_id: int, count: int = 0) -> bytes:
    answer = CommandPartitionedTopicMetadataResponse(
        partitions=count, request_id=request_id, response=CommandPartitionedTopicMetadataResponse.Success
    )
    command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=answer)
    return encode_frame(command)


def redirected(request_id: int, url: str) -> bytes:
    answer = CommandLookupTopicResponse(
        brokerServiceUrl=url,
        response=CommandLookupTopicResponse.Redirect,
        request_id=request_id,
        authoritative=True,
    )
    return encode_frame(BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=answer))


def producer_success(
    request_id: int, name: str = "scripted-0", last_sequence_id: int = -1, schema_version: bytes = b""
) -> bytes:
    answer = CommandProducerSuccess(
        request_id=request_id, producer_name=name, last_sequence_id=last_sequence_id, schema_version=schema_version
    )
    return encode_frame(BaseCommand(type=BaseCommand.PRODUCER_SUCCESS, producer_success=answer))


def success(request_id: int) -> bytes:
    return encode_frame(BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=request_id)))


def refused(request_id: int, code: int, message: str) -> bytes:
    answer = CommandError(request_id=request_id, error=code, message=message)  # type: ignore[arg-type]
    return encode_frame(BaseCommand(type=BaseCommand.ERROR, error=answer))


def send_error(producer_id: int, sequence_id: int, code: int, message: str) -> bytes:
    answer = CommandSendError(
        producer_id=producer_id,
        sequence_id=sequence_id,
        error=code,  # type: ignore[arg-type]
        message=message,
    )
    return encode_frame(BaseCommand(type=BaseCommand.SEND_ERROR, send_error=answer))


def entry(entry_id: int, payload: bytes, *, epoch: int | None = None, ack_set: tuple[int, ...] = ()) -> bytes:
    """Return a MESSAGE frame for consumer 0."""
    return message_frame_head(0, LEDGER, entry_id, -1, 0, ack_set, epoch, len(payload)) + payload
