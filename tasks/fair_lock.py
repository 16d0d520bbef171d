"""A lock whose waiters take turns by key, so that many requests of one tenant do not keep another one waiting."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairLock:
    """One holder at a time; the next is the first waiter of the key that has waited longest for its turn."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def __repr__(self) -> str:
        waiting = {key: len(queue) for key, queue in self._waiting.items()}
        return f"FairLock(held={self._is_held}, waiting={waiting})"

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """Hold the lock in the body.

        Cancellation: safe.
        """
        if self._is_held:
            await self._wait(key)
        self._is_held = True
        try:
            yield
        finally:
            self._hand_on()

    async def _wait(self, key: str) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._hand_on()  # it was granted in the same turn of the loop
            raise

    def _hand_on(self) -> None:
        """Grant the lock to the next waiter; it stays held, so that nobody overtakes."""
        while self._waiting:
            key, queue = self._waiting.popitem(last=False)
            granted = queue.popleft()
            if queue:
                self._waiting[key] = queue  # behind the other keys
            if not granted.done():
                granted.set_result(None)
                return
        self._is_held = False
