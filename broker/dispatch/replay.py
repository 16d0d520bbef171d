"""What a shared subscription has to give out again, and how often each entry was asked for again. Pure.

A position is in the queue at most once. The count goes up when a client asks for redelivery, not when a consumer goes
away; an acknowledgement ends both.

Source: Pulsar binary protocol, sections Shared and Redelivery.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...wire.position import Position


class Replay:
    """A queue of positions, smallest first, and the redelivery counts."""

    def __init__(self) -> None:
        self._heap: list[Position] = []
        self._queued: set[Position] = set()
        self._counts: dict[Position, int] = {}

    def __len__(self) -> int:
        return len(self._queued)

    def add(self, positions: Iterable[Position], *, counted: bool) -> None:
        """Queue entries; ``counted`` if a client asked for them again."""
        if counted:
            positions = list(positions)
            self.count_again(positions)
        for position in positions:
            if position not in self._queued:
                self._queued.add(position)
                heapq.heappush(self._heap, position)

    def count_again(self, positions: Iterable[Position]) -> None:
        """A client asked for entries again, which wait elsewhere."""
        for position in positions:
            self._counts[position] = self._counts.get(position, 0) + 1

    def count(self, position: Position) -> int:
        """Return how often redelivery of an entry was asked for."""
        return self._counts.get(position, 0)

    def first_run(self, limit: int, span: int) -> list[Position]:
        """Return the smallest position and the next ones of its ledger, ascending; they stay queued.

        Args:
            limit: return no more of them.
            span: return none so many entries, or more, behind the first: they are read together.
        """
        run: list[Position] = []
        taken: list[Position] = []
        while self._heap and len(run) < limit:
            position = self._heap[0]
            if position not in self._queued or (run and position == run[-1]):
                heapq.heappop(self._heap)  # discarded earlier, and possibly queued again since
                continue
            if run and (position[0] != run[0][0] or position[1] >= run[0][1] + span):
                break
            run.append(position)
            taken.append(heapq.heappop(self._heap))
        for position in taken:
            heapq.heappush(self._heap, position)
        return run

    def discard(self, position: Position) -> None:
        """Take an entry out of the queue, because it is given out; its count stays."""
        self._queued.discard(position)

    def forget(self, position: Position) -> None:
        """An entry is acknowledged: neither queued nor counted any more."""
        self._queued.discard(position)
        if self._counts:
            self._counts.pop(position, None)

    def forget_up_to(self, position: Position) -> None:
        """Everything up to a position is acknowledged."""
        self._queued = {queued for queued in self._queued if queued > position}
        self._heap = sorted(self._queued)
        self._counts = {counted: count for counted, count in self._counts.items() if counted > position}

    def clear(self) -> None:
        """Forget everything: the last consumer left."""
        self._heap.clear()
        self._queued.clear()
        self._counts.clear()
