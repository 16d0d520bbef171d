"""Between the values of `values` and the messages of ``state.proto``, both ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...errors import StateRefused
from ...wire import state_pb2 as pb
from .values import Change, Delete, Increment, OutboxEntry, Position, Put, Value, counter_bytes

PUT, DELETE, INCREMENT = b"PDI"
MISSING, BYTES, NUMBER = b"-BN"


def encode_changes(changes: Iterable[Change]) -> pb.Changes:
    """Return changes as columns."""
    kinds = bytearray()
    keys: list[bytes] = []
    data: list[bytes] = []
    amounts: list[int] = []
    for change in changes:
        keys.append(change.key)
        if isinstance(change, Increment):
            kinds.append(INCREMENT)
            amounts.append(change.amount)
        elif isinstance(change, Put):
            kinds.append(PUT)
            data.append(change.data)
        else:
            kinds.append(DELETE)
    return pb.Changes(kinds=bytes(kinds), keys=keys, data=data, amounts=amounts)


def decode_changes(message: pb.Changes) -> list[Change]:
    """Return the changes of columns.

    Raises:
        StateRefused: the columns do not fit together.
    """
    kinds, keys = message.kinds, message.keys
    puts, increments = kinds.count(PUT), kinds.count(INCREMENT)
    if (
        len(kinds) != len(keys)
        or puts != len(message.data)
        or increments != len(message.amounts)
        or puts + increments + kinds.count(DELETE) != len(kinds)
    ):
        raise StateRefused(
            f"malformed changes: {len(kinds)} kinds, {len(keys)} keys, {len(message.data)} values,"
            f" {len(message.amounts)} amounts"
        )
    if increments == len(kinds):  # counting is what most functions do
        return list(map(Increment, keys, message.amounts))
    data, amounts = iter(message.data), iter(message.amounts)
    changes: list[Change] = []
    for kind, key in zip(kinds, keys, strict=True):
        if kind == INCREMENT:
            changes.append(Increment(key, next(amounts)))
        elif kind == PUT:
            changes.append(Put(key, next(data)))
        else:
            changes.append(Delete(key))
    return changes


def encode_values(values: Iterable[Value | None]) -> pb.ReadResponse:
    """Return values as columns."""
    kinds = bytearray()
    data: list[bytes] = []
    numbers: list[int] = []
    versions: list[int] = []
    for value in values:
        if value is None:
            kinds.append(MISSING)
            continue
        versions.append(value.version)
        if value.number is None:
            kinds.append(BYTES)
            data.append(value.data)
        else:
            kinds.append(NUMBER)
            numbers.append(value.number)
    return pb.ReadResponse(kinds=bytes(kinds), data=data, numbers=numbers, versions=versions)


def decode_values(message: pb.ReadResponse) -> list[Value | None]:
    """Return the values of columns."""
    data, numbers, versions = iter(message.data), iter(message.numbers), iter(message.versions)
    values: list[Value | None] = []
    for kind in message.kinds:
        if kind == MISSING:
            values.append(None)
        elif kind == NUMBER:
            number = next(numbers)
            values.append(Value(counter_bytes(number), number, next(versions)))
        else:
            values.append(Value(next(data), None, next(versions)))
    return values


def encode_position(position: Position | None) -> pb.Position | None:
    """Return a position as a message; None stays away."""
    return None if position is None else pb.Position(ledger_id=position.ledger_id, entry_id=position.entry_id)


def decode_position(message: pb.Position) -> Position:
    """Return the position of a message."""
    return Position(message.ledger_id, message.entry_id)


def encode_outbox(outbox: Sequence[OutboxEntry]) -> list[pb.OutboxEntry]:
    """Return output entries as messages."""
    return [
        pb.OutboxEntry(
            topic=entry.topic,
            sequence_id=entry.sequence_id,
            messages=entry.messages,
            payload=entry.payload,
            position=encode_position(entry.position),
        )
        for entry in outbox
    ]


def decode_outbox(messages: Iterable[pb.OutboxEntry]) -> list[OutboxEntry]:
    """Return the output entries of messages."""
    return [
        OutboxEntry(entry.topic, entry.sequence_id, entry.messages, entry.payload, decode_position(entry.position))
        for entry in messages
    ]
