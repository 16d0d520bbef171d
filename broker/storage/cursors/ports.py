"""What cursors need of the log whose entries they acknowledge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from ..journal.batch import Done

if TYPE_CHECKING:
    from ....wire.position import Position
    from .memory import MemoryCursor


class LedgerPort(Protocol):
    """A ledger, as cursors see it."""

    confirmed: int
    """Entries that are synced."""


class ChangesPort(Protocol):
    """What makes changes durable; see `broker.storage.core.StorageCore`."""

    def refuses(self, done: Done | None) -> bool:
        """Return whether changes are refused now, after telling ``done`` so."""

    def record(self, done: Done | None, *parts: bytes) -> None:
        """Queue records; ``done`` is told when all is on the disk, or why not."""

    async def wait(self, start: Callable[[Done], None]) -> None:
        """Call ``start`` with a callback and wait until that is called."""


class LogPort(Protocol):
    """A log, as its cursors see it; see `broker.storage.topic_log.TopicLog`."""

    id: int
    """Names the log in journal records."""

    name: str
    """The topic's."""

    @property
    def core(self) -> ChangesPort:
        """Where changes of durable cursors go."""

    last_confirmed: Position
    """Position of the newest synced entry."""

    @property
    def ledgers_by_id(self) -> Mapping[int, LedgerPort]:
        """The ledgers that the log holds."""

    def has_changed(self) -> None:
        """Note that the catalogue has to say something new about the log."""

    def watch(self, cursor: MemoryCursor) -> None:
        """Tell a cursor that holds nothing back of ledgers that are dropped."""

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
