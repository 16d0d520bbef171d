"""Where an entry is: the ledger that holds it and its number in there, counted from 0."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """The place of one entry; a position names one content for ever."""

    ledger_id: int
    entry_id: int


EARLIEST = Position(-1, -1)
"""Before everything that a log ever held."""


ENTRY_OVERHEAD_BYTES = 340
"""What an entry in memory takes beside its payload: objects, numbers, record head, places in lists. Measured; counted
wherever bytes are bounded, for of messages of some 30 bytes it is nine tenths."""


class StoredEntry(NamedTuple):
    """One entry as the producer sent it."""

    position: Position
    payload: bytes
    messages: int
