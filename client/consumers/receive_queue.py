"""What the broker sent ahead, and the permits for more of it.

Design: entries wait undecoded. `pop_entry` hands one out whole; `pop_message` opens one and hands out its messages one
by one. Permits are released as messages leave the queue, so an entry that was opened is paid for message by message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .permits import Permits
from .received import DamagedEntry, Message, ReceivedEntry
from .start import StartPosition


class ReceiveQueue:
    """Entries of one consumer on one connection.

    Attributes:
        permits: flow control.
    """

    __slots__ = ("_entries", "_opened", "permits")

    def __init__(self, size: int):
        self.permits = Permits(size)
        self._entries: deque[ReceivedEntry] = deque()
        self._opened: deque[Message] = deque()

    def __bool__(self) -> bool:
        return bool(self._entries or self._opened)

    @property
    def num_messages(self) -> int:
        """Messages in the queue, as the broker counts them."""
        return len(self._opened) + sum(entry.permits for entry in self._entries)

    @property
    def has_opened(self) -> bool:
        """Whether messages are left of the entry that was opened last."""
        return bool(self._opened)

    def push(self, entry: ReceivedEntry) -> None:
        """Add an entry behind the others."""
        self._entries.append(entry)

    def pop_entry(self) -> ReceivedEntry | None:
        """Remove the oldest entry and return it; the caller releases its permits."""
        return self._entries.popleft() if self._entries else None

    def pop_message(
        self, release: Callable[[int], None], discard: Callable[[ReceivedEntry, DamagedEntry], None]
    ) -> Message | None:
        """Remove the oldest message and return it; the caller releases its permit.

        Args:
            release: is given the permits of messages that are not handed out, as they were acknowledged before.
            discard: is given entries that cannot be read.
        """
        while not self._opened:
            if not self._entries:
                return None
            entry = self._entries.popleft()
            try:
                messages = entry.messages()
            except DamagedEntry as error:
                discard(entry, error)
                continue
            release(max(0, entry.permits - len(messages)))
            self._opened.extend(messages)
        return self._opened.popleft()

    def next_position(self) -> StartPosition | None:
        """Return the first message that was not taken, None if the queue is empty."""
        if self._opened:
            return StartPosition(self._opened[0].message_id, inclusive=True)
        if self._entries:
            return StartPosition(self._entries[0].message_id, inclusive=True)
        return None

    def clear(self) -> int:
        """Drop everything and return the permits that it took."""
        permits = self.num_messages
        self._entries.clear()
        self._opened.clear()
        return permits
