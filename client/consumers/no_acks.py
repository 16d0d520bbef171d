"""Acknowledgements on non-persistent topics: no-ops.

All messages have the id 0:0, so tracking one as acknowledged would drop the next; and the broker stores nothing that
could be acknowledged.
"""

from __future__ import annotations

import asyncio

from ...wire.message_id import MessageId
from .acknowledger import Acknowledger
from .received import EntryKey


class NoAcks(Acknowledger):
    """Completes every acknowledgement immediately; sends nothing, and never requests redelivery."""

    def message(self, message_id: MessageId) -> asyncio.Future[None]:
        """Complete immediately for a message."""
        return self._done

    def entry(self, position: EntryKey) -> asyncio.Future[None]:
        """Complete immediately for an entry."""
        return self._done

    def entries_now(self, positions: list[EntryKey]) -> asyncio.Future[None]:
        """Complete immediately for entries."""
        return self._done

    def claim(self, positions: list[EntryKey]) -> asyncio.Future[None]:
        """Complete immediately: no other consumer received these entries."""
        return self._done

    def all_but(self, position: EntryKey, wanted: int) -> asyncio.Future[None]:
        """Complete immediately for messages of an entry."""
        return self._done

    def up_to(self, message_id: MessageId) -> asyncio.Future[None]:
        """Complete immediately for everything up to a message."""
        return self._done

    def negative(self, position: EntryKey, pause_s: float | None = None) -> None:
        """Do nothing: a non-persistent topic does not redeliver."""
