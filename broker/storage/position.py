"""Where an entry is: the ledger that holds it and its number in there, counted from 0."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """The place of one entry; a position names one content for ever."""

    ledger_id: int
    entry_id: int


EARLIEST = Position(-1, -1)
"""Before everything that a log ever held."""


class StoredEntry(NamedTuple):
    """One entry as the producer sent it."""

    position: Position
    payload: bytes
    messages: int
