"""Interfaces of logs, ledgers and the layers above them, as seen by the lower parts of the storage; types only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...wire.position import Position

Done = Callable[[Exception | None], None]
EntryDone = Callable[[Position, Exception | None], None]


class Captured(Protocol):
    """A state captured at one moment."""

    def encode(self) -> bytes:
        """Return its bytes; called on the background lane."""


class Watcher(Protocol):
    """Gets notified of ledgers that a log drops."""

    def forget_ledger(self, ledger_id: int) -> None:
        """Drop the state of a ledger."""


class PartialAcksPort(Protocol):
    """Counts the ack sets of all cursors; see `cursors.partial_acks`."""

    is_full: bool
    """Whether new sets are refused."""

    def changed(self, cursor: Any, delta_bytes: int) -> None:
        """Note that the memory of a cursor's sets has changed."""

    def recount(self) -> None:
        """Recount without cursors that were garbage collected."""

    def refusal(self) -> Exception:
        """Return the error for an entry that cannot be partly acknowledged."""


class ChangesPort(Protocol):
    """Makes changes durable."""

    @property
    def partial_acks(self) -> PartialAcksPort:
        """Counts the ack sets of all cursors."""

    def refuses(self, done: Done | None) -> bool:
        """Return whether changes are refused now, after reporting that to ``done``."""

    def record(self, done: Done | None, *parts: bytes) -> None:
        """Queue records; ``done`` gets the result once all of them are on disk or have failed."""


class CountsAcks(Protocol):
    """Counts the ack sets of cursors."""

    @property
    def partial_acks(self) -> PartialAcksPort:
        """Counts the ack sets of all cursors."""


class ConfirmedEntries(Protocol):
    """A ledger as seen by cursors."""

    @property
    def confirmed(self) -> int:
        """Number of entries that readers can see."""


class AckedLog(Protocol):
    """A log as seen by a cursor of any engine."""

    name: str
    """The full topic name."""

    last_confirmed: Position
    """Position of the newest synced entry."""

    @property
    def core(self) -> CountsAcks:
        """Counts the ack sets of its cursors."""

    @property
    def ledgers_by_id(self) -> Mapping[int, ConfirmedEntries]:
        """The ledgers that the log holds."""

    def watch(self, watcher: Watcher) -> None:
        """Notify ``watcher``, which does not retain entries, of dropped ledgers."""

    def holds(self, position: Position) -> bool:
        """Return whether the log holds a confirmed entry there."""

    def ever_held(self, position: Position) -> bool:
        """Return whether the log holds an entry there, or may have held one."""

    def messages_at_most(self, position: Position) -> int:
        """Return how many messages an entry has, or an upper bound."""

    def next_position(self, position: Position) -> Position:
        """Return the first position after ``position`` that exists, or may exist next."""

    def before(self, position: Position) -> Position:
        """Return the mark-delete position of a cursor whose next entry is ``position``."""

    def mark_up_to(self, position: Position) -> Position | None:
        """Return the mark-delete position with everything up to ``position`` acknowledged; None if never held."""

    def entries_between(self, after: Position, up_to: Position) -> int:
        """Return the number of confirmed entries after ``after``, up to and including ``up_to``."""


class LedgerPort(Protocol):
    """A ledger."""

    created_ms: int
    """When it was begun, in milliseconds."""

    confirmed: int
    """Number of synced entries."""

    @property
    def log(self) -> LogPort:
        """The log of the ledger."""


class LogPort(AckedLog, Protocol):
    """A log in the journal."""

    id: int
    """Identifies the log in journal records."""

    is_created: bool
    """Whether its creation record has been queued."""

    is_deleted: bool
    """Whether it was deleted, and has no catalogue line any more."""

    @property
    def core(self) -> ChangesPort:
        """Records changes of durable cursors."""

    @property
    def ledgers_by_id(self) -> Mapping[int, LedgerPort]:
        """The ledgers that the log holds."""

    @property
    def consumed(self) -> Position:
        """Position that all durable cursors have reached."""

    def has_changed(self) -> None:
        """Note that the catalogue line of the log is out of date."""

    def snapshot(self) -> Captured:
        """Return the log's line in the catalogue."""

    def drop_pending(self) -> int:
        """Drop unconfirmed entries after a journal failure; return their bytes."""

    def close_ledger(self) -> None:
        """Close the last ledger, if it is open."""

    def close_old_ledger(self, ledger: LedgerPort, now_ms: int) -> bool:
        """Close a ledger if it is too old; return whether it is closed."""
