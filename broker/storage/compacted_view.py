"""The compacted view of a log: the entries that compaction has kept up to a horizon, at their original positions.

A view is stored in a separate log, which the engine does not list. Each entry consists of the position in the topic and
the payload. Positions in a view are in ascending order, so reads find their start by bisection.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ...wire.position import EARLIEST, Position
from .entry import StoredEntry

if TYPE_CHECKING:
    from .port import Log, View

COMPACTION_CURSOR = "__compaction"
"""Name of the durable cursor that retains entries until they are compacted."""

_POSITION = struct.Struct("<qq")


class CompactedView:
    """A complete compacted view.

    Attributes:
        log: log that stores the view.
        first: position in the topic of the first entry; None for an empty view.
        horizon: last position in the topic that the view covers.
    """

    def __init__(self, log: Log, first: Position | None, horizon: Position) -> None:
        self.log = log
        self.first = first
        self.horizon = horizon

    @property
    def ledger_id(self) -> int:
        """Id of the first ledger, which identifies the view to clients; -1 for an empty view."""
        ledgers = self.log.ledgers()
        return ledgers[0].id if ledgers else -1

    async def load(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return entries from ``start`` on, with their positions in the topic.

        Cancellation: safe.

        Raises:
            StorageError: the disk failed, or the data is damaged.
        """
        low, high = 0, self.log.entry_count
        if self.first is None or start <= self.first:
            high = 0
        while low < high:
            middle = (low + high) // 2
            found = await self._at(middle, 1, 1)
            if not found:
                return []  # the view was replaced and dropped meanwhile
            if found[0].position < start:
                low = middle + 1
            else:
                high = middle
        return await self._at(low, max_entries, max_bytes)

    async def last(self) -> StoredEntry | None:
        """Return the last entry, or None for an empty view.

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
        """Return the position of entry number ``index`` in the view's log, or None if out of range."""
        return self.log.position_behind(EARLIEST, index + 1) if 0 <= index < self.log.entry_count else None


class CompactedReading:
    """Reads the compacted view of a log up to its horizon, then the log itself."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.name = log.name
        self._ended: tuple[View, Position] | None = None  # a view, and a position after its last entry

    def read(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry] | None:
        """Return entries that are in memory, like `Log.read`, or None if they must be loaded.

        Entries of the view must always be loaded. After the last entry of the view, reading continues in the log.
        Otherwise a reader between that entry and the horizon, where compaction removed everything, would load forever.
        """
        view = self._log.view
        if view is not None and start <= view.horizon:
            if self._ended is None or self._ended[0] is not view or start < self._ended[1]:
                return None
            start = _behind(view)
        return self._log.read(start, max_entries, max_bytes)

    async def load(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return entries like `read`, loading them from disk if needed.

        Cancellation: safe.

        Raises:
            StorageError: the disk failed, or the data is damaged.
        """
        while (view := self._log.view) is not None and start <= view.horizon:
            entries = await view.load(start, max_entries, max_bytes)
            if view is not self._log.view:
                continue  # another compaction may have dropped this view during the read
            if entries:
                return entries
            self._ended = view, start
            start = _behind(view)
        return await self._log.load(start, max_entries, max_bytes)


def _behind(view: View) -> Position:
    """Return the first position in the log after a view."""
    return Position(view.horizon.ledger_id, view.horizon.entry_id + 1)


def pack(position: Position, payload: bytes) -> bytes:
    """Return the payload that a view stores for the entry at ``position``."""
    return _POSITION.pack(*position) + payload


def _opened(entry: StoredEntry) -> StoredEntry:
    position = Position(*_POSITION.unpack_from(entry.payload))
    return StoredEntry(position, entry.payload[_POSITION.size :], entry.messages)
