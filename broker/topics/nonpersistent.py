"""Non-persistent topics: entries are sent to the consumers that can receive them immediately, and are not stored.

Design: a non-persistent topic is a `Topic` with a log that is always empty (`LogStore.volatile_log`). Its `append`
passes the entry to each subscription and confirms it immediately, at position (0, 0). If no consumer of a subscription
can receive an entry, for lack of permits or because sockets are not writable, the subscription drops and counts the
entry. As in Pulsar, entries are not counted until a subscription has had its first consumer.

Publishing an entry completes in the same loop iteration in which it was read, so
`maxConcurrentNonPersistentMessagePerConnection` is never reached, and the number of messages dropped for publishers is
always 0.

Source: Pulsar binary protocol, section Non-persistent topics; `NonPersistentTopic` and related classes of Pulsar 4.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from ...errors import NotAllowed
from ...wire.batch import MIN_MESSAGE_BYTES
from ...wire.position import Position
from ...wire.pulsar_api_pb2 import CommandSubscribe
from ...wire.topic_name import TopicName
from ..dispatch.dispatcher import limit_message_count
from ..dispatch.key_shared import policy_of
from ..dispatch.nonpersistent import DirectKeyShared, DirectShared, DirectSingleActive
from ..storage.cursors.names import check_size
from ..storage.entry import StoredEntry
from ..storage.port import Ack
from .limits import check_subscriptions
from .nonpersistent_stats import nonpersistent_internal_stats, nonpersistent_stats
from .rates import Meter
from .subscription import Dispatcher, Subscription
from .topic import Done, Topic

if TYPE_CHECKING:
    from ..storage.port import Done as AckDone
    from ..storage.port import Log
    from .consumer import Consumer
    from .ports import BrokerPort

HERE = Position(0, 0)
"""Position of every entry."""


class NonPersistentSubscription(Subscription):
    """A subscription of a non-persistent topic.

    Attributes:
        messages_dropped: number of messages dropped since the topic was loaded.
        drop_meter: rate of dropped messages.
    """

    topic: NonPersistentTopic

    def __init__(self, topic: NonPersistentTopic, name: str, properties: dict[str, str] | None) -> None:
        super().__init__(topic, topic.log.memory_cursor(name, topic.log.last_confirmed, properties), is_durable=False)
        self.messages_dropped = 0
        self.drop_meter = Meter(1)

    def _dispatcher(self, command: CommandSubscribe) -> Dispatcher:
        kind, topic, broker = command.subType, self.topic, self.topic.broker
        if kind == CommandSubscribe.Shared:
            return DirectShared(self, topic.log, broker.config, broker.tasks)
        if kind == CommandSubscribe.Key_Shared:
            return DirectKeyShared(self, topic.log, broker.config, broker.tasks, policy_of(command))
        return DirectSingleActive(self, kind, topic.name, topic.log, broker.config, broker.tasks)

    def give(self, entry: StoredEntry) -> None:
        """Send an entry to a consumer, or drop it if no consumer can receive it."""
        dispatcher = self.dispatcher
        if dispatcher is None:
            return
        assert isinstance(dispatcher, DirectShared | DirectKeyShared | DirectSingleActive)
        consumer = dispatcher.choose(entry.payload)
        if consumer is None:
            self.messages_dropped += entry.messages
        else:
            consumer.send([(entry, 0, None)])

    def acknowledge(self, consumer: Consumer, acks: Sequence[Ack], done: AckDone | None) -> None:
        """Count acknowledgements, without any other effect."""
        self._count_acks(consumer, len(acks), done)

    def acknowledge_up_to(
        self, consumer: Consumer, position: Position, words: Sequence[int] | None, done: AckDone | None
    ) -> None:
        """Count an acknowledgement, without any other effect."""
        self._count_acks(consumer, 1, done)

    def _count_acks(self, consumer: Consumer, acks: int, done: AckDone | None) -> None:
        consumer.messages_acked += acks
        consumer.last_acked_ms = self.last_acked_ms = self.topic.broker.now_ms()
        if done is not None:
            done(None)

    async def seek(self, position: Position, words: Sequence[int] | None = None) -> None:
        """Do nothing, since there are no stored entries; consumers are not closed.

        Cancellation: safe.
        """
        self.check_open()


class NonPersistentTopic(Topic):
    """A non-persistent topic, which exists as long as it is loaded.

    Attributes:
        drop_meter: rate of `messages_dropped`.
    """

    def __init__(self, broker: BrokerPort, name: TopicName, log: Log) -> None:
        super().__init__(broker, name, log, None)
        self.append = self._give
        self.drop_meter = Meter(1)
        self._entries_in = 0
        self._departed_drops = 0

    @property
    def messages_dropped(self) -> int:
        """Number of messages dropped since the topic was loaded, counted separately for each subscription."""
        return self._departed_drops + sum(one.messages_dropped for one in self.direct_subscriptions())

    def direct_subscriptions(self) -> list[NonPersistentSubscription]:
        """Return the subscriptions with their concrete type."""
        return [one for one in self.subscriptions.values() if isinstance(one, NonPersistentSubscription)]

    def forget_subscription(self, subscription: Subscription) -> None:
        """Remove a subscription from the topic; the topic's counters keep its sent and dropped messages."""
        if isinstance(subscription, NonPersistentSubscription) and subscription in self.direct_subscriptions():
            self._departed_drops += subscription.messages_dropped
        super().forget_subscription(subscription)

    def tick_drops(self, period_s: float) -> None:
        """Update the drop rates at the end of a statistics period."""
        self.drop_meter.tick((self.messages_dropped,), period_s)
        for subscription in self.direct_subscriptions():
            subscription.drop_meter.tick((subscription.messages_dropped,), period_s)

    def stats(self, **options: Any) -> dict[str, Any]:
        """Return the statistics for `topics stats`."""
        return nonpersistent_stats(self, **options)

    def internal_stats(self) -> dict[str, Any]:
        """Return the counters for `topics stats-internal`."""
        return nonpersistent_internal_stats(self)

    def _give(self, payload: bytes, messages: int, publish_time_ms: int, done: Done) -> None:
        """Pass an entry to all subscriptions and confirm it."""
        entry = StoredEntry(HERE, payload, messages)
        if not 0 < messages * MIN_MESSAGE_BYTES <= len(payload):
            entry = limit_message_count(entry, self.broker.config.max_message_bytes)
        self._entries_in += 1
        for subscription in self.direct_subscriptions():
            try:
                subscription.give(entry)
            except Exception as error:  # noqa: BLE001 - isolates subscriptions: others still receive the entry
                subscription.fail(error)
        done(HERE, None)

    def grew(self) -> None:
        """Do nothing: entries are dispatched as they are published."""

    @property
    def entries_in(self) -> int:
        """Number of entries received since the topic was loaded."""
        return self._entries_in

    async def create_subscription(
        self,
        name: str,
        position: Literal["earliest", "latest"] | Position = "latest",
        properties: dict[str, str] | None = None,
        *,
        compacted: bool = False,
    ) -> Subscription:
        """Return a subscription, creating it if needed; ``position`` is ignored, since it starts at the next entry.

        Cancellation: safe.

        Raises:
            NotAllowed: the compacted view was requested, or there are too many subscriptions or properties.
        """
        self.check_loaded()
        if compacted:
            raise NotAllowed("readCompacted only valid on persistent topics")
        subscription = self.subscriptions.get(name)
        if subscription is None:
            check_subscriptions(self.policies, self.name, len(self.subscriptions))
            check_size("subscription properties", (properties or {}).items())
            subscription = self.subscriptions[name] = NonPersistentSubscription(self, name, properties)
        return subscription

    async def terminate(self) -> Position:
        """Raise an error, since non-persistent topics cannot be terminated.

        Raises:
            NotAllowed: always.
        """
        raise NotAllowed(f"cannot terminate {self.name}: the topic is non-persistent")

    def begin_compaction(self) -> None:
        """Raise an error, since non-persistent topics cannot be compacted.

        Raises:
            NotAllowed: always.
        """
        raise NotAllowed(f"cannot compact {self.name}: the topic is non-persistent")
