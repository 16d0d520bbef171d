"""Delayed delivery of one subscription: what waits, for how long, and the timer that ends the wait.

An entry is never given out early. It may be late by the tick: what becomes due within one goes out together. What
waits is found by reading: after a restart, and once the first consumer comes back, the dispatcher comes upon the same
entries again. Only ledgers that the log names (`delayed_ledgers`) are looked into.

Source: broker reference, section Delayed delivery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...errors import ProtocolError
from ...wire.payload import open_payload
from ...wire.position import Position
from .delay_index import DelayIndex

if TYPE_CHECKING:
    from ..policies.policies import DelayPolicy
    from ..storage.entry import StoredEntry

LONGEST_SLEEP_MS = 10_000
"""After so long the timer looks again: the wall clock may have been set, the policy may have changed."""


class Delays:
    """What of one subscription waits for its time.

    Args:
        policy: returns what is set for the topic now.
        now_ms: the wall clock.
        wake: called when something has become due.
    """

    def __init__(self, policy: Callable[[], DelayPolicy], now_ms: Callable[[], int], wake: Callable[[], None]):
        self._policy = policy
        self._now_ms = now_ms
        self._wake = wake
        self._index = DelayIndex()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        self._ticked_ms = 0

    def __len__(self) -> int:
        return len(self._index)

    @property
    def size_bytes(self) -> int:
        """What the index takes."""
        return self._index.size_bytes

    def holds_back(self, entry: StoredEntry) -> bool:
        """Return whether an entry has to wait; then it is in the index."""
        if entry.position in self._index:
            return True
        try:
            deliver_at_ms = open_payload(entry.payload)[0].deliver_at_time
        except ProtocolError:
            return False
        if deliver_at_ms <= self._now_ms() or not self._policy().is_active:
            return False
        self._index.add(entry.position, deliver_at_ms)
        if self._timer is None or deliver_at_ms < self._timer_due_ms:
            self._arm()
        return True

    def take_due(self, limit: int) -> list[Position]:
        """Return positions whose time has come, at most ``limit``; they wait no more."""
        now_ms = self._now_ms()
        first_ms = self._index.first_ms()
        if first_ms is None:
            return []
        if not self._policy().is_active:
            now_ms = (1 << 63) - 1
        elif first_ms > now_ms:
            if self._timer is None:
                self._arm()
            return []
        due = self._index.take(now_ms, limit)
        self._arm()
        return due

    def forget(self, positions: Iterable[Position]) -> None:
        """Entries are acknowledged."""
        for position in positions:
            self._index.forget(position)

    def forget_up_to(self, position: Position) -> None:
        """Everything up to a position is acknowledged."""
        self._index.forget_up_to(position)

    def clear(self) -> None:
        """Forget everything: what has to wait is found again by reading."""
        self._index.clear()
        self._disarm()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._disarm()
        due_ms = self._index.first_ms()
        if due_ms is None:
            return
        now_ms = self._now_ms()
        wait_ms = max(due_ms - now_ms, self._ticked_ms + self._policy().tick_ms - now_ms, 0)
        self._timer_due_ms = due_ms
        self._timer = asyncio.get_running_loop().call_later(min(wait_ms, LONGEST_SLEEP_MS) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._ticked_ms = self._now_ms()
        self._wake()
