"""The compacted view of a log: the entries up to a horizon that compaction kept, at their original positions.

Design: a view is a hidden log, so the journal, checkpoints and reads treat it like any other. Each of its entries is
the position in the topic followed by the payload. It is written entry by entry and is unreferenced until one record
makes it the topic's view up to that horizon; the same record moves the compaction cursor. A crash before the record
leaves an unreferenced hidden log, which recovery drops; after it, the old view is the unreferenced one. So there is
always exactly one complete view.

Positions ascend in a view, so a read finds its start by bisection.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...wire.position import Position
from .entry import StoredEntry
from .journal.format import encode_change

if TYPE_CHECKING:
    from .core import StorageCore
    from .ports import Done
    from .topic_log import TopicLog

COMPACTION_CURSOR = "__compaction"
"""The durable cursor that retains entries until they are compacted."""

HIDDEN = "compacted:"
"""Name prefix of hidden logs; no topic's name begins with it."""

_POSITION = struct.Struct("<qq")


class CompactedView:
    """One finished view.

    Attributes:
        log: the hidden log that holds it.
        first: position of its first entry in the topic; None if it is empty.
        horizon: the last position of the topic that it covers.
    """

    def __init__(self, log: TopicLog, first: Position | None, horizon: Position) -> None:
        self.log = log
        self.first = first
        self.horizon = horizon

    @property
    def ledger_id(self) -> int:
        """Id of its first ledger, by which clients identify the view; -1 if it is empty."""
        return next(iter(self.log.ledgers_by_id), -1)

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
        """Return the position in the hidden log of its entry number ``index``."""
        for ledger in self.log.ledgers_by_id.values():
            if 0 <= index - ledger.base < ledger.confirmed:
                return ledger.position(index - ledger.base)
        return None

    def state(self) -> dict[str, Any]:
        """Return the state for catalogue and journal."""
        first = None if self.first is None else list(self.first)
        return {"view": self.log.id, "first": first, "horizon": list(self.horizon)}


class CompactedReading:
    """Reads a log as its compacted view shows it: the view up to the horizon, then the log itself."""

    def __init__(self, log: TopicLog) -> None:
        self._log = log
        self.name = log.name
        self._ended: tuple[CompactedView, Position] | None = None  # a view, and a position after its entries

    def read(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry] | None:
        """Return entries from the log's memory as `TopicLog.read` does, or None if they have to be loaded.

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


def _behind(view: CompactedView) -> Position:
    """Return the position in the log after the end of a view."""
    return Position(view.horizon.ledger_id, view.horizon.entry_id + 1)


def pack(position: Position, payload: bytes) -> bytes:
    """Return the payload that a view stores for the entry at ``position``."""
    return _POSITION.pack(*position) + payload


def _opened(entry: StoredEntry) -> StoredEntry:
    position = Position(*_POSITION.unpack_from(entry.payload))
    return StoredEntry(position, entry.payload[_POSITION.size :], entry.messages)


def begin_view(log: TopicLog) -> TopicLog:
    """Return a new hidden log for a view of ``log``; it stays unreferenced until `switch_view`."""
    core = log.core
    id_ = core.ids.new_object()
    hidden = type(log)(core, id_, f"{HIDDEN}{log.id}:{id_}")
    core.logs.add(hidden)
    return hidden


def switch_view(log: TopicLog, view: CompactedView, done: Done) -> None:
    """Make the fully synced ``view`` the view of ``log``, and move its compaction cursor to the horizon."""
    if log.core.refuses(done):
        return
    cursor = log.cursors.get(COMPACTION_CURSOR)
    log.view = view
    if cursor is not None:
        cursor.apply_up_to(view.horizon)
    log.has_changed()
    change = {"do": "switch_view", "log": log.id, "cursor": cursor.id if cursor is not None else -1, **view.state()}
    log.core.record(done, encode_change(change))


def drop_hidden(hidden: TopicLog, done: Done) -> None:
    """Delete an unreferenced hidden log."""
    core = hidden.core
    if core.refuses(done):
        return  # it remains as a stale view
    core.logs.pop(hidden.name)
    ledgers = hidden.drop()
    core.record_removal(ledgers, done, encode_change({"do": "delete_log", "log": hidden.id}))


def stale_views(log: TopicLog) -> list[TopicLog]:
    """Return hidden logs of ``log`` that are not its view, left over from failed or missed drops."""
    begin = f"{HIDDEN}{log.id}:"
    current = log.view.log if log.view is not None else None
    return [each for name, each in log.core.logs.used.items() if name.startswith(begin) and each is not current]


def restore_view(log: TopicLog, state: Mapping[str, Any], logs_by_id: Mapping[int, TopicLog]) -> None:
    """Restore the view of a log from catalogue or journal."""
    first = state["first"]
    log.view = CompactedView(
        logs_by_id[state["view"]], None if first is None else Position(*first), Position(*state["horizon"])
    )
    log.has_changed()


def forget_unreferenced(core: StorageCore) -> None:
    """Drop, during recovery, hidden logs that are not a view; their files are removed as strays."""
    wanted = {log.view.log.name for log in core.logs.used.values() if log.view is not None}
    for log in [log for name, log in core.logs.used.items() if name.startswith(HIDDEN) and name not in wanted]:
        core.logs.pop(log.name)
        log.drop()
