"""Chunk routing in shared subscriptions: all chunks of a message go to the consumer that received the first one.

A message is tracked by its uuid until its last chunk is dispatched or its consumer leaves. The number of tracked
messages is limited; chunks of untracked messages go to any consumer, and the consumers request redelivery.

Source: Pulsar binary protocol, section Chunked messages (Shared dispatch).
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from ...errors import ProtocolError
from ...wire.payload import open_payload

C = TypeVar("C")

MAX_MESSAGES = 10_000
"""Maximum number of partly dispatched chunked messages tracked per subscription."""

_CHECKSUM = b"\x0e\x01"
_NUM_CHUNKS_TAG = b"\xd8\x01"


class Chunk(NamedTuple):
    """A chunk: the uuid of its message, and whether it is the first or the last chunk."""

    uuid: str
    is_first: bool
    is_last: bool


def chunk_of(payload: bytes) -> Chunk | None:
    """Return the chunk of an entry, or None for a whole message or a batch.

    Args:
        payload: payload section of the entry.
    """
    # Search for the field's tag before parsing, because very few entries have it.
    if payload.find(_NUM_CHUNKS_TAG, 10, 10 + int.from_bytes(payload[6:10], "big")) < 0 and payload[:2] == _CHECKSUM:
        return None
    try:
        metadata, _ = open_payload(payload)
    except ProtocolError:
        return None
    count, number = metadata.num_chunks_from_msg, metadata.chunk_id
    return Chunk(metadata.uuid, number == 0, number >= count - 1) if count > 1 and metadata.uuid else None


class ChunkOwners(Generic[C]):
    """Maps partly dispatched chunked messages to their consumers.

    Attributes:
        elder: consumer that was the only one before others joined. It receives the remaining chunks of messages without
            a tracked owner.
    """

    def __init__(self) -> None:
        self._owners: dict[str, C] = {}
        self.elder: C | None = None

    def __len__(self) -> int:
        return len(self._owners)

    def owner(self, payload: bytes) -> C | None:
        """Return the consumer that must receive an entry, or None if any consumer may receive it."""
        chunk = chunk_of(payload)
        return None if chunk is None else self._owner(chunk)

    def _owner(self, chunk: Chunk) -> C | None:
        owner = self._owners.get(chunk.uuid)
        return self.elder if owner is None and not chunk.is_first else owner

    def give(self, payload: bytes, consumer: C) -> bool:
        """Assign an entry to a consumer; return False if another consumer must receive it."""
        chunk = chunk_of(payload)
        if chunk is None:
            return True
        if self._owner(chunk) not in (None, consumer):
            return False
        if chunk.is_last:
            self._owners.pop(chunk.uuid, None)
        else:
            self._owners[chunk.uuid] = consumer
            if len(self._owners) > MAX_MESSAGES:
                del self._owners[next(iter(self._owners))]
        return True

    def remove(self, consumer: C) -> None:
        """Remove a consumer and the messages assigned to it."""
        if self.elder is consumer:
            self.elder = None
        if self._owners:
            self._owners = {uuid: owner for uuid, owner in self._owners.items() if owner is not consumer}

    def clear(self) -> None:
        """Forget all messages, because the subscription is rewound."""
        self._owners.clear()
        self.elder = None
