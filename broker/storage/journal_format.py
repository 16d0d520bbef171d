"""The bytes of a journal file: its header, its groups, and the search for groups after a damaged one.

Design: a file is a header page and then groups, each from a page boundary on and padded to the next, so that no page
that was synced is ever written again. Every checksum starts from the file's id, a random number drawn when the file is
begun: what a recycled file still holds can never pass for new. Group numbers grow through all files; a file's header
also says where the valid part of the file before it ends, which is what makes a cut of a torn tail permanent.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import google_crc32c

PAGE = 4096

_FILE_MAGIC = b"MGNTJRN1"
_FILE_HEADER = struct.Struct("<8sIQQQQ")  # magic, crc, file id, sequence, first group, end of the file before
_GROUP_MAGIC = b"GRP1"
_GROUP_HEADER = struct.Struct("<4sIQQI")  # magic, crc, file id, number, body length
_CRC_END = 8  # a group's checksum covers its header after the checksum, and its body
GROUP_HEADER_BYTES = _GROUP_HEADER.size


class FileHeader(NamedTuple):
    """What the first page of a journal file says.

    Attributes:
        file_id: random; seeds every checksum in the file.
        sequence: position of the file in the journal, equal to the number in its name.
        first_group: number of its first group, or less than that.
        previous_end: offset in file ``sequence - 1`` where the journal leaves it; what follows there is void.
    """

    file_id: int
    sequence: int
    first_group: int
    previous_end: int


class Group(NamedTuple):
    """One valid group found in a file."""

    number: int
    body: bytes
    end: int


def _seed(file_id: int) -> int:
    return int(google_crc32c.value(file_id.to_bytes(8, "little")))


def padded(length: int) -> int:
    """Return ``length`` rounded up to whole pages."""
    return -(-length // PAGE) * PAGE


def encode_file_header(header: FileHeader) -> bytes:
    """Return the first page of a journal file."""
    rest = struct.pack("<QQQQ", *header)
    crc = google_crc32c.extend(_seed(header.file_id), rest)
    return _FILE_HEADER.pack(_FILE_MAGIC, crc, *header).ljust(PAGE, b"\0")


def decode_file_header(page: bytes) -> FileHeader | None:
    """Return the header, or None if the page is no valid one."""
    if len(page) < _FILE_HEADER.size:
        return None
    magic, crc, *fields = _FILE_HEADER.unpack_from(page)
    header = FileHeader(*fields)
    if magic != _FILE_MAGIC or google_crc32c.extend(_seed(header.file_id), page[12 : _FILE_HEADER.size]) != crc:
        return None
    return header


def encode_group(file_id: int, number: int, body: bytes) -> list[bytes]:
    """Return header, body and padding of a group, to be written one after the other."""
    rest = struct.pack("<QQI", file_id, number, len(body))
    crc = google_crc32c.extend(google_crc32c.extend(_seed(file_id), rest), body)
    length = GROUP_HEADER_BYTES + len(body)
    return [_GROUP_MAGIC + crc.to_bytes(4, "little") + rest, body, bytes(padded(length) - length)]


def decode_group(content: bytes, offset: int, end: int) -> tuple[int, Group] | None:
    """Return (file id, group) of the valid group at ``offset`` that ends at ``end`` at the latest, or None.

    The group is checked with the file id that it carries; the caller compares that with the file's.
    """
    if offset + GROUP_HEADER_BYTES > end or content[offset : offset + 4] != _GROUP_MAGIC:
        return None
    _, crc, file_id, number, length = _GROUP_HEADER.unpack_from(content, offset)
    body_start = offset + GROUP_HEADER_BYTES
    if body_start + length > end:
        return None
    body = content[body_start : body_start + length]
    head = content[offset + _CRC_END : body_start]
    if google_crc32c.extend(google_crc32c.extend(_seed(file_id), head), body) != crc:
        return None
    return file_id, Group(number, body, min(end, offset + padded(GROUP_HEADER_BYTES + length)))


def find_group(content: bytes, start: int, least_number: int, file_id: int | None) -> int | None:
    """Return the offset of a valid group numbered ``least_number`` or more at a page boundary from ``start`` on.

    Such a group proves that everything before it was synced when it was written.

    Args:
        content: the whole file.
        start: first offset to look at; a multiple of the page size.
        least_number: smaller ones are what a recycled file held before, and prove nothing.
        file_id: the file's id; None if its header is unreadable, then each group vouches for itself.
    """
    for offset in range(start, len(content), PAGE):
        if content[offset : offset + 4] == _GROUP_MAGIC:
            found = decode_group(content, offset, len(content))
            if found is not None and found[1].number >= least_number and file_id in (None, found[0]):
                return offset
    return None
