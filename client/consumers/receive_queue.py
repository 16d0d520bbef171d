"""The receiver queue, and its flow control permits.

Design: entries are queued undecoded. `pop_entry` returns a whole entry; `pop_message` opens one and returns its
messages one by one. Permits are released as messages leave the queue, for an opened entry message by message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .encrypted_entries import EncryptedEntries
from .received import DamagedEntry, Message, ReceivedEntry
from .start import StartPosition

FIRST_PERMITS = 64
"""Permits to send while the message size is unknown, if bytes are limited."""
_WEIGHT = 0.1


class Permits:
    """The permits of one consumer on one connection.

    With ``size`` 0 nothing is sent ahead: `demand` requests one message when a receive call waits for one. An entry may
    contain more messages than requested; the broker counts them all, and the next demand compensates.

    If bytes are limited, fewer messages than ``size`` may be requested: the number that fits according to the size of
    recent messages, or `FIRST_PERMITS` before the first one.

    Invariant: permits sent on a connection never exceed ``max(size, 1)`` plus the number of released messages.
    """

    __slots__ = ("_bytes_max", "_mean_bytes", "_missing", "_released", "_threshold", "size")

    def __init__(self, size: int, bytes_max: int = 0):
        """Create permits.

        Args:
            size: number of messages that the broker may send ahead.
            bytes_max: approximate number of bytes that the broker may send ahead; 0 means no limit.
        """
        self.size = size
        self._threshold = max(1, size // 2)
        self._released = 0
        self._bytes_max = bytes_max
        self._mean_bytes = 0.0  # mean size of recent messages
        self._missing = 0  # permits withheld from ``size`` because of the byte limit

    @property
    def are_bytes_bounded(self) -> bool:
        """Whether bytes are limited."""
        return self._bytes_max > 0

    def restart(self) -> int:
        """Start over on a new connection; return the number of permits to send now."""
        self._released = 0 if self.size else 1
        if self._bytes_max and self.size:
            self._missing = self.size - self._room()
        return self.size - self._missing

    def arrived(self, messages: int, size: int) -> None:
        """Update the mean message size."""
        if self._bytes_max and messages > 0:
            mean = size / messages
            # Grow at once and shrink slowly: too low an estimate costs memory, too high a one costs time.
            self._mean_bytes = max(mean, self._mean_bytes + (mean - self._mean_bytes) * _WEIGHT)

    def _room(self) -> int:
        if not self._mean_bytes:
            return min(self.size, FIRST_PERMITS)
        return max(1, min(self.size, int(self._bytes_max / self._mean_bytes)))

    def release(self, count: int) -> int:
        """Release the permits of ``count`` messages that left the queue; return the number of permits to send now."""
        if self._bytes_max and self.size:
            return self._release_within(count)
        released = self._released + count
        if released < self._threshold or not self.size:
            self._released = released
            return 0
        self._released = 0
        return released

    def _release_within(self, count: int) -> int:
        """Release messages under a byte limit, restoring withheld permits when there is room."""
        self._released += count
        room = self._room()
        permits = self._released + self._missing - (self.size - room)
        if permits < max(1, room // 2):
            return 0
        self._released, self._missing = 0, self.size - room
        return permits

    def demand(self) -> int:
        """Return the number of permits to send for a waiting receive call; always 0 unless ``size`` is 0."""
        if self.size:
            return 0
        released = self._released
        self._released = 0
        return released


class ReceiveQueue:
    """Entries of one consumer on one connection.

    Attributes:
        permits: flow control.
        join: called with each chunk; returns the whole message after its last one.
        encrypted: decrypts entries when they leave the queue; None returns them as received.
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
        """Number of messages in the queue, as counted by the broker."""
        return len(self._opened) + sum(entry.permits for entry in self._entries)

    @property
    def has_opened(self) -> bool:
        """Whether the last opened entry has remaining messages."""
        return bool(self._opened)

    def push(self, entry: ReceivedEntry) -> None:
        """Append an entry."""
        self._entries.append(entry)
        self.permits.arrived(entry.permits, entry.body_bytes)

    def extend(self, entries: list[ReceivedEntry]) -> None:
        """Append entries."""
        self._entries.extend(entries)
        if self.permits.are_bytes_bounded:
            for entry in entries:
                self.permits.arrived(entry.permits, entry.body_bytes)

    def pop_entry(self) -> ReceivedEntry | None:
        """Remove and return the oldest entry; the caller releases its permits."""
        if self.encrypted is not None:
            return self.encrypted.pop(self._entries)
        return self._entries.popleft() if self._entries else None

    def pop_message(
        self, release: Callable[[int], None], discard: Callable[[ReceivedEntry, DamagedEntry], None]
    ) -> Message | None:
        """Remove and return the oldest message; the caller releases its permit.

        Args:
            release: called with the permits of skipped messages.
            discard: called with unreadable entries.
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
        """Return the position of the next message, or None if the queue is empty."""
        if self._opened:
            return StartPosition(self._opened[0].message_id, inclusive=True)
        if self._entries:
            return StartPosition(self._entries[0].message_id, inclusive=True)
        return None

    def clear(self) -> int:
        """Drop all entries and return their number of permits."""
        permits = self.num_messages
        self._entries.clear()
        self._opened.clear()
        return permits
