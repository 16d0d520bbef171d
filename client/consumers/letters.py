"""Dead letters and retry letters: their content, and the producers that send them.

A letter is a copy of the message, with its key, ordering key, event time and schema, and some additional properties.
Producers are created with the first letter, so a consumer without letters has none.

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
"""The misspelt name used by Java's client, which still writes both."""

_COUNT_DIGITS = 9

VERSIONS_MAX = 1000
"""Maximum number of cached schema versions of letter topics."""


class LetterProducer(Protocol):
    """The producer interface that letters need."""

    async def ready(self) -> None:
        """Wait for room."""

    def send_alone(self, metadata: MessageMetadata, payload: bytes) -> asyncio.Future[MessageId]:
        """Send a message unbatched."""

    async def close(self) -> None:
        """Wait for pending messages and close."""


SchemaVersion = Callable[[Message, str], Awaitable[bytes]]
"""Returns a topic's version of a message's schema, registering the schema if necessary."""

OpenProducer = Callable[[str, ProducerConfig], Awaitable[LetterProducer]]
"""Creates a producer of a topic."""


def letter_topic(topic: str, subscription: str, suffix: str) -> str:
    """Return the default topic of a consumer's letters.

    A topic name cannot contain a slash, so one in the subscription name is URL-encoded.

    Args:
        topic: full name of the consumer's topic.
        subscription: subscription name.
        suffix: `DEAD_LETTER_SUFFIX` or `RETRY_LETTER_SUFFIX`.

    Raises:
        InvalidConfig: the resulting name is invalid, so no letter could ever be stored.
    """
    name = f"{topic}-{quote_plus(subscription, safe='*') if '/' in subscription else subscription}{suffix}"
    try:
        return parse_topic_name(name).text
    except InvalidTopicName as error:
        setting = "dead_letter_topic" if suffix == DEAD_LETTER_SUFFIX else "retry_letter_topic"
        raise InvalidConfig(f"{error}: set {setting} in dead_letter_policy") from error


def with_retry_topics(
    policy: ConsumerDeadLetterPolicy | None, topic: str, subscription: str
) -> ConsumerDeadLetterPolicy:
    """Return the policy of a consumer with ``retry_enable``, with both topic names filled in.

    Args:
        policy: the configured policy.
        topic: full name of the consumer's first topic.
        subscription: subscription name.
    """
    policy = policy or ConsumerDeadLetterPolicy()
    return replace(
        policy,
        dead_letter_topic=policy.dead_letter_topic or letter_topic(topic, subscription, DEAD_LETTER_SUFFIX),
        retry_letter_topic=policy.retry_letter_topic or letter_topic(topic, subscription, RETRY_LETTER_SUFFIX),
    )


def letter_properties(message: Message, subscription: str) -> dict[str, str]:
    """Return a message's properties plus those that describe its origin; existing ones take precedence."""
    origin = str(message.message_id)
    ours = {
        REAL_TOPIC: parse_topic_name(message.topic).base.text,
        REAL_SUBSCRIPTION: subscription,
        ORIGIN_MESSAGE_ID: origin,
        FORMER_ORIGIN_MESSAGE_ID: origin,
    }
    return ours | dict(message.properties)


def reconsume_times(properties: Mapping[str, str]) -> int:
    """Return how often a message has passed through a retry topic, or 0 if the count is missing or invalid."""
    text = properties.get(RECONSUME_TIMES, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _COUNT_DIGITS else 0


def letter_metadata(message: Message, properties: Mapping[str, str], deliver_at_ms: int = 0) -> MessageMetadata:
    """Return a letter's metadata, without the fields that its producer adds.

    Args:
        message: the original message.
        properties: the letter's properties.
        deliver_at_ms: delivery time, in milliseconds of wall time; 0 means immediately.
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
        """Create the letters of a consumer; producers are created with the first letter.

        Args:
            policy: the consumer's policy.
            topic: full name of the consumer's topic.
            subscription: subscription name.
            producer_name: prefix of the producers' names.
            open_producer: creates a producer.
            schema_version: returns the schema version for letters of messages with a schema.
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
        """Send a message to the dead letter topic and wait until it is stored.

        Args:
            message: the received message.
            properties: the letter's properties; None for those of the message plus its origin.

        Cancellation: the letter may still be sent.
        """
        if properties is None:
            properties = letter_properties(message, self._subscription)
        metadata = letter_metadata(message, properties)
        await self._send(self._dead_letter_topic, self._policy.initial_subscription_name, metadata, message)

    async def reconsume(self, message: Message, properties: Mapping[str, str], delay_ms: int, now_ms: int) -> None:
        """Send a message to the retry topic, or to the dead letter topic at the limit; wait until it is stored.

        Args:
            message: the received message.
            properties: additional properties of the letter.
            delay_ms: delay before delivery; 0 means immediately.
            now_ms: wall time.

        Cancellation: the letter may still be sent.
        """
        times = reconsume_times(message.properties) + 1
        merged = letter_properties(message, self._subscription) | dict(properties)
        merged |= {RECONSUME_TIMES: str(times), DELAY_TIME: str(delay_ms)}
        if times > self.max_redeliver_count:
            await self.give_up(message, merged)
            return
        topic = self._policy.retry_letter_topic
        assert topic is not None  # the client sets it if `reconsume_later` is possible
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
            # The producer may have failed permanently (its topic was deleted): the next letter creates a new one.
            if self._producers.get(topic) is producer:
                del self._producers[topic]
                self.forget_versions()
                await producer.close()
            raise

    def forget_versions(self) -> None:
        """Drop cached schema versions: a recreated topic restarts its version numbers."""
        self._versions.clear()

    async def _version(self, topic: str, message: Message) -> bytes:
        """Return a letter topic's version of a message's schema; empty if the schema is incompatible with the topic."""
        key = (topic, message.schema_version)
        found = self._versions.get(key)
        if found is not None:
            return found
        try:
            found = await self._schema_version(message, topic)
        except (IncompatibleSchema, TopicNotFound) as error:
            log.warning("%s: sending the letter for %s without its schema: %s", topic, message.message_id, error)
            return b""
        while len(self._versions) >= VERSIONS_MAX:
            del self._versions[next(iter(self._versions))]
        self._versions[key] = found
        return found

    async def _producer(self, topic: str, initial_subscription: str | None) -> LetterProducer:
        async with self._opening:
            if self._is_closed:
                raise ClosedError(f"the consumer was closed before a letter was sent to {topic}")
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
                log.info("%s: sending letters of subscription %s to this topic", topic, self._subscription)
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
                log.debug("error while closing a letter producer: %s", error)
