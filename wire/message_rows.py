"""Batch messages as rows of bytes, split and joined without a protobuf object per message.

A row is ``[u32 size][SingleMessageMetadata][payload]``. Its metadata remains bytes until a field is read, and fields
that an output copies from its input are cut from these bytes.

Design: these functions parse only the fields that they need, byte by byte. This is slow in Python (2 to 3 µs per
message) but fast when compiled by mypyc (0.1 µs), so an uncompiled package uses protobuf through `wire.batch` instead;
see `IS_COMPILED`. Metadata that official clients do not write (unknown fields, eleven-byte varints, groups) is passed
to protobuf, so that both implementations accept and reject the same input.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError
from mypy_extensions import i64

from ..errors import ProtocolError
from .bulk import varint
from .pulsar_api_pb2 import SingleMessageMetadata

IS_COMPILED = not __file__.endswith(".py")
"""Whether this module is compiled."""

HEADER_SHIFT: Final = 32
HEADER_MASK: Final = (1 << 29) - 1
PAYLOAD_MASK: Final = (1 << 32) - 1
"""In a row's sizes, the lowest bits are the payload size, and the bits from `HEADER_SHIFT` on the metadata size."""
IS_REMOVED: Final = 1 << 61
"""Flag in a row's sizes: compaction removed the message."""
IS_NULL: Final = 1 << 62
"""Flag in a row's sizes: the message has a null value, as opposed to an empty one."""

_PROPERTIES: Final = 0x0A
_PAYLOAD_SIZE: Final = 0x18
_COMPACTED_OUT: Final = 0x20
_NULL_VALUE: Final = 0x48
_PREFIXES_MAX: Final = 4096
_prefixes: dict[int, bytes] = {}
"""Cached row prefixes, by the sizes of the attributes and the payload."""


def split_rows(body: bytes, count: int) -> tuple[list[bytes], list[bytes]]:
    """Return the payload and the metadata of each message of a batch.

    Args:
        body: batch body.
        count: number of messages.

    Raises:
        ProtocolError: the body does not match its sizes, or metadata cannot be parsed.
    """
    payloads: list[bytes] = []
    headers: list[bytes] = []
    size: i64 = len(body)
    offset: i64 = 0
    left: i64 = count
    while left > 0:
        left -= 1
        start: i64 = offset + 4
        if start > size:
            raise _ends_early(size, len(payloads), count)
        header_size: i64 = (
            i64(body[offset]) << 24 | i64(body[offset + 1]) << 16 | i64(body[offset + 2]) << 8 | i64(body[offset + 3])
        )
        end: i64 = start + header_size
        header = body[start:end]
        found = _scan(header, 0, len(header))
        if found < 0:
            found = _parsed(header, len(payloads))
        offset = end + (found & PAYLOAD_MASK)
        payloads.append(body[end:offset])
        headers.append(header)
    if offset != size:
        raise ProtocolError(f"the {count} messages of a batch take up {offset} bytes, but the batch has {size}")
    return payloads, headers


def row_sizes(body: bytes, count: int) -> tuple[list[int], int]:
    """Return the sizes of each message in a batch, and the union of their flags.

    Each is a number combining payload size, metadata size (from `HEADER_SHIFT` on), `IS_REMOVED`, and `IS_NULL`.

    Raises:
        ProtocolError: as for `split_rows`.
    """
    sizes: list[int] = []
    flags: i64 = 0
    size: i64 = len(body)
    offset: i64 = 0
    left: i64 = count
    while left > 0:
        left -= 1
        start: i64 = offset + 4
        if start > size:
            raise _ends_early(size, len(sizes), count)
        header_size: i64 = (
            i64(body[offset]) << 24 | i64(body[offset + 1]) << 16 | i64(body[offset + 2]) << 8 | i64(body[offset + 3])
        )
        end: i64 = start + header_size
        if end > size:
            raise _ends_early(size, len(sizes), count)
        found = _scan(body, start, end)
        if found < 0:
            found = _parsed(body[start:end], len(sizes))
        offset = end + (found & PAYLOAD_MASK)
        flags |= found
        sizes.append(found | header_size << HEADER_SHIFT)
    if offset != size:
        raise ProtocolError(f"the {count} messages of a batch take up {offset} bytes, but the batch has {size}")
    return sizes, flags & (IS_REMOVED | IS_NULL)


def _ends_early(size: int, number: int, count: int) -> ProtocolError:
    return ProtocolError(f"batch body of {size} bytes ends inside message {number} of {count}")


