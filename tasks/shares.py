"""Shares of a pool: how much of it is taken, in all and by each key, such as a role or a tenant.

A pool with shares never waits and never queues: it says whether there is room, and the caller waits or refuses.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum


class Room(Enum):
    """Whether a pool has room for one key."""

    FREE = "free"
    SHARE_USED = "share used"
    """The key has as much as one key may have."""
    POOL_USED = "pool used"
    """All keys together have everything."""


class Shares:
    """A pool of places, bytes or anything else that is counted."""

    def __init__(self, size: int, per_key: int) -> None:
        """Begin with nothing taken.

        Args:
            size: how much all keys together may take.
            per_key: how much one key may take.
        """
        self.size = size
        self.per_key = min(per_key, size)
        self._taken: Counter[str] = Counter()
        self._total = 0

    def __repr__(self) -> str:
        return f"Shares({self._total} of {self.size}, {dict(self._taken)})"

    def taken_by(self, key: str) -> int:
        """Return how much a key has."""
        return self._taken[key]

    def room(self, key: str, amount: int = 1) -> Room:
        """Return whether a key may take so much more."""
        if self._taken[key] + amount > self.per_key:
            return Room.SHARE_USED
        return Room.POOL_USED if self._total + amount > self.size else Room.FREE

    def take(self, key: str, amount: int = 1) -> Room:
        """Take so much if there is room, and return whether there was."""
        room = self.room(key, amount)
        if room is Room.FREE:
            self._taken[key] += amount
            self._total += amount
        return room

    def give_back(self, key: str, amount: int = 1) -> None:
        """Return what was taken."""
        self._taken[key] -= amount
        self._total -= amount
        assert self._taken[key] >= 0, f"{key!r} returns more than it took"
        if not self._taken[key]:
            del self._taken[key]
