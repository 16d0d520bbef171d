"""Ledgers in memory: their counters, and their entries in memory.

An entry passes through three states. *Pending*: appended, and being written to the journal. *Confirmed*: synced, and
visible to readers. *Moved*: in the ledger's file and covered by a checkpoint; only moved entries may be evicted.

Invariant: moved <= confirmed <= appended, and every entry from ``moved`` on is in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from ....wire.position import Position
from ..entry import ENTRY_OVERHEAD_BYTES, LedgerInfo, StoredEntry
from ..ports import LogPort
from .ledger_file import LedgerFile

_COMPACT_AT = 1024
_MOST_SUMMED = 1000


@dataclass(slots=True)
class LedgerTotals:
    """Totals over the entries appended to a ledger."""

    messages: int = 0
    bytes: int = 0
    oldest_ms: int = 2**63 - 1
    newest_ms: int = 0


class Ledger:
    """A ledger of a log; its fields belong to the loop lane, except ``file``.

    Attributes:
        base: number of entries in all earlier ledgers of the log, including dropped ones.
        appended: number of appended entries, including pending ones.
        confirmed: number of synced entries.
        closed_ms: time at which the broker closed the ledger; None if it is open or the time is unknown.
        moved: number of entries in the ledger's file, according to the last checkpoint.
        unmoved: alternating heads and payloads of entries after ``moved`` that are not part of a checkpoint yet.
        moving: alternating heads and payloads of the entries that the running checkpoint moves.
        held: entries in memory, in order; None for an evicted entry. `EntryMemory` appends to it.
        file: the ledger's file, used by the background and reading lanes.
    """

    __slots__ = (
        "_first_held", "_gone", "appended", "base", "cached_bytes", "closed_ms", "confirmed", "created_ms",
        "file", "held", "id", "is_dropped", "log", "moved", "moving", "totals", "unmoved",
    )  # fmt: skip

    def __init__(self, log: LogPort, ledger_id: int, created_ms: int, base: int) -> None:
        self.log = log
        self.id = ledger_id
        self.created_ms = created_ms
        self.closed_ms: int | None = None
        self.base = base
        self.appended = 0
        self.confirmed = 0
        self.moved = 0
        self.totals = LedgerTotals()
        self.unmoved: list[bytes] = []
        self.moving: list[bytes] = []
        self.file: LedgerFile | None = None
        self.is_dropped = False
        self.cached_bytes = 0
        self.held: list[StoredEntry | None] = []
        self._first_held = 0  # entry id of held[0]
        self._gone = 0  # number of evicted entries at the front of held

    @property
    def first_cached(self) -> int:
        """Id of the first entry in memory; all later entries are in memory, too."""
        return self._first_held + self._gone

    def restore(self, entries: int, totals: LedgerTotals) -> None:
        """Restore a ledger whose first ``entries`` entries are in its file."""
        self.appended = self.confirmed = self.moved = self._first_held = entries
        self.totals = totals

    def cached(self, start: int, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return confirmed entries from memory, from ``start`` on; at least one if available, even above ``max_bytes``.

        ``start`` must not be less than `first_cached`.
        """
        index = start - self._first_held
        end = min(index + max_entries, self.confirmed - self._first_held)
        found: list[StoredEntry] = self.held[index:end]  # type: ignore[assignment]  # no entry from index on is evicted
        total = 0
        for count, entry in enumerate(found):
            total += len(entry.payload)
            if total > max_bytes and count:
                return found[:count]
        return found

    def about_bytes_from(self, start: int) -> int:
        """Estimate the payload bytes of confirmed entries from ``start`` on, without reading the disk.

        The result is exact for a small number of entries at the end. Otherwise, it is proportional to the number of
        entries, separately for entries in memory and on disk.
        """
        entries = self.confirmed - start
        if entries <= 0:
            return 0
        if start >= self.first_cached and entries <= _MOST_SUMMED:
            return sum(len(entry.payload) for entry in self.cached(start, entries, self.totals.bytes))
        in_memory = self.appended - self.first_cached
        cached = self.cached_bytes - in_memory * ENTRY_OVERHEAD_BYTES
        if start >= self.first_cached:
            return cached * entries // in_memory
        return cached + (self.totals.bytes - cached) * (self.first_cached - start) // self.first_cached

    def evict(self, entries: int) -> int:
        """Evict at most ``entries`` of the oldest entries in memory, and return the number of bytes freed."""
        end = min(self._gone + entries, len(self.held))
        size = (end - self._gone) * ENTRY_OVERHEAD_BYTES
        for index in range(self._gone, end):
            entry = self.held[index]
            assert entry is not None
            size += len(entry.payload)
            self.held[index] = None
        self._gone = end
        if end == len(self.held) or (end >= _COMPACT_AT and 2 * end > len(self.held)):
            del self.held[:end]
            self._first_held += end
            self._gone = 0
        self.cached_bytes -= size
        return size

    def drop_pending(self) -> int:
        """Drop unconfirmed entries after a journal failure, and return the number of bytes freed."""
        lost = self.held[self.confirmed - self._first_held :]
        del self.held[self.confirmed - self._first_held :]
        size = 0
        for entry in lost:
            assert entry is not None
            size += len(entry.payload)
            self.totals.messages -= entry.messages
        keep = len(self.unmoved) - 2 * len(lost)
        if keep < 0:  # a checkpoint has taken these entries, but it cannot have written them before the journal has
            del self.moving[keep:]
        del self.unmoved[max(keep, 0) :]
        self.totals.bytes -= size
        held = size + len(lost) * ENTRY_OVERHEAD_BYTES
        self.cached_bytes -= held
        self.appended = self.confirmed
        return held

    def drop_all(self) -> int:
        """Drop all entries of a deleted ledger, and return the number of bytes freed."""
        self.is_dropped = True
        size = self.cached_bytes
        self.cached_bytes = 0
        self._first_held, self._gone = self.appended, 0
        self.held, self.unmoved = [], []
        return size

    def position(self, entry_id: int) -> Position:
        """Return the position of an entry in this ledger."""
        return Position(self.id, entry_id)

    def info(self, is_open: bool) -> LedgerInfo:
        """Return the public state of the ledger."""
        return LedgerInfo(self.id, self.confirmed, self.totals.bytes, is_open, self.created_ms)

    def __repr__(self) -> str:
        return f"<Ledger {self.id} moved {self.moved} confirmed {self.confirmed} appended {self.appended}>"


