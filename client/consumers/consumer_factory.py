"""Creates a client's consumers and readers for a topic, its partitions, several topics, or a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ...errors import InvalidConfig, TopicNotFound
from ...wire import pulsar_api_pb2 as pb
from ...wire.message_id import LATEST, MessageId
from ...wire.topic_name import TopicName
from ..checks import TEXT_BYTES_MAX, as_topic_name, check_text
from ..config import ConsumerConfig, ReaderConfig, RegexSubscriptionMode
from ..connections.cluster import Cluster
from ..connections.opened import Opened
from ..schemas.schema import SchemaInfo
from ..statistics import Intervals
from .consumer import Consumer
from .letters import with_retry_topics
from .merged import MergedConsumer
from .observed import ObservedConsumer, make_consumer
from .pattern import PatternConsumer
from .reader import Reader
from .start import StartPosition
from .topic_pattern import TopicPattern
from .tracked import Services

_MODES = {
    "PersistentOnly": pb.CommandGetTopicsOfNamespace.PERSISTENT,
    "NonPersistentOnly": pb.CommandGetTopicsOfNamespace.NON_PERSISTENT,
    "AllTopics": pb.CommandGetTopicsOfNamespace.ALL,
}
"""Subscription mode in the settings -> mode in the protocol."""


class ConsumerFactory:
    """Subscribes consumers and readers."""

    def __init__(
        self,
        cluster: Cluster,
        opened: Opened,
        intervals: Intervals,
        services: Services,
        forget_schemas: Callable[[str], None],
    ):
        """Create a factory.

        Args:
            cluster: the client's cluster.
            opened: registry of the objects that the client closes.
            intervals: the client's statistics intervals.
            services: services that consumers use.
            forget_schemas: called with the topic whenever a consumer attaches.
        """
        self._cluster = cluster
        self._opened = opened
        self._intervals = intervals
        self._services = services
        self._forget_schemas = forget_schemas

    async def subscribe(
        self,
        topic: str | Sequence[str] | re.Pattern[str] | TopicPattern,
        subscription: str,
        config: ConsumerConfig | None,
        schema: SchemaInfo | None,
    ) -> Consumer | MergedConsumer:
        """Subscribe a consumer with a schema; raises the same errors as `AsyncClient.subscribe`.

        Cancellation: safe; anything created on the broker is closed.
        """
        check_text("subscription", subscription, TEXT_BYTES_MAX)
        if not subscription:
            raise InvalidConfig("subscription is empty: pass a name")
        config = config or ConsumerConfig()
        if config.name is None:
            config = replace(config, name=self._cluster.random_name())
        if isinstance(topic, re.Pattern):
            topic = TopicPattern(topic)
        if isinstance(topic, TopicPattern):
            return await self._subscribe_pattern(topic, subscription, config, schema)
        topics = [topic] if isinstance(topic, str) else list(topic)
        names = list(dict.fromkeys(map(as_topic_name, topics)))
        if not names:
            raise InvalidConfig("topic is empty: pass at least one topic")
        if config.retry_enable:
            policy = with_retry_topics(config.dead_letter_policy, names[0].text, subscription)
            config = replace(config, dead_letter_policy=policy)
            names = list(dict.fromkeys([*names, as_topic_name(policy.retry_letter_topic or "")]))
        return await self._subscribe_names(names, subscription, config, schema)

    async def _subscribe_names(
        self, names: Sequence[TopicName], subscription: str, config: ConsumerConfig, schema: SchemaInfo | None
    ) -> Consumer | MergedConsumer:
        parts = [part for name in names for part in await self._cluster.parts(name)]
        if parts == names and len(parts) == 1:
            (consumer,) = await self._consumers(parts, subscription, config, 1, schema)
            return consumer
        consumers = await self._consumers(parts, subscription, config, len(parts), schema)
        merged = MergedConsumer(",".join(name.text for name in names), subscription, consumers)
        self._opened.add([merged])
        partitioned = [name for name in names if name not in parts]
        if config.partition_update_s and partitioned:
            merged.keep_updated(
                config.partition_update_s,
                lambda known: self._new_partitions(partitioned, known, subscription, config, schema),
            )
        return merged

    async def topics_of(self, pattern: TopicPattern, mode: RegexSubscriptionMode) -> list[str]:
        """Return the full names of the topics that currently match a pattern; partitions are listed individually."""
        self._cluster.check_open()
        found = await self._cluster.topics(pattern.namespace, _MODES[mode], pattern.asked or "")
        return [topic for topic in found if pattern.takes(topic)]

    async def _subscribe_pattern(
        self, pattern: TopicPattern, subscription: str, config: ConsumerConfig, schema: SchemaInfo | None
    ) -> PatternConsumer:
        if config.retry_enable:
            raise InvalidConfig("retry_enable is not supported with a topic pattern: list the topics")
        cluster = self._cluster
        cluster.check_open()
        mode = _MODES[config.regex_subscription_mode]
        asked = pattern.asked or ""

        async def list_topics() -> list[str]:
            return await cluster.topics(pattern.namespace, mode, asked)

        async def subscribe_to(topic: str) -> Consumer:
            siblings = len(consumer.consumers) + 1
            (made,) = await self._consumers(
                [as_topic_name(topic)], subscription, config, siblings, schema, creates_topics=False
            )
            return made

        async def subscribe_to_all() -> list[Consumer]:
            found = [as_topic_name(topic) for topic in await list_topics() if pattern.takes(topic)]
            return await self._consumers(found, subscription, config, len(found), schema, creates_topics=False)

        can_be_watched = pattern.asked is not None and config.regex_subscription_mode == "PersistentOnly"
        is_watched = can_be_watched and await cluster.offers_topic_watches()
        try:
            consumers = await subscribe_to_all()
        except TopicNotFound:  # one of them was deleted meanwhile
            consumers = await subscribe_to_all()
        consumer = PatternConsumer(pattern, subscription, consumers, subscribe_to)
        self._opened.add([consumer])
        watch = cluster.topic_watch(pattern.namespace, asked, consumer.topics_changed) if is_watched else None
        consumer.keep_matching(config.pattern_update_s, list_topics, watch)
        return consumer

    async def _consumers(
        self,
        parts: Sequence[TopicName],
        subscription: str,
        config: ConsumerConfig,
        siblings: int,
        schema: SchemaInfo | None,
        *,
        creates_topics: bool = True,
    ) -> list[Consumer]:
        """Return subscribed consumers of topics; ``siblings`` of them share the limit of queued messages."""
        if siblings > 1:
            share = max(1, config.max_receiver_queue_size_across_partitions // siblings)
            config = replace(
                config,
                receiver_queue_size=min(config.receiver_queue_size, share),
                receiver_queue_bytes=-(-config.receiver_queue_bytes // siblings),
            )
        cluster = self._cluster
        consumers = [
            make_consumer(
                part,
                subscription,
                next(cluster.consumer_ids),
                config,
                cluster.attachment(part, config.guard),
                self._services,
            )
            for part in parts
        ]
        for consumer in consumers:
            consumer.creates_topic = creates_topics
            self._prepare(consumer, schema)
        await self._opened.open_all(consumers)
        return consumers

    def _prepare(self, consumer: Consumer, schema: SchemaInfo | None) -> None:
        consumer.clock = self._cluster.clock
        consumer.declare(schema, partial(self._forget_schemas, consumer.topic))
        if isinstance(consumer, ObservedConsumer):
            self._intervals.add(consumer)

    async def _new_partitions(
        self,
        names: Sequence[TopicName],
        known: set[str],
        subscription: str,
        config: ConsumerConfig,
        schema: SchemaInfo | None,
    ) -> list[Consumer]:
        parts = [part for name in names for part in await self._cluster.parts(name)]
        new = [part for part in parts if part.text not in known]
        return await self._consumers(new, subscription, config, len(parts), schema) if new else []

    async def create_reader(
        self, topic: str, start: MessageId, config: ReaderConfig | None, schema: SchemaInfo | None
    ) -> Reader:
        """Create a reader with a schema; raises the same errors as `AsyncClient.create_reader`.

        Cancellation: safe; anything created on the broker is closed.
        """
        config = config or ReaderConfig()
        cluster = self._cluster
        name = as_topic_name(topic)
        parts = await cluster.parts(name)
        if parts != [name]:
            raise InvalidConfig(f"{name} has {len(parts)} partitions: read a single partition, for example {parts[0]}")
        prefix = f"{config.subscription_prefix}-" if config.subscription_prefix else ""
        consumer_config = ConsumerConfig(
            name=config.name or cluster.random_name(),
            receiver_queue_size=config.receiver_queue_size,
            read_compacted=config.read_compacted,
            properties=config.properties,
            crypto_key_reader=config.crypto_key_reader,
            crypto_failure_action=config.crypto_failure_action,
            on_undecryptable=config.on_undecryptable,
        )
        begin = StartPosition(start, config.start_inclusive)
        subscription = config.subscription_name or f"{prefix}reader-{cluster.random_name()}"
        consumer = Consumer(
            name, subscription, next(cluster.consumer_ids), consumer_config, cluster.attachment(name), begin
        )
        self._prepare(consumer, schema)
        await self._opened.open_all([consumer])
        reader = Reader(consumer, begin)
        if start == LATEST and config.start_inclusive:
            last = await reader.last_message_id()
            if last.entry_id >= 0:
                await reader.seek(last, inclusive=True)
        return reader
