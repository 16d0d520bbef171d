"""A pool of slots with a limit per key, granted to waiting keys in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .fair_queue import FairQueue
from .shares import Room, Shares


class FairPool:
    """A limited number of slots. A free slot is granted to the key that has waited longest for its turn.

    Invariant: while a slot is free, only keys that have used their share wait.
    """

    def __init__(self, size: int, per_key: int) -> None:
        """Create a pool of free slots, of which each key may hold ``per_key``."""
        self._shares = Shares(size, per_key)
        self._waiting: FairQueue[tuple[str, asyncio.Future[None]]] = FairQueue()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shares!r}, waiting={self._waiting.lengths})"

    def room(self, key: str) -> Room:
        """Return whether a key would get a slot now or, if not, the reason."""
        return self._shares.room(key)

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """Context that holds a slot.

        Cancellation: safe.
        """
        await self.take(key)
        try:
            yield
        finally:
            self.give_back(key)

    async def take(self, key: str) -> None:
        """Wait for a slot, which must be returned with `give_back`.

        Cancellation: safe.
        """
        if self._shares.take(key) is Room.FREE:
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put(key, (key, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.give_back(key)  # the slot was granted in the same loop iteration
            else:
                self._waiting.remove(key, (key, granted))
            raise

    def give_back(self, key: str) -> None:
        """Return a slot, and grant it to the next waiter."""
        self._shares.give_back(key)
        while (waiter := self._waiting.pop(self._may_go)) is not None:
            next_key, granted = waiter
            if not granted.done():
                self._shares.take(next_key)
                granted.set_result(None)

    def _may_go(self, key: str) -> bool:
        return self._shares.room(key) is Room.FREE


class FairLock(FairPool):
    """A pool with a single slot."""

    def __init__(self) -> None:
        super().__init__(1, 1)
