"""Dead letters and retry letters: what is written into them, and the producers that send them.

A letter is the message as it was, with its key, ordering key, event time and schema, and a few properties more. Its
topic has a producer from the first letter on, so a consumer that gives up nothing makes none.

Source: Pulsar binary protocol, section Redelivery (properties and names as in Java's client).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Protocol
from urllib.parse import quote_plus

from ...errors import (
    BrokerError,
    ClosedError,
    IncompatibleSchema,
    InvalidConfig,
    InvalidTopicName,
    MagnetarError,
    TopicNotFound,
)
from ...wire.batch import header_text
from ...wire.message_id import MessageId
from ...wire.pulsar_api_pb2 import KeyValue, MessageMetadata
from ...wire.topic_name import parse_topic_name
from ..config import ConsumerDeadLetterPolicy, ProducerConfig
from .received import Message

log = logging.getLogger(__name__)

DEAD_LETTER_SUFFIX = "-DLQ"
RETRY_LETTER_SUFFIX = "-RETRY"

RECONSUME_TIMES = "RECONSUMETIMES"
DELAY_TIME = "DELAY_TIME"
REAL_TOPIC = "REAL_TOPIC"
REAL_SUBSCRIPTION = "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
FORMER_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_IDY_TIME"
"""The name that Java's client misspelt; it still writes both."""

_COUNT_DIGITS = 9

VERSIONS_MAX = 1000
"""Schemas whose versions in the topics of letters are kept."""


class LetterProducer(Protocol):
    """What a producer is to letters."""

    async def ready(self) -> None:
        """Wait for room."""

    def send_alone(self, metadata: MessageMetadata, payload: bytes) -> asyncio.Future[MessageId]:
        """Send a message as an entry of its own."""

    async def close(self) -> None:
        """Wait for what is under way and close."""


SchemaVersion = Callable[[Message, str], Awaitable[bytes]]
"""Returns what a topic calls the schema of a message, which it gets if it has it not yet."""

OpenProducer = Callable[[str, ProducerConfig], Awaitable[LetterProducer]]
"""Creates a producer of a topic."""


def letter_topic(topic: str, subscription: str, suffix: str) -> str:
    """Return the default topic of a consumer's letters.

    A slash cannot be in a topic's name: a subscription with one is written as in a URL.

    Args:
        topic: full name of the topic that the consumer has.
        subscription: name.
        suffix: `DEAD_LETTER_SUFFIX` or `RETRY_LETTER_SUFFIX`.

    Raises:
        InvalidConfig: the name would not be valid; found out now, as no letter could ever be stored.
    """
    name = f"{topic}-{quote_plus(subscription, safe='*') if '/' in subscription else subscription}{suffix}"
    try:
        return parse_topic_name(name).text
    except InvalidTopicName as error:
        setting = "dead_letter_topic" if suffix == DEAD_LETTER_SUFFIX else "retry_letter_topic"
        raise InvalidConfig(f"{error}; set {setting} of the dead_letter_policy") from error


def with_retry_topics(
    policy: ConsumerDeadLetterPolicy | None, topic: str, subscription: str
) -> ConsumerDeadLetterPolicy:
    """Return the policy of a consumer with ``retry_enable``, with the names of both its topics.

    Args:
        policy: what was asked for.
        topic: full name of the first topic that the consumer has.
        subscription: name.
    """
    policy = policy or ConsumerDeadLetterPolicy()
    return replace(
        policy,
        dead_letter_topic=policy.dead_letter_topic or letter_topic(topic, subscription, DEAD_LETTER_SUFFIX),
        retry_letter_topic=policy.retry_letter_topic or letter_topic(topic, subscription, RETRY_LETTER_SUFFIX),
    )


def letter_properties(message: Message, subscription: str) -> dict[str, str]:
    """Return the properties of a message with those that say where it comes from; ones that it has already stay."""
    origin = str(message.message_id)
    ours = {
        REAL_TOPIC: parse_topic_name(message.topic).base.text,
        REAL_SUBSCRIPTION: subscription,
        ORIGIN_MESSAGE_ID: origin,
        FORMER_ORIGIN_MESSAGE_ID: origin,
    }
    return ours | dict(message.properties)


