"""Triggers: sends one message through a function and waits for its output.

The input has a property that makes the instance add the input's id to the output. Other outputs do not contain the id,
as it would be larger than most messages.
"""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode
from binascii import Error as BadBase64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...client.client import AsyncClient
from ...client.config import ProducerConfig, ReaderConfig
from ...client.consumers.reader import Reader
from ...client.consumers.received import Message
from ...errors import InvalidTopicName, MagnetarError, ProtocolError, RequestRefused
from ...instance.output_headers import INPUT_MESSAGE_ID, INPUT_TOPIC, TRIGGER_PROPERTY
from ...instance.topic_patterns import patterns_of, takes
from ...security.authorization.operations import TopicOperation
from ...tasks import race
from ...wire.functions_pb2 import RUNNING, STOPPED, FunctionDetails, FunctionMetaData
from ...wire.message_id import LATEST, MessageId, deserialize
from ...wire.topic_name import parse_topic_name
from ..cluster.broker_admin import BrokerAdmin
from .owner_rights import OwnerRights
from .owners import Deployer
from .service import states_of
from .trigger_outcome import NO_OUTPUT_TOPIC, Outcome


class Answer(NamedTuple):
    """Result of a function for one message.

    Attributes:
        output: payload of the output, or None without output.
        reason: reason for a missing output, otherwise empty.
    """

    output: bytes | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Sends single messages through functions.

    Attributes:
        client: sends and reads messages.
        admin: client for the broker's REST interface, which reports acknowledgements.
        rights: permission checks of roles.
        timeout_s: time limit for an output.
    """

    client: AsyncClient
    admin: BrokerAdmin
    rights: OwnerRights
    timeout_s: float

    async def run(
        self,
        metadata: FunctionMetaData,
        message: tuple[bytes, str | None],
        read_status: Callable[[], Awaitable[Mapping[str, Any]]],
        sender: Deployer | None = None,
    ) -> Answer:
        """Return the function's output for a message, or the reason for a missing output.

        Args:
            metadata: the function's record.
            message: data and input topic of the message; the topic may be None if the function has only one input.
            read_status: returns the status of the function's instances.
            sender: client, which needs permission to produce to the input and consume the output; None without
                authentication.

        Raises:
            RequestRefused: 403, the sender lacks permissions; 400, the function raised an error or has failed; 408, the
                function is stopped, or there was no result in time.

        Cancellation: the input may have been sent.
        """
        details = metadata.functionDetails
        data, topic = message
        chosen = _input_topic(metadata, topic)
        _check_readable(details, chosen)
        await self._check_rights(details, chosen, sender)
        if STOPPED in (states := states_of(metadata).values()) and RUNNING not in states:
            await self._send(chosen, data)
            raise RequestRefused(
                408,
                f"Function {details.name} is stopped: the message remains in its input until the function is started",
            )
        outcome = Outcome(details, read_status, self.admin)
        await outcome.check_runs()
        async with self._outputs(details.sink.topic) as readers:
            sent = await self._send(chosen, data)
            if not readers:
                return Answer(None, NO_OUTPUT_TOPIC)
            try:
                async with asyncio.timeout(self.timeout_s):
                    return await race(
                        *(_match(reader, sent, chosen) for reader in readers), _without(outcome, chosen, sent)
                    )
            except TimeoutError:
                raise RequestRefused(
                    408,
                    f"Request Timed Out: no output and no error within {self.timeout_s:g} s: the function may still be"
                    " processing the message or its backlog, or sends its outputs elsewhere",
                ) from None

    async def _check_rights(self, details: FunctionDetails, chosen: str, sender: Deployer | None) -> None:
        """Raise if the sender lacks permissions for operations that are performed with the worker's permissions."""
        if sender is None:
            return
        uses = [(chosen, TopicOperation.PRODUCE, "produce to")]
        if details.sink.topic:
            uses.append((details.sink.topic, TopicOperation.CONSUME, "consume from"))
        for name, operation, what in uses:
            if not await self.rights.may(sender.role, name, operation):
                raise RequestRefused(403, f"triggers run with your permissions, and you may not {what} {name[:100]}")

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
        patterns = [text for text, given in inputs.items() if given.isRegexPattern]
        if patterns:
            raise RequestRefused(
                400,
                f"Function in trigger function reads the pattern {patterns[0]}: set topic to one of its input topics",
            )
        if len(inputs) != 1:
            raise RequestRefused(400, "Function in trigger function has more than 1 input topics")
        return next(iter(inputs))
    try:
        wanted = parse_topic_name(topic)
    except InvalidTopicName as exc:
        raise RequestRefused(400, f"invalid topic {topic!r} in the trigger request: {exc}") from exc
    for name, given in inputs.items():  # either may omit `persistent://public/default/`
        if not given.isRegexPattern and parse_topic_name(name) == wanted:
            return name
    if not any(takes(pattern, str(wanted)) for pattern in patterns_of(metadata.functionDetails).values()):
        raise RequestRefused(400, "Function in trigger function has unidentified topic")
    return str(wanted)


def _check_readable(details: FunctionDetails, topic: str) -> None:
    """Raise if the function's outputs are encrypted, because the worker does not have the private key."""
    if details.sink.topic and details.sink.producerSpec.HasField("cryptoSpec"):
        raise RequestRefused(
            400,
            f"outputs of {details.name} are encrypted, so the worker cannot return the result: publish the message to"
            f" {topic}, and read {details.sink.topic} with the private key",
        )


async def _match(reader: Reader, sent: MessageId, topic: str) -> Answer:
    while True:
        message = await reader.read_next()
        if _answers(message, sent, topic):
            return Answer(message.data)


async def _without(outcome: Outcome, topic: str, sent: MessageId) -> Answer:
    return Answer(None, await outcome.missing(topic, sent))


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
