"""Bounds in messages and bytes: on what is on its way, where a thread waits, and on what goes out at once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator


class Gate:
    """Counts what was let in and not yet let out. Threads wait in `enter`; the event loop calls `leave` and `close`."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        """Allow ``messages_max`` and ``bytes_max``; one piece may pass either when nothing else is inside."""
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._messages = 0
        self._bytes = 0
        self._is_closed = False
        self._changed = threading.Condition(threading.Lock())

    def enter(self, messages: int, size: int, *, waits: bool = True) -> bool:
        """Let a piece in, waiting for room; return False if there is no room and the gate is closed.

        Args:
            messages: number of messages in the piece.
            size: bytes of the piece.
            waits: if false, return False at once when there is no room.
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
        """Let a piece out; never waits longer than `enter` takes to look."""
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
    """Cut a list into runs of elements that keep both bounds, but for one that alone exceeds them; mostly there is one.

    Args:
        sizes: of its elements, in bytes.
        count_max: elements of a run.
        bytes_max: of a run.
    """
    begin = end = size = 0
    for end, more in enumerate(sizes):
        if end > begin and (end - begin >= count_max or size + more > bytes_max):
            yield slice(begin, end)
            begin, size = end, 0
        size += more
    yield slice(begin, end + 1)
