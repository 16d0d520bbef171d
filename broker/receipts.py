"""Many SEND_RECEIPTs of one producer at once.

A receipt differs from the one before it in the sequence id and the entry id only. What stands around them depends on
how long these two are, so it is made once for each pair of lengths; building each receipt by itself takes twice as long
(`wire.bulk.receipt_frame`, with which the tests compare this).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..wire.bulk import receipt_frame, varint
from .storage.position import Position

Receipt = tuple[int, int, Position]
"""Sequence id and highest sequence id (0: none) of a SEND, and where its entry is."""

_CONTINUED = [bytes((number & 127 | 128, number >> 7 | 128)) for number in range(1 << 14)]
"""The two low bytes of a varint that has more."""
_END = [varint(number) for number in range(1 << 14)]


def receipt_burst(producer_id: int, receipts: Sequence[Receipt]) -> bytes:
    """Return the frames of ``receipts``, in order."""
    parts: list[bytes] = []
    surroundings: dict[int, tuple[bytes, bytes]] = {}
    last_ledger_id = -1
    for sequence_id, highest_sequence_id, (ledger_id, entry_id) in receipts:
        if highest_sequence_id or sequence_id >= 1 << 28 or entry_id >= 1 << 28:
            parts.append(receipt_frame(producer_id, sequence_id, highest_sequence_id or None, ledger_id, entry_id))
            continue
        if ledger_id != last_ledger_id:
            last_ledger_id = ledger_id
            surroundings.clear()
        sequence = (
            _END[sequence_id] if sequence_id < 16384 else _CONTINUED[sequence_id & 16383] + _END[sequence_id >> 14]
        )
        entry = _END[entry_id] if entry_id < 16384 else _CONTINUED[entry_id & 16383] + _END[entry_id >> 14]
        lengths = len(sequence) << 3 | len(entry)
        around = surroundings.get(lengths)
        if around is None:
            around = surroundings[lengths] = _around(producer_id, sequence_id, ledger_id, entry_id)
        parts += (around[0], sequence, around[1], entry)
    return b"".join(parts)


def _around(producer_id: int, sequence_id: int, ledger_id: int, entry_id: int) -> tuple[bytes, bytes]:
    """Return what stands before the sequence id, and what between it and the entry id, which ends the frame."""
    frame = receipt_frame(producer_id, sequence_id, None, ledger_id, entry_id)
    sequence_length, entry_length = len(varint(sequence_id)), len(varint(entry_id))
    position_length = 2 + len(varint(ledger_id)) + entry_length
    between = 1 + len(varint(position_length)) + position_length - entry_length
    start = len(frame) - entry_length - between - sequence_length
    return frame[:start], frame[start + sequence_length : start + sequence_length + between]