def _parsed(header: bytes, number: int) -> i64:
    """Same as `_scan`, but with protobuf; raises ProtocolError."""
    try:
        found = SingleMessageMetadata.FromString(header)
    except DecodeError as error:
        raise ProtocolError(f"metadata of message {number} of a batch cannot be parsed: {error}") from error
    if found.payload_size < 0:
        raise ProtocolError(f"message {number} of a batch declares {found.payload_size} payload bytes")
    return _with_flags(found.payload_size, found.compacted_out, found.null_value)


def _with_flags(payload_size: i64, compacted_out: bool, null_value: bool) -> i64:
    found = payload_size
    if compacted_out and payload_size == 0:
        found |= IS_REMOVED
    if null_value:
        found |= IS_NULL
    return found


def _scan(data: bytes, at: i64, end: i64) -> i64:
    """Return the payload size and flags of a row from its metadata in ``data``.

    Returns:
        -1 if the metadata does not have the usual form.
    """
    found: i64 = -1
    compacted_out = False
    null_value = False
    while at < end:
        tag: i64 = data[at]
        at += 1
        number: i64 = 0
        shift: i64 = 0
        while True:
            if at >= end or shift > 56:
                return -1
            byte: i64 = data[at]
            at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        if tag == _PAYLOAD_SIZE:
            if number > 0x7FFFFFFF:
                return -1
            found = number
        elif tag == _PROPERTIES:
            if number > end - at or not _is_pair(data, at, at + number):
                return -1
            at += number
        elif tag == 0x12 or tag == 0x3A:  # partition_key, ordering_key
            if number > end - at:
                return -1
            at += number
        elif tag == _NULL_VALUE:
            null_value = number != 0
        elif tag == _COMPACTED_OUT:
            compacted_out = number != 0
        elif tag != 0x28 and tag != 0x40 and tag != 0x30 and tag != 0x50:
            return -1
    return -1 if found < 0 else _with_flags(found, compacted_out, null_value)


def _is_pair(header: bytes, at: i64, end: i64) -> bool:
    """Return whether bytes are a KeyValue of the usual form: key and value in this order, each below 128 bytes."""
    if end - at < 4 or header[at] != 0x0A:
        return False
    value: i64 = at + 2 + i64(header[at + 1])
    if header[at + 1] > 127 or end - value < 2 or header[value] != 0x12 or header[value + 1] > 127:
        return False
    return value + 2 + i64(header[value + 1]) == end


def properties_of(headers: list[bytes]) -> list[bytes]:
    """Return each message's properties, encoded as attributes for another message, or empty bytes.

    Args:
        headers: metadata that was already parsed successfully.
    """
    found: list[bytes] = []
    for header in headers:
        found.append(_properties(header))
    return found


def _properties(header: bytes) -> bytes:
    end: i64 = len(header)
    at: i64 = 0
    begin: i64 = 0
    cut = b""
    while at < end:
        begin = at
        tag: i64 = header[at]
        at += 1
        number: i64 = 0
        shift: i64 = 0
        while True:
            if at >= end or shift > 56:
                return parsed_properties(header)
            byte: i64 = header[at]
            at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        if tag == _PROPERTIES or tag == 0x12 or tag == 0x3A:
            if number > end - at:
                return parsed_properties(header)
            at += number
            if tag == _PROPERTIES:
                cut = cut + header[begin:at] if cut else header[begin:at]
        elif tag & 7 != 0 or tag > 127:
            return parsed_properties(header)
    return cut


def parsed_properties(header: bytes) -> bytes:
    """Same as `properties_of` for one message, but with protobuf."""
    metadata = SingleMessageMetadata.FromString(header)
    if not metadata.properties:
        return b""
    return SingleMessageMetadata(properties=metadata.properties).SerializePartialToString()


def join_rows(payloads: list[bytes], attributes: list[bytes]) -> bytes:
    """Encode the body of a batch.

    Args:
        payloads: payloads of the messages.
        attributes: encoded metadata of each message, without the payload size.
    """
    parts: list[bytes] = []
    for payload, attribute in zip(payloads, attributes, strict=True):
        key = len(payload) << 24 | len(attribute)
        prefix = _prefixes.get(key)
        if prefix is None:
            prefix = row_prefix(len(payload), len(attribute))
            if len(_prefixes) < _PREFIXES_MAX:
                _prefixes[key] = prefix
        parts.append(prefix)
        if attribute:
            parts.append(attribute)
        parts.append(payload)
    return b"".join(parts)


def row_prefix(payload_bytes: int, attribute_bytes: int) -> bytes:
    """Return the prefix of a row for these sizes of attributes and payload."""
    size = b"\x18" + varint(payload_bytes)
    return (len(size) + attribute_bytes).to_bytes(4, "big") + size
