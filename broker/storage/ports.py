"""Interfaces of logs, ledgers and higher layers, for type annotations in the lower layers of the storage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...wire.position import Position

Done = Callable[[Exception | None], None]
EntryDone = Callable[[Position, Exception | None], None]


class Captured(Protocol):
    """A captured state that can be encoded later."""

    def encode(self) -> bytes:
        """Return the encoded state; called on the background lane."""


class Watcher(Protocol):
    """An object that is notified when a log drops ledgers."""

    def forget_ledger(self, ledger_id: int) -> None:
        """Drop all state that belongs to a ledger."""


class PartialAcksPort(Protocol):
    """Memory accounting for the ack sets of all cursors; see `cursors.partial_acks`."""

    is_full: bool
    """Whether the limit is exceeded, so that no new ack sets may be created."""

    def changed(self, cursor: Any, delta_bytes: int) -> None:
        """Record a change in the memory of a cursor's ack sets."""

    def recount(self) -> None:
        """Recount the memory without garbage-collected cursors."""

    def refusal(self) -> Exception:
        """Return the error for an entry that cannot be partly acknowledged."""


class ChangesPort(Protocol):
    """Records changes durably."""

    @property
    def partial_acks(self) -> PartialAcksPort:
        """Memory accounting for the ack sets of all cursors."""

    def refuses(self, done: Done | None) -> bool:
        """Return whether changes are currently rejected; if so, ``done`` is called with the error."""

    def record(self, done: Done | None, *parts: bytes) -> None:
        """Queue records, and call ``done`` with the result once they are on disk or have failed."""


class CountsAcks(Protocol):
    """The part of a storage that counts the memory of ack sets."""

    @property
    def partial_acks(self) -> PartialAcksPort:
        """Memory accounting for the ack sets of all cursors."""


class ConfirmedEntries(Protocol):
    """A ledger, as seen by cursors."""

    @property
    def confirmed(self) -> int:
        """Number of entries that are visible to readers."""


class AckedLog(Protocol):
    """A log of any storage engine, as seen by cursors."""

    name: str
    """Full topic name."""

    last_confirmed: Position
    """Position of the newest confirmed entry."""

    @property
    def core(self) -> CountsAcks:
        """The storage that counts the memory of ack sets."""

    @property
    def ledgers_by_id(self) -> Mapping[int, ConfirmedEntries]:
        """The ledgers of the log, by id."""

    def watch(self, watcher: Watcher) -> None:
        """Notify ``watcher`` of dropped ledgers, without retaining entries for it."""

    def holds(self, position: Position) -> bool:
        """Return whether the log contains a confirmed entry at ``position``."""

    def ever_held(self, position: Position) -> bool:
        """Return whether the log contains an entry at ``position``, or may have contained it in a dropped ledger."""

    def messages_at_most(self, position: Position) -> int:
        """Return the number of messages in an entry, or an upper bound."""

    def next_position(self, position: Position) -> Position:
        """Return the next position after ``position``, which may not exist yet."""

    def before(self, position: Position) -> Position:
        """Return the mark-delete position of a cursor whose next entry is ``position``."""

    def mark_up_to(self, position: Position) -> Position | None:
        """Return the mark-delete position for everything up to ``position``, or None if it never existed."""

    def entries_between(self, after: Position, up_to: Position) -> int:
        """Return the number of confirmed entries after ``after`` up to and including ``up_to``."""


class LedgerPort(Protocol):
    """A ledger."""

    created_ms: int
    """Creation time, in milliseconds."""

    confirmed: int
    """Number of synced entries."""

    @property
    def log(self) -> LogPort:
        """The log that the ledger belongs to."""


class LogPort(AckedLog, Protocol):
    """A log in the journal."""

    id: int
    """Id of the log in journal records."""

    is_created: bool
    """Whether the creation record has been queued."""

    is_deleted: bool
    """Whether the log was deleted and no longer has a catalogue line."""

    @property
    def core(self) -> ChangesPort:
        """The storage that records changes of durable cursors."""

    @property
    def ledgers_by_id(self) -> Mapping[int, LedgerPort]:
        """The ledgers of the log, by id."""

    @property
    def consumed(self) -> Position:
        """Lowest mark-delete position of all durable cursors."""

    def has_changed(self) -> None:
        """Mark the catalogue line of the log as out of date."""

    def snapshot(self) -> Captured:
        """Return the catalogue line of the log."""

    def drop_pending(self) -> int:
        """Drop unconfirmed entries after a journal failure, and return the number of bytes freed."""

    def close_ledger(self) -> None:
        """Close the last ledger if it is open."""

    def close_old_ledger(self, ledger: LedgerPort, now_ms: int) -> bool:
        """Close a ledger that exceeds the maximum age, and return whether the ledger is closed."""
