"""The protocol's four compression types, in the raw formats that clients exchange.

LZ4 is a bare block without a size prefix, Snappy the raw format, ZSTD a frame, and ZLIB a stream whose end may be
missing, as Java clients only flush it. All are implemented in native code (cramjam, and the standard library's zlib).

Source: Pulsar binary protocol, section Compression.
"""

from __future__ import annotations

import zlib

import cramjam

from ..errors import ProtocolError
from .pulsar_api_pb2 import LZ4, NONE, SNAPPY, ZLIB, ZSTD

ZSTD_LEVEL = 3
NAMES: dict[str, int] = {"NONE": NONE, "LZ4": LZ4, "ZLIB": ZLIB, "ZSTD": ZSTD, "SNAPPY": SNAPPY}
"""Compression types by their names in configuration files."""


def compress(kind: int, data: bytes) -> bytes:
    """Compress ``data``; ``kind`` is a CompressionType.

    Raises:
        ProtocolError: ``kind`` is not a CompressionType.
    """
    match kind:
        case 0:
            return data
        case 1:
            return bytes(cramjam.lz4.compress_block(data, store_size=False))
        case 2:
            return zlib.compress(data)
        case 3:
            return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))
        case 4:
            return bytes(cramjam.snappy.compress_raw(data))
    raise ProtocolError(f"unknown compression type {kind}: expected one of {sorted(NAMES.values())}")


def decompress(kind: int, data: bytes, uncompressed_bytes: int, max_bytes: int) -> bytes:
    """Decompress ``data`` without allocating more than the declared size.

    Args:
        kind: CompressionType.
        data: compressed bytes.
        uncompressed_bytes: size declared in the metadata.
        max_bytes: maximum declared size.

    Raises:
        ProtocolError: the kind is unknown, the declared size is wrong or above the limit, or the data is damaged.
    """
    if kind == NONE:
        return data
    if uncompressed_bytes > max_bytes:
        raise ProtocolError(f"uncompressed size of {uncompressed_bytes} bytes exceeds the limit of {max_bytes}")
    try:
        result = _expand(kind, data, uncompressed_bytes)
    except (cramjam.DecompressionError, zlib.error, ValueError, OverflowError) as error:
        raise ProtocolError(f"{len(data)} compressed bytes (type {kind}) cannot be decompressed: {error}") from error
    if len(result) != uncompressed_bytes:
        raise ProtocolError(f"decompressed to {len(result)} bytes, but the declared size is {uncompressed_bytes}")
    return result


def _expand(kind: int, data: bytes, uncompressed_bytes: int) -> bytes:
    # Each branch decompresses into a buffer of the declared size, so that a hostile frame cannot exhaust memory.
    match kind:
        case 1:
            output = bytearray(uncompressed_bytes)
            return bytes(output[: cramjam.lz4.decompress_block_into(data, output)])
        case 2:
            return zlib.decompressobj().decompress(data, uncompressed_bytes + 1)
        case 3:
            output = bytearray(uncompressed_bytes)
            return bytes(output[: cramjam.zstd.decompress_into(data, output)])
        case 4:
            if cramjam.snappy.decompress_raw_len(data) != uncompressed_bytes:
                raise ValueError("the size in the data differs from the declared size")
            return bytes(cramjam.snappy.decompress_raw(data))
    raise ProtocolError(f"unknown compression type {kind}: expected one of {sorted(NAMES.values())}")
