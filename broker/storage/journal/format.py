"""The binary format of journal files: header, groups, and the search for groups after a damaged one.

Design: a file is a header page followed by groups, each aligned to a page and padded to the next, so that a synced page
is never rewritten. Every checksum is seeded with the file's id, a random number drawn when the file is begun: old
content of a recycled file can never pass for new. Group numbers increase across files; a file's header also holds the
valid length of the previous file, which makes the cut of a torn tail permanent.

Payloads are stored unchanged, so a payload may contain something that looks like a group. Each group therefore carries
the nonce of the file's current use: a keyed hash of file id and file number, with a secret key that is generated with
the data directory. Files of format 1 have no nonce; they are read, and new ones use format 2.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import google_crc32c

from ....wire.ack_set import AckSet
from ....wire.position import Position

ENTRY, CHANGE, ACKNOWLEDGED, MARKED, PARTLY_ACKNOWLEDGED = 1, 2, 3, 4, 5

_HEAD = struct.Struct("<BI")  # kind, length of the rest
_ENTRY = struct.Struct("<BIQQIq")  # kind, length of the rest, ledger, entry, messages, publish time
ENTRY_HEAD_BYTES = _ENTRY.size
ENTRY_FIELDS_BYTES = ENTRY_HEAD_BYTES - _HEAD.size
_MARK = struct.Struct("<BIQqq")
pack_entry_head = _ENTRY.pack
"""Pack the head of an entry record: ENTRY, ENTRY_FIELDS_BYTES plus the payload's length, ledger, entry, messages,
publish time in milliseconds. A bare struct because this runs for each entry.
"""


class EntryRecord(NamedTuple):
    """An entry record in a journal group or a ledger block."""

    head: bytes
    ledger_id: int
    entry_id: int
    messages: int
    publish_time_ms: int
    payload: bytes


class AckRecord(NamedTuple):
    """Record of one acknowledgement: whole entries, part of an entry, or everything up to a mark."""

    kind: int
    cursor_id: int
    positions: tuple[Position, ...]
    ack_set: AckSet


Record = EntryRecord | AckRecord | dict[str, Any]


def encode_change(change: dict[str, Any]) -> bytes:
    """Return the record of a change to logs, ledgers or cursors."""
    body = json.dumps(change, separators=(",", ":")).encode()
    return _HEAD.pack(CHANGE, len(body)) + body


def encode_mark(cursor_id: int, mark: Position) -> bytes:
    """Return the record that everything up to ``mark`` is acknowledged."""
    return _MARK.pack(MARKED, _MARK.size - _HEAD.size, cursor_id, *mark)


def encode_acknowledged(cursor_id: int, positions: Sequence[Position]) -> bytes:
    """Return the record that each of these whole entries is acknowledged."""
    numbers = [number for position in positions for number in position]
    return struct.pack(f"<BIQ{len(numbers)}q", ACKNOWLEDGED, 8 + 8 * len(numbers), cursor_id, *numbers)


def encode_partly_acknowledged(cursor_id: int, position: Position, ack_set: AckSet) -> bytes:
    """Return the record that only the messages in ``ack_set`` of this entry are still wanted."""
    return struct.pack(
        f"<BIQqq{len(ack_set)}q", PARTLY_ACKNOWLEDGED, 24 + 8 * len(ack_set), cursor_id, *position, *ack_set
    )


def decode_records(body: bytes) -> Iterator[Record]:
    """Yield the records of a group; its checksum has been verified, so an unreadable record is a bug."""
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
    """Return the publish time in an entry record's head, in milliseconds."""
    return int(_ENTRY.unpack(head)[5])


PAGE = 4096
KEY_BYTES = 16
NONCE_BYTES = 16

_FILE_MAGIC = b"MGNTJRN2"
_FILE_HEADER = struct.Struct("<8sIQQQQ16s")  # magic, crc, file id, sequence, first group, end of the file before, nonce
_GROUP_MAGIC = b"GRP2"
_GROUP_HEADER = struct.Struct("<4sIQQI16s")  # magic, crc, file id, number, body length, nonce
_PREPARED_MAGIC = b"MGNTPREP"
_PREPARED = struct.Struct("<8sIQ")  # magic, crc, sequence
_CRC_END = 8  # a group's checksum covers the header after the checksum, and the body
GROUP_HEADER_BYTES = _GROUP_HEADER.size

_FILE_HEADERS = {_FILE_MAGIC: _FILE_HEADER, b"MGNTJRN1": struct.Struct("<8sIQQQQ")}  # format 1 has no nonce
_GROUP_HEADERS = {_GROUP_MAGIC: _GROUP_HEADER, b"GRP1": struct.Struct("<4sIQQI")}


