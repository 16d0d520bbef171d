"""Delayed delivery for a subscription: the waiting entries, and the timer for the next one.

Entries are never delivered early, but may be late by up to one tick, because entries that become due within a tick are
delivered together. The dispatcher finds delayed entries when it reads them, and rereads them after a restart and when
the first consumer returns. It only inspects entries in the ledgers listed in the log's `delayed_ledgers`.

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
"""Maximum timer delay, since the wall clock or the policy may change meanwhile."""


class Delays:
    """The delayed entries of a subscription.

    Args:
        policy: returns the topic's current policy for delayed delivery.
        now_ms: wall clock, in milliseconds.
        wake: called when an entry has become due.
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
        """Memory of the index, in bytes."""
        return self._index.size_bytes

    def holds_back(self, entry: StoredEntry) -> bool:
        """Return whether an entry must wait; if so, it is added to the index."""
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
        """Remove and return at most ``limit`` positions of due entries."""
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
        """Remove acknowledged entries."""
        for position in positions:
            self._index.forget(position)

    def forget_up_to(self, position: Position) -> None:
        """Remove all entries up to and including an acknowledged position."""
        self._index.forget_up_to(position)

    def clear(self) -> None:
        """Remove all entries; the dispatcher finds them again by reading."""
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
