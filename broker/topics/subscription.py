"""A subscription: a cursor over the topic's log, the consumers that share it, and who of them gets what.

Source: Pulsar binary protocol, sections Consumer, ACK, SEEK and UNSUBSCRIBE.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import ConsumerBusy, MetadataError, ServiceNotReady, UnknownBrokerError
from ...wire.position import Position
from ...wire.pulsar_api_pb2 import CommandSubscribe
from ..dispatch.shared import SharedDispatcher
from ..dispatch.single_active import SingleActiveDispatcher
from ..storage.compacted_view import COMPACTION_CURSOR
from ..storage.cursors.cursor import Ack, Cursor, MemoryCursor
from ..storage.cursors.names import refuse_internal
from .rates import Meter

if TYPE_CHECKING:
    from ..storage.ports import Done
    from .consumer import Consumer
    from .topic import Topic

log = logging.getLogger(__name__)

Dispatcher = SingleActiveDispatcher["Consumer"] | SharedDispatcher["Consumer"]

ENTRIES_PER_TURN = 1000
"""Entries that a long search over a cursor looks at before others get their turn of the loop."""
ABANDONED_AFTER_S = 30.0
"""How long a non-durable subscription waits for its consumer to come back after a seek."""


def kind_name(kind: int | None) -> str:
    """Return the name of a subscription type."""
    return "None" if kind is None else CommandSubscribe.SubType.Name(kind)


class Subscription:
    """One subscription of one topic.

    Attributes:
        cursor: what is acknowledged.
        is_durable: whether it outlives its consumers.
        dispatcher: gives entries to consumers; None until the first consumer says of which type it is.
        creation: ends when the cursor is on the disk; None once it is.
        resets: how often its position was moved by a seek.
    """

    def __init__(self, topic: Topic, cursor: Cursor | MemoryCursor, *, is_durable: bool):
        self.topic = topic
        self.name = cursor.name
        self.cursor = cursor
        self.is_durable = is_durable
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
        self.resets = 0
        self._joining = 0
        self._reset: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"Subscription({self.name!r} of {self.topic.name}, consumers={len(self.consumers)})"

    @property
    def consumers(self) -> Sequence[Consumer]:
        """Those that are connected."""
        return self.dispatcher.consumers if self.dispatcher is not None else ()

    @property
    def active_consumer(self) -> Consumer | None:
        """The consumer that gets all entries, under Exclusive and Failover."""
        return self.dispatcher.active if self.dispatcher is not None else None

    @property
    def kind(self) -> int | None:
        """The type (SubType) of the present or last consumers."""
        if self.name == COMPACTION_CURSOR:
            return CommandSubscribe.Exclusive
        return self.dispatcher.kind if self.dispatcher is not None else None

    @property
    def counters(self) -> tuple[int, int, int, int]:
        """Messages and bytes sent, messages redelivered, entries acknowledged, since the topic was loaded."""
        totals = [*self._departed]
        for consumer in self.consumers:
            totals = [total + count for total, count in zip(totals, consumer.counters, strict=True)]
        return totals[0], totals[1], totals[2], totals[3]

    @property
    def read_position(self) -> Position:
        """The next entry to be read."""
        if self.dispatcher is not None and self.consumers:
            return self.dispatcher.read_position
        return self.cursor.next_unacknowledged(self.cursor.mark_delete)

    @property
    def replay_entries(self) -> int:
        """Entries that wait to be given out again."""
        return len(self.dispatcher.replay) if isinstance(self.dispatcher, SharedDispatcher) else 0

    @property
    def is_blocked(self) -> bool:
        """Whether its consumers hold too much for it to read on."""
        return isinstance(self.dispatcher, SharedDispatcher) and self.dispatcher.is_blocked

    # Consumers come and go

    def holder(self, kind: int) -> Consumer | None:
        """Return the consumer that excludes another one of type ``kind``; None if another one may join.

        Raises:
            ConsumerBusy: the consumers there are of another type.
        """
        if not self.consumers:
            return None
        if kind != self.kind:
            raise ConsumerBusy(
                f"Subscription is of different type: it has consumers of type {kind_name(self.kind)},"
                f" not {kind_name(kind)}"
            )
        return self.consumers[0] if kind == CommandSubscribe.Exclusive else None

    def add_consumer(self, consumer: Consumer, kind: int) -> None:
        """Add a consumer; no other one excludes it (`holder`)."""
        self.check_open()
        if self.dispatcher is None or self.dispatcher.kind != kind:
            if self.dispatcher is not None:
                self.dispatcher.close()
            topic, broker = self.topic, self.topic.broker
            if kind == CommandSubscribe.Shared:
                self.dispatcher = SharedDispatcher(self, topic.log, broker.config, broker.tasks)
            else:
                self.dispatcher = SingleActiveDispatcher(self, kind, topic.name, topic.log, broker.config, broker.tasks)
        self.dispatcher.add(consumer)

    def check_open(self) -> None:
        """Raise if it was closed, by itself or with its topic.

        Raises:
            ServiceNotReady: looking the topic up again helps.
        """
        if self.is_closed:
            raise ServiceNotReady(f"Subscription {self.name} was closed meanwhile; look its topic up again")

    @contextmanager
    def joining(self) -> Iterator[None]:
        """Keep the subscription for a consumer that is about to join; one that is not durable ends if it does not."""
        self._joining += 1
        try:
            yield
        finally:
            self._joining -= 1
            if not self.is_durable and self._reset is None:
                self._vanish()

    def remove_consumer(self, consumer: Consumer) -> None:
        """Remove a consumer; a non-durable subscription ends with its last one."""
        self._departed = [total + count for total, count in zip(self._departed, consumer.counters, strict=True)]
        self.last_flow_ms = max(self.last_flow_ms, consumer.last_flow_ms)
        self.last_consumed_ms = max(self.last_consumed_ms, consumer.last_sent_ms)
        if self.dispatcher is not None:
            self.dispatcher.remove(consumer)
        if not self.is_durable and not self.consumers:
            if self._reset is None:
                self._vanish()
            else:
                self.topic.broker.tasks.start(self._vanish_later(), f"waiting for a consumer of {self.name}")

    async def _vanish_later(self) -> None:
        await asyncio.sleep(ABANDONED_AFTER_S)
        self._vanish()

    def _vanish(self) -> None:
        if not self.consumers and not self._joining and self.topic.subscriptions.get(self.name) is self:
            self.close()
            self.topic.forget_subscription(self)

    def fail(self, error: Exception) -> None:
        """Close the consumers because of a mistake of ours in giving out entries; their clients come back."""
        log.error("%r failed, its consumers are closed: %r", self, error, exc_info=error)
        for consumer in list(self.consumers):
            consumer.close_by_broker()

    # Entries go out and are acknowledged

    def run(self) -> None:
        """Give out what there is."""
        if self.dispatcher is not None:
            self.dispatcher.run()

    def wake(self) -> None:
        """Give out what there is, in the next turn of the loop."""
        if self.dispatcher is not None:
            self.dispatcher.wake()

    def acknowledge(
        self,
        consumer: Consumer,
        acks: Sequence[Ack],
        done: Done | None,
    ) -> None:
        """Acknowledge entries one by one, or messages inside them; ``done`` is told when that is durable."""
        before = self.cursor.mark_delete
        self.cursor.acknowledge(acks, done)
        assert self.dispatcher is not None
        self.dispatcher.acknowledged(consumer, [position for position, _ in acks])
        consumer.messages_acked += len(acks)
        self._note_ack(consumer, before)

    def acknowledge_up_to(
        self,
        consumer: Consumer,
        position: Position,
        words: Sequence[int] | None,
        done: Done | None,
    ) -> None:
        """Acknowledge everything up to an entry; only under Exclusive and Failover, elsewhere it has no effect."""
        if self.kind == CommandSubscribe.Shared:
            log.warning("%r: a cumulative acknowledgement is ignored on a shared subscription", self)
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
        """Tell the consumers, if they have acknowledged all that a terminated topic will ever hold."""
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

    # The cursor is moved

    async def seek(self, position: Position, words: Sequence[int] | None = None) -> None:
        """Make ``position`` the next entry to be delivered; the consumers concerned are closed and come back.

        Raises:
            UnknownBrokerError: another reset is under way.
            ServiceNotReady: it was closed meanwhile.
            NotAllowed: the cursor is the broker's own.
            StorageError: the disk refused.

        Cancellation: the position is moved all the same.
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
            if self.dispatcher is not None:
                self.dispatcher.rewind()
        finally:
            self._reset.set_result(None)
            self._reset = None

    async def reset_to_time(self, time_ms: int) -> None:
        """Make the first entry published at or after a time the next one to be delivered; see `seek`."""
        log = self.topic.log
        await self.seek(log.next_position(await log.position_before_time(time_ms)))

    async def skip_all(self) -> None:
        """Acknowledge everything that is there.

        Raises:
            NotAllowed: the cursor is the broker's own.

        Cancellation: it is acknowledged all the same.
        """
        refuse_internal(self.name)
        await self._skip_to(self.topic.log.last_confirmed)

    async def truncate(self) -> None:
        """Acknowledge everything that is there, because it is to be deleted; the broker's own cursors go along.

        Cancellation: it is acknowledged all the same.
        """
        await self._skip_to(self.topic.log.last_confirmed)

    async def skip(self, entries: int) -> None:
        """Acknowledge the first so many entries that are not acknowledged.

        Raises:
            NotAllowed: the cursor is the broker's own.

        Cancellation: some may be acknowledged.
        """
        refuse_internal(self.name)
        if entries >= self.cursor.backlog_entries:
            await self.skip_all()
            return
        position = self.cursor.mark_delete
        for number in range(entries):
            position = self.cursor.next_unacknowledged(position)
            if number % ENTRIES_PER_TURN == ENTRIES_PER_TURN - 1:
                await asyncio.sleep(0)  # a long way is no reason to keep the loop busy
        await self._skip_to(position)

    async def expire(self, age_s: float) -> None:
        """Acknowledge what was published longer ago than that.

        Cancellation: it is acknowledged all the same.
        """
        if self.name == COMPACTION_CURSOR:
            return  # what is not compacted yet may hold the last message of a key, however old
        now_ms = self.topic.broker.now_ms()
        position = await self.topic.log.position_before_time(now_ms - int(age_s * 1000))
        before = self.cursor.backlog_entries
        await self._skip_to(position)
        self.expired_messages += before - self.cursor.backlog_entries
        self.last_expired_ms = now_ms

    async def _skip_to(self, position: Position) -> None:
        position = min(position, self.topic.log.last_confirmed)
        if position <= self.cursor.mark_delete:
            return

        def skip(done: Done) -> None:
            self.cursor.acknowledge_up_to(position, done=done)
            if self.dispatcher is not None:
                self.dispatcher.acknowledged_up_to(self.cursor.mark_delete)

        await self.topic.log.core.wait(skip)

    async def ready(self) -> None:
        """Wait for a reset that is under way: a client subscribes again without waiting for the end of its seek.

        Cancellation: safe.
        """
        while self._reset is not None:
            await asyncio.shield(self._reset)

    # The end

    async def unsubscribe(self, consumer: Consumer, *, force: bool) -> None:
        """Delete the subscription for its only consumer, or by force.

        Raises:
            MetadataError: there are other consumers, or this one is not the active one.
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
        """Delete the subscription and its cursor; returns when that is durable.

        Raises:
            ConsumerBusy: it has consumers; ``force`` closes them.
            NotAllowed: the cursor is the broker's own.
        """
        refuse_internal(self.name)
        if self.consumers and not force:
            raise ConsumerBusy(f"Subscription {self.name} has {len(self.consumers)} active consumers")
        self.close()
        self.topic.forget_subscription(self)
        if self.is_durable:
            await self.topic.log.delete_cursor(self.name)

    def close(self) -> None:
        """Close the consumers from our side and stop."""
        self.is_closed = True
        for consumer in list(self.consumers):
            consumer.close_by_broker()
        if self.dispatcher is not None:
            self.dispatcher.close()
