"""A cursor's state for the catalogue: captured in little time, encoded elsewhere, and only where it changed.

Design: the loop lane captures, the background lane encodes. A capture copies what one ledger has of the cursor (at most
a bit an entry, and references to the ack sets) unless the last image of that ledger still holds; an image keeps what
it was encoded to. So millions of holes cost the loop nothing while they stay as they are.

Format of a cursor in the catalogue: JSON, with ``acked`` (bitmaps by ledger, compressed) and ``parts`` (entries
acknowledged in part by ledger: their numbers, how many words each ack set has, all words; compressed). Catalogues
written before ``parts`` have the same in ``partly``, as lists.
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

_HEAD = struct.Struct("<II")  # entries, words of all of them


class Image:
    """A state at one moment; the background lane encodes it, once.

    Args:
        encode: returns the bytes; dropped with all it holds once it was called.
    """

    __slots__ = ("_encode", "_encoded")

    def __init__(self, encode: Callable[[], bytes]) -> None:
        self._encode: Callable[[], bytes] | None = encode
        self._encoded = b""

    def encode(self) -> bytes:
        """Return the state's bytes."""
        if self._encode is not None:
            self._encoded = self._encode()
            self._encode = None
        return self._encoded


def encode_ledger(ledger_id: int, state: bytes | dict[int, AckSet]) -> bytes:
    """Return the member of a JSON object that tells the state of a cursor in one ledger."""
    plain = state if isinstance(state, bytes) else _pack_parts(state)
    return b'"%d":"%s"' % (ledger_id, base64.b64encode(zlib.compress(plain, 1)))


def encode_cursor(head: Mapping[str, Any], acked: Sequence[Image], parts: Sequence[Image]) -> bytes:
    """Return the JSON object of a cursor with the states of its ledgers."""
    acked_members, parts_members = (b",".join([each.encode() for each in images]) for images in (acked, parts))
    return encode_head(head) + b',"acked":{' + acked_members + b'},"parts":{' + parts_members + b"}}"


def encode_head(head: Mapping[str, Any]) -> bytes:
    """Return the JSON object of ``head`` without its end, for more members to follow."""
    return json.dumps(head, separators=(",", ":")).encode()[:-1]


def acked_in(state: Mapping[str, Any]) -> Iterator[tuple[int, bytearray]]:
    """Yield ledger and bitmap of the entries that a cursor in the catalogue has acknowledged above its mark."""
    for ledger, packed in state["acked"].items():
        yield int(ledger), bytearray(zlib.decompress(base64.b64decode(packed)))


def parts_in(state: Mapping[str, Any]) -> Iterator[tuple[int, dict[int, AckSet]]]:
    """Yield ledger and ack sets by entry of what a cursor in the catalogue has acknowledged in part."""
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
