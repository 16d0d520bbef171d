"""The body of a batch: ``[u32 size][SingleMessageMetadata][payload]`` for each message, one behind the other.

Design: a Python object per message is what makes batches slow, so metadata objects are shared. Messages of one batch
mostly have equal metadata bytes (no key, payloads of equal length); each distinct byte string is parsed once and the
object handed out again. Nobody may change what `decode_batch` returns. Encoding caches the header of plain messages by
payload length for the same reason. Both caches are per process, bounded, and hold only derived values.

Source: Pulsar binary protocol, section Batch messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from struct import error as StructError

from google.protobuf.message import DecodeError

from ..errors import ProtocolError
from .bulk import varint
from .pulsar_api_pb2 import SingleMessageMetadata

_U32 = Struct(">I")
_MAX_UNIFORM_HEADER_BYTES = 64  # above it comparing columns costs more than comparing rows
_SEQUENCE_ID_TAG = b"\x40"
MIN_MESSAGE_BYTES = 6
"""Bytes of the smallest message inside a batch: size field, and payload_size with its tag, which is required."""
_CACHED_HEADERS = 4096
_MAX_CACHED_BYTES = 512  # of one header, so that all that are kept take a few MiB
_unpack_size = _U32.unpack_from


def _parse_header(header: bytes) -> SingleMessageMetadata:
    # Long ones are not kept: a cache that counts entries must hold small ones only.
    return _parse_short(header) if len(header) <= _MAX_CACHED_BYTES else SingleMessageMetadata.FromString(header)


@lru_cache(maxsize=_CACHED_HEADERS)
def _parse_short(header: bytes) -> SingleMessageMetadata:
    return SingleMessageMetadata.FromString(header)


@lru_cache(maxsize=_CACHED_HEADERS)
def _plain_header(payload_bytes: int) -> bytes:
    """Return size field and metadata of a message that has nothing but its payload."""
    header = SingleMessageMetadata(payload_size=payload_bytes).SerializeToString()
    return _U32.pack(len(header)) + header


def encode_plain_batch(payloads: Sequence[bytes]) -> bytes:
    """Return the body of a batch of messages without key, properties or event time."""
    header = _plain_header
    lengths = set(map(len, payloads))
    if len(lengths) == 1:
        # Payloads of one length have one header: the commonest batch is a single join.
        between = header(lengths.pop())
        return between + between.join(payloads)
    parts: list[bytes] = []
    for payload in payloads:
        parts += (header(len(payload)), payload)
    return b"".join(parts)


def encode_batch(messages: Sequence[tuple[SingleMessageMetadata | None, bytes]]) -> bytes:
    """Return the body of a batch.

    Args:
        messages: metadata and payload of each; the metadata's ``payload_size`` is set here, None means plain. Messages
            that follow each other and have equal metadata may share one object, which is faster.
    """
    parts: list[bytes] = []
    last: SingleMessageMetadata | None = None
    headers: dict[int, bytes] = {}  # of the last metadata, by the size of the payload
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


def decode_batch(body: bytes, count: int) -> tuple[list[bytes], list[SingleMessageMetadata]]:
    """Return the payloads and the metadata of a batch of ``count`` messages.

    Equal metadata is one shared object: never change it. A message that compaction removed keeps its place with
    ``compacted_out`` set and an empty payload.

    Raises:
        ProtocolError: the body is shorter or longer than its sizes say, or metadata cannot be parsed.
    """
    size = len(body)
    if count * MIN_MESSAGE_BYTES > size:
        raise ProtocolError(f"batch body of {size} bytes cannot hold {count} messages")
    uniform = _decode_uniform(body, count)
    if uniform is not None:
        return uniform
    payloads: list[bytes] = []
    headers: list[SingleMessageMetadata] = []
    offset = 0
    # Consecutive messages mostly have the same metadata: compare before asking the cache.
    last_bytes, last_header, last_size = b"", None, 0
    try:
        for _ in range(count):
            start = offset + 4
            end = start + _unpack_size(body, offset)[0]
            header_bytes = body[start:end]
            if header_bytes != last_bytes or last_header is None:
                last_header = _parse_header(header_bytes)
                last_bytes = header_bytes
                last_size = last_header.payload_size
                if last_size < 0:
                    raise ProtocolError(f"message {len(payloads)} of a batch announces {last_size} bytes of payload")
            offset = end + last_size
            payloads.append(body[end:offset])
            headers.append(last_header)
    except DecodeError as error:
        raise ProtocolError(f"metadata of message {len(payloads)} of a batch cannot be parsed: {error}") from error
    except StructError as error:
        raise ProtocolError(f"batch body of {size} bytes ends inside message {len(payloads)} of {count}") from error
    if offset != size:
        raise ProtocolError(f"batch of {count} messages takes {offset} of its {size} bytes")
    return payloads, headers


def uniform_rows(
    body: bytes, count: int, *, ignores_sequence_ids: bool = False
) -> tuple[int, SingleMessageMetadata] | None:
    """Return where the payload begins in each row of a batch whose rows all have the same metadata, and that metadata.

    Such a body is a table of ``count`` rows of one width, so its header columns can be compared as strided slices,
    without a step of Python per message. None if it is none, or none that is worth the comparison.

    Args:
        body: of the batch.
        count: of its messages.
        ignores_sequence_ids: messages that differ in nothing else count as the same; the id in the metadata is then
            that of the first.
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
        header = _parse_header(body[4:header_end])
    except DecodeError:
        return None
    if header.payload_size != width - header_end:
        return None
    return header_end, header


def _sequence_id_bytes(header: bytes) -> int:
    """Return how many bytes at the end of metadata are the number of its sequence id, 0 if it does not end with one."""
    try:
        metadata = _parse_header(header)
    except DecodeError:
        return 0
    number = varint(metadata.sequence_id) if metadata.HasField("sequence_id") else b""
    return len(number) if number and header.endswith(_SEQUENCE_ID_TAG + number) else 0


def _decode_uniform(body: bytes, count: int) -> tuple[list[bytes], list[SingleMessageMetadata]] | None:
    """Return what `decode_batch` does if all messages have the same metadata, None if they do not."""
    rows = uniform_rows(body, count)
    if rows is None:
        return None
    start, header = rows
    width = len(body) // count
    return [body[row + start : row + width] for row in range(0, len(body), width)], [header] * count
