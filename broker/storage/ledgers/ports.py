"""What ledgers know of the log that they belong to: those who have a ledger reach its log by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ....wire.position import Position
    from .ledger import Ledger


class LogPort(Protocol):
    """A log, as who has one of its ledgers sees it; see `broker.storage.topic_log.TopicLog`."""

    last_confirmed: Position

    id: int
    """Names the log in journal records."""

    @property
    def consumed(self) -> Position:
        """Position up to which all durable cursors are past."""

    def has_changed(self) -> None:
        """Note that the catalogue has to say something new about the log."""

    def drop_pending(self) -> int:
        """Forget entries that were never confirmed, after the journal failed; return their bytes."""

    def close_ledger(self) -> None:
        """Close the last ledger, if it is not."""

    def close_old_ledger(self, ledger: Ledger, now_ms: int) -> bool:
        """Close a ledger if it is too old; return whether it is closed now."""
