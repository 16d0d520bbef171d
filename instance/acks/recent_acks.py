"""RecentAcks: entries acknowledged just now, so that redeliveries on Failover are dropped.

A Failover subscription knows no single redelivery: the broker goes back and delivers again whatever is not acknowledged
when it looks. An acknowledgement that is on its way at that moment comes too late, and its entry arrives once more. It
is recognised here, and acknowledged again instead of processed again. What is remembered ends with the connection:
after that, an entry that comes again is meant (a reset of the cursor disconnects the consumer).
"""

from __future__ import annotations

from ..held_entries import Position

KEEP_S = 5.0
POSITIONS_MAX = 50_000


class RecentAcks:
    """Positions with the time of their acknowledgement, in that order."""

    __slots__ = ("_times_s",)

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._times_s: dict[Position, float] = {}

    def __len__(self) -> int:
        return len(self._times_s)

    def add(self, position: Position, now_s: float) -> None:
        """Remember a position, and forget what is too old or too much."""
        times = self._times_s
        times.pop(position, None)
        times[position] = now_s
        while True:
            oldest = next(iter(times))  # the newest itself is never too old
            if len(times) <= POSITIONS_MAX and times[oldest] > now_s - KEEP_S:
                return
            del times[oldest]

    def has(self, position: Position, now_s: float) -> bool:
        """Return whether a position was acknowledged a moment ago."""
        time_s = self._times_s.get(position)
        return time_s is not None and time_s > now_s - KEEP_S

    def clear(self) -> None:
        """Forget everything."""
        self._times_s.clear()
