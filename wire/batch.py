"""Batch bodies: ``[u32 size][SingleMessageMetadata][payload]`` for each message, concatenated.

Design: creating a Python object per message would make batches slow, so `split_batch` leaves metadata as bytes and
parses a message's metadata on first access. `decode_batch` parses all metadata; equal metadata is one shared object,
which must not be modified. Encoding caches the headers of plain messages by payload length. The caches are per process,
bounded, and contain only derived values.

Source: Pulsar binary protocol, section Batch messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import overload

from google.protobuf.message import DecodeError

from ..errors import ProtocolError
from .bulk import varint
from .message_rows import (
    HEADER_SHIFT,
    IS_COMPILED,
    IS_NULL,
    IS_REMOVED,
    join_rows,
    parsed_properties,
    properties_of,
    row_prefix,
    row_sizes,
    split_rows,
)
from .pulsar_api_pb2 import SingleMessageMetadata

_U32 = Struct(">I")
_MAX_UNIFORM_HEADER_BYTES = 64  # above it, comparing columns costs more than comparing rows
_SEQUENCE_ID_TAG = b"\x40"
_PROPERTIES, _PAYLOAD_SIZE = b"\x0a", 0x18  # tags
_MAY_HAVE_FLAGS = re.compile(rb"[\x20\x48\xa0\xc8]").search  # first bytes of the tags of compacted_out and null_value
MIN_MESSAGE_BYTES = 6
"""Minimum size of a message in a batch: the size field, and the required payload_size with its tag."""
_CACHED_HEADERS = 4096
_unpack_size = _U32.unpack_from


@lru_cache(maxsize=_CACHED_HEADERS)
def _plain_header(payload_bytes: int) -> bytes:
    """Return the size field and metadata of a message that consists only of its payload."""
    return row_prefix(payload_bytes, 0)


def encode_plain_batch(payloads: Sequence[bytes]) -> bytes:
    """Encode the body of a batch of messages without key, properties or event time."""
    header = _plain_header
    lengths = set(map(len, payloads))
    if len(lengths) == 1:
        # Payloads of equal length share one header, so the most common batch is a single join.
        between = header(lengths.pop())
        return between + between.join(payloads)
    parts: list[bytes] = []
    for payload in payloads:
        parts += (header(len(payload)), payload)
    return b"".join(parts)


def encode_batch(messages: Sequence[tuple[SingleMessageMetadata | None, bytes]]) -> bytes:
    """Encode the body of a batch.

    Args:
        messages: metadata (or None) and payload of each message; ``payload_size`` is set here. If consecutive messages
            with equal metadata share one object, this is faster.
    """
    parts: list[bytes] = []
    last: SingleMessageMetadata | None = None
    headers: dict[int, bytes] = {}  # for the last metadata, by payload size
    for metadata, payload in messages:
        size = len(payload)
        if metadata is None:
            parts += (_plain_header(size), payload)
            continue
        if metadata is not last:
            last, headers = metadata, {}
        header = headers.get(size)
        if header is None:
            metadata.payload_size = size
            encoded = metadata.SerializeToString()
            header = headers[size] = _U32.pack(len(encoded)) + encoded
        parts += (header, payload)
    return b"".join(parts)


def encode_rows(payloads: Sequence[bytes], attributes: Sequence[bytes]) -> bytes:
    """Encode the body of a batch from attributes.

    Args:
        payloads: payloads of the messages.
        attributes: result of `encode_attributes` for each message; empty for a message without attributes.
    """
    return join_rows(list(payloads), list(attributes))


def encode_attributes(metadata: SingleMessageMetadata | None) -> bytes:
    """Return a message's attributes: its encoded metadata without the payload size, which is empty for None."""
    if metadata is None:
        return b""
    metadata.ClearField("payload_size")
    return metadata.SerializePartialToString()


