"""The entries that an instance has taken and not finished: a bound on them, and no entry twice."""

from __future__ import annotations

import asyncio

from ..client.consumers.received import ReceivedEntry

Position = tuple[str, int, int]
"""Topic, ledger and entry."""

HELD_MESSAGES_MAX = 20_000
HELD_BYTES_MAX = 64 * 1024 * 1024


def position_of(entry: ReceivedEntry) -> Position:
    """Return what names an entry among all inputs of an instance."""
    message_id = entry.message_id
    return (entry.topic, message_id.ledger_id, message_id.entry_id)


class HeldEntries:
    """Entries in work, by position.

    Attributes:
        room: set while more may be taken.
    """

    def __init__(self, messages_max: int = HELD_MESSAGES_MAX) -> None:
        """Hold nothing yet, and hardly more than ``messages_max`` at any time."""
        self.room = asyncio.Event()
        self.room.set()
        self._sizes: dict[Position, tuple[int, int]] = {}
        self._messages_max = messages_max
        self._messages = 0
        self._bytes = 0

    def __contains__(self, position: Position) -> bool:
        return position in self._sizes

    def add(self, position: Position, entry: ReceivedEntry) -> None:
        """Hold an entry."""
        # Remembered, as an entry gives its bytes away when it is opened.
        messages, size = entry.permits, entry.body_bytes
        self._sizes[position] = (messages, size)
        self._messages += messages
        self._bytes += size
        if self._messages >= self._messages_max or self._bytes >= HELD_BYTES_MAX:
            self.room.clear()

    def remove(self, entry: ReceivedEntry) -> None:
        """Let go of an entry."""
        messages, size = self._sizes.pop(position_of(entry), (0, 0))
        self._messages -= messages
        self._bytes -= size
        if self._messages < self._messages_max and self._bytes < HELD_BYTES_MAX:
            self.room.set()
