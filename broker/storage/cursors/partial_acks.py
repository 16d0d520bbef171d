"""The memory for entries that are acknowledged in part, shared by all cursors of a storage.

A client may acknowledge any message of a batch, and what it leaves out is kept as a set of words: for a batch of 5 MB
that may be 100 KB, for each entry and each subscription. When all sets together exceed the limit, entries that have no
set yet are not acknowledged in part any more: the client gets the reason, and the messages may come again. Whole
entries are acknowledged as always, and so are further messages of entries that have a set.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Protocol

from ....errors import NotAllowed

SET_BYTES = 250
"""What a set takes beside its words."""
WORD_BYTES = 48
"""What a word takes: an integer, its place in the tuple, and its copy in the image for the catalogue."""
RECOUNT_S = 1.0


class PartialCursor(Protocol):
    """A cursor that may have sets."""

    partial_bytes: int
    """What its sets take."""


class PartialAcks:
    """Counts what the sets of all cursors take.

    Args:
        limit_bytes: for all of them.
        monotonic: a clock in seconds.

    Attributes:
        is_full: whether no further set is kept.
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
        """Note that the sets of a cursor take more or less than before."""
        if not cursor.partial_bytes:
            self._cursors.add(cursor)
        cursor.partial_bytes += delta_bytes
        self._bytes += delta_bytes
        self.is_full = self._bytes > self._limit_bytes

    def recount(self) -> None:
        """Leave out the cursors that are gone, which say nothing; at most every `RECOUNT_S`."""
        now_s = self._monotonic()
        if now_s - self._recounted_s >= RECOUNT_S:
            self._recounted_s = now_s
            self._bytes = sum(cursor.partial_bytes for cursor in self._cursors)
            self.is_full = self._bytes > self._limit_bytes

    def refusal(self) -> NotAllowed:
        """Return why an entry is not acknowledged in part."""
        return NotAllowed(
            f"partly acknowledged batches take more than {self._limit_bytes} bytes: acknowledge whole batches"
        )


def size_of(words: int) -> int:
    """Return the memory that a set of so many words takes; 0 without words."""
    return SET_BYTES + words * WORD_BYTES if words else 0
