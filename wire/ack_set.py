"""Ack sets: which messages of a batch are still wanted (bit 1) and which are acknowledged (bit 0).

On the wire a set is a list of signed 64-bit words, bit ``i % 64`` of word ``i // 64`` standing for message i; trailing
zero words are left out. Here a set is a tuple of such words; the empty tuple means that everything is acknowledged.

Source: Pulsar binary protocol, section Acking inside a batch.
"""

from __future__ import annotations

from collections.abc import Iterable

AckSet = tuple[int, ...]

_MASK = (1 << 64) - 1
_SIGN = 1 << 63


def _to_int(words: Iterable[int]) -> int:
    bits = 0
    for position, word in enumerate(words):
        bits |= (word & _MASK) << (64 * position)
    return bits


def _to_words(bits: int) -> AckSet:
    words = []
    while bits:
        word = bits & _MASK
        words.append(word - (1 << 64) if word & _SIGN else word)
        bits >>= 64
    return tuple(words)


def full(size: int) -> AckSet:
    """Return the set of a batch of ``size`` messages of which none is acknowledged."""
    return _to_words((1 << size) - 1)


def from_wanted(indexes: Iterable[int]) -> AckSet:
    """Return the set in which only ``indexes`` are still wanted."""
    bits = 0
    for index in indexes:
        bits |= 1 << index
    return _to_words(bits)


def clear(words: AckSet, index: int) -> AckSet:
    """Return the set with message ``index`` acknowledged."""
    return _to_words(_to_int(words) & ~(1 << index))


def intersect(first: Iterable[int], second: Iterable[int]) -> AckSet:
    """Return what both sets still want: the result of acknowledging by both."""
    return _to_words(_to_int(first) & _to_int(second))


def is_empty(words: Iterable[int]) -> bool:
    """Return whether everything is acknowledged."""
    return not any(words)


def count(words: Iterable[int]) -> int:
    """Return how many messages are still wanted."""
    return _to_int(words).bit_count()


def is_set(words: AckSet, index: int) -> bool:
    """Return whether message ``index`` is still wanted."""
    return index // 64 < len(words) and bool(words[index // 64] >> (index % 64) & 1)


def wanted(words: AckSet) -> list[int]:
    """Return the indexes that are still wanted, ascending."""
    bits = _to_int(words)
    return [index for index in range(bits.bit_length()) if bits >> index & 1]
