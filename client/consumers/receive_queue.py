"""What the broker sent ahead, and the permits for more of it.

Design: entries wait undecoded. `pop_entry` hands one out whole; `pop_message` opens one and hands out its messages one
by one. Permits are released as messages leave the queue, so an entry that was opened is paid for message by message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .encrypted_entries import EncryptedEntries
from .received import DamagedEntry, Message, ReceivedEntry
from .start import StartPosition

FIRST_PERMITS = 64
"""Messages that are asked for before it is known how large they are, where bytes are bounded."""
_WEIGHT = 0.1


class Permits:
    """The permits of one consumer on one connection.

    With ``size`` 0 nothing is sent ahead: `demand` asks for one message when a receive waits for it. An entry may hold
    more messages than were asked for; the broker counts them all, and the next demand makes up for that.

    Where bytes are bounded, fewer messages than ``size`` are asked for: as many as there is room for if they are as
    large as those that came lately, and `FIRST_PERMITS` while none has come.

    Invariant: permits sent on a connection never exceed ``max(size, 1)`` plus the messages that were released.
    """

    __slots__ = ("_bytes_max", "_mean_bytes", "_missing", "_released", "_threshold", "size")

    def __init__(self, size: int, bytes_max: int = 0):
        """Begin.

        Args:
            size: messages that the broker may send ahead.
            bytes_max: bytes that it may send ahead, about; 0 for any.
        """
        self.size = size
        self._threshold = max(1, size // 2)
        self._released = 0
        self._bytes_max = bytes_max
        self._mean_bytes = 0.0  # of a message that came lately
        self._missing = 0  # of the permits for ``size`` messages, because of their bytes

    @property
    def are_bytes_bounded(self) -> bool:
        """Whether it counts how large messages are."""
        return self._bytes_max > 0

    def restart(self) -> int:
        """Begin on a new connection; return the permits to send now, 0 if none."""
        self._released = 0 if self.size else 1
        if self._bytes_max and self.size:
            self._missing = self.size - self._room()
        return self.size - self._missing

    def arrived(self, messages: int, size: int) -> None:
        """Learn how large messages are."""
        if self._bytes_max and messages > 0:
            mean = size / messages
            # Growing at once and shrinking slowly: what is too few costs time, and what is too many memory.
            self._mean_bytes = max(mean, self._mean_bytes + (mean - self._mean_bytes) * _WEIGHT)

    def _room(self) -> int:
        if not self._mean_bytes:
            return min(self.size, FIRST_PERMITS)
        return max(1, min(self.size, int(self._bytes_max / self._mean_bytes)))

    def release(self, count: int) -> int:
        """Count ``count`` messages as gone from the queue; return the permits to send now, 0 if none."""
        if self._bytes_max and self.size:
            return self._release_within(count)
        released = self._released + count
        if released < self._threshold or not self.size:
            self._released = released
            return 0
        self._released = 0
        return released

    def _release_within(self, count: int) -> int:
        """Release messages where bytes are bounded: permits that are missing come back when there is room."""
        self._released += count
        room = self._room()
        permits = self._released + self._missing - (self.size - room)
        if permits < max(1, room // 2):
            return 0
        self._released, self._missing = 0, self.size - room
        return permits

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
        join: is given each chunk; returns the whole message with its last one.
        encrypted: decrypts entries as they are taken; None: they are handed out as they came.
    """

    __slots__ = ("_entries", "_opened", "encrypted", "join", "permits")

    def __init__(self, size: int, bytes_max: int = 0):
        self.join: Callable[[ReceivedEntry], ReceivedEntry | None] = lambda entry: entry
        self.encrypted: EncryptedEntries | None = None
        self.permits = Permits(size, bytes_max)
        self._entries: deque[ReceivedEntry] = deque()
        self._opened: deque[Message] = deque()

    def __bool__(self) -> bool:
        if self.encrypted is not None and self.encrypted.is_waiting:
            return bool(self._opened)
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
        self.permits.arrived(entry.permits, entry.body_bytes)

    def extend(self, entries: list[ReceivedEntry]) -> None:
        """Add entries behind the others."""
        self._entries.extend(entries)
        if self.permits.are_bytes_bounded:
            for entry in entries:
                self.permits.arrived(entry.permits, entry.body_bytes)

    def pop_entry(self) -> ReceivedEntry | None:
        """Remove the oldest entry and return it; the caller releases its permits."""
        if self.encrypted is not None:
            return self.encrypted.pop(self._entries)
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
            entry = self.pop_entry()
            if entry is None:
                return None
            if entry.is_chunk:
                whole = self.join(entry)
                if whole is None:
                    release(entry.permits)
                    continue
                entry = whole
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
