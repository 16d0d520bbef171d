"""Hand-made encoders for the commands that come in bursts: receipts, messages, sends, acks.

protobuf needs as long to build an object as these need for the whole frame. Each is compared with protobuf on random
values in the tests; everything else is encoded by `frames.encode_frame`.

Field tags are written as bytes: ``number << 3 | wire type``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

from .pulsar_api_pb2 import BaseCommand

_SIZES = Struct(">II")
_U64 = (1 << 64) - 1
_VARINTS_2 = [bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7)) for n in range(1 << 14)]
_VARINT_BEGINS = [bytes((n & 127 | 128, n >> 7 | 128)) for n in range(1 << 14)]  # the lowest 14 bits of longer ones


def varint(number: int) -> bytes:
    """Return a number as protobuf's varint; negative ones as 64-bit two's complement."""
    if 0 <= number < 16384:
        return _VARINTS_2[number]
    if 0 < number < 268435456:
        return _VARINT_BEGINS[number & 16383] + _VARINTS_2[number >> 14]
    number &= _U64
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _head(kind: int, field: int) -> bytes:
    """Return the bytes that begin a BaseCommand of one kind: its type, and the tag of the sub-message."""
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
    """Return a SEND_RECEIPT frame."""
    producer, ledger = _receipt_parts(producer_id, ledger_id)
    position = ledger + varint(entry_id)
    body = producer + varint(sequence_id) + _POSITION_BEGINS[len(position)] + position
    if highest_sequence_id is not None:
        body += b"\x20" + varint(highest_sequence_id)
    return _RECEIPT_BEGINS[len(body)] + body


@lru_cache(maxsize=4096)
def _receipt_parts(producer_id: int, ledger_id: int) -> tuple[bytes, bytes]:
    """Return what all receipts of a producer in one ledger share, up to the sequence id and up to the entry id."""
    return b"\x08" + varint(producer_id) + b"\x10", b"\x08" + varint(ledger_id) + b"\x10"


# What precedes the position and the body of a receipt, by their lengths: five varints of 10 bytes are the most.
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
    """Return what precedes the payload section of a SEND frame."""
    sequence = varint(sequence_id)
    body = b"\x08" + varint(producer_id) + b"\x10" + sequence + b"\x18" + varint(num_messages)
    if highest_sequence_id is not None:
        body += b"\x30" + (sequence if highest_sequence_id == sequence_id else varint(highest_sequence_id))
    if is_chunk:
        body += b"\x38\x01"
    return _frame(_SEND, body, payload_bytes)


def message_frame_head(  # noqa: PLR0913 - the fields of the command; an object for them would cost more than the frame
    consumer_id: int,
    ledger_id: int,
    entry_id: int,
    partition: int,
    redelivery_count: int,
    ack_set: Sequence[int],
    consumer_epoch: int | None,
    payload_bytes: int,
) -> bytes:
    """Return what precedes the payload section of a MESSAGE frame; partition -1 means none."""
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
    """Return an ACK frame.

    Args:
        consumer_id: of the consumer that acknowledges.
        ids: ledger, entry and ack set (empty: the whole entry) of each position.
        cumulative: acknowledge everything up to the one position given.
        request_id: ask for an ACK_RESPONSE with this id.
    """
    parts = [b"\x08", varint(consumer_id), b"\x10\x01" if cumulative else b"\x10\x00"]
    for ledger_id, entry_id, ack_set in ids:
        position = b"\x08" + varint(ledger_id) + b"\x10" + varint(entry_id)
        for word in ack_set:
            position += b"\x28" + varint(word)
        parts += (b"\x1a", varint(len(position)), position)
    if request_id is not None:
        parts += (b"\x40", varint(request_id))
    return _frame(_ACK, b"".join(parts))
