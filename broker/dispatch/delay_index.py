"""An index of the delayed entries of a subscription. Pure logic.

Design: each entry has a record of two 64-bit integers, its delivery time and its place. The newest records, up to
`RUN`, are in a heap of tuples. When that heap is full, it becomes a run of two sorted arrays, and another heap contains
the heads of all runs. So an entry takes 16 bytes and a bit, and adding or removing one takes time proportional to the
logarithm of the number of runs. A bitmap per ledger marks the waiting entries. Acknowledging an entry clears its bit,
and its record is skipped when it becomes due.

The delivery time of an entry never changes: an entry that is read again is added with the same time.

Invariant: every entry whose bit is set has a record. Stale records, whose bit is not set, are removed
once they outnumber the others. Each change sweeps only one run, because sweeping a million records takes a second.

Rejected: a bitmap per delivery time, which is smaller if many entries have the same time, but a hundred times as large
if none do; and a file, which would have to be compared with the cursor at startup anyway.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator

from ...wire.position import Position
from ..storage.cursors import bitmap

RUN = 4096
"""Number of records in a new run."""
_ENTRY_BITS = 32
_ENTRY_MASK = (1 << _ENTRY_BITS) - 1

_Record = tuple[int, int]
"""Delivery time and place; a place contains the ledger id and, in the lower 32 bits, the entry id."""


class _Run:
    """Sorted records, which are consumed in order."""

    __slots__ = ("next", "places", "times")

    def __init__(self, records: list[_Record]) -> None:
        self.times = array("q", [time_ms for time_ms, _ in records])
        self.places = array("Q", [place for _, place in records])
        self.next = 0

    def __iter__(self) -> Iterator[_Record]:
        return zip(self.times[self.next :], self.places[self.next :], strict=True)


class DelayIndex:
    """The delayed entries, ordered by delivery time, then by position."""

    def __init__(self) -> None:
        self._waiting: dict[int, bytearray] = {}  # ledger -> bit per entry
        self._count = 0
        self._recent: list[_Record] = []
        self._runs: dict[int, _Run] = {}
        self._heads: list[tuple[int, int, int]] = []  # time, place and number of each run
        self._runs_made = 0
        self._records = 0
        self._unswept: list[int] = []  # numbers of the remaining runs in the current sweep

    def __len__(self) -> int:
        return self._count

    def __contains__(self, position: Position) -> bool:
        bits = self._waiting.get(position[0])
        return bits is not None and bitmap.is_one(bits, position[1])

    @property
    def size_bytes(self) -> int:
        """Memory of the records and bitmaps."""
        return 16 * self._records + sum(map(len, self._waiting.values()))

    def add(self, position: Position, time_ms: int) -> None:
        """Add an entry, unless it is already in the index.

        Args:
            position: position of the entry; ledger id and entry id must be below 2^32.
            time_ms: delivery time, from -2^63 to 2^63 - 1.
        """
        if position in self:
            return
        ledger_id, entry_id = position
        bits = self._waiting.setdefault(ledger_id, bytearray())
        if entry_id >> 3 >= len(bits):
            bits.extend(bytes((entry_id >> 3) + 1 - len(bits)))
        bits[entry_id >> 3] |= 1 << (entry_id & 7)
        self._count += 1
        self._push((time_ms, ledger_id << _ENTRY_BITS | entry_id))

    def _push(self, record: _Record) -> None:
        heapq.heappush(self._recent, record)
        self._records += 1
        if len(self._recent) >= RUN:
            self._make_run(sorted(self._recent))
            self._recent = []

    def _make_run(self, records: list[_Record]) -> None:
        self._runs_made += 1
        self._runs[self._runs_made] = _Run(records)
        heapq.heappush(self._heads, (*records[0], self._runs_made))

    def first_ms(self) -> int | None:
        """Return the earliest delivery time, or None if the index is empty."""
        first = self._first()
        return None if first is None else first[0]

    def take(self, now_ms: int, limit: int) -> list[Position]:
        """Remove and return at most ``limit`` due entries, earliest first."""
        self._sweep()
        taken: list[Position] = []
        while len(taken) < limit and (first := self._first()) is not None and first[0] <= now_ms:
            position = _position(first[1])
            self.forget(position)
            taken.append(position)
        return taken

    def _first(self) -> _Record | None:
        """Remove stale records before the first waiting entry, and return its record, or None."""
        while self._records:
            is_recent = not self._heads or (bool(self._recent) and self._recent[0] <= self._heads[0][:2])
            time_ms, place = self._recent[0] if is_recent else self._heads[0][:2]
            if _position(place) in self:
                return time_ms, place
            self._records -= 1
            if is_recent:
                heapq.heappop(self._recent)
            else:
                self._advance()
        return None

    def _advance(self) -> None:
        number = self._heads[0][2]
        run = self._runs[number]
        run.next += 1
        if run.next < len(run.times):
            heapq.heapreplace(self._heads, (run.times[run.next], run.places[run.next], number))
        else:
            heapq.heappop(self._heads)
            del self._runs[number]

    def forget(self, position: Position) -> None:
        """Remove an entry that was acknowledged or dispatched, if present."""
        if position in self:
            self._waiting[position[0]][position[1] >> 3] &= ~(1 << (position[1] & 7))
            self._count -= 1
            self._sweep()

    def forget_up_to(self, position: Position) -> None:
        """Remove all entries up to and including a position."""
        ledger_id, entry_id = position
        for passed in [ledger for ledger in self._waiting if ledger <= ledger_id]:
            bits = self._waiting[passed]
            end = len(bits) * 8 if passed < ledger_id else min(entry_id + 1, len(bits) * 8)
            self._count -= bitmap.count(bits, 0, end)
            if end == len(bits) * 8:
                del self._waiting[passed]
                continue
            bits[: end >> 3] = bytes(end >> 3)
            bits[end >> 3] &= 0xFF << (end & 7) & 0xFF
        self._sweep()

    def clear(self) -> None:
        """Remove all entries."""
        self.__init__()  # type: ignore[misc]

    def _sweep(self) -> None:
        """Continue the current sweep of stale records, or start one if there are many."""
        if not self._count:
            self.clear()
        if self._unswept:
            self._sweep_run(self._unswept.pop())
        if not self._unswept and self._records > 2 * self._count + 2 * RUN + len(self._runs):
            self._unswept = list(self._runs)
            waiting = [record for record in self._recent if _position(record[1]) in self]
            self._records -= len(self._recent) - len(waiting)
            heapq.heapify(waiting)
            self._recent = waiting
            self._waiting = {ledger: bits for ledger, bits in self._waiting.items() if any(bits)}

    def _sweep_run(self, number: int) -> None:
        """Remove the stale records of a run, except the first record, which identifies the run in the heap of heads.

        If few records remain, they are moved to the newest records, so that small runs do not accumulate.
        """
        run = self._runs.get(number)
        if run is None:
            return
        first, *others = run
        waiting = [record for record in others if _position(record[1]) in self]
        self._records -= len(others) - len(waiting)
        if len(waiting) <= RUN // 4:
            self._runs[number] = _Run([first])
            self._records -= len(waiting)
            for record in waiting:
                self._push(record)
        else:
            self._runs[number] = _Run([first, *waiting])


def _position(place: int) -> Position:
    return Position(place >> _ENTRY_BITS, place & _ENTRY_MASK)