def reconsume_times(properties: Mapping[str, str]) -> int:
    """Return how often a message has waited in a retry topic; 0 if the count is missing or invalid."""
    text = properties.get(RECONSUME_TIMES, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _COUNT_DIGITS else 0


def letter_metadata(message: Message, properties: Mapping[str, str], deliver_at_ms: int = 0) -> MessageMetadata:
    """Return the metadata of a letter, without what its producer adds.

    Args:
        message: what the letter holds.
        properties: of the letter.
        deliver_at_ms: when it is to be delivered, in milliseconds of wall time; 0 for at once.
    """
    entry = message.entry
    headers = entry.headers
    header = entry.metadata if headers is None else headers[message.message_id.batch_index]
    metadata = MessageMetadata(
        properties=[KeyValue(key=name, value=value) for name, value in properties.items()],
        uncompressed_size=len(message.data),
    )
    if header.HasField("partition_key"):
        metadata.partition_key = header_text(header.partition_key)
        if header.partition_key_b64_encoded:
            metadata.partition_key_b64_encoded = True
    if header.HasField("ordering_key"):
        metadata.ordering_key = header.ordering_key
    if header.event_time:
        metadata.event_time = header.event_time
    if header.null_value:
        metadata.null_value = True
    if deliver_at_ms:
        metadata.deliver_at_time = deliver_at_ms
    return metadata


class Letters:
    """The letters of one consumer."""

    def __init__(
        self,
        policy: ConsumerDeadLetterPolicy,
        topic: str,
        subscription: str,
        producer_name: str,
        open_producer: OpenProducer,
        schema_version: SchemaVersion,
    ):
        """Prepare; nothing is created before the first letter.

        Args:
            policy: of the consumer.
            topic: that it receives from, full name.
            subscription: name.
            producer_name: of the producers, before what tells them apart.
            open_producer: creates one.
            schema_version: of letters whose message has a schema.
        """
        self.max_redeliver_count = policy.max_redeliver_count
        self._policy = policy
        self._dead_letter_topic = policy.dead_letter_topic or letter_topic(topic, subscription, DEAD_LETTER_SUFFIX)
        self._subscription = subscription
        self._producer_name = producer_name
        self._open = open_producer
        self._schema_version = schema_version
        self._versions: dict[tuple[str, bytes], bytes] = {}
        self._producers: dict[str, LetterProducer] = {}
        self._opening = asyncio.Lock()
        self._is_closed = False

    async def give_up(self, message: Message, properties: Mapping[str, str] | None = None) -> None:
        """Send a message to the dead letter topic; returns when it is stored there.

        Args:
            message: what was received.
            properties: of the letter; None for the message's and where it comes from.

        Cancellation: the letter may be sent.
        """
        if properties is None:
            properties = letter_properties(message, self._subscription)
        metadata = letter_metadata(message, properties)
        await self._send(self._dead_letter_topic, self._policy.initial_subscription_name, metadata, message)

    async def reconsume(self, message: Message, properties: Mapping[str, str], delay_ms: int, now_ms: int) -> None:
        """Send a message to the retry topic, or give it up if it was there too often; returns when it is stored.

        Args:
            message: what was received.
            properties: that the letter has beside the message's.
            delay_ms: until it is delivered; 0 for at once.
            now_ms: wall time.

        Cancellation: the letter may be sent.
        """
        times = reconsume_times(message.properties) + 1
        merged = letter_properties(message, self._subscription) | dict(properties)
        merged |= {RECONSUME_TIMES: str(times), DELAY_TIME: str(delay_ms)}
        if times > self.max_redeliver_count:
            await self.give_up(message, merged)
            return
        topic = self._policy.retry_letter_topic
        assert topic is not None  # the client names it where `reconsume_later` is possible
        metadata = letter_metadata(message, merged, now_ms + delay_ms if delay_ms else 0)
        await self._send(topic, None, metadata, message)

    async def _send(
        self, topic: str, initial_subscription: str | None, metadata: MessageMetadata, message: Message
    ) -> None:
        producer = await self._producer(topic, initial_subscription)
        if message.schema_version and (version := await self._version(topic, message)):
            metadata.schema_version = version
        try:
            await producer.ready()
            await producer.send_alone(metadata, message.data)
        except (BrokerError, ClosedError):
            # It may have ended for good (its topic was deleted): the next letter gets a new one.
            if self._producers.get(topic) is producer:
                del self._producers[topic]
                self.forget_versions()
                await producer.close()
            raise

    def forget_versions(self) -> None:
        """Drop cached schema versions: a recreated topic numbers its versions from the beginning."""
        self._versions.clear()

    async def _version(self, topic: str, message: Message) -> bytes:
        """Return what a topic of letters calls the schema of a message; empty if it cannot have it."""
        key = (topic, message.schema_version)
        found = self._versions.get(key)
        if found is not None:
            return found
        try:
            found = await self._schema_version(message, topic)
        except (IncompatibleSchema, TopicNotFound) as error:
            log.warning("%s: letter of %s goes without its schema: %s", topic, message.message_id, error)
            return b""
        while len(self._versions) >= VERSIONS_MAX:
            del self._versions[next(iter(self._versions))]
        self._versions[key] = found
        return found

    async def _producer(self, topic: str, initial_subscription: str | None) -> LetterProducer:
        async with self._opening:
            if self._is_closed:
                raise ClosedError(f"the consumer was closed before a letter went to {topic}")
            producer = self._producers.get(topic)
            if producer is None:
                asked = self._policy.producer or ProducerConfig()
                config = replace(
                    asked,
                    batching=False,
                    name=asked.name or f"{self._producer_name}{'-RETRY' if initial_subscription is None else '-DLQ'}",
                    initial_subscription_name=initial_subscription,
                )
                producer = self._producers[topic] = await self._open(topic, config)
                log.info("%s: letters of subscription %s go here", topic, self._subscription)
        return producer

    async def close(self) -> None:
        """Close the producers."""
        async with self._opening:
            self._is_closed = True
            producers, self._producers = list(self._producers.values()), {}
        for producer in producers:
            try:
                await producer.close()
            except MagnetarError as error:
                log.debug("closing a producer of letters: %s", error)
