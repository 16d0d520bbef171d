"""The binary format of journal files: header, groups, and the search for groups after a damaged one.

Design: a file consists of a header page and groups, each aligned to a page and padded to the next, so that a synced
page is never rewritten. Every checksum is seeded with the file id, a random number generated when the file is started,
so old content of a recycled file is never mistaken for new content. Group numbers increase across files. A file header
also contains the valid length of the previous file, so that a truncated torn tail stays truncated.

Payloads are stored unchanged and may contain bytes that look like a group. Each group therefore carries the nonce of
the current use of its file: a hash of file id and file number, keyed with a secret of the data directory. Files of
format 1 have no nonce. They can be read, but new files always use format 2.
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
"""Pack the head of an entry record: ENTRY, ENTRY_FIELDS_BYTES plus the payload length, ledger, entry, messages, and
publish time in milliseconds. A plain struct, because this runs once per entry.
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
    """Record of an acknowledgement of whole entries, part of an entry, or everything up to a mark."""

    kind: int
    cursor_id: int
    positions: tuple[Position, ...]
    ack_set: AckSet


Record = EntryRecord | AckRecord | dict[str, Any]


def encode_change(change: dict[str, Any]) -> bytes:
    """Encode a change to a log, ledger or cursor as a record."""
    body = json.dumps(change, separators=(",", ":")).encode()
    return _HEAD.pack(CHANGE, len(body)) + body


def encode_mark(cursor_id: int, mark: Position) -> bytes:
    """Encode the acknowledgement of everything up to ``mark`` as a record."""
    return _MARK.pack(MARKED, _MARK.size - _HEAD.size, cursor_id, *mark)


def encode_acknowledged(cursor_id: int, positions: Sequence[Position]) -> bytes:
    """Encode the acknowledgement of whole entries as a record."""
    numbers = [number for position in positions for number in position]
    return struct.pack(f"<BIQ{len(numbers)}q", ACKNOWLEDGED, 8 + 8 * len(numbers), cursor_id, *numbers)


def encode_partly_acknowledged(cursor_id: int, position: Position, ack_set: AckSet) -> bytes:
    """Encode a partial acknowledgement as a record; ``ack_set`` contains the unacknowledged messages."""
    return struct.pack(
        f"<BIQqq{len(ack_set)}q", PARTLY_ACKNOWLEDGED, 24 + 8 * len(ack_set), cursor_id, *position, *ack_set
    )


def decode_records(body: bytes) -> Iterator[Record]:
    """Yield the records of a group whose checksum is valid, so that an unreadable record indicates a bug.

    Raises:
        ValueError: a record is invalid.
    """
    offset = 0
    while offset < len(body):
        kind, length = _HEAD.unpack_from(body, offset)
        start, end = offset + _HEAD.size, offset + _HEAD.size + length
        if end > len(body):
            raise ValueError(f"a record of {length} bytes at offset {offset} exceeds its group ({len(body)} bytes)")
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
            raise ValueError(f"unknown record kind {kind} at offset {offset}")
        offset = end


def _entry_at(body: bytes, offset: int, end: int) -> EntryRecord:
    payload_start = offset + ENTRY_HEAD_BYTES
    _, _, ledger_id, entry_id, messages, publish_time_ms = _ENTRY.unpack_from(body, offset)
    head = body[offset:payload_start]
    return EntryRecord(head, ledger_id, entry_id, messages, publish_time_ms, body[payload_start:end])


def publish_time_of(head: bytes) -> int:
    """Return the publish time from the head of an entry record, in milliseconds."""
    return int(_ENTRY.unpack(head)[5])


PAGE = 4096
KEY_BYTES = 16
NONCE_BYTES = 16

_FILE_MAGIC = b"MGNTJRN2"
_FILE_HEADER = struct.Struct("<8sIQQQQ16s")  # magic, crc, file id, sequence, first group, end of previous file, nonce
_GROUP_MAGIC = b"GRP2"
_GROUP_HEADER = struct.Struct("<4sIQQI16s")  # magic, crc, file id, number, body length, nonce
_PREPARED_MAGIC = b"MGNTPREP"
_PREPARED = struct.Struct("<8sIQ")  # magic, crc, sequence
_CRC_END = 8  # a group's checksum covers the rest of the header, and the body
GROUP_HEADER_BYTES = _GROUP_HEADER.size

