"""Tracks entries that the application has not acknowledged in time; performs no I/O.

Design: a timer wheel with one slot more than the timeout has ticks. New entries go into the newest slot, and each tick
removes the oldest one. An entry thus expires at most one tick after its timeout, and adding or removing one takes
constant time.
"""

from __future__ import annotations

import math
from collections import deque

_Key = tuple[int, int]


class AckTimeouts:
    """Positions (ledger, entry) awaiting acknowledgement.

    Invariant: a position is in at most one slot.
    """

    __slots__ = ("_slot_of", "_slots")

    def __init__(self, timeout_s: float, tick_s: float):
        self._slots: deque[set[_Key]] = deque(set() for _ in range(math.ceil(timeout_s / tick_s) + 1))
        self._slot_of: dict[_Key, set[_Key]] = {}

    def __len__(self) -> int:
        return len(self._slot_of)

    def add(self, position: _Key) -> None:
        """Start the timeout of an entry, or restart it."""
        newest = self._slots[-1]
        slot = self._slot_of.get(position)
        if slot is not newest:
            if slot is not None:
                slot.discard(position)
            newest.add(position)
            self._slot_of[position] = newest

    def discard(self, position: _Key) -> None:
        """Forget an entry that was acknowledged or is redelivered for another reason."""
        slot = self._slot_of.pop(position, None)
        if slot is not None:
            slot.discard(position)

    def discard_up_to(self, position: _Key) -> None:
        """Forget all entries up to a position."""
        for known in [known for known in self._slot_of if known <= position]:
            self.discard(known)

    def tick(self) -> list[_Key]:
        """Advance by one tick; remove the expired entries and return them in order."""
        due = sorted(self._slots.popleft())
        self._slots.append(set())
        for position in due:
            del self._slot_of[position]
        return due

    def clear(self) -> None:
        """Forget all entries."""
        for slot in self._slots:
            slot.clear()
        self._slot_of.clear()
