"""The log of a topic that stores nothing: always empty, and known only to its topic.

Reads find no entry and no cursor. Changes are refused, so that no record of a log that does not exist ever reaches the
journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from ...errors import NotAllowed
from ...wire.position import EARLIEST, Position
from .ports import Done, EntryDone
from .topic_log import TopicLog


class VolatileLog(TopicLog):
    """The log of a non-persistent topic; made by `Storage.volatile_log`."""

    def _nothing_is_stored(self) -> NotAllowed:
        return NotAllowed(f"{self.name} is non-persistent: nothing of it is stored")

    def append(self, payload: bytes, messages: int, publish_time_ms: int, done: EntryDone) -> None:
        """Refuse an entry."""
        done(EARLIEST, self._nothing_is_stored())

    def expect_delayed(self) -> None:
        """Do nothing: entries are dispatched at once."""

    def create(self, done: Done) -> None:
        """Report success: nothing is stored."""
        done(None)

    def terminate_with(self, done: Done) -> None:
        """Refuse to terminate a log without entries."""
        done(self._nothing_is_stored())

    def close_ledger(self) -> None:
        """Do nothing: there are no ledgers."""

    def has_changed(self) -> None:
        """Do nothing: this log has no state to write down."""

    def touch(self) -> None:
        """Do nothing: a volatile log needs no periodic work."""

    def open_cursor(
        self,
        name: str,
        initial: Position,
        properties: Mapping[str, str] | None = None,
        done: Done | None = None,
        *,
        is_internal: bool = False,
    ) -> NoReturn:
        """Refuse a durable cursor.

        Raises:
            NotAllowed: always.
        """
        raise self._nothing_is_stored()

    def delete_cursor_with(self, name: str, done: Done) -> None:
        """Report success: there are no durable cursors."""
        done(None)

    async def trim(self, retention_ms: int, retention_bytes: int) -> list[int]:
        """Do nothing.

        Cancellation: safe.
        """
        return []
