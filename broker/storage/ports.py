"""What the lower parts of the storage know of logs, ledgers and the rest above them: types only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ...wire.position import Position

Done = Callable[[Exception | None], None]
EntryDone = Callable[[Position, Exception | None], None]


class Captured(Protocol):
    """A state captured at one moment."""

    def encode(self) -> bytes:
        """Return its bytes; in the background."""


class Watcher(Protocol):
    """Who hears of the ledgers that a log drops."""

    def forget_ledger(self, ledger_id: int) -> None:
        """Forget what is known of a ledger."""


class PartialAcksPort(Protocol):
    """What counts the ack sets of all cursors; see `cursors.partial_acks`."""

    is_full: bool
    """Whether no further set is kept."""

    def changed(self, cursor: Any, delta_bytes: int) -> None:
        """Note that the sets of a cursor take more or less than before."""

    def recount(self) -> None:
        """Leave out the cursors that are gone."""

    def refusal(self) -> Exception:
        """Return why an entry is not acknowledged in part."""


class ChangesPort(Protocol):
    """What makes changes durable."""

    @property
    def partial_acks(self) -> PartialAcksPort:
        """What counts the ack sets of all cursors."""

    def refuses(self, done: Done | None) -> bool:
        """Return whether changes are refused now, after telling ``done`` so."""

    def record(self, done: Done | None, *parts: bytes) -> None:
        """Queue records; ``done`` gets the result once all of them are on disk or have failed."""

    async def wait(self, start: Callable[[Done], None]) -> None:
        """Call ``start`` with a callback and wait until that is called."""


class LedgerPort(Protocol):
    """A ledger."""

    created_ms: int
    """When it was begun."""

    confirmed: int
    """Entries that are synced."""

    @property
    def log(self) -> LogPort:
        """The log that it belongs to."""


class LogPort(Protocol):
    """A log."""

    id: int
    """Names the log in journal records."""

    name: str
    """The topic's."""

    last_confirmed: Position
    """Position of the newest synced entry."""

    is_created: bool
    """Whether its first record has been queued."""

    is_deleted: bool
    """Whether it has no line in the catalogue any more."""

    @property
    def core(self) -> ChangesPort:
        """Where changes of durable cursors go."""

    @property
    def ledgers_by_id(self) -> Mapping[int, LedgerPort]:
        """The ledgers that the log holds."""

    @property
    def consumed(self) -> Position:
        """Position up to which all durable cursors are past."""

    def has_changed(self) -> None:
        """Note that the catalogue has to say something new about the log."""

    def snapshot(self) -> Captured:
        """Return the log's line in the catalogue."""

    def drop_pending(self) -> int:
        """Forget entries that were never confirmed, after the journal failed; return their bytes."""

    def close_ledger(self) -> None:
        """Close the last ledger, if it is not."""

    def close_old_ledger(self, ledger: LedgerPort, now_ms: int) -> bool:
        """Close a ledger if it is too old; return whether it is closed now."""

    def watch(self, watcher: Watcher) -> None:
        """Tell who holds nothing back of ledgers that are dropped."""

    def holds(self, position: Position) -> bool:
        """Return whether the log holds a confirmed entry there."""

    def ever_held(self, position: Position) -> bool:
        """Return whether the log holds an entry there, or may have held one."""

    def messages_at_most(self, position: Position) -> int:
        """Return how many messages an entry has, or not less than it can have."""

    def next_position(self, position: Position) -> Position:
        """Return the first position behind ``position`` that exists, or may come to exist next."""

    def before(self, position: Position) -> Position:
        """Return the mark-delete position of a cursor whose next entry is ``position``."""

    def mark_up_to(self, position: Position) -> Position | None:
        """Return the mark-delete position with everything up to ``position`` acknowledged; None if never held."""

    def entries_between(self, after: Position, up_to: Position) -> int:
        """Return how many confirmed entries are behind ``after`` and not behind ``up_to``."""
