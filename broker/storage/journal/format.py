"""The bytes of a journal file: its header, its groups, and the search for groups after a damaged one.

Design: a file is a header page and then groups, each from a page boundary on and padded to the next, so that no page
that was synced is ever written again. Every checksum starts from the file's id, a random number drawn when the file is
begun: what a recycled file still holds can never pass for new. Group numbers grow through all files; a file's header
also says where the valid part of the file before it ends, which is what makes a cut of a torn tail permanent.

Payloads stand in these files as they arrived, so a payload may hold what looks like a group. Each group therefore
carries the nonce of the file's present use: a keyed hash of file id and file number, under a key that is drawn when
the data directory is made and leaves it never. Files of format 1 have no nonce; they are read, and new ones are of
format 2.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import NamedTuple

import google_crc32c

PAGE = 4096
KEY_BYTES = 16
NONCE_BYTES = 16

_FILE_MAGIC = b"MGNTJRN2"
_FILE_HEADER = struct.Struct("<8sIQQQQ16s")  # magic, crc, file id, sequence, first group, end of the file before, nonce
_GROUP_MAGIC = b"GRP2"
_GROUP_HEADER = struct.Struct("<4sIQQI16s")  # magic, crc, file id, number, body length, nonce
_CRC_END = 8  # a group's checksum covers its header after the checksum, and its body
GROUP_HEADER_BYTES = _GROUP_HEADER.size

_FILE_MAGIC_1 = b"MGNTJRN1"
_FILE_HEADER_1 = struct.Struct("<8sIQQQQ")
_GROUP_MAGIC_1 = b"GRP1"
_GROUP_HEADER_1 = struct.Struct("<4sIQQI")


class FileHeader(NamedTuple):
    """Header of a journal file, in its first page.

    Attributes:
        file_id: random; seeds every checksum in the file.
        sequence: position of the file in the journal, equal to the number in its name.
        first_group: number of its first group, or less than that.
        previous_end: offset in file ``sequence - 1`` where the journal leaves it; what follows there is void.
        nonce: what each of its groups carries; empty in a file of format 1.
    """

    file_id: int
    sequence: int
    first_group: int
    previous_end: int
    nonce: bytes


class Group(NamedTuple):
    """One valid group found in a file."""

    number: int
    body: bytes
    end: int


class FoundGroup(NamedTuple):
    """A group whose checksum is right, with the file id and nonce that it carries: whose it is, the caller decides."""

    file_id: int
    group: Group
    nonce: bytes


def nonce_of(key: bytes, sequence: int, file_id: int) -> bytes:
    """Return the nonce of one use of a file, from its beginning until it is recycled."""
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
    """Return the header, or None if the page is no valid one."""
    if len(page) < _FILE_HEADER.size:
        return None
    if page.startswith(_FILE_MAGIC_1):
        layout, (_, crc, *fields) = _FILE_HEADER_1, _FILE_HEADER_1.unpack_from(page)
        fields.append(b"")
    elif page.startswith(_FILE_MAGIC):
        layout, (_, crc, *fields) = _FILE_HEADER, _FILE_HEADER.unpack_from(page)
    else:
        return None
    header = FileHeader(*fields)
    return header if google_crc32c.extend(_seed(header.file_id), page[12 : layout.size]) == crc else None


def encode_group(header: FileHeader, number: int, body: bytes) -> list[bytes]:
    """Return header, body and padding of a group of the file with ``header``, to be written one after the other."""
    rest = struct.pack("<QQI16s", header.file_id, number, len(body), header.nonce)
    crc = google_crc32c.extend(google_crc32c.extend(_seed(header.file_id), rest), body)
    length = GROUP_HEADER_BYTES + len(body)
    return [_GROUP_MAGIC + crc.to_bytes(4, "little") + rest, body, bytes(padded(length) - length)]


def decode_group(content: bytes, offset: int, end: int) -> FoundGroup | None:
    """Return the group at ``offset`` that ends at ``end`` at the latest, or None if there is no valid one.

    The group is checked with the file id that it carries; the caller compares that and the nonce with the file's.
    """
    magic = content[offset : offset + 4]
    if magic == _GROUP_MAGIC:
        layout = _GROUP_HEADER
    elif magic == _GROUP_MAGIC_1:
        layout = _GROUP_HEADER_1
    else:
        return None
    body_start = offset + layout.size
    if body_start > end:
        return None
    _, crc, file_id, number, length, *nonce = layout.unpack_from(content, offset)
    if body_start + length > end:
        return None
    body = content[body_start : body_start + length]
    head = content[offset + _CRC_END : body_start]
    if google_crc32c.extend(google_crc32c.extend(_seed(file_id), head), body) != crc:
        return None
    group = Group(number, body, min(end, offset + padded(layout.size + length)))
    return FoundGroup(file_id, group, nonce[0] if nonce else b"")


def find_group(content: bytes, start: int, least_number: int, is_ours: Callable[[FoundGroup], bool]) -> int | None:
    """Return the offset of a valid group numbered ``least_number`` or more at a page boundary from ``start`` on.

    Such a group proves that everything before it was synced when it was written.

    Args:
        content: the whole file.
        start: first offset to look at; a multiple of the page size.
        least_number: smaller ones are what a recycled file held before, and prove nothing.
        is_ours: whether a group was written in the file's present use, by what it carries.
    """
    for offset in range(start, len(content), PAGE):
        if content[offset : offset + 3] == b"GRP":
            found = decode_group(content, offset, len(content))
            if found is not None and found.group.number >= least_number and is_ours(found):
                return offset
    return None