class MessageHeaders(Sequence[SingleMessageMetadata]):
    """Metadata of the messages in a batch, parsed on access. The results must not be modified.

    Attributes:
        encoded: encoded metadata of each message.
    """

    __slots__ = ("_last", "encoded")

    def __init__(self, encoded: list[bytes]):
        self.encoded = encoded
        self._last = (b"", SingleMessageMetadata())  # one tuple, as user code may access it from several threads

    def __len__(self) -> int:
        return len(self.encoded)

    @overload
    def __getitem__(self, index: int) -> SingleMessageMetadata: ...
    @overload
    def __getitem__(self, index: slice) -> MessageHeaders: ...
    def __getitem__(self, index: int | slice) -> SingleMessageMetadata | MessageHeaders:
        if isinstance(index, slice):
            return MessageHeaders(self.encoded[index])
        encoded = self.encoded[index]
        last = self._last
        if encoded != last[0]:
            last = self._last = (encoded, SingleMessageMetadata.FromString(encoded))
        return last[1]

    def __iter__(self) -> Iterator[SingleMessageMetadata]:
        return map(SingleMessageMetadata.FromString, self.encoded)

    def properties(self) -> list[bytes]:
        """Return each message's properties, encoded as attributes for another message, or empty bytes."""
        encoded = self.encoded
        if IS_COMPILED:
            return properties_of(encoded)
        return list(map(_properties, encoded))


def _properties(header: bytes) -> bytes:
    """Same as `properties_of` for one message. Avoids protobuf for a single short property."""
    if _PROPERTIES not in header:
        return b""
    begin = 2 if header[0] == _PAYLOAD_SIZE and header[1] < 128 else 0
    if len(header) - begin > 2 and header[begin] == _PROPERTIES[0] and header[begin + 1] < 128:
        end = begin + 2 + header[begin + 1]
        if header.find(_PROPERTIES, end) < 0:  # no byte that could be the tag of another property
            return header[begin:end]
    return parsed_properties(header)


def split_batch(body: bytes, count: int) -> tuple[list[bytes], MessageHeaders]:
    """Return the payloads and metadata of a batch of ``count`` messages. Metadata is parsed on access.

    Raises:
        ProtocolError: the body does not match its sizes, or metadata cannot be parsed.
    """
    _check_count(body, count)
    rows = uniform_rows(body, count)
    if rows is not None:
        header = body[4 : rows[0]]
        return _uniform_payloads(body, count, rows[0]), MessageHeaders([header] * count)
    payloads, headers = split_rows(body, count) if IS_COMPILED else _split_parsed(body, count)
    return payloads, MessageHeaders(headers)


def batch_sizes(body: bytes, count: int) -> tuple[list[int], int]:
    """Return the sizes of each message in a batch, and the union of their flags; see `message_rows.row_sizes`.

    Raises:
        ProtocolError: as for `split_batch`.
    """
    _check_count(body, count)
    return row_sizes(body, count) if IS_COMPILED else _sizes_parsed(body, count)


def _sizes_parsed(body: bytes, count: int) -> tuple[list[int], int]:
    """Same as `row_sizes`, but faster if that is not compiled."""
    payloads, headers = _split_parsed(body, count)
    sizes, flags = [], 0
    for payload, header in zip(payloads, headers, strict=True):
        found = len(payload) | len(header) << HEADER_SHIFT
        if _MAY_HAVE_FLAGS(header):
            metadata = SingleMessageMetadata.FromString(header)
            found |= IS_REMOVED if metadata.compacted_out and not payload else 0
            found |= IS_NULL if metadata.null_value else 0
            flags |= found
        sizes.append(found)
    return sizes, flags & (IS_REMOVED | IS_NULL)


def _check_count(body: bytes, count: int) -> None:
    if count * MIN_MESSAGE_BYTES > len(body):
        raise ProtocolError(f"batch body of {len(body)} bytes cannot hold {count} messages")


