"""Templates of frames that are sent by the thousand and differ in little: receipts, and heads of messages.

What stands around the few numbers that change depends on how long these are, so it is made once for each combination of
lengths, by the encoders of `wire.bulk`, and cut open where the numbers go. Building each frame by itself takes two to
three times as long; the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from .bulk import message_frame_head, receipt_frame, varint
from .position import Position

Receipt = tuple[int, int, Position]
"""Sequence id and highest sequence id (0: none) of a SEND, and where its entry is."""

MAX_KEPT_HEADS = 1024
"""Heads that a consumer keeps, one for each size of payload that it met."""

_SHORT = 1 << 28
"""Numbers below it are encoded by two look-ups."""
_CONTINUED = [bytes((number & 127 | 128, number >> 7 | 128)) for number in range(1 << 14)]
"""The two low bytes of a varint that has more."""
_END = [varint(number) for number in range(1 << 14)]


def receipt_frames(producer_id: int, receipts: Sequence[Receipt]) -> bytes:
    """Return the frames of ``receipts``, in order."""
    parts: list[bytes] = []
    surroundings: dict[int, tuple[bytes, bytes]] = {}
    last_ledger_id = -1
    for sequence_id, highest_sequence_id, (ledger_id, entry_id) in receipts:
        if highest_sequence_id or sequence_id >= _SHORT or entry_id >= _SHORT:
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


class MessageHeads:
    """What precedes the payloads of one consumer's messages, as long as they are whole and come for the first time."""

    __slots__ = ("_after", "_before", "_consumer_id", "_epoch", "_ledger_id", "_partition")

    def __init__(self, consumer_id: int, partition: int, epoch: int | None):
        self._consumer_id = consumer_id
        self._partition = partition
        self._epoch = epoch
        self._ledger_id = -1
        self._before: dict[int, bytes] = {}  # by size of payload and length of the entry id
        self._after = b"\x18" + varint(partition) + (b"" if epoch is None else b"\x28" + varint(epoch))

    def parts(self, ledger_id: int, entry_id: int, payload_bytes: int) -> tuple[bytes, bytes, bytes]:
        """Return the head of one message, in three parts."""
        if entry_id >= _SHORT:
            return self._head(ledger_id, entry_id, payload_bytes), b"", b""
        if ledger_id != self._ledger_id or len(self._before) > MAX_KEPT_HEADS:
            self._ledger_id = ledger_id
            self._before.clear()
        entry = _END[entry_id] if entry_id < 16384 else _CONTINUED[entry_id & 16383] + _END[entry_id >> 14]
        key = payload_bytes << 3 | len(entry)
        before = self._before.get(key)
        if before is None:
            head = self._head(ledger_id, entry_id, payload_bytes)
            before = self._before[key] = head[: len(head) - len(self._after) - len(entry)]
        return before, entry, self._after

    def _head(self, ledger_id: int, entry_id: int, payload_bytes: int) -> bytes:
        return message_frame_head(
            self._consumer_id, ledger_id, entry_id, self._partition, 0, (), self._epoch, payload_bytes
        )
