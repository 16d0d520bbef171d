"""Hand-written encoders for frequent commands, and for runs of similar frames.

protobuf takes as long to build an object as these encoders take for a whole frame. Tests compare each of them with
protobuf on random values. All other commands are encoded by `frames.encode_frame`.

Field tags are written as bytes: ``number << 3 | wire type``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

from .position import Position
from .pulsar_api_pb2 import BaseCommand

_SIZES = Struct(">II")
_U64 = (1 << 64) - 1
_BYTE = [bytes((n,)) for n in range(256)]
_END = _BYTE[:128] + [low + high for high in _BYTE[1:128] for low in _BYTE[128:]]
"""All varints of one or two bytes."""
_CONTINUED = [low + high for high in _BYTE[128:] for low in _BYTE[128:]]
"""The two low bytes of longer varints."""


def varint(number: int) -> bytes:
    """Encode a number as a protobuf varint; negative numbers as 64-bit two's complement."""
    if 0 <= number < 16384:
        return _END[number]
    if 0 < number < 268435456:
        return _CONTINUED[number & 16383] + _END[number >> 14]
    number &= _U64
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _head(kind: int, field: int) -> bytes:
    """Return the first bytes of a BaseCommand: its type and the tag of the sub-message."""
    return b"\x08" + varint(kind) + varint(field << 3 | 2)


_SEND = _head(BaseCommand.SEND, BaseCommand.SEND_FIELD_NUMBER)
_RECEIPT = _head(BaseCommand.SEND_RECEIPT, BaseCommand.SEND_RECEIPT_FIELD_NUMBER)
_MESSAGE = _head(BaseCommand.MESSAGE, BaseCommand.MESSAGE_FIELD_NUMBER)
_ACK = _head(BaseCommand.ACK, BaseCommand.ACK_FIELD_NUMBER)


def _frame(head: bytes, body: bytes, payload_bytes: int = 0) -> bytes:
    size = varint(len(body))
    command_bytes = len(head) + len(size) + len(body)
    return b"".join((_SIZES.pack(4 + command_bytes + payload_bytes, command_bytes), head, size, body))


def receipt_frame(
    producer_id: int, sequence_id: int, highest_sequence_id: int | None, ledger_id: int, entry_id: int
) -> bytes:
    """Encode a SEND_RECEIPT frame."""
    producer, ledger = _receipt_parts(producer_id, ledger_id)
    position = ledger + varint(entry_id)
    body = producer + varint(sequence_id) + _POSITION_BEGINS[len(position)] + position
    if highest_sequence_id is not None:
        body += b"\x20" + varint(highest_sequence_id)
    return _RECEIPT_BEGINS[len(body)] + body


@lru_cache(maxsize=4096)
def _receipt_parts(producer_id: int, ledger_id: int) -> tuple[bytes, bytes]:
    """Return the parts before the sequence id and the entry id, which a producer's receipts in a ledger share."""
    return b"\x08" + varint(producer_id) + b"\x10", b"\x08" + varint(ledger_id) + b"\x10"


# Prefixes of a receipt's position and body by their lengths, which are at most five varints of 10 bytes.
_POSITION_BEGINS = [b"\x1a" + varint(size) for size in range(23)]
_RECEIPT_BEGINS = [
    _SIZES.pack(5 + len(_RECEIPT) + size, 1 + len(_RECEIPT) + size) + _RECEIPT + varint(size) for size in range(71)
]


def send_frame_head(
    producer_id: int,
    sequence_id: int,
    highest_sequence_id: int | None,
    num_messages: int,
    is_chunk: bool,
    payload_bytes: int,
) -> bytes:
    """Encode the part of a SEND frame before its payload section."""
    sequence = varint(sequence_id)
    body = b"\x08" + varint(producer_id) + b"\x10" + sequence + b"\x18" + varint(num_messages)
    if highest_sequence_id is not None:
        body += b"\x30" + (sequence if highest_sequence_id == sequence_id else varint(highest_sequence_id))
    if is_chunk:
        body += b"\x38\x01"
    return _frame(_SEND, body, payload_bytes)


