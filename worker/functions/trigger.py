"""Trigger: sends one message through a function and waits for its output.

The input carries a property that asks the instance to mark its output with the id of the input; other messages are not
marked, since the mark is larger than most of them.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode
from binascii import Error as BadBase64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from ...client.client import AsyncClient
from ...client.config import ProducerConfig, ReaderConfig
from ...client.consumers.reader import Reader
from ...client.consumers.received import Message
from ...errors import InvalidTopicName, MagnetarError, ProtocolError, RequestRefused
from ...instance.output_headers import INPUT_MESSAGE_ID, INPUT_TOPIC, TRIGGER_PROPERTY
from ...tasks import race
from ...wire.functions_pb2 import FunctionMetaData
from ...wire.message_id import LATEST, MessageId, deserialize
from ...wire.topic_name import parse_topic_name


@dataclass(frozen=True, slots=True)
class Trigger:
    """Runs single messages through functions.

    Attributes:
        client: to send and read with.
        timeout_s: how long to wait for an output.
    """

    client: AsyncClient
    timeout_s: float

    async def run(self, metadata: FunctionMetaData, data: bytes, topic: str | None) -> bytes | None:
        """Return what the function made of `data`; None for a function without output.

        Cancellation: the input may have been sent.
        """
        chosen = _input_topic(metadata, topic)
        output = metadata.functionDetails.sink.topic
        async with self._outputs(output) as readers:
            sent = await self._send(chosen, data)
            if not readers:
                return None
            try:
                async with asyncio.timeout(self.timeout_s):
                    return await race(*(_match(reader, sent, chosen) for reader in readers))
            except TimeoutError:
                raise RequestRefused(408, "Request Timed Out") from None

    @asynccontextmanager
    async def _outputs(self, output: str) -> AsyncIterator[list[Reader]]:
        async with AsyncExitStack() as stack:
            readers = []
            for topic in await self.client.partitions(output) if output else []:
                reader = await self.client.create_reader(topic, LATEST, ReaderConfig())
                stack.push_async_callback(reader.close)
                readers.append(reader)
            yield readers

    async def _send(self, topic: str, data: bytes) -> MessageId:
        try:
            producer = await self.client.create_producer(topic, ProducerConfig(batching=False))
        except MagnetarError as exc:
            raise RequestRefused(400, f"Function in trigger function is not ready: {exc}") from exc
        try:
            return await producer.send(data, properties={TRIGGER_PROPERTY: "1"})
        finally:
            await producer.close()


def _input_topic(metadata: FunctionMetaData, topic: str | None) -> str:
    inputs = metadata.functionDetails.source.inputSpecs
    if topic is None:
        if len(inputs) != 1:
            raise RequestRefused(400, "Function in trigger function has more than 1 input topics")
        return next(iter(inputs))
    if topic not in inputs:
        raise RequestRefused(400, "Function in trigger function has unidentified topic")
    return topic


async def _match(reader: Reader, sent: MessageId, topic: str) -> bytes:
    while True:
        message = await reader.read_next()
        if _answers(message, sent, topic):
            return message.data


def _answers(message: Message, sent: MessageId, topic: str) -> bool:
    marked = message.properties.get(INPUT_MESSAGE_ID)
    if marked is None:
        return False
    try:
        found = deserialize(urlsafe_b64decode(marked.replace("+", "-").replace("/", "_")))
        source = parse_topic_name(message.properties.get(INPUT_TOPIC, ""))
    except (BadBase64, ValueError, ProtocolError, InvalidTopicName):
        return False
    return found[:2] == sent[:2] and source.base == parse_topic_name(topic).base
