"""Cursor state for the catalogue, captured on the loop lane and encoded on the background lane.

Design: the loop lane captures the state, and the background lane encodes it. A capture copies the cursor's state of
each ledger (at most one bit per entry, and references to the ack sets) unless the last image of that ledger is still up
to date. Images cache their encoding, so millions of unchanged holes cost the loop nothing.

A cursor is stored in the catalogue as a JSON object. ``acked`` contains a compressed bitmap per ledger, and ``parts``
the partly acknowledged entries per ledger, compressed: entry ids, the number of words of each ack set, and all words.
Catalogues older than ``parts`` contain the same data in ``partly``, as lists.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from ....wire.ack_set import AckSet

_HEAD = struct.Struct("<II")  # number of entries, total number of words


class Image:
    """A captured state, which is encoded once, on the background lane.

    Args:
        encode: returns the encoded bytes; called at most once, then released.
    """

    __slots__ = ("_encode", "_encoded")

    def __init__(self, encode: Callable[[], bytes]) -> None:
        self._encode: Callable[[], bytes] | None = encode
        self._encoded = b""

    def encode(self) -> bytes:
        """Return the encoded state."""
        if self._encode is not None:
            self._encoded = self._encode()
            self._encode = None
        return self._encoded


def encode_ledger(ledger_id: int, state: bytes | dict[int, AckSet]) -> bytes:
    """Return the JSON member with a cursor's state in a ledger."""
    plain = state if isinstance(state, bytes) else _pack_parts(state)
    return b'"%d":"%s"' % (ledger_id, base64.b64encode(zlib.compress(plain, 1)))


def encode_cursor(head: Mapping[str, Any], acked: Sequence[Image], parts: Sequence[Image]) -> bytes:
    """Return the JSON object of a cursor, including its state in each ledger."""
    acked_members, parts_members = (b",".join([each.encode() for each in images]) for images in (acked, parts))
    return encode_head(head) + b',"acked":{' + acked_members + b'},"parts":{' + parts_members + b"}}"


def encode_head(head: Mapping[str, Any]) -> bytes:
    """Return the JSON object of ``head`` without its closing brace, so that members can be added."""
    return json.dumps(head, separators=(",", ":")).encode()[:-1]


def acked_in(state: Mapping[str, Any]) -> Iterator[tuple[int, bytearray]]:
    """Yield the id of each ledger with its bitmap of acknowledged entries, from a cursor's state in the catalogue."""
    for ledger, packed in state["acked"].items():
        yield int(ledger), bytearray(zlib.decompress(base64.b64decode(packed)))


def parts_in(state: Mapping[str, Any]) -> Iterator[tuple[int, dict[int, AckSet]]]:
    """Yield the id of each ledger with its ack sets by entry id, from a cursor's state in the catalogue."""
    old: dict[int, dict[int, AckSet]] = {}
    for ledger_id, entry_id, words in state.get("partly", ()):
        old.setdefault(ledger_id, {})[entry_id] = tuple(words)
    yield from old.items()
    for ledger, packed in state.get("parts", {}).items():
        yield int(ledger), _unpack_parts(zlib.decompress(base64.b64decode(packed)))


def _pack_parts(parts: Mapping[int, AckSet]) -> bytes:
    counts = [len(words) for words in parts.values()]
    numbers = [*parts, *chain.from_iterable(parts.values())]
    return _HEAD.pack(len(parts), sum(counts)) + struct.pack(f"<{len(counts)}I{len(numbers)}q", *counts, *numbers)


def _unpack_parts(packed: bytes) -> dict[int, AckSet]:
    entries, words = _HEAD.unpack_from(packed)
    numbers = struct.unpack_from(f"<{entries}I{entries + words}q", packed, _HEAD.size)
    parts = {}
    start = 2 * entries
    for count, entry_id in zip(numbers[:entries], numbers[entries : 2 * entries], strict=True):
        parts[entry_id] = numbers[start : start + count]
        start += count
    return parts
