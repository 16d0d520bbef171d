"""Positions of entries: the ledger, and the entry's number in it, counted from 0."""

from __future__ import annotations

from typing import NamedTuple


class Position(NamedTuple):
    """The position of an entry; it always identifies the same content. Positions are ordered like their topic."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


EARLIEST = Position(-1, -1)
"""The position before all entries that a topic ever had."""
