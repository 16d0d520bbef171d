"""A stored entry, with its position and the payload as received from the producer; and what is shown of a ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...wire.position import Position

ENTRY_OVERHEAD_BYTES = 340
"""Memory of an entry besides its payload: objects, numbers, record head, list slots. Measured; counted wherever bytes
are bounded, because for messages of some 30 bytes it is nine tenths of the total.
"""


class StoredEntry(NamedTuple):
    """One entry as received from the producer."""

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
