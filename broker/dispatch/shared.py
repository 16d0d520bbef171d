"""The dispatcher of Shared subscriptions.

`SharedOrder` determines the order of consumers. Each consumer tracks its unacknowledged entries. When it leaves or
requests redelivery, they are added to the replay queue, which is dispatched before new entries.

Source: Pulsar binary protocol, sections Shared and Redelivery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic

from ...wire import ack_set
from ...wire.batch import MIN_MESSAGE_BYTES
from ...wire.position import Position
from ...wire.pulsar_api_pb2 import CommandSubscribe
from .chunks import ChunkOwners
from .dispatcher import READS_PER_TURN, C, Dispatcher, EntryReader, limit_message_count
from .replay import Replay

if TYPE_CHECKING:
    from ...tasks import TaskSet
    from ..config import BrokerConfig
    from ..storage.entry import StoredEntry
    from ..storage.port import Log
    from .delays import Delays
    from .ports import Delivery, SubscriptionPort


REPLAY_SPAN = 2048
"""Maximum number of log entries covered by one read of entries to redeliver."""
REPLAY_BYTES = 1024 * 1024
"""Maximum bytes of such a read, including entries that are not redelivered."""
DUE_AT_ONCE, DUE_MAX = 500, 100_000
"""Maximum number of due delayed entries queued at a time, and length of the queue above which none are added."""


class SharedOrder(Generic[C]):
    """Consumers in round-robin order within each priority level."""

    def __init__(self) -> None:
        self._levels: list[tuple[int, list[C]]] = []
        self._turns: dict[int, int] = {}  # by priority: index of the next consumer

    def __iter__(self) -> Iterator[C]:
        return (consumer for _, level in self._levels for consumer in level)

    def __len__(self) -> int:
        return sum(len(level) for _, level in self._levels)

    def add(self, consumer: C) -> None:
        """Add a consumer after all others with the same priority."""
        for priority, level in self._levels:
            if priority == consumer.priority:
                level.append(consumer)
                return
        self._levels.append((consumer.priority, [consumer]))
        self._levels.sort(key=lambda pair: pair[0])
        self._turns[consumer.priority] = 0

    def remove(self, consumer: C) -> bool:
        """Remove a consumer without changing the order of the others, and return whether it was present."""
        for number, (priority, level) in enumerate(self._levels):
            if priority == consumer.priority and consumer in level:
                index = level.index(consumer)
                del level[index]
                if index < self._turns[priority]:
                    self._turns[priority] -= 1
                if not level:
                    del self._levels[number]
                    del self._turns[priority]
                return True
        return False

    def next(self) -> C | None:
        """Return the next available consumer and advance, or return None."""
        for priority, level in self._levels:
            count = len(level)
            first = self._turns[priority]
            for step in range(count):
                index = (first + step) % count
                if level[index].is_available:
                    self._turns[priority] = (index + 1) % count
                    return level[index]
        return None

    def permits(self, most: int) -> int:
        """Return the total permits of all available consumers, but at most ``most``."""
        total = 0
        for consumer in self:
            if consumer.is_available:
                total += consumer.permits
                if total >= most:
                    return most
        return total


class SharedDispatcher(Dispatcher[C]):
    """Distributes the entries of a subscription among its consumers.

    Attributes:
        replay: entries to redeliver.
        unacked_messages: number of unacknowledged messages of all consumers.
        is_blocked: whether that number has reached the limit, so that no new entries are read until it falls to half.
    """

    KIND = CommandSubscribe.Shared

    def __init__(self, subscription: SubscriptionPort, log: Log, config: BrokerConfig, tasks: TaskSet):
        super().__init__(subscription, self.KIND, log, config, tasks)
        self.replay = Replay()
        self.unacked_messages = 0
        self.is_blocked = False
        self._order: SharedOrder[C] = SharedOrder()
        self._replay_reader = EntryReader(log, tasks, self.run)
        self._chunks: ChunkOwners[C] = ChunkOwners()
        self._takes_due = False

    @property
    def consumers(self) -> list[C]:
        """The consumers, by priority and then in join order."""
        return list(self._order)

    @property
    def replay_entries(self) -> int:
        """Number of entries queued for redelivery."""
        return len(self.replay)

    def add(self, consumer: C) -> None:
        """Add a consumer; the first consumer starts at the first unacknowledged entry."""
        if not len(self._order):
            self._go_back()
        elif len(self._order) == 1:
            (self._chunks.elder,) = self._order
        self._order.add(consumer)

    def remove(self, consumer: C) -> None:
        """Remove a consumer; its unacknowledged entries go to others without increasing the redelivery count."""
        if not self._order.remove(consumer):
            return
        self._chunks.remove(consumer)
        self.unacked_messages -= consumer.unacked_messages
        if len(self._order):
            self._give_back(consumer.pending, counted=False)
            self._check_block()
            self.wake()
        else:
            self._go_back()
        consumer.pending.clear()
        consumer.unacked_messages = 0

    def _give_back(self, positions: Iterable[Position], *, counted: bool) -> None:
        self.replay.add(positions, counted=counted)

    def _go_back(self) -> None:
        cursor = self._subscription.cursor
        self._next = cursor.next_unacknowledged(cursor.mark_delete)
        self.replay.clear()
        self._chunks.clear()
        self._reader.forget()
        self._replay_reader.forget()

    def rewind(self) -> None:
        """Restart at the first unacknowledged entry."""
        for consumer in self._order:
            consumer.pending.clear()
            consumer.unacked_messages = 0
            consumer.unblock()
        self.unacked_messages = 0
        self.is_blocked = False
        self._go_back()
        self.wake()

    def redeliver(self, consumer: C, positions: Sequence[Position] | None, epoch: int | None) -> None:
        """Redeliver a consumer's unacknowledged entries: those in ``positions``, or all if None."""
        wanted = list(consumer.pending) if positions is None else positions
        released = []
        for position in wanted:
            messages = consumer.release(position)
            if messages is not None:
                released.append(position)
                self.unacked_messages -= messages
                consumer.messages_redelivered += messages
        self._give_back(released, counted=True)
        consumer.unblock()
        self._check_block()
        self.wake()

    def acknowledged(self, consumer: C, positions: Sequence[Position]) -> None:
        """Release entries that the cursor has recorded as fully or partly acknowledged."""
        cursor = self._subscription.cursor
        touched = {consumer}
        for position in positions:
            holder = consumer if position in consumer.pending else self._holder(position)
            # Entries that were dropped before being acknowledged by a reader count as acknowledged, too.
            if cursor.is_acknowledged(position) or not self._log.holds(position):
                if holder is not None:
                    self.unacked_messages -= self._release(holder, position) or 0
                    touched.add(holder)
                self._forget(position)
            elif holder is not None:
                self._keep_rest(holder, position)
        for holder in touched:
            was_blocked = holder.is_blocked
            holder.block_above(self._subscription.policies.max_unacked_per_consumer)
            if was_blocked and not holder.is_blocked:
                self.wake()
        self._check_block()

    def _release(self, consumer: C, position: Position) -> int | None:
        """Release an acknowledged entry, and return its number of messages, or None if it was not held."""
        return consumer.release(position)

    def _forget(self, position: Position) -> None:
        self.replay.forget(position)

    def _forget_up_to(self, position: Position) -> None:
        self.replay.forget_up_to(position)

    def _keep_rest(self, holder: C, position: Position) -> None:
        wanted = self._subscription.cursor.remaining(position)
        if wanted is not None:
            held = holder.release(position) or 0
            self.unacked_messages -= held
            rest = min(ack_set.count(wanted), held)
            holder.hold(position, rest)
            self.unacked_messages += rest

    def acknowledged_up_to(self, position: Position) -> None:
        """Release all entries up to a position, because they were skipped or have expired."""
        for consumer in self._order:
            for held in [held for held in consumer.pending if held <= position]:
                self.unacked_messages -= self._release(consumer, held) or 0
            consumer.block_above(self._subscription.policies.max_unacked_per_consumer)
        self._forget_up_to(position)
        if position >= self._next:
            self._next = Position(position[0], position[1] + 1)
        self._check_block()
        self.wake()

    def _holder(self, position: Position) -> C | None:
        for consumer in self._order:
            if position in consumer.pending:
                return consumer
        return None

    def follow_policies(self) -> None:
        """Apply the current policies of the topic, and unblock consumers that are below a new limit."""
        if self._subscription.is_durable:
            limit = self._subscription.policies.max_unacked_per_consumer
            for consumer in self._order:
                consumer.block_above(limit)
        self._check_block()
        self.wake()

    def _wait_for_memory(self) -> None:
        self._replay_reader.forget()
        super()._wait_for_memory()

    def _check_block(self) -> None:
        limit = self._subscription.policies.max_unacked_per_subscription
        if not self._subscription.is_durable:
            return
        if not limit:
            self.is_blocked = False
        elif self.unacked_messages >= limit:
            self.is_blocked = True
        elif self.is_blocked and self.unacked_messages <= limit // 2:
            self.is_blocked = False
            self.wake()

    def _run(self) -> None:
        for _ in range(READS_PER_TURN):
            limit = self._order.permits(self._config.max_read_entries)
            if limit <= 0:
                return
            most_bytes = self._config.max_read_bytes
            if self._is_limited:
                limit, most_bytes = self._room(limit)
                if not limit:
                    return
            delays = self._subscription.delays
            if delays:
                self._add_due(delays, limit)
            if not self._give_some(limit, most_bytes):
                return
        self.wake()

    def _add_due(self, delays: Delays, limit: int) -> None:
        """Queue due delayed entries if fewer than ``limit`` entries are queued, and continue until many are queued.

        Queued entries are read in log order. Due entries may be scattered over the log, and the disk is read in blocks.
        The more entries are queued, the more of them are likely to be in the same block.
        """
        if len(self.replay) < limit:
            self._takes_due = True
        if self._takes_due:
            due = delays.take_due(DUE_AT_ONCE)
            # Normal reads dispatch due entries after the read position. Dispatching them now would advance the read
            # position past all entries before them, which would then never be dispatched.
            self.replay.add([position for position in due if position < self._next], counted=False)
            self._takes_due = len(due) == DUE_AT_ONCE and len(self.replay) < DUE_MAX

    def _give_some(self, limit: int, most_bytes: int) -> bool:
        """Dispatch at most ``limit`` entries and ``most_bytes`` bytes, and return whether to continue."""
        # Replay before reading new entries, even if the subscription is blocked, which only affects new entries.
        read = self._read_replay if self.replay else self._read_new
        entries = read(limit, most_bytes)
        return bool(entries) and self._spread(entries)

    def _read_new(self, limit: int, most_bytes: int) -> list[StoredEntry]:
        if self.is_blocked or self._next > self._log.last_confirmed:
            return []
        if self._next.ledger_id in self._log.delayed_ledgers:
            limit = self._config.max_read_entries  # delayed entries need no permits
        return self._reader.read(self._next, limit, most_bytes)

    def _read_replay(self, limit: int, most_bytes: int) -> list[StoredEntry]:
        run = self.replay.first_run(limit, REPLAY_SPAN)
        entries = self._replay_reader.read(run[0], run[-1][1] - run[0][1] + 1, min(most_bytes, REPLAY_BYTES))
        if not entries:
            return []
        # The read returns consecutive entries of one ledger, so an entry's index follows from its position.
        first, last = entries[0].position, entries[-1].position
        wanted: list[StoredEntry] = []
        for position in run:
            if position > last:
                break  # for the next read
            if position >= first:
                wanted.append(entries[position[1] - first[1]])
            else:
                # If the log skipped this entry, it was deleted and can no longer be dispatched.
                self.replay.forget(position)
        if not wanted:
            self.wake()
        return wanted

    def _spread(self, entries: list[StoredEntry]) -> bool:
        """Dispatch entries to consumers in turn, a few at a time, as long as consumers are available.

        Returns:
            Whether any entry was processed; if not, the consumer for the first entry is not available.
        """
        index = 0
        while index < len(entries):
            consumer = self._order.next()
            if consumer is None:
                break
            before = index
            index = self._serve(consumer, entries, before)
            if index == before:  # a chunk of a message that is assigned to another consumer
                owner = self._chunks.owner(entries[before].payload)
                if owner is None or not owner.is_available:
                    break
                index = self._serve(owner, entries, before)
        return index > 0

    def _serve(self, consumer: C, entries: list[StoredEntry], index: int) -> int:
        """Dispatch entries from ``index`` on to a consumer, and return the index of the first unprocessed entry."""
        cursor = self._subscription.cursor
        replay = self.replay
        deliveries: list[Delivery] = []
        permits = min(consumer.permits, self._unacked_allowance(consumer))
        looks_up = cursor.has_holes or entries[index].position <= cursor.mark_delete
        chunks = self._chunks if len(self._order) > 1 else None
        # All entries of a read are in one ledger.
        delays = self._subscription.delays if entries[index].position[0] in self._log.delayed_ledgers else None
        while index < len(entries) and permits > 0 and len(deliveries) < self._config.max_round_robin_entries:
            entry = entries[index]
            position, payload, messages = entry
            if chunks is not None and not chunks.give(payload, consumer):
                break
            index += 1
            if messages > permits or not 0 < messages * MIN_MESSAGE_BYTES <= len(payload):
                entry = limit_message_count(entry, self._config.max_message_bytes)
                messages = entry.messages
            # Dequeue the entry and advance the read position immediately, so that it is not dispatched twice.
            replay.discard(position)
            if position >= self._next:
                self._next = Position(position[0], position[1] + 1)
            wanted = None
            if looks_up:
                if cursor.is_acknowledged(position):
                    replay.forget(position)
                    continue
                wanted = cursor.remaining(position)
            if delays is not None and delays.holds_back(entry):
                continue
            if wanted is not None:
                messages = min(ack_set.count(wanted), messages)
            permits -= messages
            consumer.hold(position, messages)
            self.unacked_messages += messages
            deliveries.append((entry, replay.count(position), wanted))
        if deliveries:
            self._charge(deliveries, consumer.send(deliveries))
        if self._subscription.is_durable:
            consumer.block_above(self._subscription.policies.max_unacked_per_consumer)
            self._check_block()
        return index

    def _unacked_allowance(self, consumer: C) -> int:
        """Return how many messages the limit on unacknowledged messages allows; readers have no limit."""
        limit = self._subscription.policies.max_unacked_per_consumer
        if not limit or not self._subscription.is_durable:
            return consumer.permits
        return limit - consumer.unacked_messages

    def close(self) -> None:
        """Stop reading."""
        super().close()
        self._replay_reader.forget()
