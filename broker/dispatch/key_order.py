"""Key_Shared ordering: determines which consumer may receive an entry while consumers join and leave. Pure logic.

The selector assigns slots of keys to consumers. Two rules preserve the order within a slot. First, an entry does not
overtake a waiting entry of the same slot. Second, a slot that is reassigned to another consumer drains first: its
entries are not dispatched while the old consumer has unacknowledged entries of the slot.

Source: Pulsar binary protocol, section Key_Shared (ordering rules of 4.0).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from .key_slots import Named, Selector

if TYPE_CHECKING:
    from ...wire.position import Position

C = TypeVar("C", bound=Named)


class Draining(NamedTuple):
    """A reassigned slot whose old consumer still has unacknowledged entries."""

    slot: int
    unacked_entries: int
    waiting_entries: int


class KeyOrder(Generic[C]):
    """Tracks the slots of held and waiting entries, and a queue of waiting entries per consumer.

    An entry is held while a consumer has not acknowledged it, and waits until it can be dispatched.

    Args:
        selector: assigns slots to consumers.
        keeps_order: whether to preserve the order; if False, entries go to the owner of their slot immediately.

    Attributes:
        cleared: number of former slots of each consumer that have drained.
    """

    def __init__(self, selector: Selector[C], *, keeps_order: bool):
        self.selector = selector
        self.keeps_order = keeps_order
        self.cleared: dict[C, int] = {}
        self._owners: dict[int, C | None] = {}  # by slot; cached until a consumer joins or leaves
        self._slots: dict[Position, int] = {}  # slots of held and waiting entries
        self._held: dict[int, tuple[C, int]] = {}  # by slot: consumer that holds its entries, and their number
        self._waiting: set[Position] = set()
        self._waiting_in: dict[int, int] = {}  # by slot: number of waiting entries
        self._queues: dict[C | None, list[Position]] = {}  # heaps; the key None is for slots without an owner
        self._draining: dict[int, list[Position]] = {}  # by slot: heap of the entries that wait until it has drained

    @property
    def waiting(self) -> int:
        """Number of waiting entries."""
        return len(self._waiting)

    def slot_of(self, position: Position) -> int:
        """Return the slot of a held or waiting entry."""
        return self._slots[position]

    # Consumers

    def add(self, consumer: C) -> None:
        """Add a consumer.

        Raises:
            ConsumerAssignError: no slots can be assigned to the consumer; nothing has changed.
        """
        self.selector.add(consumer)
        self.cleared[consumer] = 0
        self._deal()

    def remove(self, consumer: C, held: Iterable[Position]) -> None:
        """Remove a consumer; its held entries wait for other consumers."""
        self.selector.remove(consumer)
        self.cleared.pop(consumer, None)
        for position in held:
            self._let_go(position)
            self._note_waiting(position)
        self._deal()

    def _deal(self) -> None:
        """Reassign all waiting entries to the queues of consumers."""
        self._owners.clear()
        self._draining = {slot: [] for slot, (holder, _) in self._held.items() if self.owner(slot) is not holder}
        self._queues = {}
        for position in sorted(self._waiting):
            self._queue_of(self._slots[position]).append(position)  # a sorted list is a valid heap

    def _queue_of(self, slot: int) -> list[Position]:
        queue = self._draining.get(slot)
        return self._queues.setdefault(self.owner(slot), []) if queue is None else queue

    def owner(self, slot: int) -> C | None:
        """Return the owner of a slot, or None."""
        try:
            return self._owners[slot]
        except KeyError:
            owner = self._owners[slot] = self.selector.select(slot)
            return owner

    # Entries

    def turn_of(self, slot: int) -> C | None:
        """Return the consumer for a new entry of a slot, or None if the entry must wait."""
        if self.keeps_order and (slot in self._waiting_in or slot in self._draining):
            return None
        return self.owner(slot)

    def hold(self, consumer: C, position: Position, slot: int) -> None:
        """Record that an entry was dispatched to a consumer."""
        self._slots[position] = slot
        if self.keeps_order:
            held = self._held.get(slot)
            self._held[slot] = (consumer, 1 if held is None else held[1] + 1)

    def wait(self, position: Position, slot: int) -> None:
        """Add a waiting entry, unless it is already waiting."""
        self._slots[position] = slot
        if position not in self._waiting:
            self._note_waiting(position)
            heapq.heappush(self._queue_of(slot), position)

    def _note_waiting(self, position: Position) -> None:
        slot = self._slots[position]
        self._waiting.add(position)
        self._waiting_in[slot] = self._waiting_in.get(slot, 0) + 1

    def come_back(self, position: Position) -> None:
        """Make a held entry wait again."""
        slot = self._slots[position]
        self._let_go(position)
        self.wait(position, slot)

    def _let_go(self, position: Position) -> bool:
        """Release a held entry, and return whether its slot has drained."""
        if not self.keeps_order:
            return False
        slot = self._slots[position]
        consumer, count = self._held[slot]
        if count > 1:
            self._held[slot] = consumer, count - 1
            return False
        del self._held[slot]
        drained = self._draining.pop(slot, None)
        if drained is None:
            return False
        if consumer in self.cleared:
            self.cleared[consumer] += 1
        queue = self._queues.setdefault(self.owner(slot), [])
        for each in drained:
            heapq.heappush(queue, each)
        return True

    def head(self, consumer: C) -> Position | None:
        """Return the first waiting entry that can be dispatched to the consumer now, or None."""
        queue = self._queues.get(consumer)
        while queue:
            if queue[0] in self._waiting:
                return queue[0]
            heapq.heappop(queue)  # acknowledged meanwhile
        return None

    def take(self, consumer: C) -> Position:
        """Remove and return the first waiting entry of a consumer (`head`); must be followed by `hold` or `forget`."""
        position = heapq.heappop(self._queues[consumer])
        self._not_waiting(position)
        return position

    def _not_waiting(self, position: Position) -> None:
        self._waiting.discard(position)
        slot = self._slots[position]
        left = self._waiting_in[slot] - 1
        if left:
            self._waiting_in[slot] = left
        else:
            del self._waiting_in[slot]

    def release(self, position: Position) -> bool:
        """Record that a held entry was acknowledged, and return whether its slot has drained."""
        ended = self._let_go(position)
        del self._slots[position]
        return ended

    def forget(self, position: Position) -> None:
        """Forget an entry that is not held, because it was acknowledged or deleted."""
        if position in self._waiting:
            self._not_waiting(position)
        self._slots.pop(position, None)

    def forget_up_to(self, position: Position) -> None:
        """Forget waiting entries up to an acknowledged position; held entries must be released first."""
        for each in [each for each in self._waiting if each <= position]:
            self.forget(each)

    def clear(self) -> None:
        """Forget all entries but not the consumers."""
        for store in (self._slots, self._held, self._waiting, self._waiting_in, self._queues, self._draining):
            store.clear()

    def draining(self) -> dict[C, list[Draining]]:
        """Return the draining slots, grouped by old consumer."""
        found: dict[C, list[Draining]] = {}
        for slot in sorted(self._draining):
            holder, count = self._held[slot]
            found.setdefault(holder, []).append(Draining(slot, count, self._waiting_in.get(slot, 0)))
        return found