def _split_parsed(body: bytes, count: int) -> tuple[list[bytes], list[bytes]]:
    """Same as `split_rows`, but faster if that is not compiled."""
    parse = SingleMessageMetadata.FromString
    payloads: list[bytes] = []
    headers: list[bytes] = []
    offset, size = 0, len(body)
    try:
        for _ in range(count):
            start = offset + 4
            end = start + _unpack_size(body, offset)[0]
            header = body[start:end]
            payload_size = parse(header).payload_size
            if payload_size < 0:
                raise ProtocolError(f"message {len(payloads)} of a batch declares {payload_size} payload bytes")
            offset = end + payload_size
            payloads.append(body[end:offset])
            headers.append(header)
    except DecodeError as error:
        raise ProtocolError(f"metadata of message {len(payloads)} of a batch cannot be parsed: {error}") from error
    except StructError as error:
        raise ProtocolError(f"batch body of {size} bytes ends inside message {len(payloads)} of {count}") from error
    if offset != size:
        raise ProtocolError(f"the {count} messages of a batch take up {offset} bytes, but the batch has {size}")
    return payloads, headers


def decode_batch(body: bytes, count: int) -> tuple[list[bytes], list[SingleMessageMetadata]]:
    """Return the payloads and metadata of a batch of ``count`` messages.

    Equal metadata is one shared object, which must not be modified. A message removed by compaction keeps its index,
    with ``compacted_out`` set and an empty payload.

    Raises:
        ProtocolError: the body does not match its sizes, or metadata cannot be parsed.
    """
    payloads, headers = split_batch(body, count)
    shared: dict[bytes, SingleMessageMetadata] = {}
    parsed: list[SingleMessageMetadata] = []
    for encoded in headers.encoded:
        header = shared.get(encoded)
        if header is None:
            header = shared[encoded] = SingleMessageMetadata.FromString(encoded)
        parsed.append(header)
    return payloads, parsed


def uniform_rows(
    body: bytes, count: int, *, ignores_sequence_ids: bool = False
) -> tuple[int, SingleMessageMetadata] | None:
    """Return the payload offset within each row, and the shared metadata, of a batch with uniform metadata.

    The body of such a batch is a table of ``count`` rows of equal width, so its header columns can be compared as
    strided slices, without a Python step per message. Returns None if the batch is not uniform, or if the comparison
    would not pay off.

    Args:
        body: batch body.
        count: number of messages.
        ignores_sequence_ids: whether metadata that differs only in the sequence id counts as equal. The returned
            metadata has the id of the first message.
    """
    width, rest = divmod(len(body), count) if count > 1 else (0, 1)
    header_end = 4 + int(_unpack_size(body, 0)[0]) if rest == 0 else 0
    if rest or header_end > min(width, _MAX_UNIFORM_HEADER_BYTES):
        return None
    same_until = header_end
    if ignores_sequence_ids:
        same_until -= _sequence_id_bytes(body[4:header_end])
        # Every varint must end where the first one does: only its last byte is below 128.
        if any(min(body[column::width]) < 128 for column in range(same_until, header_end - 1)):
            return None
        if same_until < header_end and max(body[header_end - 1 :: width]) > 127:
            return None
    if any(body[column::width] != body[column : column + 1] * count for column in range(same_until)):
        return None
    try:
        header = SingleMessageMetadata.FromString(body[4:header_end])
    except DecodeError:
        return None
    if header.payload_size != width - header_end:
        return None
    return header_end, header


def _sequence_id_bytes(header: bytes) -> int:
    """Return the size of the sequence id at the end of metadata, or 0 if the metadata does not end with one."""
    try:
        metadata = SingleMessageMetadata.FromString(header)
    except DecodeError:
        return 0
    number = varint(metadata.sequence_id) if metadata.HasField("sequence_id") else b""
    return len(number) if number and header.endswith(_SEQUENCE_ID_TAG + number) else 0


def _uniform_payloads(body: bytes, count: int, start: int) -> list[bytes]:
    width = len(body) // count
    return [body[row + start : row + width] for row in range(0, len(body), width)]


def header_text(value: str | bytes) -> str:
    """Return a header's string. Invalid UTF-8, which protobuf returns as bytes, is replaced.

    Brokers check the metadata of entries, but not the headers inside batches, so any client may send such strings.
    """
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
