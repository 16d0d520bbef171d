"""The types of the table service's calls: changes, values, positions, outbox entries."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ..wire.position import Position

COUNTER_BYTES = 8
"""A counter read as bytes: 64 bits, signed, big endian, as Pulsar's state stores keep it."""
COUNTER_MIN, COUNTER_MAX = -(2**63), 2**63 - 1


class Put(NamedTuple):
    """Set a key to bytes."""

    key: bytes
    data: bytes


class Delete(NamedTuple):
    """Remove a key, if it is there."""

    key: bytes


class Increment(NamedTuple):
    """Add to a counter; a missing key counts as 0, eight bytes as the number that they are."""

    key: bytes
    amount: int


Change: TypeAlias = Put | Delete | Increment


class Value(NamedTuple):
    """What a key holds.

    Attributes:
        data: the bytes; those of a counter are its number in 8 bytes, big endian.
        number: the number of a counter; None if the key was put as bytes.
        version: of the last change; grows with each, also over a deletion, and never comes twice.
    """

    data: bytes
    number: int | None
    version: int


Content: TypeAlias = bytes | int | None
"""What is under a key: bytes, a number if it is a counter, or nothing."""


class Reading(NamedTuple):
    """What was read of a table.

    Attributes:
        contents: of the keys, in their order.
        generation: of the table before they were read; 0 if the service does not tell.
    """

    contents: list[Content]
    generation: int


class OutboxEntry(NamedTuple):
    """An encoded output entry that waits for its receipt.

    Attributes:
        topic: full name, with the partition.
        sequence_id: of the entry, for the broker's deduplication.
        messages: in the entry.
        payload: the encoded payload section.
        position: the input entry that made it.
    """

    topic: str
    sequence_id: int
    messages: int
    payload: bytes
    position: Position


class Opened(NamedTuple):
    """How far an input partition was committed.

    Attributes:
        position: of the last commit; None before the first.
        outbox: the outputs that may still have to be published, in the order of their commits.
    """

    position: Position | None
    outbox: list[OutboxEntry]


def counter_bytes(number: int) -> bytes:
    """Return a counter's number as the bytes that a reader of bytes gets."""
    return number.to_bytes(COUNTER_BYTES, "big", signed=True)


def counter_number(data: bytes) -> int | None:
    """Return the number that eight bytes are, None for any other length."""
    return int.from_bytes(data, "big", signed=True) if len(data) == COUNTER_BYTES else None
