"""The redelivery queue of a shared subscription, and the redelivery count of each entry. Pure logic.

A position is queued at most once. The count increases when a client requests redelivery, not when a consumer leaves; an
acknowledgement removes both.

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
        """Queue entries; ``counted`` if a client requested redelivery."""
        if counted:
            positions = list(positions)
            self.count_again(positions)
        for position in positions:
            if position not in self._queued:
                self._queued.add(position)
                heapq.heappush(self._heap, position)

    def count_again(self, positions: Iterable[Position]) -> None:
        """Count redelivery requests for entries that are queued elsewhere."""
        for position in positions:
            self._counts[position] = self._counts.get(position, 0) + 1

    def count(self, position: Position) -> int:
        """Return how often redelivery of an entry was requested."""
        return self._counts.get(position, 0)

    def first_run(self, limit: int, span: int) -> list[Position]:
        """Return the smallest position and the following ones in its ledger, ascending; they stay queued.

        Args:
            limit: maximum number of positions.
            span: maximum distance from the first position, exclusive, as all are read together.
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
        """Remove an entry from the queue, because it is dispatched; its count stays."""
        self._queued.discard(position)

    def forget(self, position: Position) -> None:
        """Remove an acknowledged entry from queue and counts."""
        self._queued.discard(position)
        if self._counts:
            self._counts.pop(position, None)

    def forget_up_to(self, position: Position) -> None:
        """Remove everything up to an acknowledged position."""
        self._queued = {queued for queued in self._queued if queued > position}
        self._heap = sorted(self._queued)
        self._counts = {counted: count for counted, count in self._counts.items() if counted > position}

    def clear(self) -> None:
        """Remove everything: the last consumer left."""
        self._heap.clear()
        self._queued.clear()
        self._counts.clear()
