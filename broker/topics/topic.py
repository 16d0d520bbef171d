"""A topic: a log, the producers that write to it, and the subscriptions that read it.

Source: Pulsar binary protocol, sections Producer and Consumer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from ...errors import ServiceNotReady, SubscriptionNotFound, TopicTerminated
from ...tasks import settle
from ...wire.position import EARLIEST, Position
from ...wire.topic_name import TopicName
from ..policies.rate_limit import RateLimit, SubscribeLimit, follow
from ..storage.compacted_view import COMPACTION_CURSOR
from .compaction import TopicCompaction
from .deduplication import DEDUPLICATION_CURSOR, Deduplication
from .gate import Gate, gate_for
from .limits import check_subscriptions, is_limited
from .rates import Meter
from .subscription import Subscription
from .topic_producers import TopicProducers
from .topic_stats import internal_stats, topic_stats

if TYPE_CHECKING:
    from ..storage.port import Log
    from .backlog_age import OldestMessage
    from .ports import BrokerPort

log = logging.getLogger(__name__)

Done = Callable[[Position, Exception | None], None]


class Topic:
    """One loaded topic.

    Attributes:
        name: its full name.
        log: stores its entries.
        subscriptions: by name.
        producers: active producers by name, and those that wait for exclusive access.
        compaction: its compactions since it was loaded.
        deduplication: detects duplicate entries of producers.
        joins: number of producers and consumers since it was loaded.
        policies: its effective policies.
        gate: limits on published entries; None without limits.
        dispatch_limit: dispatch rate of all subscriptions together; None if unlimited.
        shared_dispatch_limits: dispatch rates shared with other topics.
        subscribe_limit: how often each consumer may subscribe; None if unlimited.
        oldest_message: of all backlogs, as of the last quota check; None without a backlog.
    """

    def __init__(self, broker: BrokerPort, name: TopicName, log: Log, epoch: int | None):
        self.broker = broker
        self.name = name
        self.log = log
        self.policies = broker.namespaces.effective(name)
        self.gate: Gate | None = None
        self.dispatch_limit: RateLimit | None = None
        self.shared_dispatch_limits: tuple[RateLimit, ...] = ()
        self.subscribe_limit: SubscribeLimit | None = None
        self.oldest_message: OldestMessage | None = None
        self.meter = Meter(4)
        self._loop = asyncio.get_running_loop()
        self._follow_rates()
        # Looked up for each entry, so that `close` also takes effect for holders of this object.
        self.append = log.append
        self.subscriptions: dict[str, Subscription] = {}
        self.producers = TopicProducers(self, epoch)
        self.compaction = TopicCompaction(log, broker.config.max_message_bytes, broker.now_ms)
        self.deduplication = Deduplication(self)
        self.joins = 0
        self.is_closed = False
        log.touch()
        self._loaded_at = log.last_confirmed
        self._departed_out = [0, 0]
        self._is_announcing = False
        for cursor in list(log.cursors.values()):
            if cursor.name == DEDUPLICATION_CURSOR:
                continue
            self.subscriptions[cursor.name] = Subscription(self, cursor, is_durable=True)

    def __repr__(self) -> str:
        return f"Topic({self.name}, producers={len(self.producers)}, subscriptions={len(self.subscriptions)})"

    # Entries

    def grew(self) -> None:
        """Notify the subscriptions of new entries, once per turn of the loop."""
        if not self._is_announcing:
            self._is_announcing = True
            self._loop.call_soon(self._announce)

    def _announce(self) -> None:
        self._is_announcing = False
        for subscription in list(self.subscriptions.values()):
            subscription.run()

    async def publish(self, payload: bytes, messages: int, publish_time_ms: int) -> Position:
        """Store one entry that does not come from a producer; ``payload`` is a payload section with its checksum.

        Cancellation: the entry may be stored.
        """
        self.check_open()
        stored: asyncio.Future[Position] = self._loop.create_future()

        def done(position: Position, error: Exception | None) -> None:
            if error is None:
                self.producers.count(messages, len(payload))
                self.grew()
            settle(stored, error or position)

        self.append(payload, messages, publish_time_ms, done)
        return await stored

    def check_open(self) -> None:
        """Raise if the topic accepts no entries.

        Raises:
            ServiceNotReady: it was unloaded or deleted; the client should look it up again.
            TopicTerminated: it was terminated.
        """
        self.check_loaded()
        if self.log.is_terminated:
            raise TopicTerminated("Topic was already terminated")

    @property
    def entries_in(self) -> int:
        """Entries stored since the topic was loaded."""
        return self.log.entries_between(self._loaded_at, self.log.last_confirmed)

    @property
    def messages_out(self) -> int:
        """Messages sent to consumers since the topic was loaded."""
        return self._departed_out[0] + sum(s.counters[0] for s in self.subscriptions.values())

    @property
    def bytes_out(self) -> int:
        """Bytes sent to consumers since the topic was loaded."""
        return self._departed_out[1] + sum(s.counters[1] for s in self.subscriptions.values())

    def forget_subscription(self, subscription: Subscription) -> None:
        """Remove a subscription from the topic; its sent messages still count."""
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]
            messages, bytes_, _, _ = subscription.counters
            self._departed_out[0] += messages
            self._departed_out[1] += bytes_

    def begin_compaction(self) -> None:
        """Start a compaction; its progress is in `compaction`.

        Raises:
            NotAllowed: one is running already.
            ServiceNotReady: the topic was unloaded.
        """
        self.check_loaded()
        self.compaction.begin()
        self.broker.tasks.start(self._compact(), f"compaction of {self.name}")

    async def _compact(self) -> None:
        await self.compaction.run()
        # The topic may have been unloaded and loaded again meanwhile.
        loaded = self.broker.topics.get(str(self.name))
        if loaded is not None and loaded.log is self.log:
            loaded.show_compaction()

    def show_compaction(self) -> None:
        """Add the compaction cursor to the subscriptions after the first compaction."""
        cursor = self.log.cursors.get(COMPACTION_CURSOR)
        if cursor is not None and cursor.name not in self.subscriptions:
            self.subscriptions[cursor.name] = Subscription(self, cursor, is_durable=True)

    def follow_policies(self) -> None:
        """Apply the current policies; consumers blocked by a lower limit resume."""
        policies = self.broker.namespaces.effective(self.name)
        if policies == self.policies or self.is_closed:
            return
        self.policies = policies
        self._follow_rates()
        if self.gate is not None and self.gate.takes_encrypted_only:
            self.producers.close_unencrypted()
        for subscription in list(self.subscriptions.values()):
            subscription.follow_policies()

    def _follow_rates(self) -> None:
        policies, clock = self.policies, self._loop.time
        shared, rates = policies.shared_limits if is_limited(self.name) else (), self.broker.shared_rates
        published = rates.publish_limits(shared, clock)
        self.gate = gate_for(self.name, policies, self.broker.config.max_message_bytes, self.gate, clock, published)
        self.shared_dispatch_limits = rates.dispatch_limits(shared, clock)
        self.dispatch_limit = follow(self.dispatch_limit, policies.dispatch_rate, clock, self.publish_rates)
        if not policies.subscribe_rate.is_limit:
            self.subscribe_limit = None
        elif self.subscribe_limit is None or self.subscribe_limit.rate != policies.subscribe_rate:
            self.subscribe_limit = SubscribeLimit(policies.subscribe_rate, clock)

    def publish_rates(self) -> tuple[float, float]:
        """Return messages and bytes received per second, over the last statistics period."""
        return self.meter.rates[0], self.meter.rates[1]

    # Subscriptions

    def start_of(self, position: Literal["earliest", "latest"] | Position, *, compacted: bool = False) -> Position:
        """Return the mark-delete position for a reader that begins at ``position``, inclusive.

        Args:
            position: where reading begins.
            compacted: whether the compacted view is read, which may begin before the log's first entry.
        """
        if position == "latest":
            return self.log.last_confirmed
        first = self.log.first_compacted if compacted else self.log.first_position
        if position == "earliest" or position <= first:
            return Position(first.ledger_id, first.entry_id - 1)
        assert isinstance(position, tuple)
        if position > self.log.last_confirmed:
            return self.log.last_confirmed
        return Position(position[0], position[1] - 1)

    async def create_subscription(
        self,
        name: str,
        position: Literal["earliest", "latest"] | Position = "latest",
        properties: dict[str, str] | None = None,
        *,
        compacted: bool = False,
    ) -> Subscription:
        """Return a durable subscription, creating it if needed; an existing one is not changed.

        Cancellation: it may exist.
        """
        self.check_loaded()
        subscription = self.subscriptions.get(name) or self._begin_subscription(name, position, properties, compacted)
        if subscription.creation is not None:
            await asyncio.shield(subscription.creation)
            subscription.creation = None
        return subscription

    def _begin_subscription(
        self,
        name: str,
        position: Literal["earliest", "latest"] | Position,
        properties: dict[str, str] | None,
        compacted: bool,
    ) -> Subscription:
        """Return a new subscription that is being written to disk; if that fails, it is dropped again."""
        created: asyncio.Future[None] = self._loop.create_future()

        def done(error: Exception | None) -> None:
            settle(created, error)
            if error is None:
                return
            created.exception()  # the creator has reported it, or no longer waits
            # Dropped here, since the waiters may all be gone. A refusal may come before the subscription exists.
            if self.subscriptions.get(name) is not None:
                self._drop_subscription(self.subscriptions[name], created)

        check_subscriptions(self.policies, self.name, len(self.subscriptions))
        cursor = self.log.open_cursor(name, self.start_of(position, compacted=compacted), properties, done)
        subscription = self.subscriptions[name] = Subscription(self, cursor, is_durable=True)
        subscription.creation = created
        if created.done() and created.exception() is not None:
            self._drop_subscription(subscription, created)
        return subscription

    def _drop_subscription(self, subscription: Subscription, creation: asyncio.Future[None]) -> None:
        """Remove the subscription of a creation that failed."""
        if subscription.creation is creation:
            self.forget_subscription(subscription)
            if self.log.cursors.get(subscription.name) is subscription.cursor:
                self.log.remove_cursor(subscription.name)

    def check_has(self, subscription: Subscription) -> None:
        """Raise if a subscription no longer belongs to the topic, or the topic was unloaded.

        Raises:
            ServiceNotReady: the client should subscribe again.
        """
        self.check_loaded()
        if self.subscriptions.get(subscription.name) is not subscription or subscription.is_closed:
            raise ServiceNotReady(
                f"Subscription {subscription.name} of {self.name} was closed meanwhile; subscribe again"
            )

    def check_loaded(self) -> None:
        """Raise if the topic was unloaded or deleted.

        Raises:
            ServiceNotReady: the client should look it up again.
        """
        if self.is_closed:
            raise ServiceNotReady(f"Topic {self.name} was closed meanwhile; look it up again")

    async def delete_subscription(self, name: str, force: bool = False) -> None:
        """Delete a subscription and its cursor; with ``force`` its consumers are closed first.

        Raises:
            SubscriptionNotFound: the topic has no subscription of that name.
            ConsumerBusy: it has consumers.
            ServiceNotReady: the topic was unloaded; its cursor now belongs to another topic object.
        """
        self.check_loaded()
        subscription = self.subscriptions.get(name)
        if subscription is None:
            raise SubscriptionNotFound(f"Subscription {name} not found on topic {self.name}")
        await subscription.delete(force=force)

    # Closing

    async def terminate(self) -> Position:
        """Accept no more entries, permanently; returns the position of the last one.

        Raises:
            ServiceNotReady: the topic was unloaded.
        """
        self.check_loaded()
        for producer in [*self.producers.values(), *self.producers.waiting]:
            producer.close_by_broker()
        last = await self.log.terminate()
        for subscription in list(self.subscriptions.values()):
            subscription.tell_end()
        return last

    def close(self) -> None:
        """Close all producers and consumers; their clients look the topic up again."""
        self.is_closed = True
        self.append = self._refuse_entry
        self.deduplication.close()
        for producer in [*self.producers.values(), *self.producers.waiting]:
            producer.close_by_broker()
        for subscription in list(self.subscriptions.values()):  # a non-durable one is removed with its consumer
            subscription.close()

    def free(self) -> None:
        """Break the reference cycles of an unloaded topic that has no users left, which frees its memory.

        Otherwise only a garbage collection could, which stops the broker for as long as it takes to scan all topics.
        """
        for subscription in self.subscriptions.values():
            if subscription.dispatcher is not None:
                vars(subscription.dispatcher).clear()
            vars(subscription).clear()
        vars(self.producers).clear()
        vars(self.deduplication).clear()
        vars(self).clear()

    def _refuse_entry(self, payload: bytes, messages: int, publish_time_ms: int, done: Done) -> None:
        done(EARLIEST, ServiceNotReady(f"Topic {self.name} was closed meanwhile; look it up again"))

    def tick_drops(self, period_s: float) -> None:
        """Update drop rates at the end of a statistics period: a persistent topic drops nothing."""

    def stats(self, **options: Any) -> dict[str, Any]:
        """Return the statistics that `topics stats` shows."""
        return topic_stats(self, **options)

    def internal_stats(self) -> dict[str, Any]:
        """Return the state of log and cursors that `topics stats-internal` shows."""
        return internal_stats(self)
