"""What the broker sent ahead, and the permits for more of it.

Design: entries wait undecoded. `pop_entry` hands one out whole; `pop_message` opens one and hands out its messages one
by one. Permits are released as messages leave the queue, so an entry that was opened is paid for message by message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .received import DamagedEntry, Message, ReceivedEntry
from .start import StartPosition


class Permits:
    """The permits of one consumer on one connection.

    With ``size`` 0 nothing is sent ahead: `demand` asks for one message when a receive waits for it. An entry may hold
    more messages than were asked for; the broker counts them all, and the next demand makes up for that.

    Invariant: permits sent on a connection never exceed ``max(size, 1)`` plus the messages that were released.
    """

    __slots__ = ("_released", "_threshold", "size")

    def __init__(self, size: int):
        self.size = size
        self._threshold = max(1, size // 2)
        self._released = 0

    def restart(self) -> int:
        """Begin on a new connection; return the permits to send now, 0 if none."""
        self._released = 0 if self.size else 1
        return self.size

    def release(self, count: int) -> int:
        """Count ``count`` messages as gone from the queue; return the permits to send now, 0 if none."""
        released = self._released + count
        if released < self._threshold or not self.size:
            self._released = released
            return 0
        self._released = 0
        return released

    def demand(self) -> int:
        """Return the permits to send because a receive waits for a message; only with ``size`` 0 there are any."""
        if self.size:
            return 0
        released = self._released
        self._released = 0
        return released


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
            release: is given the permits of messages that are not handed out.
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
                release(entry.permits)
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
