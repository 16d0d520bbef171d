"""The records inside a journal group: entries, acknowledgements, and changes of what exists.

An entry's record is its whole head and then the payload exactly as it arrived; the blocks of a ledger file hold the
same bytes, so moving an entry needs no encoding. Acknowledgements are binary because they are many; the rest is JSON
because it is rare and a person may have to read it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ....wire.ack_set import AckSet
from ....wire.position import Position

ENTRY, CHANGE, ACKNOWLEDGED, MARKED, PARTLY_ACKNOWLEDGED = 1, 2, 3, 4, 5

_HEAD = struct.Struct("<BI")  # kind, bytes that follow
_ENTRY = struct.Struct("<BIQQIq")  # kind, bytes that follow, ledger, entry, messages, publish time
ENTRY_HEAD_BYTES = _ENTRY.size
ENTRY_FIELDS_BYTES = ENTRY_HEAD_BYTES - _HEAD.size
_MARK = struct.Struct("<BIQqq")
pack_entry_head = _ENTRY.pack
"""Pack what precedes a payload: ENTRY, ENTRY_FIELDS_BYTES plus the payload's length, ledger, entry, messages, publish
time in milliseconds. A bare struct because this runs for each entry."""


class EntryRecord(NamedTuple):
    """An entry as found in a journal group or a block of a ledger."""

    head: bytes
    ledger_id: int
    entry_id: int
    messages: int
    publish_time_ms: int
    payload: bytes


class AckRecord(NamedTuple):
    """Record of one acknowledgement: whole entries, one entry in part, or all up to a mark."""

    kind: int
    cursor_id: int
    positions: tuple[Position, ...]
    ack_set: AckSet


Record = EntryRecord | AckRecord | dict[str, Any]


def encode_change(change: dict[str, Any]) -> bytes:
    """Return the record of a change of what exists (logs, ledgers, cursors)."""
    body = json.dumps(change, separators=(",", ":")).encode()
    return _HEAD.pack(CHANGE, len(body)) + body


def encode_mark(cursor_id: int, mark: Position) -> bytes:
    """Return the record: everything up to ``mark`` is acknowledged."""
    return _MARK.pack(MARKED, _MARK.size - _HEAD.size, cursor_id, *mark)


def encode_acknowledged(cursor_id: int, positions: Sequence[Position]) -> bytes:
    """Return the record: each of these whole entries is acknowledged."""
    numbers = [number for position in positions for number in position]
    return struct.pack(f"<BIQ{len(numbers)}q", ACKNOWLEDGED, 8 + 8 * len(numbers), cursor_id, *numbers)


def encode_partly_acknowledged(cursor_id: int, position: Position, ack_set: AckSet) -> bytes:
    """Return the record: of this entry only what ``ack_set`` names is still wanted."""
    return struct.pack(
        f"<BIQqq{len(ack_set)}q", PARTLY_ACKNOWLEDGED, 24 + 8 * len(ack_set), cursor_id, *position, *ack_set
    )


def decode_records(body: bytes) -> Iterator[Record]:
    """Yield the records of a group; its checksum has been verified, so anything unreadable is our own mistake."""
    offset = 0
    while offset < len(body):
        kind, length = _HEAD.unpack_from(body, offset)
        start, end = offset + _HEAD.size, offset + _HEAD.size + length
        if end > len(body):
            raise ValueError(f"record of {length} bytes at {offset} passes the end of its group ({len(body)} bytes)")
        if kind == ENTRY:
            yield _entry_at(body, offset, end)
        elif kind == CHANGE:
            yield json.loads(body[start:end])
        elif kind in (ACKNOWLEDGED, MARKED, PARTLY_ACKNOWLEDGED):
            cursor_id, *numbers = struct.unpack_from(f"<Q{(length - 8) // 8}q", body, start)
            if kind == PARTLY_ACKNOWLEDGED:
                yield AckRecord(kind, cursor_id, (Position(*numbers[:2]),), tuple(numbers[2:]))
            else:
                yield AckRecord(kind, cursor_id, tuple(map(Position, numbers[::2], numbers[1::2])), ())
        else:
            raise ValueError(f"record of unknown kind {kind} at {offset}")
        offset = end


def _entry_at(body: bytes, offset: int, end: int) -> EntryRecord:
    payload_start = offset + ENTRY_HEAD_BYTES
    _, _, ledger_id, entry_id, messages, publish_time_ms = _ENTRY.unpack_from(body, offset)
    head = body[offset:payload_start]
    return EntryRecord(head, ledger_id, entry_id, messages, publish_time_ms, body[payload_start:end])


def publish_time_of(head: bytes) -> int:
    """Return the publish time in the head of an entry's record, in milliseconds."""
    return int(_ENTRY.unpack(head)[5])
