"""Entries to ask for again after a delay.

Design: the delay is the same for all, so entries become due in the order in which they were added, and one timer for
the first is enough. The protocol asks for whole entries; which message of it was meant does not matter here.
"""

from __future__ import annotations


class NegativeAcks:
    """Positions (ledger, entry) with the time when each is due, in the order of these times."""

    __slots__ = ("_delay_s", "_due_s")

    def __init__(self, delay_s: float):
        self._delay_s = delay_s
        self._due_s: dict[tuple[int, int], float] = {}

    def __len__(self) -> int:
        return len(self._due_s)

    def add(self, position: tuple[int, int], now_s: float) -> None:
        """Ask for an entry again after the delay; one that is already here waits anew."""
        self._due_s.pop(position, None)
        self._due_s[position] = now_s + self._delay_s

    def discard(self, position: tuple[int, int]) -> None:
        """Forget an entry: it was acknowledged."""
        self._due_s.pop(position, None)

    def discard_up_to(self, position: tuple[int, int]) -> None:
        """Forget all entries up to a position."""
        for known in [known for known in self._due_s if known <= position]:
            del self._due_s[known]

    def clear(self) -> None:
        """Forget all."""
        self._due_s.clear()

    @property
    def next_due_s(self) -> float | None:
        """When the first entry is due."""
        return next(iter(self._due_s.values()), None)

    def pop_due(self, now_s: float) -> list[tuple[int, int]]:
        """Remove and return what is due."""
        due = []
        for position, due_s in self._due_s.items():
            if due_s > now_s:
                break
            due.append(position)
        for position in due:
            del self._due_s[position]
        return due