_FILE_HEADERS = {_FILE_MAGIC: _FILE_HEADER, b"MGNTJRN1": struct.Struct("<8sIQQQQ")}  # format 1 has no nonce
_GROUP_HEADERS = {_GROUP_MAGIC: _GROUP_HEADER, b"GRP1": struct.Struct("<4sIQQI")}


class FileHeader(NamedTuple):
    """Header of a journal file, stored in its first page.

    Attributes:
        file_id: random number that seeds every checksum in the file.
        sequence: number of the file, which is also in its name.
        first_group: lower bound for the number of the first group.
        previous_end: offset at which file ``sequence - 1`` ends; the rest of that file is invalid.
        nonce: nonce of each group in the file; empty in format 1.
    """

    file_id: int
    sequence: int
    first_group: int
    previous_end: int
    nonce: bytes = b""


class Group(NamedTuple):
    """A group with a valid checksum, whose file id and nonce the caller must check.

    Attributes:
        file_id: file id in the group header.
        nonce: nonce in the group header; empty in format 1.
        number: number of the group, counted across all files.
        body: encoded records.
        end: offset of the next group in the file.
    """

    file_id: int
    nonce: bytes
    number: int
    body: bytes
    end: int


def nonce_of(key: bytes, sequence: int, file_id: int) -> bytes:
    """Return the nonce for a file, which is valid until the file is recycled."""
    return hashlib.blake2b(struct.pack("<QQ", sequence, file_id), key=key, digest_size=NONCE_BYTES).digest()


def _seed(file_id: int) -> int:
    return int(google_crc32c.value(file_id.to_bytes(8, "little")))


def padded(length: int) -> int:
    """Return ``length`` rounded up to a multiple of the page size."""
    return -(-length // PAGE) * PAGE


def encode_file_header(header: FileHeader) -> bytes:
    """Return the first page of a journal file."""
    rest = struct.pack("<QQQQ16s", *header)
    crc = google_crc32c.extend(_seed(header.file_id), rest)
    return _FILE_HEADER.pack(_FILE_MAGIC, crc, *header).ljust(PAGE, b"\0")


def decode_file_header(page: bytes) -> FileHeader | None:
    """Return the header, or None if the page does not contain a valid header."""
    layout = _FILE_HEADERS.get(page[: len(_FILE_MAGIC)])
    if layout is None or len(page) < _FILE_HEADER.size:
        return None
    _, crc, *fields = layout.unpack_from(page)
    header = FileHeader(*fields)
    return header if google_crc32c.extend(_seed(header.file_id), page[12 : layout.size]) == crc else None


def encode_prepared(sequence: int) -> bytes:
    """Return the page that a prepared file has instead of a header until it is started."""
    crc = google_crc32c.value(sequence.to_bytes(8, "little"))
    return _PREPARED.pack(_PREPARED_MAGIC, crc, sequence).ljust(PAGE, b"\0")


def is_prepared(page: bytes, sequence: int) -> bool:
    """Return whether a page marks file number ``sequence`` as prepared but not started."""
    return page == encode_prepared(sequence)


def encode_group(header: FileHeader, number: int, body: bytes) -> list[bytes]:
    """Return the header, body and padding of a group, to be written consecutively to the file with ``header``."""
    rest = struct.pack("<QQI16s", header.file_id, number, len(body), header.nonce)
    crc = google_crc32c.extend(google_crc32c.extend(_seed(header.file_id), rest), body)
    length = GROUP_HEADER_BYTES + len(body)
    return [_GROUP_MAGIC + crc.to_bytes(4, "little") + rest, body, bytes(padded(length) - length)]


def decode_group(content: bytes, offset: int, end: int) -> Group | None:
    """Return the group at ``offset``, which must not extend beyond ``end``, or None if it is invalid.

    The checksum is verified with the file id in the group header; the caller must compare that id and the nonce with
    those of the file.
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
    """Return the offset of the first valid group at or after ``start`` with a sufficient number, or None.

    Such a group proves that everything before it had been synced when it was written.

    Args:
        content: content of the whole file.
        start: first offset to search; a multiple of the page size.
        least_number: minimum group number; groups with lower numbers may be old content of a recycled file.
        is_ours: returns whether a group was written in the current use of the file.
    """
    for offset in range(start, len(content), PAGE):
        if content[offset : offset + 3] == b"GRP":
            found = decode_group(content, offset, len(content))
            if found is not None and found.number >= least_number and is_ours(found):
                return offset
    return None