_RUN_BYTES = 16 * 1024
_FEWEST_DROPPED = 100


class _Run:
    """A run of consecutive entries appended to a ledger."""

    __slots__ = ("bytes", "entries", "ledger")

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.entries = 0
        self.bytes = 0


class EntryMemory:
    """The entries of all ledgers in memory: accounts for them, and evicts the oldest ones above a limit.

    Args:
        limit_bytes: memory limit, including the overhead of each entry.

    Attributes:
        bytes: memory of all entries, including overhead.
        unmoved_bytes: memory of the entries that no checkpoint has moved, including overhead.
        unmoved_ledgers: ledgers with entries that are not part of a checkpoint yet, by id.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.bytes = 0
        self.unmoved_bytes = 0
        self.unmoved_ledgers: dict[int, Ledger] = {}
        self._limit_bytes = limit_bytes
        self._runs: deque[_Run] = deque()
        self._last: _Run | None = None
        self._dropped = 0  # number of ledgers dropped since the last scan of the runs

    def append(self, ledger: Ledger, entry: StoredEntry, head: bytes, size: int, publish_time_ms: int) -> None:
        """Append a pending entry to its ledger; ``size`` is the length of its payload.

        This runs for every published entry, so it is inlined: no method calls on the ledger or its totals.
        """
        if not ledger.unmoved:
            self.unmoved_ledgers[ledger.id] = ledger
        held = size + ENTRY_OVERHEAD_BYTES
        ledger.held.append(entry)
        ledger.unmoved += (head, entry.payload)
        ledger.appended += 1
        ledger.cached_bytes += held
        totals = ledger.totals
        totals.bytes += size
        totals.messages += entry.messages
        if publish_time_ms < totals.oldest_ms:
            totals.oldest_ms = publish_time_ms
        if publish_time_ms > totals.newest_ms:
            totals.newest_ms = publish_time_ms
        run = self._last
        if run is None or run.ledger is not ledger or run.bytes > _RUN_BYTES:
            run = self._last = _Run(ledger)
            self._runs.append(run)
            if self.bytes > self._limit_bytes:
                self.shrink()
        run.entries += 1
        run.bytes += held
        self.bytes += held
        self.unmoved_bytes += held

    def take_up(self) -> list[Ledger]:
        """Assign all unmoved entries to the running checkpoint (`Ledger.moving`), and return their ledgers."""
        taken = []
        for ledger in self.unmoved_ledgers.values():
            if not ledger.is_dropped and ledger.unmoved:
                ledger.moving, ledger.unmoved = ledger.unmoved, []
                taken.append(ledger)
        self.unmoved_ledgers = {}
        return taken

    def note_moved(self, ledger: Ledger) -> int:
        """Mark the entries in `Ledger.moving` as moved, and return their payload bytes."""
        size, entries = _payloads(ledger.moving)
        ledger.moved += entries
        ledger.moving = []
        self.unmoved_bytes -= size + entries * ENTRY_OVERHEAD_BYTES
        return size

    def put_back(self, ledger: Ledger) -> None:
        """Reassign the entries in `Ledger.moving` to the next checkpoint, because this one failed."""
        self.unmoved_ledgers[ledger.id] = ledger
        ledger.unmoved = ledger.moving + ledger.unmoved
        ledger.moving = []

    def drop_pending(self, log: LogPort) -> None:
        """Drop the unconfirmed entries of a log after a journal failure."""
        size = log.drop_pending()
        self.unmoved_bytes -= size
        self.bytes -= size

    def drop_ledger(self, ledger: Ledger) -> None:
        """Free the memory of a deleted ledger."""
        for heads_and_payloads in (ledger.unmoved, ledger.moving):
            size, entries = _payloads(heads_and_payloads)
            self.unmoved_bytes -= size + entries * ENTRY_OVERHEAD_BYTES
        ledger.moving = []
        self.bytes -= ledger.drop_all()
        self._dropped += 1
        if self._dropped > max(_FEWEST_DROPPED, len(self._runs) // 4):
            self._forget_runs({run.ledger for run in self._runs if run.ledger.is_dropped})

    def release(self, ledgers: Collection[Ledger]) -> None:
        """Evict all entries of ledgers whose entries are all moved."""
        held = {ledger for ledger in ledgers if ledger.held}
        if not held:
            return
        for ledger in held:
            self.bytes -= ledger.evict(ledger.appended)
        self._forget_runs(held)

    def _forget_runs(self, ledgers: Collection[Ledger]) -> None:
        """Release ledgers without entries in memory, because a ledger references its log and thus its cursors."""
        self._dropped = 0
        self._runs = deque(run for run in self._runs if run.ledger not in ledgers)
        if self._last is not None and self._last.ledger in ledgers:
            self._last = None

    def shrink(self) -> None:
        """Evict the oldest entries until memory is below the limit or the oldest entries are unmoved."""
        while self.bytes > self._limit_bytes and self._runs:
            run = self._runs[0]
            ledger = run.ledger
            # After a journal failure, a run may count dropped entries, which must not delay its eviction.
            last = min(ledger.first_cached + run.entries, ledger.appended)
            if last > ledger.moved and not ledger.is_dropped:
                return
            self._runs.popleft()
            if run is self._last:
                self._last = None
            self.bytes -= ledger.evict(run.entries)


def _payloads(heads_and_payloads: list[bytes]) -> tuple[int, int]:
    """Return the total size and number of the payloads in an alternating list of heads and payloads."""
    payloads = heads_and_payloads[1::2]
    return sum(map(len, payloads)), len(payloads)
