"""Limit messages and bytes: of data in flight, for which a thread waits, and of data sent in one piece."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator


class Gate:
    """Limits the pieces in flight. Threads wait in `enter`; the event loop calls `leave` and `close`."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        """Create a gate with two limits, which a piece may exceed if it is the only one."""
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._messages = 0
        self._bytes = 0
        self._is_closed = False
        self._changed = threading.Condition(threading.Lock())

    def enter(self, messages: int, size: int, *, waits: bool = True) -> bool:
        """Admit a piece, waiting for room; return False if the gate is full and closed.

        Args:
            messages: number of messages in the piece.
            size: size of the piece in bytes.
            waits: whether to wait for room; otherwise, return False immediately.
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
        """Release a piece; waits only for the lock."""
        with self._changed:
            self._messages -= messages
            self._bytes -= size
            self._changed.notify_all()

    def close(self) -> None:
        """End all waits in `enter`, which then returns False."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


def runs_within(sizes: Iterable[int], count_max: int, bytes_max: int) -> Iterator[slice]:
    """Split a list into runs within both limits; an element that exceeds a limit is a run by itself.

    Args:
        sizes: sizes of the elements in bytes.
        count_max: maximum number of elements per run.
        bytes_max: maximum size of a run in bytes.
    """
    begin = end = size = 0
    for end, more in enumerate(sizes):
        if end > begin and (end - begin >= count_max or size + more > bytes_max):
            yield slice(begin, end)
            begin, size = end, 0
        size += more
    yield slice(begin, end + 1)
