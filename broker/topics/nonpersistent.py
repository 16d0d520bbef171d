"""Non-persistent topics: entries go to the consumers that can take them right now, and are not stored.

Design: such a topic is a `Topic` over a log that stays empty (`Log`), with an `append` that passes the entry to
each subscription and confirms it at once, at position (0, 0). Readers of logs and cursors find nothing. An entry that
no consumer of a subscription can take, for lack of permits or a writable socket, is dropped there and counted; if the
subscription has not had a consumer yet, it is not even counted, as in Pulsar.

Publishing completes in the turn in which an entry was read, so a producer never has so many entries in progress that
the next one is dropped (`maxConcurrentNonPersistentMessagePerConnection`): publisher drops are always 0.

Source: Pulsar binary protocol, section Non-persistent topics; `NonPersistentTopic` and its parts of Pulsar 4.0.
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
        messages_dropped: since the topic was loaded.
        drop_meter: their rate.
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
        """Send an entry to the next consumer, or drop it."""
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
        """Count acknowledgements, which have no other effect."""
        self._count_acks(consumer, len(acks), done)

    def acknowledge_up_to(
        self, consumer: Consumer, position: Position, words: Sequence[int] | None, done: AckDone | None
    ) -> None:
        """Count an acknowledgement, which has no other effect."""
        self._count_acks(consumer, 1, done)

    def _count_acks(self, consumer: Consumer, acks: int, done: AckDone | None) -> None:
        consumer.messages_acked += acks
        consumer.last_acked_ms = self.last_acked_ms = self.topic.broker.now_ms()
        if done is not None:
            done(None)

    async def seek(self, position: Position, words: Sequence[int] | None = None) -> None:
        """Do nothing, and close no consumer: there are no earlier entries.

        Cancellation: safe.
        """
        self.check_open()


class NonPersistentTopic(Topic):
    """One non-persistent topic; it exists as long as it is loaded.

    Attributes:
        drop_meter: the rate of `messages_dropped`.
    """

    def __init__(self, broker: BrokerPort, name: TopicName, log: Log) -> None:
        super().__init__(broker, name, log, None)
        self.append = self._give
        self.drop_meter = Meter(1)
        self._entries_in = 0
        self._departed_drops = 0

    @property
    def messages_dropped(self) -> int:
        """Messages dropped since the topic was loaded, counted per subscription."""
        return self._departed_drops + sum(one.messages_dropped for one in self.direct_subscriptions())

    def direct_subscriptions(self) -> list[NonPersistentSubscription]:
        """Return its subscriptions, with their concrete type."""
        return [one for one in self.subscriptions.values() if isinstance(one, NonPersistentSubscription)]

    def forget_subscription(self, subscription: Subscription) -> None:
        """Remove a subscription from the topic; its sent and dropped messages still count."""
        if isinstance(subscription, NonPersistentSubscription) and subscription in self.direct_subscriptions():
            self._departed_drops += subscription.messages_dropped
        super().forget_subscription(subscription)

    def tick_drops(self, period_s: float) -> None:
        """Update the drop rates at the end of a statistics period."""
        self.drop_meter.tick((self.messages_dropped,), period_s)
        for subscription in self.direct_subscriptions():
            subscription.drop_meter.tick((subscription.messages_dropped,), period_s)

    def stats(self, **options: Any) -> dict[str, Any]:
        """Return the statistics that `topics stats` shows."""
        return nonpersistent_stats(self, **options)

    def internal_stats(self) -> dict[str, Any]:
        """Return the counters that `topics stats-internal` shows."""
        return nonpersistent_internal_stats(self)

    def _give(self, payload: bytes, messages: int, publish_time_ms: int, done: Done) -> None:
        """Pass an entry to every subscription, and confirm it."""
        entry = StoredEntry(HERE, payload, messages)
        if not 0 < messages * MIN_MESSAGE_BYTES <= len(payload):
            entry = limit_message_count(entry, self.broker.config.max_message_bytes)
        self._entries_in += 1
        for subscription in self.direct_subscriptions():
            try:
                subscription.give(entry)
            except Exception as error:  # noqa: BLE001 - the boundary of a subscription: others get the entry
                subscription.fail(error)
        done(HERE, None)

    def grew(self) -> None:
        """Do nothing: entries are dispatched as they arrive."""

    @property
    def entries_in(self) -> int:
        """Entries received since the topic was loaded."""
        return self._entries_in

    async def create_subscription(
        self,
        name: str,
        position: Literal["earliest", "latest"] | Position = "latest",
        properties: dict[str, str] | None = None,
        *,
        compacted: bool = False,
    ) -> Subscription:
        """Return a subscription, which always begins with the next entry, whatever ``position`` says.

        Cancellation: safe.

        Raises:
            NotAllowed: the compacted view is requested, or there are too many subscriptions or properties.
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
        """Refuse to terminate a topic without a last entry.

        Raises:
            NotAllowed: always.
        """
        raise NotAllowed(f"{self.name} is non-persistent; only a persistent topic can be terminated")

    def begin_compaction(self) -> None:
        """Refuse to compact a topic without stored entries.

        Raises:
            NotAllowed: always.
        """
        raise NotAllowed(f"{self.name} is non-persistent; only a persistent topic can be compacted")
