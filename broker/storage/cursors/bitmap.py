"""Bitmaps of ledger entries, stored in a bytearray; searches and counts process whole bytes.

Bits beyond the end of a bitmap count as 0.
"""

from __future__ import annotations


def is_one(bits: bytearray, index: int) -> bool:
    """Return whether the bit at ``index`` is 1."""
    return index >> 3 < len(bits) and bool(bits[index >> 3] >> (index & 7) & 1)


def first_zero(bits: bytearray, start: int) -> int:
    """Return the index of the first 0 bit at or after ``start``."""
    index = start >> 3
    if index >= len(bits):
        return start
    byte = bits[index] | ((1 << (start & 7)) - 1)
    while byte == 0xFF:
        index += 1
        if index == len(bits):
            return index << 3
        byte = bits[index]
    return (index << 3) + ((~byte & (byte + 1)).bit_length() - 1)


def first_one(bits: bytearray, start: int) -> int | None:
    """Return the index of the first 1 bit at or after ``start``, or None."""
    index = start >> 3
    if index >= len(bits):
        return None
    byte = bits[index] & ~((1 << (start & 7)) - 1)
    while not byte:
        index += 1
        if index == len(bits):
            return None
        byte = bits[index]
    return (index << 3) + ((byte & -byte).bit_length() - 1)


def count(bits: bytearray, start: int, end: int | None = None) -> int:
    """Count the 1 bits from ``start`` up to but excluding ``end``, or to the end of the bitmap."""
    return _part(bits, start, end).bit_count()


def count_runs(bits: bytearray, start: int) -> int:
    """Count the runs of 1 bits from ``start`` on."""
    part = _part(bits, start, None)
    return (part & ~(part << 1)).bit_count()


def _part(bits: bytearray, start: int, end: int | None) -> int:
    start = max(start, 0)
    last_byte = len(bits) if end is None else (end + 7) >> 3
    part = int.from_bytes(bits[start >> 3 : last_byte], "little") >> (start & 7)
    if end is not None:
        part &= (1 << max(end - start, 0)) - 1
    return part
