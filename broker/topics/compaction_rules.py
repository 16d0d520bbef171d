"""Compaction rules: keep the last message of each key, unless it is a tombstone. Pure logic.

The whole topic is read twice. In the first pass, `Latest` receives every entry and determines the messages to keep,
each identified by the number of its entry in the pass and its index in the batch. In the second pass, `Survivors`
selects these messages. Keys are stored as 16-byte hashes, so memory depends on the number of keys but not on their
length. If there are too many keys, they are divided into parts, and the first pass runs once for each part.

Source: Pulsar binary protocol, section Metadata (compacted_out, null_value).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

from ...errors import MagnetarError, ProtocolError
from ...wire.batch import decode_batch, encode_batch
from ...wire.compression import compress, decompress
from ...wire.message_properties import KEPT_TOMBSTONE
from ...wire.payload import open_payload, seal
from ...wire.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

_INDEX_BITS = 24
_WHOLE = (1 << _INDEX_BITS) - 1
"""Batch index that stands for the whole entry; no batch that fits into a frame has this many messages."""
MAX_UNFINISHED = 10_000
"""Maximum number of incomplete chunked messages; above it, the chunks of the oldest message are kept."""


class TooManyKeys(MagnetarError):
    """There are more keys than allowed in memory, so the pass is repeated with more parts."""


class Keyed(NamedTuple):
    """A message: its index in the entry, its key, and whether it removes the key."""

    place: int
    key: str
    is_empty: bool


class Latest:
    """Finds the last message of each key, for one part of the keys.

    Args:
        part: index of the part, from 0 to ``parts`` - 1.
        parts: number of parts.
        max_keys: maximum number of keys in memory.
        max_bytes: maximum size of an uncompressed batch.
    """

    def __init__(self, part: int, parts: int, max_keys: int, max_bytes: int) -> None:
        self._part = part
        self._parts = parts
        self._max_keys = max_keys
        self._max_bytes = max_bytes
        self._last: dict[bytes, int | array[int]] = {}
        self._whole = array("Q")
        self._chunks: dict[bytes, array[int]] = {}
        self._entries = 0
        self.messages = 0

    def feed(self, payloads: Iterable[bytes]) -> None:
        """Process the next entries of the pass.

        Raises:
            TooManyKeys: there are more than ``max_keys`` keys.
        """
        for payload in payloads:
            self._take(payload, self._entries << _INDEX_BITS)
            self._entries += 1
        if len(self._last) > self._max_keys:
            raise TooManyKeys(f"more than {self._max_keys} keys in part {self._part} of {self._parts}")

    def _take(self, payload: bytes, entry: int) -> None:
        try:
            metadata, body = open_payload(payload)
            if metadata.num_chunks_from_msg > 1:
                self._take_chunk(metadata, entry)
                return
            keyed = _keyed(metadata, payload, body, self._max_bytes)
        except ProtocolError:
            # The entry is encrypted or malformed. Its keys are unknown, so it is kept unchanged.
            self.messages += 1
            if self._part == 0:
                self._whole.append(entry | _WHOLE)
            return
        self.messages += metadata.num_messages_in_batch
        for place, key, is_empty in keyed:
            if (digest := self._digest(key)) is None:
                continue
            if is_empty:
                self._last.pop(digest, None)
            else:
                self._last[digest] = entry | place

    def _take_chunk(self, metadata: MessageMetadata, entry: int) -> None:
        """Process a chunk; the chunks of a message are kept or removed together, once the last one is found."""
        digest = self._digest(metadata.partition_key) if metadata.HasField("partition_key") else None
        is_last = metadata.chunk_id == metadata.num_chunks_from_msg - 1
        self.messages += is_last
        if digest is None:
            return
        message = blake2b(metadata.uuid.encode(), digest_size=16).digest()
        if len(self._chunks) >= MAX_UNFINISHED and message not in self._chunks:
            self._whole.extend(self._chunks.pop(next(iter(self._chunks))))
        self._chunks.setdefault(message, array("Q")).append(entry | _WHOLE)
        if is_last:
            self._last[digest] = self._chunks.pop(message)

    def _digest(self, key: str | bytes) -> bytes | None:
        """Return the hash of a key, or None if it belongs to another part.

        The key of a message in a batch is bytes if it is not valid UTF-8, since the broker does not validate batches.
        """
        digest = blake2b(key if isinstance(key, bytes) else key.encode(), digest_size=16).digest()
        return digest if self._parts == 1 or digest[0] % self._parts == self._part else None

    def survivors(self) -> array[int]:
        """Return the places of the messages to keep, in any order."""
        found = array("Q", self._whole)
        # A message whose last chunk comes after the end of the pass must remain complete for later readers.
        for places in [*self._last.values(), *self._chunks.values()]:
            if isinstance(places, int):
                found.append(places)
            else:
                found.extend(places)
        return found


def _keyed(metadata: MessageMetadata, payload: bytes, body: int, max_bytes: int) -> list[Keyed]:
    """Return the messages that have a key.

    A message is a tombstone, which removes its key, if its payload is empty or it has no value. `uncompressed_size` is
    used if set, because encryption lengthens empty payloads. Apache Pulsar up to 4.0.7 keeps unbatched messages without
    that field. Unbatched tombstones with the property `KEPT_TOMBSTONE` are kept, for readers that were disconnected
    when the key was deleted.

    Raises:
        ProtocolError: the batch cannot be parsed.
    """
    if not metadata.HasField("num_messages_in_batch"):
        if not metadata.HasField("partition_key"):
            return []
        size = metadata.uncompressed_size if metadata.HasField("uncompressed_size") else len(payload) - body
        is_tombstone = metadata.null_value or not size
        is_kept = is_tombstone and any(one.key == KEPT_TOMBSTONE for one in metadata.properties)
        return [Keyed(_WHOLE, metadata.partition_key, is_tombstone and not is_kept)]
    _, heads = _opened_batch(metadata, payload[body:], max_bytes)
    return [
        Keyed(index, head.partition_key, head.null_value or not head.payload_size)
        for index, head in enumerate(heads)
        if head.HasField("partition_key") and not head.compacted_out
    ]


def _opened_batch(
    metadata: MessageMetadata, body: bytes, max_bytes: int
) -> tuple[list[bytes], list[SingleMessageMetadata]]:
    if metadata.encryption_keys:
        raise ProtocolError("cannot parse an encrypted batch")
    if metadata.num_messages_in_batch >= _WHOLE:
        raise ProtocolError(f"too many messages in a batch: {metadata.num_messages_in_batch}")
    plain = decompress(metadata.compression, body, metadata.uncompressed_size, max_bytes)
    return decode_batch(plain, metadata.num_messages_in_batch)


class Kept(NamedTuple):
    """An entry of the compacted view.

    Attributes:
        number: number of the entry in the pass.
        payload: payload as received, or with placeholders for removed messages.
        publish_time_ms: publish time of the entry.
    """

    number: int
    payload: bytes
    publish_time_ms: int


class Survivors:
    """Selects the messages to keep in the second pass.

    Args:
        places: sorted places of the messages to keep.
        max_bytes: maximum size of an uncompressed batch.
    """

    def __init__(self, places: array[int], max_bytes: int) -> None:
        self._places = places
        self._max_bytes = max_bytes
        self._next = 0

    def pick(self, first: int, payloads: Iterable[bytes]) -> list[Kept]:
        """Return the entries to keep; ``first`` is the number of the first entry in ``payloads``."""
        kept = []
        for number, payload in enumerate(payloads, first):
            end = bisect_left(self._places, (number + 1) << _INDEX_BITS, self._next)
            if end == self._next:
                continue
            indexes = {place & _WHOLE for place in self._places[self._next : end]}
            self._next = end
            kept.append(_kept(number, payload, indexes, self._max_bytes))
        return kept


def _kept(number: int, payload: bytes, indexes: set[int], max_bytes: int) -> Kept:
    if indexes == {_WHOLE}:
        try:
            publish_time_ms = open_payload(payload)[0].publish_time
        except ProtocolError:
            publish_time_ms = 0
        return Kept(number, payload, publish_time_ms)
    metadata, body = open_payload(payload)
    if len(indexes) < metadata.num_messages_in_batch:
        payload = _without_others(metadata, payload[body:], indexes, max_bytes)
    return Kept(number, payload, metadata.publish_time)


def _without_others(metadata: MessageMetadata, body: bytes, indexes: set[int], max_bytes: int) -> bytes:
    """Return a batch with the messages at these indexes, and empty placeholders for the others."""
    payloads, heads = _opened_batch(metadata, body, max_bytes)
    messages: list[tuple[SingleMessageMetadata | None, bytes]] = []
    for index, (payload, head) in enumerate(zip(payloads, heads, strict=True)):
        if index in indexes:
            own = SingleMessageMetadata()
            own.CopyFrom(head)  # the heads returned by `decode_batch` are shared
            messages.append((own, payload))
        else:
            messages.append((SingleMessageMetadata(compacted_out=True), b""))
    plain = encode_batch(messages)
    changed = MessageMetadata()
    changed.CopyFrom(metadata)
    changed.uncompressed_size = len(plain)
    return seal(changed, compress(changed.compression, plain))


def last_batch_index(payload: bytes, max_bytes: int) -> int:
    """Return the index of the last message in a batch that compaction has kept, or -1 for an unbatched message."""
    metadata, body = open_payload(payload)
    if not metadata.HasField("num_messages_in_batch"):
        return -1
    try:
        _, heads = _opened_batch(metadata, payload[body:], max_bytes)
    except ProtocolError:
        return metadata.num_messages_in_batch - 1
    left = (index for index in range(len(heads) - 1, -1, -1) if not heads[index].compacted_out)
    return next(left, len(heads) - 1)
