"""The ledgers of a log as one sequence of positions: lookup, successor, distance, and retention.

Entry ids in a ledger are consecutive, and each ledger stores the number of entries before it (`Ledger.base`), so that
the distance between two positions is a difference.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from ....wire.position import EARLIEST, Position
from .ledger import LedgerTotals


class ListedLedger(Protocol):
    """A ledger in a `LedgerList`."""

    @property
    def id(self) -> int:
        """Id of the ledger; later ledgers have higher ids."""

    @property
    def base(self) -> int:
        """Number of entries that were ever appended to earlier ledgers of the log."""

    @property
    def appended(self) -> int:
        """Number of entries, including those that readers cannot see yet."""

    @property
    def confirmed(self) -> int:
        """Number of entries that are visible to readers."""

    @property
    def totals(self) -> LedgerTotals:
        """Totals over all entries."""

    def position(self, entry_id: int) -> Position:
        """Return the position of an entry."""

    def about_bytes_from(self, start: int) -> int:
        """Estimate the payload bytes of the visible entries from ``start`` on."""


L = TypeVar("L", bound=ListedLedger)


class LedgerList(Generic[L]):
    """Ledgers in ascending order.

    Attributes:
        ledgers_by_id: ledgers by id; only changed by `take` and `forget`.
        last_confirmed: position of the newest synced entry, even if it has been dropped by retention.
    """

    def __init__(self) -> None:
        self.ledgers_by_id: dict[int, L] = {}
        self.last_confirmed = EARLIEST
        self._ids: list[int] = []

    def take(self, ledger: L) -> L:
        """Append a ledger."""
        self.ledgers_by_id[ledger.id] = ledger
        self._ids.append(ledger.id)
        return ledger

    def forget(self, ledger_id: int) -> L:
        """Remove a ledger from the list and return it."""
        self._ids.remove(ledger_id)
        return self.ledgers_by_id.pop(ledger_id)

    @property
    def last_ledger(self) -> L | None:
        """The newest ledger, or None."""
        return self.ledgers_by_id[self._ids[-1]] if self._ids else None

    @property
    def first_position(self) -> Position:
        """Position of the oldest entry; for an empty log, the position after the last confirmed entry."""
        for ledger_id in self._ids:
            if self.ledgers_by_id[ledger_id].confirmed:
                return Position(ledger_id, 0)
        return Position(self.last_confirmed.ledger_id, self.last_confirmed.entry_id + 1)

    @property
    def entry_count(self) -> int:
        """Number of confirmed entries in the log."""
        return self._ordinal(self.last_confirmed) - self.ledgers_by_id[self._ids[0]].base if self._ids else 0

    @property
    def total_bytes(self) -> int:
        """Payload bytes of the entries in the log."""
        return sum(ledger.totals.bytes for ledger in self.ledgers_by_id.values())

    def next_position(self, position: Position) -> Position:
        """Return the next position after ``position``, which may not exist yet.

        After the last entry, this is the position right after it. If the next append starts a new ledger, its entry has
        a higher position, and `read` continues there.
        """
        ledger_id, entry_id = position
        ledger = self.ledgers_by_id.get(ledger_id)
        if ledger is not None and entry_id + 1 < ledger.appended:
            return Position(ledger_id, max(entry_id, -1) + 1)
        index = bisect_right(self._ids, ledger_id)
        if index < len(self._ids):
            return Position(self._ids[index], 0)
        return Position(ledger_id, entry_id + 1)

    def holds(self, position: Position) -> bool:
        """Return whether the log contains a confirmed entry at ``position``."""
        ledger = self.ledgers_by_id.get(position.ledger_id)
        return ledger is not None and 0 <= position.entry_id < ledger.confirmed

    def ever_held(self, position: Position) -> bool:
        """Return whether the log contains an entry at ``position``, or may have contained it in a dropped ledger."""
        if position.ledger_id in self.ledgers_by_id:
            return self.holds(position)
        return position.entry_id >= 0 and self._may_be_dropped(position.ledger_id)

    def mark_up_to(self, position: Position) -> Position | None:
        """Return the mark-delete position that acknowledges everything up to ``position``, or None if it never existed.

        Entry -1 of a ledger stands for everything before the ledger. Clients send it while they acknowledge the first
        batch of a ledger.
        """
        if position.ledger_id not in self.ledgers_by_id:
            is_known = position <= EARLIEST or self._may_be_dropped(position.ledger_id)
            return position if is_known else None
        if position.entry_id == -1:
            return self.before(Position(position.ledger_id, 0))
        return position if self.holds(position) else None

    def _may_be_dropped(self, ledger_id: int) -> bool:
        """Return whether an unknown ledger may have been dropped; ledgers are only dropped oldest first."""
        return 0 < ledger_id <= self.last_confirmed.ledger_id and (not self._ids or ledger_id < self._ids[0])

    def before(self, position: Position) -> Position:
        """Return the mark-delete position of a cursor whose next entry is ``position``.

        If that entry does not exist, the next existing one is used.
        """
        position = max(position, self.first_position)
        index = bisect_right(self._ids, position.ledger_id - 1)
        if index == len(self._ids):
            return self.last_confirmed
        ledger = self.ledgers_by_id[self._ids[index]]
        entry_id = min(max(position.entry_id, 0), ledger.confirmed) if ledger.id == position.ledger_id else 0
        if entry_id == 0 and index > 0:
            earlier = self.ledgers_by_id[self._ids[index - 1]]
            return earlier.position(earlier.confirmed - 1)
        return ledger.position(entry_id - 1)

    def entries_between(self, after: Position, up_to: Position) -> int:
        """Return the number of confirmed entries after ``after`` up to and including ``up_to``."""
        return max(0, self._ordinal(up_to) - self._ordinal(after))

    def about_bytes_behind(self, position: Position) -> int:
        """Estimate the payload bytes after ``position``, without reading the disk."""
        size = 0
        for ledger_id in reversed(self._ids):
            ledger = self.ledgers_by_id[ledger_id]
            if ledger_id <= position.ledger_id:
                start = max(position.entry_id + 1, 0) if ledger_id == position.ledger_id else ledger.confirmed
                return size + ledger.about_bytes_from(start)
            size += ledger.totals.bytes
        return size

    def position_behind(self, after: Position, entries: int) -> Position:
        """Return the position ``entries`` entries after ``after``, but at most the last confirmed one."""
        wanted = self._ordinal(after) + entries
        for ledger_id in self._ids[bisect_right(self._ids, after.ledger_id - 1) :]:
            ledger = self.ledgers_by_id[ledger_id]
            if ledger.base < wanted <= ledger.base + ledger.confirmed:
                return ledger.position(wanted - ledger.base - 1)
        return self.last_confirmed if entries > 0 else after

    def _ordinal(self, position: Position) -> int:
        """Return the number of entries that were ever confirmed up to and including ``position``."""
        ledger = self.ledgers_by_id.get(position.ledger_id)
        if ledger is not None:
            return ledger.base + min(max(position.entry_id, -1) + 1, ledger.confirmed)
        index = bisect_right(self._ids, position.ledger_id)
        return self.ledgers_by_id[self._ids[index]].base if index < len(self._ids) else self.entries_ever()

    def entries_ever(self) -> int:
        """Return the number of entries that were ever appended to the log."""
        if not self._ids:
            return 0
        last = self.ledgers_by_id[self._ids[-1]]
        return last.base + last.appended

    def locate(self, start: Position) -> tuple[L, int] | None:
        """Return the ledger and entry id of the first confirmed entry at or after ``start``, or None."""
        index = bisect_right(self._ids, start.ledger_id - 1)
        while index < len(self._ids):
            ledger = self.ledgers_by_id[self._ids[index]]
            entry_id = max(start.entry_id, 0) if ledger.id == start.ledger_id else 0
            if entry_id < ledger.confirmed:
                return ledger, entry_id
            index += 1
        return None


class ClosedLedger(NamedTuple):
    """A closed ledger whose entries are all confirmed.

    Attributes:
        id: id of the ledger.
        bytes: payload bytes.
        closed_ms: time at which the broker closed the ledger; all entries were added earlier.
        is_consumed: whether all durable cursors have passed the ledger.
    """

    id: int
    bytes: int
    closed_ms: int
    is_consumed: bool


def ledgers_to_drop(
    ledgers: Sequence[ClosedLedger], open_bytes: int, retention_ms: int, retention_bytes: int, now_ms: int
) -> list[int]:
    """Return the ids of the ledgers to delete, oldest first and without gaps.

    A ledger is deleted once all durable cursors have passed it and the log exceeds its retention: the ledger was closed
    longer ago than the time limit, or the log is larger than the size limit. As in Apache Pulsar, -1 means unlimited,
    and exceeding one of two limits is sufficient. Publish times are ignored, because they are set by producers.

    Args:
        ledgers: closed ledgers of the log, oldest first.
        open_bytes: size of the rest of the log.
        retention_ms: retention time of consumed entries; -1 for unlimited.
        retention_bytes: retained size of the log; -1 for unlimited.
        now_ms: current time.
    """
    total = open_bytes + sum(ledger.bytes for ledger in ledgers)
    drop = []
    for ledger in ledgers:
        is_expired = retention_ms >= 0 and now_ms - ledger.closed_ms >= retention_ms
        # The remaining ledgers must not be smaller than the size limit.
        is_over = retention_bytes >= 0 and total - ledger.bytes >= retention_bytes
        if not ledger.is_consumed or not (is_expired or is_over):
            break
        drop.append(ledger.id)
        total -= ledger.bytes
    return drop
