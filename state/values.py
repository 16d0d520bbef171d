"""The types of the table service's calls: changes, values, positions, outbox entries."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ..wire.position import Position

COUNTER_BYTES = 8
"""Size of a counter read as bytes: a signed 64-bit integer, big endian, as in Pulsar's state stores."""
COUNTER_MIN, COUNTER_MAX = -(2**63), 2**63 - 1


class Put(NamedTuple):
    """Set a key to bytes."""

    key: bytes
    data: bytes


class Delete(NamedTuple):
    """Delete a key if it exists."""

    key: bytes


class Increment(NamedTuple):
    """Add to a counter; a missing key counts as 0, and a value of eight bytes as a big-endian number."""

    key: bytes
    amount: int


Change: TypeAlias = Put | Delete | Increment


class Value(NamedTuple):
    """The value of a key.

    Attributes:
        data: the bytes; for a counter, its number in 8 bytes, big endian.
        number: the number of a counter; None if the key was set to bytes.
        version: version of the last change; increases with each change, even across a deletion, and is never reused.
    """

    data: bytes
    number: int | None
    version: int


Content: TypeAlias = bytes | int | None
"""A key's content: bytes, the number of a counter, or None if missing."""


class Reading(NamedTuple):
    """The result of reading a table.

    Attributes:
        contents: contents of the keys, in order.
        generation: the table's generation before the read; 0 if the service does not send it.
    """

    contents: list[Content]
    generation: int


class OutboxEntry(NamedTuple):
    """An encoded output entry awaiting its receipt.

    Attributes:
        topic: full name, including the partition.
        sequence_id: sequence id of the entry, for the broker's deduplication.
        messages: number of messages in the entry.
        payload: the encoded payload section.
        position: the input entry that produced it.
    """

    topic: str
    sequence_id: int
    messages: int
    payload: bytes
    position: Position


class Opened(NamedTuple):
    """The committed state of an input partition.

    Attributes:
        position: position of the last commit; None before the first.
        outbox: outputs that may not have been published yet, in the order of their commits.
    """

    position: Position | None
    outbox: list[OutboxEntry]


def counter_bytes(number: int) -> bytes:
    """Return a counter's number as bytes."""
    return number.to_bytes(COUNTER_BYTES, "big", signed=True)


def counter_number(data: bytes) -> int | None:
    """Return the number in eight bytes, or None for any other length."""
    return int.from_bytes(data, "big", signed=True) if len(data) == COUNTER_BYTES else None