def message_frame_head(  # noqa: PLR0913 - the command's fields; an object for them would cost more than the frame
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    partition: int,
    redelivery_count: int,
    ack_set: Sequence[int],
    consumer_epoch: int | None,
    payload_bytes: int,
) -> bytes:
    """Encode the part of a MESSAGE frame before its payload section; partition -1 means none."""
    position = b"\x08" + varint(ledger_id) + b"\x10" + varint(entry_id) + b"\x18" + varint(partition)
    body = b"\x08" + varint(consumer_id) + b"\x12" + varint(len(position)) + position
    if redelivery_count:
        body += b"\x18" + varint(redelivery_count)
    for word in ack_set:
        body += b"\x20" + varint(word)
    if consumer_epoch is not None:
        body += b"\x28" + varint(consumer_epoch)
    return _frame(_MESSAGE, body, payload_bytes)


def ack_frame(
    consumer_id: int,
    ids: Sequence[tuple[int, int, Sequence[int]]],
    cumulative: bool = False,
    request_id: int | None = None,
) -> bytes:
    """Encode an ACK frame.

    Args:
        consumer_id: id of the acknowledging consumer.
        ids: ledger, entry and ack set of each position; an empty ack set acknowledges the whole entry.
        cumulative: whether to acknowledge everything up to a single position.
        request_id: requests an ACK_RESPONSE with this id.
    """
    parts = [b"\x08", varint(consumer_id), b"\x10\x01" if cumulative else b"\x10\x00"]
    last_ledger_id = -1
    before: dict[int, bytes] = {}  # prefix of the entry id in the id of a whole entry, by its length
    for ledger_id, entry_id, ack_set in ids:
        entry = varint(entry_id)
        if ledger_id != last_ledger_id:
            last_ledger_id = ledger_id
            before.clear()
        if ack_set:
            position = b"\x08" + varint(ledger_id) + b"\x10" + entry
            for word in ack_set:
                position += b"\x28" + varint(word)
            parts += (b"\x1a", varint(len(position)), position)
            continue
        head = before.get(len(entry))
        if head is None:
            ledger = varint(ledger_id)
            head = before[len(entry)] = b"\x1a" + varint(2 + len(ledger) + len(entry)) + b"\x08" + ledger + b"\x10"
        parts.append(head)
        parts.append(entry)
    if request_id is not None:
        parts += (b"\x40", varint(request_id))
    return _frame(_ACK, b"".join(parts))


Receipt = tuple[int, int, Position]
"""Sequence id and highest sequence id (0 for none) of a SEND, and the position of its entry."""

MAX_KEPT_HEADS = 1024
"""Maximum number of cached heads per consumer, one for each payload size."""

_SHORT = 1 << 28
"""Numbers below this limit are encoded by two table lookups."""


def receipt_frames(producer_id: int, receipts: Sequence[Receipt]) -> bytes:
    """Encode ``receipts`` as frames, in order."""
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
    """Return the parts before the sequence id and before the entry id, which ends the frame."""
    frame = receipt_frame(producer_id, sequence_id, None, ledger_id, entry_id)
    sequence_length, entry_length = len(varint(sequence_id)), len(varint(entry_id))
    position_length = 2 + len(varint(ledger_id)) + entry_length
    between = 1 + len(varint(position_length)) + position_length - entry_length
    start = len(frame) - entry_length - between - sequence_length
    return frame[:start], frame[start + sequence_length : start + sequence_length + between]


class MessageHeads:
    """Frame heads for complete messages that are delivered to a consumer for the first time."""

    __slots__ = ("_after", "_before", "_consumer_id", "_epoch", "_ledger_id", "_partition")

    def __init__(self, consumer_id: int, partition: int, epoch: int | None):
        self._consumer_id = consumer_id
        self._partition = partition
        self._epoch = epoch
        self._ledger_id = -1
        self._before: dict[int, bytes] = {}  # by size of payload and length of the entry id
        self._after = b"\x18" + varint(partition) + (b"" if epoch is None else b"\x28" + varint(epoch))

    def parts(self, ledger_id: int, entry_id: int, payload_bytes: int) -> tuple[bytes, bytes, bytes]:
        """Return the head of one message in three parts."""
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
