"""Stored entries, with their position and payload, and the public state of ledgers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...wire.position import Position

ENTRY_OVERHEAD_BYTES = 340
"""Measured memory of an entry without its payload: objects, integers, record head, and list slots.

All limits on memory include this overhead, because it makes up nine tenths of the total for messages of about 30 bytes.
"""


class StoredEntry(NamedTuple):
    """An entry as received from the producer."""

    position: Position
    payload: bytes
    messages: int


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """Public state of a ledger."""

    id: int
    entries: int
    bytes: int
    is_open: bool
    created_ms: int
