"""The log of a topic that stores nothing: always empty, and known only to its topic.

Reads find no entry and no durable cursor. Changes are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from ....errors import NotAllowed
from ....wire.position import EARLIEST, Position
from ..ports import Done, EntryDone
from .log import MemoryLog


class VolatileLog(MemoryLog):
    """The log of a non-persistent topic; made by `MemoryStore.volatile_log`."""

    def _nothing_is_stored(self) -> NotAllowed:
        return NotAllowed(f"{self.name} is non-persistent: nothing of it is stored")

    def append(self, payload: bytes, messages: int, publish_time_ms: int, done: EntryDone) -> None:
        """Refuse an entry."""
        done(EARLIEST, self._nothing_is_stored())

    def expect_delayed(self) -> None:
        """Do nothing: entries are dispatched immediately."""

    def create(self, done: Done) -> None:
        """Report success: nothing is stored."""
        done(None)

    async def terminate(self) -> Position:
        """Refuse to terminate a log without entries.

        Cancellation: safe.

        Raises:
            NotAllowed: always.
        """
        raise self._nothing_is_stored()

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
