"""Ack sets: which messages of a batch are unacknowledged (bit 1) and which are acknowledged (bit 0).

On the wire a set is a list of signed 64-bit words, in which bit ``i % 64`` of word ``i // 64`` is for message i;
trailing zero words are omitted. Here a set is a tuple of such words. An empty tuple means that everything is
acknowledged.

Every function is linear in the number of words, because untrusted peers send thousands at a time.

Source: Pulsar binary protocol, section Acking inside a batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

AckSet = tuple[int, ...]

WORD_BITS = 64
_MASK = (1 << WORD_BITS) - 1


def _to_int(words: Iterable[int]) -> int:
    unsigned = [word & _MASK for word in words]
    return int.from_bytes(struct.pack(f"<{len(unsigned)}Q", *unsigned), "little")


def _to_words(bits: int) -> AckSet:
    count = words_for(bits.bit_length())
    return struct.unpack(f"<{count}q", bits.to_bytes(count * 8, "little"))


def words_for(messages: int) -> int:
    """Return the maximum number of words in the ack set of a batch with ``messages`` messages."""
    return -(-messages // WORD_BITS)


def from_wanted(indexes: Iterable[int]) -> AckSet:
    """Return the set in which only ``indexes`` are unacknowledged."""
    words: dict[int, int] = {}
    for index in indexes:
        words[index // WORD_BITS] = words.get(index // WORD_BITS, 0) | 1 << index % WORD_BITS
    return _to_words(_to_int(words.get(number, 0) for number in range(max(words, default=-1) + 1)))


def intersect(first: Iterable[int], second: Iterable[int]) -> AckSet:
    """Return the messages that are unacknowledged in both sets: the result of applying both acknowledgements."""
    return _to_words(_to_int(first) & _to_int(second))


def cut(words: Sequence[int], messages: int) -> AckSet:
    """Return a set truncated to the words of a batch of ``messages`` messages, without examining the rest."""
    return _to_words(_to_int(words[: max(words_for(messages), 1)]))


def count(words: Iterable[int]) -> int:
    """Return the number of unacknowledged messages."""
    return _to_int(words).bit_count()


def wanted(words: AckSet) -> list[int]:
    """Return the unacknowledged indexes in ascending order."""
    digits = bin(_to_int(words))[:1:-1]  # lowest bit first
    return [index for index, digit in enumerate(digits) if digit == "1"]
