"""The compacted view of a log: the entries up to a horizon that compaction kept, at their original positions.

A view is a log of its own, which the engine does not list. Each of its entries is the position in the topic followed by
the payload. Positions ascend in a view, so a read finds its start by bisection.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ...wire.position import EARLIEST, Position
from .entry import StoredEntry

if TYPE_CHECKING:
    from .port import Log, View

COMPACTION_CURSOR = "__compaction"
"""The durable cursor that retains entries until they are compacted."""

_POSITION = struct.Struct("<qq")


class CompactedView:
    """One finished view.

    Attributes:
        log: the log that holds it.
        first: position of its first entry in the topic; None if it is empty.
        horizon: the last position of the topic that it covers.
    """

    def __init__(self, log: Log, first: Position | None, horizon: Position) -> None:
        self.log = log
        self.first = first
        self.horizon = horizon

    @property
    def ledger_id(self) -> int:
        """Id of its first ledger, by which clients identify the view; -1 if it is empty."""
        ledgers = self.log.ledgers()
        return ledgers[0].id if ledgers else -1

    async def load(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return entries from ``start`` on, with their positions in the topic; empty if the view has none.

        Cancellation: safe.

        Raises:
            StorageError: the disk failed or holds damaged data.
        """
        low, high = 0, self.log.entry_count
        if self.first is None or start <= self.first:
            high = 0
        while low < high:
            middle = (low + high) // 2
            found = await self._at(middle, 1, 1)
            if not found:
                return []  # dropped meanwhile: the log has another view
            if found[0].position < start:
                low = middle + 1
            else:
                high = middle
        return await self._at(low, max_entries, max_bytes)

    async def last(self) -> StoredEntry | None:
        """Return its last entry, or None.

        Cancellation: safe.
        """
        found = await self._at(self.log.entry_count - 1, 1, 1)
        return found[0] if found else None

    async def _at(self, index: int, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        position = self._position(index)
        if position is None:
            return []
        return [_opened(entry) for entry in await self.log.load(position, max_entries, max_bytes)]

    def _position(self, index: int) -> Position | None:
        """Return the position of entry number ``index`` in the log of the view."""
        return self.log.position_behind(EARLIEST, index + 1) if 0 <= index < self.log.entry_count else None


class CompactedReading:
    """Reads a log as its compacted view shows it: the view up to the horizon, then the log itself."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.name = log.name
        self._ended: tuple[View, Position] | None = None  # a view, and a position after its entries

    def read(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry] | None:
        """Return entries from the log's memory as `Log.read` does, or None if they have to be loaded.

        Entries of the view always have to be loaded. After its last entry, reading continues in the log: otherwise a
        reader without more entries, because the newest ones up to the horizon were deletions, would load forever.
        """
        view = self._log.view
        if view is not None and start <= view.horizon:
            if self._ended is None or self._ended[0] is not view or start < self._ended[1]:
                return None
            start = _behind(view)
        return self._log.read(start, max_entries, max_bytes)

    async def load(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return entries as `read` does, from the disk where needed.

        Cancellation: safe.

        Raises:
            StorageError: the disk failed or holds damaged data.
        """
        while (view := self._log.view) is not None and start <= view.horizon:
            entries = await view.load(start, max_entries, max_bytes)
            if view is not self._log.view:
                continue  # compacted again meanwhile: this view may have been dropped during the read
            if entries:
                return entries
            self._ended = view, start
            start = _behind(view)
        return await self._log.load(start, max_entries, max_bytes)


def _behind(view: View) -> Position:
    """Return the position in the log after the end of a view."""
    return Position(view.horizon.ledger_id, view.horizon.entry_id + 1)


def pack(position: Position, payload: bytes) -> bytes:
    """Return the payload that a view stores for the entry at ``position``."""
    return _POSITION.pack(*position) + payload


def _opened(entry: StoredEntry) -> StoredEntry:
    position = Position(*_POSITION.unpack_from(entry.payload))
    return StoredEntry(position, entry.payload[_POSITION.size :], entry.messages)