class FileHeader(NamedTuple):
    """Header of a journal file, in its first page.

    Attributes:
        file_id: random; seeds every checksum in the file.
        sequence: position of the file in the journal, equal to the number in its name.
        first_group: number of its first group, or less than that.
        previous_end: offset in file ``sequence - 1`` where the journal continues in this file; the rest of that file is
            void.
        nonce: carried by each of its groups; empty in a file of format 1.
    """

    file_id: int
    sequence: int
    first_group: int
    previous_end: int
    nonce: bytes = b""


class Group(NamedTuple):
    """A group with a valid checksum; the caller checks file id and nonce.

    Attributes:
        file_id: as carried by the group.
        nonce: as carried by the group; empty in format 1.
        number: counted across all files.
        body: the records.
        end: offset of the next group in the file.
    """

    file_id: int
    nonce: bytes
    number: int
    body: bytes
    end: int


def nonce_of(key: bytes, sequence: int, file_id: int) -> bytes:
    """Return the nonce of one use of a file, from its header until it is recycled."""
    return hashlib.blake2b(struct.pack("<QQ", sequence, file_id), key=key, digest_size=NONCE_BYTES).digest()


def _seed(file_id: int) -> int:
    return int(google_crc32c.value(file_id.to_bytes(8, "little")))


def padded(length: int) -> int:
    """Return ``length`` rounded up to whole pages."""
    return -(-length // PAGE) * PAGE


def encode_file_header(header: FileHeader) -> bytes:
    """Return the first page of a journal file."""
    rest = struct.pack("<QQQQ16s", *header)
    crc = google_crc32c.extend(_seed(header.file_id), rest)
    return _FILE_HEADER.pack(_FILE_MAGIC, crc, *header).ljust(PAGE, b"\0")


def decode_file_header(page: bytes) -> FileHeader | None:
    """Return the header, or None if the page does not hold a valid one."""
    layout = _FILE_HEADERS.get(page[: len(_FILE_MAGIC)])
    if layout is None or len(page) < _FILE_HEADER.size:
        return None
    _, crc, *fields = layout.unpack_from(page)
    header = FileHeader(*fields)
    return header if google_crc32c.extend(_seed(header.file_id), page[12 : layout.size]) == crc else None


def encode_prepared(sequence: int) -> bytes:
    """Return the page that a prepared file has in place of its header until it is begun."""
    crc = google_crc32c.value(sequence.to_bytes(8, "little"))
    return _PREPARED.pack(_PREPARED_MAGIC, crc, sequence).ljust(PAGE, b"\0")


def is_prepared(page: bytes, sequence: int) -> bool:
    """Return whether a page marks file number ``sequence`` as prepared but not begun."""
    return page == encode_prepared(sequence)


def encode_group(header: FileHeader, number: int, body: bytes) -> list[bytes]:
    """Return header, body and padding of a group in the file with ``header``, to be written consecutively."""
    rest = struct.pack("<QQI16s", header.file_id, number, len(body), header.nonce)
    crc = google_crc32c.extend(google_crc32c.extend(_seed(header.file_id), rest), body)
    length = GROUP_HEADER_BYTES + len(body)
    return [_GROUP_MAGIC + crc.to_bytes(4, "little") + rest, body, bytes(padded(length) - length)]


def decode_group(content: bytes, offset: int, end: int) -> Group | None:
    """Return the group at ``offset`` that ends at ``end`` at the latest, or None if none is valid.

    The group is checked with the file id that it carries; the caller compares the id and the nonce with the file's.
    """
    layout = _GROUP_HEADERS.get(content[offset : offset + len(_GROUP_MAGIC)])
    if layout is None or offset + layout.size > end:
        return None
    body_start = offset + layout.size
    _, crc, file_id, number, length, *nonce = layout.unpack_from(content, offset)
    if body_start + length > end:
        return None
    body = content[body_start : body_start + length]
    head = content[offset + _CRC_END : body_start]
    if google_crc32c.extend(google_crc32c.extend(_seed(file_id), head), body) != crc:
        return None
    return Group(file_id, nonce[0] if nonce else b"", number, body, min(end, offset + padded(layout.size + length)))


def find_group(content: bytes, start: int, least_number: int, is_ours: Callable[[Group], bool]) -> int | None:
    """Return the offset of a valid group numbered ``least_number`` or more at a page boundary from ``start`` on.

    Such a group proves that everything before it was synced when it was written.

    Args:
        content: the whole file.
        start: first offset to search; a multiple of the page size.
        least_number: lower numbers are leftovers in a recycled file, and prove nothing.
        is_ours: returns whether a group was written in the file's current use.
    """
    for offset in range(start, len(content), PAGE):
        if content[offset : offset + 3] == b"GRP":
            found = decode_group(content, offset, len(content))
            if found is not None and found.number >= least_number and is_ours(found):
                return offset
    return None
