"""Entry positions: the ledger, and the entry's number within it, starting at 0."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """Position of an entry, which always identifies the same content. Positions sort in topic order."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


EARLIEST = Position(-1, -1)
"""The position before all entries that a topic ever contained."""
