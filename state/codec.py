"""Conversion between the types of `values` and the messages of ``state.proto``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import StateRefused
from ..wire import state_pb2 as pb
from ..wire.position import Position
from .limits import DELETE, INCREMENT, PUT, show
from .values import (
    COUNTER_MAX,
    COUNTER_MIN,
    Change,
    Content,
    Delete,
    Increment,
    OutboxEntry,
    Put,
    Value,
    counter_bytes,
)

MISSING, BYTES, NUMBER = b"-BN"


def encode_changes(changes: Sequence[Change]) -> pb.Changes:
    """Encode changes as columns."""
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
    try:
        return pb.Changes(kinds=bytes(kinds), keys=keys, data=data, amounts=amounts)
    except ValueError as error:  # the error does not say which one
        for change in changes:
            if isinstance(change, Increment) and not COUNTER_MIN <= change.amount <= COUNTER_MAX:
                raise StateRefused(
                    f"increment {change.amount} of state key {show(change.key)} exceeds 64 bits", change.key
                ) from error
        raise


def decode_changes(message: pb.Changes) -> list[Change]:
    """Decode changes from columns that have passed `check_changes`."""
    kinds, keys = message.kinds, message.keys
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
    """Encode values as columns."""
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
    """Decode values from columns."""
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


def decode_contents(message: pb.ReadResponse) -> list[Content]:
    """Decode values from columns, without versions."""
    kinds, data, numbers = message.kinds, message.data, message.numbers
    if len(data) == len(kinds):
        return list(data)
    if len(numbers) == len(kinds):
        return list(numbers)
    more_data, more_numbers = iter(data), iter(numbers)
    return [None if kind == MISSING else next(more_numbers) if kind == NUMBER else next(more_data) for kind in kinds]


def encode_position(position: Position | None) -> pb.Position | None:
    """Encode a position as a message; None stays None."""
    return None if position is None else pb.Position(ledger_id=position.ledger_id, entry_id=position.entry_id)


def decode_position(message: pb.Position) -> Position:
    """Decode a position from a message."""
    return Position(message.ledger_id, message.entry_id)


def encode_outbox(outbox: Sequence[OutboxEntry]) -> list[pb.OutboxEntry]:
    """Encode output entries as messages."""
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
    """Decode output entries from messages."""
    return [
        OutboxEntry(entry.topic, entry.sequence_id, entry.messages, entry.payload, decode_position(entry.position))
        for entry in messages
    ]
