"""Topics: a log, the producers that write to it, and the subscriptions that read from it.

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
    """A loaded topic.

    Attributes:
        name: topic name.
        log: log with the entries of the topic.
        subscriptions: subscriptions by name.
        producers: active producers by name, and producers that wait for exclusive access.
        compaction: compactions since the topic was loaded.
        deduplication: deduplication of entries.
        joins: number of producers and consumers that have joined since the topic was loaded.
        policies: effective policies.
        gate: limits on publishing; None without limits.
        dispatch_limit: dispatch rate limit for all subscriptions together; None if unlimited.
        shared_dispatch_limits: dispatch rate limits shared with other topics.
        subscribe_limit: limit on the rate at which each consumer may subscribe; None if unlimited.
        oldest_message: oldest message in all backlogs, according to the last quota check; None without a backlog.
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
        # Looked up for each entry, so that `close` also affects producers that reference this object.
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
        """Notify the subscriptions of new entries, once per loop iteration."""
        if not self._is_announcing:
            self._is_announcing = True
            self._loop.call_soon(self._announce)

    def _announce(self) -> None:
        self._is_announcing = False
        for subscription in list(self.subscriptions.values()):
            subscription.run()

    async def publish(self, payload: bytes, messages: int, publish_time_ms: int) -> Position:
        """Store an entry that was not sent by a producer; ``payload`` is a payload section with a checksum.

        Cancellation: the entry may still be stored.
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
            ServiceNotReady: the topic was unloaded or deleted; the client should look it up again.
            TopicTerminated: the topic was terminated.
        """
        self.check_loaded()
        if self.log.is_terminated:
            raise TopicTerminated("Topic was already terminated")

    @property
    def entries_in(self) -> int:
        """Number of entries stored since the topic was loaded."""
        return self.log.entries_between(self._loaded_at, self.log.last_confirmed)

    @property
    def messages_out(self) -> int:
        """Number of messages sent to consumers since the topic was loaded."""
        return self._departed_out[0] + sum(s.counters[0] for s in self.subscriptions.values())

    @property
    def bytes_out(self) -> int:
        """Number of bytes sent to consumers since the topic was loaded."""
        return self._departed_out[1] + sum(s.counters[1] for s in self.subscriptions.values())

    def forget_subscription(self, subscription: Subscription) -> None:
        """Remove a subscription from the topic; the topic's counters keep its sent messages."""
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]
            messages, bytes_, _, _ = subscription.counters
            self._departed_out[0] += messages
            self._departed_out[1] += bytes_

    def begin_compaction(self) -> None:
        """Start a compaction; `compaction` contains its status.

        Raises:
            NotAllowed: a compaction is already running.
            ServiceNotReady: the topic was unloaded.
        """
        self.check_loaded()
        self.compaction.begin()
        self.broker.tasks.start(self._compact(), f"compaction of {self.name}")

    async def _compact(self) -> None:
        await self.compaction.run()
        # The topic may have been unloaded and reloaded meanwhile.
        loaded = self.broker.topics.get(str(self.name))
        if loaded is not None and loaded.log is self.log:
            loaded.show_compaction()

    def show_compaction(self) -> None:
        """Add the compaction cursor to the subscriptions after the first compaction."""
        cursor = self.log.cursors.get(COMPACTION_CURSOR)
        if cursor is not None and cursor.name not in self.subscriptions:
            self.subscriptions[cursor.name] = Subscription(self, cursor, is_durable=True)

    def follow_policies(self) -> None:
        """Apply the current policies, and unblock consumers that are below a new limit."""
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
        """Return the number of messages and bytes received per second in the last statistics period."""
        return self.meter.rates[0], self.meter.rates[1]

    # Subscriptions

    def start_of(self, position: Literal["earliest", "latest"] | Position, *, compacted: bool = False) -> Position:
        """Return the mark-delete position for a consumer that starts at ``position``.

        Args:
            position: first position to read.
            compacted: whether to read the compacted view, which may start before the log's first entry.
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
        """Return a durable subscription, creating it if needed; an existing subscription is not changed.

        Cancellation: the subscription may still be created.
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
        """Return a new subscription before it is on disk; if writing it fails, it is removed."""
        created: asyncio.Future[None] = self._loop.create_future()

        def done(error: Exception | None) -> None:
            settle(created, error)
            if error is None:
                # Cleared here, since all waiters may be cancelled.
                present = self.subscriptions.get(name)
                if present is not None and present.creation is created:
                    present.creation = None
                return
            created.exception()  # retrieved: the creator has reported it, or was cancelled
            # Remove it here, since all waiters may be cancelled. After an immediate error, it does not exist yet.
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
        """Remove a subscription whose creation failed."""
        if subscription.creation is creation:
            self.forget_subscription(subscription)
            if self.log.cursors.get(subscription.name) is subscription.cursor:
                self.log.remove_cursor(subscription.name)

    def check_has(self, subscription: Subscription) -> None:
        """Raise if a subscription no longer belongs to the topic, or the topic was unloaded.

        Raises:
            ServiceNotReady: the subscription or topic was closed; the client should resubscribe.
        """
        self.check_loaded()
        if self.subscriptions.get(subscription.name) is not subscription or subscription.is_closed:
            raise ServiceNotReady(f"Subscription {subscription.name} of {self.name} was closed: subscribe again")

    def check_loaded(self) -> None:
        """Raise if the topic was unloaded or deleted.

        Raises:
            ServiceNotReady: the topic was closed; the client should look it up again.
        """
        if self.is_closed:
            raise ServiceNotReady(f"Topic {self.name} was closed: look up the topic again")

    async def delete_subscription(self, name: str, force: bool = False) -> None:
        """Delete a subscription and its cursor; with ``force``, its consumers are closed first.

        Raises:
            SubscriptionNotFound: the topic has no subscription with this name.
            ConsumerBusy: the subscription has consumers, and ``force`` is False.
            ServiceNotReady: the topic was unloaded, so that its cursors may belong to another topic object.
        """
        self.check_loaded()
        subscription = self.subscriptions.get(name)
        if subscription is None:
            raise SubscriptionNotFound(f"Subscription {name} not found on topic {self.name}")
        await subscription.delete(force=force)

    # Closing

    async def terminate(self) -> Position:
        """Terminate the topic, so that it accepts no more entries, and return the position of the last entry.

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
        """Close the topic with all producers and consumers, whose clients look up the topic again."""
        self.is_closed = True
        self.append = self._refuse_entry
        self.deduplication.close()
        for producer in [*self.producers.values(), *self.producers.waiting]:
            producer.close_by_broker()
        for subscription in list(
            self.subscriptions.values()
        ):  # a non-durable subscription is removed with its consumers
            subscription.close()

    def _refuse_entry(self, payload: bytes, messages: int, publish_time_ms: int, done: Done) -> None:
        done(EARLIEST, ServiceNotReady(f"Topic {self.name} was closed: look up the topic again"))

    def tick_drops(self, period_s: float) -> None:
        """Do nothing: a persistent topic drops no messages."""

    def stats(self, **options: Any) -> dict[str, Any]:
        """Return the statistics for `topics stats`."""
        return topic_stats(self, **options)

    def internal_stats(self) -> dict[str, Any]:
        """Return the state of the log and its cursors for `topics stats-internal`."""
        return internal_stats(self)
