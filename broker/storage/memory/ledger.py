"""Ledgers that are kept in memory."""

from __future__ import annotations

from ....wire.position import Position
from ..entry import LedgerInfo, StoredEntry
from ..ledgers.ledger import LedgerTotals


class MemoryLedger:
    """Consecutive entries of one log.

    Attributes:
        id: id of the ledger.
        base: number of entries that were ever appended to earlier ledgers of the log.
        created_ms: creation time.
        closed_ms: closing time; None while the ledger accepts entries.
        entries: all entries.
        times_ms: publish times of the entries.
        confirmed: number of entries that are visible to readers.
        totals: totals over all entries.
    """

    def __init__(self, ledger_id: int, base: int, created_ms: int) -> None:
        self.id = ledger_id
        self.base = base
        self.created_ms = created_ms
        self.closed_ms: int | None = None
        self.entries: list[StoredEntry] = []
        self.times_ms: list[int] = []
        self.confirmed = 0
        self.totals = LedgerTotals()

    @property
    def appended(self) -> int:
        """Number of entries, including those that readers cannot see yet."""
        return len(self.entries)

    def append(self, payload: bytes, messages: int, publish_time_ms: int) -> Position:
        """Append an entry that readers cannot see yet, and return its position."""
        position = Position(self.id, len(self.entries))
        self.entries.append(StoredEntry(position, payload, messages))
        self.times_ms.append(publish_time_ms)
        totals = self.totals
        totals.bytes += len(payload)
        totals.messages += messages
        totals.oldest_ms = min(totals.oldest_ms, publish_time_ms)
        totals.newest_ms = max(totals.newest_ms, publish_time_ms)
        return position

    def position(self, entry_id: int) -> Position:
        """Return the position of an entry."""
        return Position(self.id, entry_id)

    def read(self, start: int, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return visible entries from ``start`` on, within the limits but at least one."""
        found = self.entries[start : min(start + max_entries, self.confirmed)]
        size = 0
        for count, entry in enumerate(found):
            size += len(entry.payload)
            if count and size > max_bytes:
                return found[:count]
        return found

    def about_bytes_from(self, start: int) -> int:
        """Return the payload bytes of the visible entries from ``start`` on."""
        return sum(len(entry.payload) for entry in self.entries[start : self.confirmed])

    def first_since(self, start: int, time_ms: int) -> int | None:
        """Return the id of the first visible entry from ``start`` on, published at ``time_ms`` or later, or None."""
        times = enumerate(self.times_ms[start : self.confirmed], start)
        return next((entry_id for entry_id, time in times if time >= time_ms), None)

    def info(self) -> LedgerInfo:
        """Return the public state of the ledger."""
        is_open = self.closed_ms is None
        return LedgerInfo(self.id, self.confirmed, self.totals.bytes, is_open, self.created_ms)
