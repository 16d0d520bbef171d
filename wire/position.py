"""Where an entry is: the ledger that holds it and its number in there, counted from 0."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """The place of one entry; a position names one content for ever. Positions are ordered as their topic is."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


EARLIEST = Position(-1, -1)
"""Before everything that a topic ever held."""
