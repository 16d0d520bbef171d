"""The dispatcher of Exclusive and Failover subscriptions: one active consumer receives all entries, in order.

When the active consumer changes or requests redelivery, reading restarts at the first unacknowledged entry. On Failover
subscriptions, a new active consumer starts after a delay, so that entries that the old one has just acknowledged are
not delivered twice.

A partition selects consumer number ``partition mod n`` of the n consumers with the highest priority, sorted by name,
which distributes the partitions of a topic among them. A topic without partitions uses a hash ring instead, so that
many such topics are distributed as well. A joining consumer may therefore become active immediately.

Source: Pulsar binary protocol, section Exclusive and Failover.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ...wire import ack_set
from ...wire.batch import MIN_MESSAGE_BYTES
from ...wire.hashing import murmur3_32
from ...wire.position import Position
from ...wire.pulsar_api_pb2 import CommandSubscribe
from ..storage.compacted_view import CompactedReading
from .dispatcher import READS_PER_TURN, C, Dispatcher, limit_message_count
from .key_slots import has_key

if TYPE_CHECKING:
    from ...tasks import TaskSet
    from ...wire.topic_name import TopicName
    from ..config import BrokerConfig
    from ..storage.entry import StoredEntry
    from ..storage.port import Log
    from .ports import Delivery, SubscriptionPort


POINTS_PER_CONSUMER = 100


class Candidate(NamedTuple):
    """A consumer that may become active; lower numbers mean higher priority."""

    priority: int
    name: str


def choose_active(candidates: Sequence[Candidate], topic: str, partition: int) -> int | None:
    """Return the index of the consumer that becomes active, or None without candidates.

    Args:
        candidates: all consumers of the subscription, in join order.
        topic: full topic name.
        partition: partition index; -1 for a topic without partitions.
    """
    if not candidates:
        return None
    order = sorted(range(len(candidates)), key=candidates.__getitem__)
    best = candidates[order[0]].priority
    order = [index for index in order if candidates[index].priority == best]
    if partition >= 0:
        return order[partition % len(order)]
    return order[_on_ring(tuple(candidates[index].name for index in order), topic)]


def _on_ring(names: tuple[str, ...], topic: str) -> int:
    """Return the index of the name that owns the topic's point on the ring."""
    if len(names) == 1:
        return 0
    owners: dict[int, int] = {}
    for index, name in enumerate(names):
        for point in _points(name):
            owners[point] = index  # of equal points, the last one wins
    ring = sorted(owners)
    place = bisect_left(ring, murmur3_32(topic.encode()))
    return owners[ring[place % len(ring)]]


@lru_cache(maxsize=4096)
def _points(name: str) -> tuple[int, ...]:
    return tuple(murmur3_32(f"{name}{number}".encode()) for number in range(POINTS_PER_CONSUMER))


