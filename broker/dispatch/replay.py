"""The redelivery queue and the redelivery counts of a shared subscription. Pure logic.

A position is queued at most once. The redelivery count of an entry increases when a client requests redelivery, but not
when a consumer leaves. An acknowledgement removes the entry from the queue and the counts.

Source: Pulsar binary protocol, sections Shared and Redelivery.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...wire.position import Position


class Replay:
    """A queue of positions, lowest first, and the redelivery counts."""

    def __init__(self) -> None:
        self._heap: list[Position] = []
        self._queued: set[Position] = set()
        self._counts: dict[Position, int] = {}

    def __len__(self) -> int:
        return len(self._queued)

    def add(self, positions: Iterable[Position], *, counted: bool) -> None:
        """Queue entries; ``counted`` states whether a client requested redelivery."""
        if counted:
            positions = list(positions)
            self.count_again(positions)
        for position in positions:
            if position not in self._queued:
                self._queued.add(position)
                heapq.heappush(self._heap, position)

    def count_again(self, positions: Iterable[Position]) -> None:
        """Increase the redelivery counts of entries without queueing them."""
        for position in positions:
            self._counts[position] = self._counts.get(position, 0) + 1

    def count(self, position: Position) -> int:
        """Return the redelivery count of an entry."""
        return self._counts.get(position, 0)

    def first_run(self, limit: int, span: int) -> list[Position]:
        """Return the lowest queued positions of a single ledger in ascending order, without removing them.

        Args:
            limit: maximum number of positions.
            span: maximum number of entries from the first to the last position, since they are read together.
        """
        run: list[Position] = []
        taken: list[Position] = []
        while self._heap and len(run) < limit:
            position = self._heap[0]
            if position not in self._queued or (run and position == run[-1]):
                heapq.heappop(self._heap)  # discarded before, and possibly requeued since
                continue
            if run and (position[0] != run[0][0] or position[1] >= run[0][1] + span):
                break
            run.append(position)
            taken.append(heapq.heappop(self._heap))
        for position in taken:
            heapq.heappush(self._heap, position)
        return run

    def discard(self, position: Position) -> None:
        """Remove a dispatched entry from the queue, but keep its count."""
        self._queued.discard(position)

    def forget(self, position: Position) -> None:
        """Remove an acknowledged entry from the queue and the counts."""
        self._queued.discard(position)
        if self._counts:
            self._counts.pop(position, None)

    def forget_up_to(self, position: Position) -> None:
        """Remove all entries up to an acknowledged position from the queue and the counts."""
        self._queued = {queued for queued in self._queued if queued > position}
        self._heap = sorted(self._queued)
        self._counts = {counted: count for counted, count in self._counts.items() if counted > position}

    def clear(self) -> None:
        """Remove all entries from the queue and the counts."""
        self._heap.clear()
        self._queued.clear()
        self._counts.clear()
