"""The log of a non-persistent topic: always empty, and referenced only by the topic.

Reads find no entries or durable cursors. Changes are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from ....errors import NotAllowed
from ....wire.position import EARLIEST, Position
from ..ports import Done, EntryDone
from .log import MemoryLog


class VolatileLog(MemoryLog):
    """The log of a non-persistent topic, created by `MemoryStore.volatile_log`."""

    def _nothing_is_stored(self) -> NotAllowed:
        return NotAllowed(f"{self.name} is non-persistent and stores no data")

    def append(self, payload: bytes, messages: int, publish_time_ms: int, done: EntryDone) -> None:
        """Reject an entry."""
        done(EARLIEST, self._nothing_is_stored())

    def expect_delayed(self) -> None:
        """Do nothing: entries are dispatched immediately, without delays."""

    def create(self, done: Done) -> None:
        """Report success without storing anything."""
        done(None)

    async def terminate(self) -> Position:
        """Raise an error: a volatile log cannot be terminated.

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
        """Raise an error: a volatile log has no durable cursors.

        Raises:
            NotAllowed: always.
        """
        raise self._nothing_is_stored()
