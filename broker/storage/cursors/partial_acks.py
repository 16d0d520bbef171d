"""Memory accounting for partly acknowledged entries, shared by all cursors of a storage.

A client may acknowledge any message of a batch, and the remaining ones are kept as a set of words: for a batch of 5 MB
that may be 100 KB, for each entry and each subscription. When all sets together exceed the limit, entries without a set
can no longer be partly acknowledged: the client gets an error, and the messages may be redelivered. Whole entries, and
further messages of entries with a set, can always be acknowledged.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Protocol

from ....errors import NotAllowed

SET_BYTES = 250
"""Overhead of a set besides its words."""
WORD_BYTES = 48
"""Memory of a word: an integer, its slot in the tuple, and its copy in the image for the catalogue."""
RECOUNT_S = 1.0


class PartialCursor(Protocol):
    """A cursor that may have ack sets."""

    partial_bytes: int
    """Memory of its sets."""


class PartialAcks:
    """Counts the memory of the ack sets of all cursors.

    Args:
        limit_bytes: limit for all of them.
        monotonic: a clock in seconds.

    Attributes:
        is_full: whether new sets are refused.
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
        """Note that the memory of a cursor's sets has changed."""
        if not cursor.partial_bytes:
            self._cursors.add(cursor)
        cursor.partial_bytes += delta_bytes
        self._bytes += delta_bytes
        self.is_full = self._bytes > self._limit_bytes

    def recount(self) -> None:
        """Recount without cursors that were garbage collected; at most every `RECOUNT_S`."""
        now_s = self._monotonic()
        if now_s - self._recounted_s >= RECOUNT_S:
            self._recounted_s = now_s
            self._bytes = sum(cursor.partial_bytes for cursor in self._cursors)
            self.is_full = self._bytes > self._limit_bytes

    def refusal(self) -> NotAllowed:
        """Return the error for an entry that cannot be partly acknowledged."""
        return NotAllowed(
            f"partly acknowledged batches take more than {self._limit_bytes} bytes: acknowledge whole batches"
        )


def size_of(words: int) -> int:
    """Return the memory that a set of so many words takes; 0 without words."""
    return SET_BYTES + words * WORD_BYTES if words else 0
