"""Entries to redeliver after a delay.

Design: all entries share one delay, and all entries with a pause share one pause, so the entries of each kind become
due in the order in which they were added, and one timer for the first is enough. The protocol redelivers whole
entries, so individual messages are not tracked.
"""

from __future__ import annotations


class NegativeAcks:
    """Positions (ledger, entry) and their due times, in order of due time."""

    __slots__ = ("_delay_s", "_due_s", "_paused_s")

    def __init__(self, delay_s: float):
        self._delay_s = delay_s
        self._due_s: dict[tuple[int, int], float] = {}
        self._paused_s: dict[tuple[int, int], float] = {}

    def __len__(self) -> int:
        return len(self._due_s) + len(self._paused_s)

    def add(self, position: tuple[int, int], now_s: float, pause_s: float | None = None) -> None:
        """Schedule, or reschedule, the redelivery of an entry after the delay, or after ``pause_s``."""
        self.discard(position)
        if pause_s is None:
            self._due_s[position] = now_s + self._delay_s
        else:
            self._paused_s[position] = now_s + pause_s

    def discard(self, position: tuple[int, int]) -> None:
        """Forget an entry that was acknowledged."""
        self._due_s.pop(position, None)
        if self._paused_s:
            self._paused_s.pop(position, None)

    def discard_up_to(self, position: tuple[int, int]) -> None:
        """Forget all entries up to a position."""
        for due_s in (self._due_s, self._paused_s):
            for known in [known for known in due_s if known <= position]:
                del due_s[known]

    def clear(self) -> None:
        """Forget all entries."""
        self._due_s.clear()
        self._paused_s.clear()

    @property
    def next_due_s(self) -> float | None:
        """Time at which the first entry is due, or None."""
        firsts = [next(iter(due_s.values())) for due_s in (self._due_s, self._paused_s) if due_s]
        return min(firsts, default=None)

    def pop_due(self, now_s: float) -> list[tuple[int, int]]:
        """Remove and return the due entries."""
        found: list[tuple[int, int]] = []
        for waiting in (self._due_s, self._paused_s):
            due = []
            for position, due_s in waiting.items():
                if due_s > now_s:
                    break
                due.append(position)
            for position in due:
                del waiting[position]
            found += due
        return found
