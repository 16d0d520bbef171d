"""Subscriptions: a cursor over the topic's log, and the consumers that share it.

Source: Pulsar binary protocol, sections Consumer, ACK, SEEK and UNSUBSCRIBE.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from ...errors import ConsumerBusy, MetadataError, ServiceNotReady, UnknownBrokerError
from ...tasks import called_back
from ...wire.position import Position
from ...wire.pulsar_api_pb2 import CommandSubscribe, KeySharedMode
from ..dispatch.delays import Delays
from ..dispatch.key_shared import KeySharedDispatcher, policy_of
from ..dispatch.key_slots import check_ranges, ranges_of
from ..dispatch.shared import SharedDispatcher
from ..dispatch.single_active import SingleActiveDispatcher
from ..policies.rate_limit import follow
from ..storage.compacted_view import COMPACTION_CURSOR
from ..storage.cursors.names import check_properties, check_size, refuse_internal
from ..storage.port import Ack, Cursor
from .consumer import SPREADING
from .rates import Meter

if TYPE_CHECKING:
    from ..policies.effective import EffectivePolicies
    from ..policies.rate_limit import RateLimit
    from ..storage.port import Done
    from .consumer import Consumer
    from .topic import Topic

log = logging.getLogger(__name__)

Dispatcher = SingleActiveDispatcher["Consumer"] | SharedDispatcher["Consumer"] | KeySharedDispatcher["Consumer"]

ENTRIES_PER_TURN = 1000
"""Number of entries that a skip visits before it yields to the event loop."""
REPLICATED = "pulsar.replicated.subscription"
"""Name, as in Pulsar, of the cursor number that is 1 if the subscription is replicated to other clusters."""
THROTTLED = tuple(
    f"dispatchThrottled{what}EventsBy{level}Limit"
    for level in ("Subscription", "Topic", "Broker")
    for what in ("Msg", "Bytes")
)
"""Names of the counters of throttled dispatch, by level and unit; resource groups count as Broker."""
ABANDONED_AFTER_S = 30.0
"""Time for which a non-durable subscription waits for its consumer to reconnect after a seek."""


def kind_name(kind: int | None) -> str:
    """Return the name of a subscription type."""
    return "None" if kind is None else CommandSubscribe.SubType.Name(kind)


class Subscription:
    """A subscription of a topic.

    Attributes:
        cursor: cursor with the acknowledgements.
        is_durable: whether the subscription outlives its consumers.
        delays: delayed entries; None unless the type is Shared or Key_Shared.
        dispatcher: dispatcher for the consumers; None until the first consumer determines the type.
        creation: future that is done when the cursor is on disk; None afterwards.
        joins: number of consumers that have joined since the topic was loaded.
        resets: number of seeks.
        dispatch_limits: dispatch rate limits of the subscription and of its topic, if any.
        memory: delivery memory, shared by all subscriptions.
        throttled: number of times that a rate limit delayed dispatch; the keys are names of Pulsar's statistics.
    """

    def __init__(self, topic: Topic, cursor: Cursor, *, is_durable: bool):
        self.topic = topic
        self.name = cursor.name
        self.cursor = cursor
        self.is_durable = is_durable
        self.delays: Delays | None = None
        self.dispatcher: Dispatcher | None = None
        self.creation: asyncio.Future[None] | None = None
        self.is_closed = False
        self._departed = [0, 0, 0, 0]
        self.last_consumed_ms = 0
        self.last_flow_ms = 0
        self.last_acked_ms = 0
        self.last_mark_moved_ms = 0
        self.expired_messages = 0
        self.last_expired_ms = 0
        self.created_ms = topic.broker.now_ms()
        self.meter = Meter(4)
        self.joins = 0
        self.resets = 0
        self._rate_limit: RateLimit | None = None
        self.dispatch_limits: tuple[RateLimit, ...] = ()
        self.memory = topic.broker.delivery_memory
        self.throttled = dict.fromkeys(THROTTLED, 0)
        self._follow_rates()
        self._joining = 0
        self._reset: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"Subscription({self.name!r} of {self.topic.name}, consumers={len(self.consumers)})"

    @property
    def policies(self) -> EffectivePolicies:
        """The effective policies of the topic."""
        return self.topic.policies

    @property
    def consumers(self) -> Sequence[Consumer]:
        """The connected consumers."""
        return self.dispatcher.consumers if self.dispatcher is not None else ()

    @property
    def active_consumer(self) -> Consumer | None:
        """The consumer that receives all entries, for Exclusive and Failover; otherwise None."""
        return self.dispatcher.active if self.dispatcher is not None else None

    @property
    def kind(self) -> int | None:
        """The type (SubType) of the current or previous consumers, or None."""
        if self.name == COMPACTION_CURSOR:
            return CommandSubscribe.Exclusive
        return self.dispatcher.kind if self.dispatcher is not None else None

    @property
    def counters(self) -> tuple[int, int, int, int]:
        """Messages and bytes sent, messages redelivered, and entries acknowledged since the topic was loaded."""
        totals = [*self._departed]
        for consumer in self.consumers:
            totals = [total + count for total, count in zip(totals, consumer.counters, strict=True)]
        return totals[0], totals[1], totals[2], totals[3]

    @property
    def read_position(self) -> Position:
        """Position of the next entry to read."""
        if self.dispatcher is not None and self.consumers:
            return self.dispatcher.read_position
        return self.cursor.next_unacknowledged(self.cursor.mark_delete)

    @property
    def replay_entries(self) -> int:
        """Number of entries queued for redelivery."""
        return self.dispatcher.replay_entries if isinstance(self.dispatcher, SharedDispatcher) else 0

    @property
    def delayed_entries(self) -> int:
        """Number of delayed entries found so far; unread entries are not counted."""
        return 0 if self.delays is None else len(self.delays)

    @property
    def is_blocked(self) -> bool:
        """Whether dispatch is blocked by too many unacknowledged messages."""
        return isinstance(self.dispatcher, SharedDispatcher) and self.dispatcher.is_blocked

    @property
    def is_replicated(self) -> bool:
        """Whether replication of the subscription was requested; this is stored but has no effect yet."""
        return self.cursor.numbers.get(REPLICATED) == 1

    async def set_replicated(self, is_replicated: bool) -> None:
        """Store whether replication of the subscription was requested; ignored for non-durable subscriptions.

        Cancellation: the change is stored anyway.
        """
        cursor = self.cursor
        if not self.is_durable or is_replicated == self.is_replicated:
            return
        numbers, forget = ({REPLICATED: 1}, ()) if is_replicated else ({}, (REPLICATED,))
        await called_back(lambda done: cursor.note(cursor.mark_delete, numbers, forget, done))

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the subscription properties.

        Raises:
            NotAllowed: a name or value is not valid UTF-8, or there are too many properties or they are too long.
            StorageError: the disk failed.

        Cancellation: the properties are replaced anyway.
        """
        check_properties("subscription property", properties)
        check_size("subscription properties", properties.items())
        await called_back(lambda done: self._note_properties(properties, done))

    def _note_properties(self, properties: Mapping[str, str], done: Done) -> None:
        cursor = self.cursor
        if not (cursor.is_durable and self.topic.log.refuses(done)):
            cursor.note(cursor.mark_delete, {}, (), done, properties)

    # Consumers

    def holder(self, command: CommandSubscribe) -> Consumer | None:
        """Return the consumer that prevents a new one from joining, or None if it may join.

        Raises:
            ConsumerBusy: the current consumers have a different type or Key_Shared policy.
            ConsumerAssignError: the new consumer requests keys that cannot be assigned.
        """
        kind = command.subType
        ranges = ranges_of(command)
        is_sticky = kind == CommandSubscribe.Key_Shared and command.keySharedMeta.keySharedMode == KeySharedMode.STICKY
        if is_sticky or (kind == CommandSubscribe.Exclusive and ranges):
            check_ranges(ranges)
        if not self.consumers:
            return None
        if kind != self.kind:
            raise ConsumerBusy(
                f"Subscription is of different type: it has consumers of type {kind_name(self.kind)},"
                f" not {kind_name(kind)}"
            )
        if isinstance(self.dispatcher, KeySharedDispatcher):
            self.dispatcher.policy.check_same(policy_of(command))
            return self.dispatcher.conflict(ranges)
        return self.consumers[0] if kind == CommandSubscribe.Exclusive else None

    def add_consumer(self, consumer: Consumer, command: CommandSubscribe) -> None:
        """Add a consumer, for which `holder` must have returned None."""
        self.check_open()
        if not self._is_served(command):
            if self.dispatcher is not None:
                self.dispatcher.close()
            self._forget_delays()
            if command.subType in SPREADING:
                topic, broker = self.topic, self.topic.broker
                self.delays = Delays(partial(broker.namespaces.delayed_delivery, topic.name), broker.now_ms, self.wake)
            self.dispatcher = self._dispatcher(command)
        assert self.dispatcher is not None
        self.joins += 1
        self.dispatcher.add(consumer)

    def _dispatcher(self, command: CommandSubscribe) -> Dispatcher:
        """Create a dispatcher for the type of the given consumer."""
        kind, topic, broker = command.subType, self.topic, self.topic.broker
        if kind == CommandSubscribe.Shared:
            return SharedDispatcher(self, topic.log, broker.config, broker.tasks)
        if kind == CommandSubscribe.Key_Shared:
            return KeySharedDispatcher(self, topic.log, broker.config, broker.tasks, policy_of(command))
        return SingleActiveDispatcher(self, kind, topic.name, topic.log, broker.config, broker.tasks)

    def _is_served(self, command: CommandSubscribe) -> bool:
        """Return whether the current dispatcher supports the type of the given consumer."""
        dispatcher = self.dispatcher
        if dispatcher is None or dispatcher.kind != command.subType:
            return False
        return not isinstance(dispatcher, KeySharedDispatcher) or dispatcher.policy == policy_of(command)

    def _forget_delays(self) -> None:
        if self.delays is not None:
            self.delays.clear()
            self.delays = None

    def check_open(self) -> None:
        """Raise if the subscription was closed, for example together with its topic.

        Raises:
            ServiceNotReady: the subscription was closed; the client should look up the topic again.
        """
        if self.is_closed:
            raise ServiceNotReady(f"Subscription {self.name} was closed: look up its topic and subscribe again")

    @contextmanager
    def joining(self) -> Iterator[None]:
        """Keep a non-durable subscription while a consumer is joining; afterwards, delete it if unused."""
        self._joining += 1
        try:
            yield
        finally:
            self._joining -= 1
            if not self.is_durable and self._reset is None:
                self._vanish()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer; a non-durable subscription is deleted with its last consumer."""
        self._departed = [total + count for total, count in zip(self._departed, consumer.counters, strict=True)]
        self.last_flow_ms = max(self.last_flow_ms, consumer.last_flow_ms)
        self.last_consumed_ms = max(self.last_consumed_ms, consumer.last_sent_ms)
        if self.dispatcher is not None:
            self.dispatcher.remove(consumer)
        if not self.is_durable and not self.consumers:
            if self._reset is None:
                self._vanish()
            else:
                self.topic.broker.tasks.start(self._vanish_later(), f"waiting for a consumer on {self.name}")

    async def _vanish_later(self) -> None:
        await asyncio.sleep(ABANDONED_AFTER_S)
        self._vanish()

    def _vanish(self) -> None:
        if not self.consumers and not self._joining and self.topic.subscriptions.get(self.name) is self:
            self.close()
            self.topic.forget_subscription(self)

    def fail(self, error: Exception) -> None:
        """Close the consumers after an unexpected error in dispatch; their clients reconnect."""
        log.error("dispatch failed on %r, closing its consumers: %r", self, error, exc_info=error)
        for consumer in list(self.consumers):
            consumer.close_by_broker()

    # Dispatch and acknowledgements

    def run(self) -> None:
        """Dispatch available entries."""
        if self.dispatcher is not None:
            self.dispatcher.run()

    def follow_policies(self) -> None:
        """Apply the current policies."""
        self._follow_rates()
        if self.dispatcher is not None:
            self.dispatcher.follow_policies()

    def _follow_rates(self) -> None:
        topic, policies = self.topic, self.topic.policies
        if self.name == COMPACTION_CURSOR:
            return  # the broker's own reads are not limited
        rate = policies.subscription_rates.get(self.name, policies.subscription_rate)
        clock = asyncio.get_running_loop().time
        self._rate_limit = follow(self._rate_limit, rate, clock, topic.publish_rates)
        own = (limit for limit in (topic.dispatch_limit, self._rate_limit) if limit is not None)
        self.dispatch_limits = (*own, *topic.shared_dispatch_limits)

    def note_throttled(self, limit: RateLimit) -> None:
        """Count a delay of dispatch by a rate limit."""
        level = "Broker" if limit in self.topic.shared_dispatch_limits else "Subscription"
        level = "Topic" if limit is self.topic.dispatch_limit else level
        self.throttled[f"dispatchThrottled{limit.stopped_by}EventsBy{level}Limit"] += 1

    def wake(self) -> None:
        """Dispatch available entries in the next iteration of the event loop."""
        if self.dispatcher is not None:
            self.dispatcher.wake()

    def acknowledge(
        self,
        consumer: Consumer,
        acks: Sequence[Ack],
        done: Done | None,
    ) -> None:
        """Acknowledge entries or single messages of batches, and call ``done`` when that is durable."""
        before = self.cursor.mark_delete
        self.cursor.acknowledge(acks, done)
        assert self.dispatcher is not None
        positions = [position for position, _ in acks]
        if self.delays:
            self.delays.forget(position for position in positions if self.cursor.is_acknowledged(position))
        self.dispatcher.acknowledged(consumer, positions)
        consumer.messages_acked += len(acks)
        self._note_ack(consumer, before)

    def acknowledge_up_to(
        self,
        consumer: Consumer,
        position: Position,
        words: Sequence[int] | None,
        done: Done | None,
    ) -> None:
        """Acknowledge everything up to an entry; ignored on Shared and Key_Shared subscriptions."""
        if self.kind in SPREADING:
            log.warning("%r: ignored a cumulative acknowledgement, which shared subscriptions do not support", self)
            if done is not None:
                done(None)
            return
        before = self.cursor.mark_delete
        self.cursor.acknowledge_up_to(position, words, done)
        assert self.dispatcher is not None
        self.dispatcher.acknowledged_up_to(self.cursor.mark_delete)
        consumer.messages_acked += 1
        self._note_ack(consumer, before)

    def tell_end(self) -> None:
        """Notify the consumers of the end of a terminated topic once they have acknowledged everything."""
        if self.topic.log.is_terminated and not self.cursor.backlog_entries:
            for consumer in self.consumers:
                consumer.notify_end()

    def _note_ack(self, consumer: Consumer, mark_delete_before: Position) -> None:
        now_ms = self.topic.broker.now_ms()
        consumer.last_acked_ms = self.last_acked_ms = now_ms
        if self.cursor.mark_delete != mark_delete_before:
            self.last_mark_moved_ms = now_ms
            if self.topic.log.is_terminated:
                self.tell_end()

    # Cursor moves

    async def seek(self, position: Position, words: Sequence[int] | None = None) -> None:
        """Make ``position`` the next entry to be delivered; the affected consumers are closed and reconnect.

        Raises:
            UnknownBrokerError: another reset is in progress.
            ServiceNotReady: the subscription was closed.
            NotAllowed: the subscription is internal to the broker.
            StorageError: the disk failed.

        Cancellation: the position changes anyway.
        """
        refuse_internal(self.name)
        self.check_open()
        if self._reset is not None:
            raise UnknownBrokerError("Error when resetting subscription: Failed to fence subscription")
        self._reset = asyncio.get_running_loop().create_future()
        self.resets += 1
        try:
            concerned = list(self.consumers)
            if self.kind == CommandSubscribe.Failover:
                concerned = [consumer for consumer in concerned if consumer is self.active_consumer]
            for consumer in concerned:
                consumer.close_by_broker()
            await self.cursor.reset(position)
            if words:
                self.cursor.acknowledge([(position, words)])
            if self.delays is not None:
                self.delays.clear()
            if self.dispatcher is not None:
                self.dispatcher.rewind()
        finally:
            self._reset.set_result(None)
            self._reset = None

    async def reset_to_time(self, time_ms: int) -> None:
        """Seek to the first entry published at ``time_ms`` or later; see `seek`."""
        log = self.topic.log
        await self.seek(log.next_position(await log.position_before_time(time_ms)))

    async def skip_all(self) -> None:
        """Acknowledge all entries.

        Raises:
            NotAllowed: the subscription is internal to the broker.

        Cancellation: the entries are acknowledged anyway.
        """
        refuse_internal(self.name)
        await self._skip_to(self.topic.log.last_confirmed)

    async def truncate(self) -> None:
        """Acknowledge all entries before they are deleted; also allowed for internal subscriptions.

        Cancellation: the entries are acknowledged anyway.
        """
        await self._skip_to(self.topic.log.last_confirmed)

    async def skip(self, entries: int) -> None:
        """Acknowledge the first ``entries`` unacknowledged entries.

        Raises:
            NotAllowed: the subscription is internal to the broker.

        Cancellation: the entries may still be acknowledged.
        """
        refuse_internal(self.name)
        if entries >= self.cursor.backlog_entries:
            await self.skip_all()
            return
        position = self.cursor.mark_delete
        for number in range(entries):
            position = self.cursor.next_unacknowledged(position)
            if number % ENTRIES_PER_TURN == ENTRIES_PER_TURN - 1:
                await asyncio.sleep(0)  # skipping many entries must not block the loop
        await self._skip_to(position)

    async def drop_up_to(self, position: Position) -> None:
        """Acknowledge all entries up to a position, because of a backlog quota.

        Cancellation: the entries are acknowledged anyway.
        """
        await self._skip_to(position)

    async def expire_up_to(self, position: Position) -> None:
        """Expire all entries up to a position; later acknowledgements and the consumers are not affected.

        Raises:
            NotAllowed: the subscription is internal to the broker.

        Cancellation: the entries are acknowledged anyway.
        """
        refuse_internal(self.name)
        await self._expire_up_to(position)

    async def expire(self, age_s: float) -> None:
        """Expire entries that are older than ``age_s``.

        Cancellation: the entries may still be acknowledged.
        """
        if self.name == COMPACTION_CURSOR:
            return  # entries that are not compacted yet may be the last ones of their keys
        now_ms = self.topic.broker.now_ms()
        position = await self.topic.log.position_before_age(now_ms - int(age_s * 1000), self.cursor.mark_delete)
        await self._expire_up_to(position)

    async def _expire_up_to(self, position: Position) -> None:
        before = self.cursor.backlog_entries
        await self._skip_to(position)
        self.expired_messages += before - self.cursor.backlog_entries
        self.last_expired_ms = self.topic.broker.now_ms()

    async def _skip_to(self, position: Position) -> None:
        position = min(position, self.topic.log.last_confirmed)
        if position <= self.cursor.mark_delete:
            return

        def skip(done: Done) -> None:
            self.cursor.acknowledge_up_to(position, done=done)
            if self.delays:
                self.delays.forget_up_to(self.cursor.mark_delete)
            if self.dispatcher is not None:
                self.dispatcher.acknowledged_up_to(self.cursor.mark_delete)

        await called_back(skip)

    async def ready(self) -> None:
        """Wait for a running reset, because clients resubscribe without waiting for the response to a seek.

        Cancellation: safe.
        """
        while self._reset is not None:
            await asyncio.shield(self._reset)

    # Deletion

    async def unsubscribe(self, consumer: Consumer, *, force: bool) -> None:
        """Delete the subscription on behalf of its only consumer, or of any consumer with ``force``.

        Raises:
            MetadataError: there are other consumers, or this consumer is not the active one.
        """
        others = [other for other in self.consumers if other is not consumer]
        is_entitled = not others and self.active_consumer in (None, consumer)
        if not is_entitled and not force:
            raise MetadataError("Unconnected or shared consumer attempting to unsubscribe")
        for other in others:
            other.close_by_broker()
        consumer.connection.consumers.remove(consumer)
        consumer.detach()
        await self.delete(force=True)

    async def delete(self, *, force: bool) -> None:
        """Delete the subscription and its cursor durably.

        Raises:
            ConsumerBusy: there are consumers, and ``force`` is False.
            NotAllowed: the subscription is internal to the broker.
        """
        refuse_internal(self.name)
        if self.consumers and not force:
            raise ConsumerBusy(f"Subscription {self.name} has {len(self.consumers)} active consumers")
        self.close()
        self.topic.forget_subscription(self)
        if self.is_durable:
            await self.topic.log.delete_cursor(self.name)

    def close(self) -> None:
        """Close the consumers and stop dispatching."""
        self.is_closed = True
        for consumer in list(self.consumers):
            consumer.close_by_broker()
        self._forget_delays()
        if self.dispatcher is not None:
            self.dispatcher.close()
