"""Key_Shared ordering: which entry may go to which consumer while consumers come and go. Pure logic.

The selector assigns each slot of keys to a consumer. Two rules keep the order within a slot: an entry does not overtake
a waiting entry of its slot; and a slot that moves to another consumer drains first: its entries are not dispatched
while the old consumer has unacknowledged entries of the slot.

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
    """A slot that moved to another consumer while its old one has some of it unacknowledged."""

    slot: int
    unacked_entries: int
    waiting_entries: int


class KeyOrder(Generic[C]):
    """Slots of what is held and of what waits, and the queue of each consumer.

    Args:
        selector: whose slot is whose.
        keeps_order: False if consumers allow for entries out of order; then only the selector decides.

    Attributes:
        cleared: by consumer: slots that it had, that moved, and that it has nothing of any more.
    """

    def __init__(self, selector: Selector[C], *, keeps_order: bool):
        self.selector = selector
        self.keeps_order = keeps_order
        self.cleared: dict[C, int] = {}
        self._owners: dict[int, C | None] = {}  # by slot: the selector's answer since the last join or leave
        self._slots: dict[Position, int] = {}  # of entries that are held or waiting
        self._held: dict[int, tuple[C, int]] = {}  # by slot: the consumer that holds entries of it, and how many
        self._waiting: set[Position] = set()
        self._waiting_in: dict[int, int] = {}  # by slot: how many wait
        self._queues: dict[C | None, list[Position]] = {}  # heaps; None: of slots without an owner
        self._draining: dict[int, list[Position]] = {}  # by slot: a heap of what waits for it

    @property
    def waiting(self) -> int:
        """Entries that wait to be given out."""
        return len(self._waiting)

    def slot_of(self, position: Position) -> int:
        """Return the slot of an entry that is held or waits."""
        return self._slots[position]

    # Consumers come and go

    def add(self, consumer: C) -> None:
        """Add a consumer.

        Raises:
            ConsumerAssignError: there are no slots for it; nothing has changed.
        """
        self.selector.add(consumer)
        self.cleared[consumer] = 0
        self._deal()

    def remove(self, consumer: C, held: Iterable[Position]) -> None:
        """Remove a consumer; what it held waits for the others."""
        self.selector.remove(consumer)
        self.cleared.pop(consumer, None)
        for position in held:
            self._let_go(position)
            self._note_waiting(position)
        self._deal()

    def _deal(self) -> None:
        """Sort the waiting entries by consumer again."""
        self._owners.clear()
        self._draining = {slot: [] for slot, (holder, _) in self._held.items() if self.owner(slot) is not holder}
        self._queues = {}
        for position in sorted(self._waiting):
            self._queue_of(self._slots[position]).append(position)  # in order, which is a heap

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

    # Entries go out, come back and are acknowledged

    def turn_of(self, slot: int) -> C | None:
        """Return who may be given an entry that does not wait yet; None if it has to wait."""
        if self.keeps_order and (slot in self._waiting_in or slot in self._draining):
            return None
        return self.owner(slot)

    def hold(self, consumer: C, position: Position, slot: int) -> None:
        """Note that a consumer was given an entry, which does not wait (any more)."""
        self._slots[position] = slot
        if self.keeps_order:
            held = self._held.get(slot)
            self._held[slot] = (consumer, 1 if held is None else held[1] + 1)

    def wait(self, position: Position, slot: int) -> None:
        """Put an entry where it waits; one that waits already stays."""
        self._slots[position] = slot
        if position not in self._waiting:
            self._note_waiting(position)
            heapq.heappush(self._queue_of(slot), position)

    def _note_waiting(self, position: Position) -> None:
        slot = self._slots[position]
        self._waiting.add(position)
        self._waiting_in[slot] = self._waiting_in.get(slot, 0) + 1

    def come_back(self, position: Position) -> None:
        """An entry that a consumer held waits again."""
        slot = self._slots[position]
        self._let_go(position)
        self.wait(position, slot)

    def _let_go(self, position: Position) -> bool:
        """Note that an entry is not held any more; returns whether that ended the draining of its slot."""
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
        """Return the first entry that waits for a consumer and may go out now."""
        queue = self._queues.get(consumer)
        while queue:
            if queue[0] in self._waiting:
                return queue[0]
            heapq.heappop(queue)  # acknowledged meanwhile
        return None

    def take(self, consumer: C) -> Position:
        """Take out the first entry that waits for a consumer (`head`); `hold` or `forget` it."""
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
        """A consumer has acknowledged what it held; returns whether that ended the draining of a slot."""
        ended = self._let_go(position)
        del self._slots[position]
        return ended

    def forget(self, position: Position) -> None:
        """An entry that waits, or was taken out, or is not known, is acknowledged or gone."""
        if position in self._waiting:
            self._not_waiting(position)
        self._slots.pop(position, None)

    def forget_up_to(self, position: Position) -> None:
        """What waits up to a position is acknowledged; what was held was released before."""
        for each in [each for each in self._waiting if each <= position]:
            self.forget(each)

    def clear(self) -> None:
        """Forget all entries; the consumers stay."""
        for store in (self._slots, self._held, self._waiting, self._waiting_in, self._queues, self._draining):
            store.clear()

    def draining(self) -> dict[C, list[Draining]]:
        """Return the slots that drain, by the consumer that they moved from."""
        found: dict[C, list[Draining]] = {}
        for slot in sorted(self._draining):
            holder, count = self._held[slot]
            found.setdefault(holder, []).append(Draining(slot, count, self._waiting_in.get(slot, 0)))
        return found
