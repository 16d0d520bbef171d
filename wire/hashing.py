"""Hashes shared by clients and the broker, for key routing, Key_Shared slots and the Failover ring.

Source: Pulsar binary protocol, section Hash definitions; MurmurHash3 x86_32 with seed 0.
"""

from __future__ import annotations

from struct import unpack_from

from mmh3 import mmh3_32_uintdigest

_MASK_31 = 0x7FFFFFFF
_MASK_32 = 0xFFFFFFFF
_MASK_64 = 0xFFFFFFFFFFFFFFFF


def murmur3_32(data: bytes) -> int:
    """Return MurmurHash3 (x86, 32 bits, seed 0) without its sign bit: 0 to 2^31-1."""
    return mmh3_32_uintdigest(data) & _MASK_31


def java_string_hash(text: str) -> int:
    """Return Java's ``String.hashCode`` (over UTF-16 units) without its sign bit."""
    h = 0
    encoded = text.encode("utf-16-le", "surrogatepass")
    for unit in unpack_from(f"<{len(encoded) // 2}H", encoded):
        h = (31 * h + unit) & _MASK_32
    return h & _MASK_31


def boost_hash(data: bytes) -> int:
    """Return the BoostHash of the C++ and Python clients: 64-bit ``hash_combine`` over signed characters.

    Boost has changed its definition over time; this is the original one on 64-bit platforms. Use Murmur3 or
    JavaStringHash if clients in several languages must agree on partitions.
    """
    seed = 0
    for byte in data:
        value = byte - 256 if byte > 127 else byte
        seed ^= (value + 0x9E3779B9 + (seed << 6) + (seed >> 2)) & _MASK_64
        seed &= _MASK_64
    return seed & _MASK_31