class SingleActiveDispatcher(Dispatcher[C]):
    """Dispatches the entries of a subscription to its active consumer.

    Attributes:
        consumers: consumers in join order.
    """

    def __init__(
        self,
        subscription: SubscriptionPort,
        kind: int,
        topic: TopicName,
        log: Log,
        config: BrokerConfig,
        tasks: TaskSet,
    ):
        super().__init__(subscription, kind, log, config, tasks)
        self.consumers: list[C] = []
        self._topic = topic
        self._takeover: asyncio.TimerHandle | None = None

    def add(self, consumer: C) -> None:
        """Add a consumer, which may become active on a Failover subscription."""
        self.consumers.append(consumer)
        if not self._choose() and self.kind == CommandSubscribe.Failover:
            consumer.notify_active(consumer is self.active)

    def remove(self, consumer: C) -> None:
        """Remove a consumer; an active consumer is replaced by another one."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._choose()

    def _choose(self) -> bool:
        """Choose the active consumer and return whether it changed."""
        candidates = [Candidate(consumer.priority, consumer.name) for consumer in self.consumers]
        index = choose_active(candidates, str(self._topic), self._topic.partition)
        chosen = None if index is None else self.consumers[index]
        if chosen is self.active:
            return False
        self.active = chosen
        # Drop loaded entries, because the new consumer starts at the first unacknowledged entry.
        self._reader.forget()
        if chosen is None:
            self._cancel_takeover()
        elif self.kind != CommandSubscribe.Failover or self._config.failover_delay_s <= 0:
            self._take_over()
        elif self._takeover is None:  # otherwise, a takeover is already planned, for whichever consumer is active then
            self._takeover = self._loop.call_later(self._config.failover_delay_s, self._take_over)
        return True

    def _take_over(self) -> None:
        # Determine the position after the delay, so that it includes the old consumer's last acknowledgements.
        self._takeover = None
        self._go_back()
        if self.kind == CommandSubscribe.Failover:
            for consumer in self.consumers:
                consumer.notify_active(consumer is self.active)
        self.wake()

    def _cancel_takeover(self) -> None:
        if self._takeover is not None:
            self._takeover.cancel()
            self._takeover = None

    def _go_back(self) -> None:
        cursor = self._subscription.cursor
        mark = cursor.mark_delete
        if self.active is not None and self.active.reads_compacted:
            # The compacted view may contain entries that are no longer in the log.
            self._next = Position(mark.ledger_id, mark.entry_id + 1)
            self._reader.use(CompactedReading(self._log))
        else:
            self._next = cursor.next_unacknowledged(mark)
            self._reader.use(self._log)

    def rewind(self) -> None:
        """Restart at the first unacknowledged entry."""
        self._go_back()
        self.wake()

    def redeliver(self, consumer: C, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Restart at the first unacknowledged entry if the active consumer requests it; ``positions`` are ignored."""
        if epoch is not None:
            consumer.raise_epoch(epoch)
        if consumer is self.active and self._takeover is None:
            self.rewind()

    def acknowledged(self, consumer: C, positions: Sequence[Position]) -> None:
        """Do nothing: this dispatcher does not track individual entries."""

    def acknowledged_up_to(self, position: Position) -> None:
        """Continue after a skipped position."""
        if position >= self._next:
            self._next = Position(position[0], position[1] + 1)

    def _run(self) -> None:
        consumer = self.active
        if consumer is None or self._takeover is not None:
            return
        log = self._log
        for _ in range(READS_PER_TURN):
            if not consumer.is_available or self._next > log.last_confirmed:
                return
            most, most_bytes = min(consumer.permits, self._config.max_read_entries), self._config.max_read_bytes
            if self._is_limited:
                most, most_bytes = self._room(most)
                if not most:
                    return
            entries = self._reader.read(self._next, most, most_bytes)
            if not entries:
                return
            self._deliver(consumer, entries)
        self.wake()

    def _deliver(self, consumer: C, entries: list[StoredEntry]) -> None:
        """Send entries that must be delivered, as permits allow; the last batch may exceed the permits."""
        cursor = self._subscription.cursor
        deliveries: list[Delivery] = []
        permits = consumer.permits
        position = self._next
        # Entries are rarely acknowledged before they are sent, so usually no lookup per entry is needed.
        looks_up = cursor.has_holes or entries[0].position <= cursor.mark_delete
        keeps_keys = self._keeps_keys(consumer)
        for entry in entries:
            if permits <= 0:
                break
            position, payload, messages = entry
            if messages > permits or not 0 < messages * MIN_MESSAGE_BYTES <= len(payload):
                entry = limit_message_count(entry, self._config.max_message_bytes)
                messages = entry.messages
            if keeps_keys and not has_key(consumer.key_ranges, payload):
                continue
            wanted = None
            if looks_up:
                if cursor.is_acknowledged(position):
                    continue
                wanted = cursor.remaining(position)
            deliveries.append((entry, 0, wanted))
            permits -= messages if wanted is None else min(ack_set.count(wanted), messages)
        self._next = Position(position[0], position[1] + 1)
        if deliveries:
            self._charge(deliveries, consumer.send(deliveries))

    def _keeps_keys(self, consumer: C) -> bool:
        return bool(consumer.key_ranges) and self.kind == CommandSubscribe.Exclusive

    def close(self) -> None:
        """Stop reading."""
        self._cancel_takeover()
        super().close()
        self.active = None
