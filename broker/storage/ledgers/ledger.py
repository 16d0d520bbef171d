"""One ledger in memory: how many entries it has, and those of them that memory holds.

Entries go through three states. *Pending*: appended, on their way through the journal. *Confirmed*: synced; readers may
have them. *Moved*: in the ledger's file and covered by a checkpoint; only these may leave memory.

Invariant: moved <= confirmed <= appended, and memory holds every entry from ``moved`` on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....wire.position import Position
from ..entry import ENTRY_OVERHEAD_BYTES, StoredEntry
from .ledger_file import LedgerFile

if TYPE_CHECKING:
    from .ports import LogPort

_COMPACT_AT = 1024


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """Public state of a ledger."""

    id: int
    entries: int
    bytes: int
    is_open: bool
    created_ms: int


@dataclass(slots=True)
class LedgerTotals:
    """Sums over the entries appended to a ledger."""

    messages: int = 0
    bytes: int = 0
    oldest_ms: int = 2**63 - 1
    newest_ms: int = 0


class Ledger:
    """One ledger of a log; its fields belong to the loop lane, except ``file``.

    Attributes:
        base: entries in all earlier ledgers of the log since its beginning.
        appended: entries given out, pending ones included.
        confirmed: entries that are synced.
        closed_ms: when the broker closed it, by its clock; None while it is open, or until somebody knows.
        moved: entries that the last checkpoint found in the ledger's file.
        unmoved: heads and payloads, alternating, of the entries from ``moved`` on that no checkpoint has taken up.
        moving: the same for those that the running checkpoint has taken up.
        held: the entries that memory holds, in order; None where one was evicted. `EntryMemory` appends to it.
        file: the ledger's file; used by the background and reading lanes.
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
        self._gone = 0  # how many at the front of held have been evicted

    @property
    def first_cached(self) -> int:
        """Entry id from which on everything is in memory."""
        return self._first_held + self._gone

    def restore(self, entries: int, totals: LedgerTotals) -> None:
        """Become a ledger whose first ``entries`` entries are in its file."""
        self.appended = self.confirmed = self.moved = self._first_held = entries
        self.totals = totals

    def cached(self, start: int, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return confirmed entries from ``start`` on out of memory; at least one if there is one.

        ``start`` is not below `first_cached`.
        """
        index = start - self._first_held
        end = min(index + max_entries, self.confirmed - self._first_held)
        found: list[StoredEntry] = self.held[index:end]  # type: ignore[assignment]  # none is evicted from index on
        total = 0
        for count, entry in enumerate(found):
            total += len(entry.payload)
            if total > max_bytes and count:
                return found[:count]
        return found

    def evict(self, entries: int) -> int:
        """Drop up to that many of the oldest entries that memory holds and return the bytes that they took."""
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
        """Forget what is not confirmed, after the journal failed; return the bytes that it took."""
        lost = self.held[self.confirmed - self._first_held :]
        del self.held[self.confirmed - self._first_held :]
        size = 0
        for entry in lost:
            assert entry is not None
            size += len(entry.payload)
            self.totals.messages -= entry.messages
        keep = len(self.unmoved) - 2 * len(lost)
        if keep < 0:  # a checkpoint had taken them up, but cannot have begun to move them: that needs the journal
            del self.moving[keep:]
        del self.unmoved[max(keep, 0) :]
        self.totals.bytes -= size
        held = size + len(lost) * ENTRY_OVERHEAD_BYTES
        self.cached_bytes -= held
        self.appended = self.confirmed
        return held

    def drop_all(self) -> int:
        """Forget everything, as the ledger is deleted; return the bytes that memory held."""
        self.is_dropped = True
        size = self.cached_bytes
        self.cached_bytes = 0
        self._first_held, self._gone = self.appended, 0
        self.held, self.unmoved = [], []
        return size

    def position(self, entry_id: int) -> Position:
        """Return the position of an entry of this ledger."""
        return Position(self.id, entry_id)

    def info(self, is_open: bool) -> LedgerInfo:
        """Return what it looks like from outside."""
        return LedgerInfo(self.id, self.confirmed, self.totals.bytes, is_open, self.created_ms)

    def __repr__(self) -> str:
        return f"<Ledger {self.id} moved {self.moved} confirmed {self.confirmed} appended {self.appended}>"
