"""Shares of a pool: usage in total and per key, such as a role or a tenant.

The pool itself never waits or queues. It reports whether there is room, and the caller waits or rejects the request.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum


class Room(Enum):
    """Whether a pool has room for one key."""

    FREE = "free"
    SHARE_USED = "share used"
    """The key has reached its limit."""
    POOL_USED = "pool used"
    """The whole pool is in use."""


class Shares:
    """A pool of slots, bytes or other countable units."""

    def __init__(self, size: int, per_key: int) -> None:
        """Create an unused pool.

        Args:
            size: limit for all keys combined.
            per_key: limit per key.
        """
        self.size = size
        self.per_key = min(per_key, size)
        self._taken: Counter[str] = Counter()
        self._total = 0

    def __repr__(self) -> str:
        return f"Shares({self._total} of {self.size}, {dict(self._taken)})"

    def taken_by(self, key: str) -> int:
        """Return the usage of a key."""
        return self._taken[key]

    def room(self, key: str, amount: int = 1) -> Room:
        """Return whether a key may take ``amount`` more."""
        if self._taken[key] + amount > self.per_key:
            return Room.SHARE_USED
        return Room.POOL_USED if self._total + amount > self.size else Room.FREE

    def take(self, key: str, amount: int = 1) -> Room:
        """Take ``amount`` if there is room, and return whether there was."""
        room = self.room(key, amount)
        if room is Room.FREE:
            self._taken[key] += amount
            self._total += amount
        return room

    def give_back(self, key: str, amount: int = 1) -> None:
        """Return ``amount`` to the pool."""
        self._taken[key] -= amount
        self._total -= amount
        assert self._taken[key] >= 0, f"{key!r} returned more than it took"
        if not self._taken[key]:
            del self._taken[key]
