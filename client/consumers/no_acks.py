"""The acknowledgements of a consumer of a non-persistent topic: none.

All its messages have the id 0:0. To remember one as acknowledged would mean to drop the next; and the broker keeps
nothing for which an acknowledgement would count.
"""

from __future__ import annotations

import asyncio

from ...wire.message_id import MessageId
from .acknowledger import Acknowledger
from .received import EntryKey


class NoAcks(Acknowledger):
    """Takes acknowledgements, which are done at once; nothing is sent, and nothing asked for again."""

    def message(self, message_id: MessageId) -> asyncio.Future[None]:
        """Be done with a message."""
        return self._done

    def entry(self, position: EntryKey) -> asyncio.Future[None]:
        """Be done with an entry."""
        return self._done

    def entries_now(self, positions: list[EntryKey]) -> asyncio.Future[None]:
        """Be done with entries."""
        return self._done

    def claim(self, positions: list[EntryKey]) -> asyncio.Future[None]:
        """Be done with entries, which nobody else was given."""
        return self._done

    def all_but(self, position: EntryKey, wanted: int) -> asyncio.Future[None]:
        """Be done with messages of an entry."""
        return self._done

    def up_to(self, message_id: MessageId) -> asyncio.Future[None]:
        """Be done with everything up to a message."""
        return self._done

    def negative(self, position: EntryKey, pause_s: float | None = None) -> None:
        """Ask for nothing: it would not come again."""
