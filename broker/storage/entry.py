"""A stored entry: its position and the payload as the producer sent it."""

from __future__ import annotations

from typing import NamedTuple

from ...wire.position import Position

ENTRY_OVERHEAD_BYTES = 340
"""What an entry in memory takes beside its payload: objects, numbers, record head, places in lists. Measured; counted
wherever bytes are bounded, for of messages of some 30 bytes it is nine tenths."""


class StoredEntry(NamedTuple):
    """One entry as the producer sent it."""

    position: Position
    payload: bytes
    messages: int
