"""Memory accounting for partly acknowledged entries, shared by all cursors.

A client may acknowledge individual messages of a batch; the remaining ones are then stored in an ack set, a bit set
of up to 100 KB per entry and subscription for a batch of 5 MB. Once the total memory exceeds the limit, no new ack sets
are created: acknowledging part of another entry fails, and its messages may be redelivered. Whole entries, and further
messages of entries with an ack set, can always be acknowledged.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Protocol

from ....errors import NotAllowed

SET_BYTES = 250
"""Memory of an ack set without its words."""
WORD_BYTES = 48
"""Memory of a word: an integer, its slot in the tuple, and its copy in the catalogue image."""
RECOUNT_S = 1.0


class PartialCursor(Protocol):
    """A cursor, as seen by `PartialAcks`."""

    partial_bytes: int
    """Memory of the cursor's ack sets."""


class PartialAcks:
    """Counts the memory of the ack sets of all cursors.

    Args:
        limit_bytes: maximum memory of all ack sets.
        monotonic: monotonic clock, in seconds.

    Attributes:
        is_full: whether the limit is exceeded, so that no new ack sets may be created.
    """

    def __init__(self, limit_bytes: int, monotonic: Callable[[], float]) -> None:
        self.is_full = False
        self._limit_bytes = limit_bytes
        self._monotonic = monotonic
        self._bytes = 0
        self._cursors: weakref.WeakSet[PartialCursor] = weakref.WeakSet()
        self._recounted_s = -RECOUNT_S

    def __repr__(self) -> str:
        return f"PartialAcks(bytes={self._bytes}, limit={self._limit_bytes})"

    def changed(self, cursor: PartialCursor, delta_bytes: int) -> None:
        """Record a change in the memory of a cursor's ack sets."""
        if not cursor.partial_bytes:
            self._cursors.add(cursor)
        cursor.partial_bytes += delta_bytes
        self._bytes += delta_bytes
        self.is_full = self._bytes > self._limit_bytes

    def recount(self) -> None:
        """Recount the memory without garbage-collected cursors, at most once every `RECOUNT_S`."""
        now_s = self._monotonic()
        if now_s - self._recounted_s >= RECOUNT_S:
            self._recounted_s = now_s
            self._bytes = sum(cursor.partial_bytes for cursor in self._cursors)
            self.is_full = self._bytes > self._limit_bytes

    def refusal(self) -> NotAllowed:
        """Return the error for an entry that cannot be partly acknowledged."""
        return NotAllowed(
            f"ack sets of partly acknowledged batches exceed {self._limit_bytes} bytes: acknowledge whole batches"
        )


def size_of(words: int) -> int:
    """Return the memory of an ack set with this number of words, or 0 without words."""
    return SET_BYTES + words * WORD_BYTES if words else 0
