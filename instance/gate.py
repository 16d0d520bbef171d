"""Limits in messages and bytes: on data in flight, for which a thread waits, and on data sent at once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator


class Gate:
    """Counts pieces in flight. Threads wait in `enter`; the event loop calls `leave` and `close`."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        """Allow ``messages_max`` and ``bytes_max``; a single piece may exceed either when it is alone."""
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._messages = 0
        self._bytes = 0
        self._is_closed = False
        self._changed = threading.Condition(threading.Lock())

    def enter(self, messages: int, size: int, *, waits: bool = True) -> bool:
        """Let a piece in, waiting for room; return False if it is full and the gate is closed.

        Args:
            messages: number of messages in the piece.
            size: bytes of the piece.
            waits: if false, return False at once when it is full.
        """
        with self._changed:
            while self._messages and not self._has_room(messages, size):
                if self._is_closed or not waits:
                    return False
                self._changed.wait()
            self._messages += messages
            self._bytes += size
            return True

    def _has_room(self, messages: int, size: int) -> bool:
        return self._messages + messages <= self._messages_max and self._bytes + size <= self._bytes_max

    def leave(self, messages: int, size: int) -> None:
        """Let a piece out; only waits for the lock."""
        with self._changed:
            self._messages -= messages
            self._bytes -= size
            self._changed.notify_all()

    def close(self) -> None:
        """Stop all waits."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


def runs_within(sizes: Iterable[int], count_max: int, bytes_max: int) -> Iterator[slice]:
    """Split a list into runs of elements within both limits, except for a single element that exceeds them.

    Args:
        sizes: sizes of its elements, in bytes.
        count_max: maximum elements per run.
        bytes_max: maximum bytes per run.
    """
    begin = end = size = 0
    for end, more in enumerate(sizes):
        if end > begin and (end - begin >= count_max or size + more > bytes_max):
            yield slice(begin, end)
            begin, size = end, 0
        size += more
    yield slice(begin, end + 1)
