"""Puts messages together that were sent in chunks, each chunk an entry of its own. No I/O.

Design: a message belongs to the range that holds its last chunk. The reader of that range has seen the earlier chunks
or goes back for them, so that a message is read once wherever ranges are cut, and is never waited for. What
the chunks of a message that was never finished take up is bounded: the oldest is forgotten, and gone back for should it
be needed.
"""

from __future__ import annotations

from ...errors import ProtocolError
from ...wire.pulsar_api_pb2 import MessageMetadata

MAX_OPEN_MESSAGES = 100
MAX_MESSAGE_BYTES = 512 * 1024 * 1024
"""Largest message that is put together or decompressed. The broker's limit says nothing of either."""


def is_chunk(metadata: MessageMetadata) -> bool:
    """Return whether an entry is one of several chunks of a message."""
    return metadata.num_chunks_from_msg > 1


class ChunkStore:
    """The chunks of messages whose last one has not come yet."""

    def __init__(self) -> None:
        self._open: dict[str, dict[int, bytes]] = {}

    def add(self, metadata: MessageMetadata, body: bytes) -> bool:
        """Store a chunk; return whether it has the last number of its message.

        Raises:
            ProtocolError: its number is impossible, or the message is too large.
        """
        total = metadata.num_chunks_from_msg
        if not 0 <= metadata.chunk_id < total or metadata.total_chunk_msg_size > MAX_MESSAGE_BYTES:
            raise ProtocolError(
                f"chunk {metadata.chunk_id} of {total} of a message of {metadata.total_chunk_msg_size} bytes cannot be"
                f" read; the limit is {MAX_MESSAGE_BYTES} bytes"
            )
        chunks = self._open.setdefault(metadata.uuid, {})
        chunks[metadata.chunk_id] = body  # a chunk that was sent twice is the same both times
        if len(self._open) > MAX_OPEN_MESSAGES:
            del self._open[next(iter(self._open))]
        return metadata.chunk_id == total - 1

    def missing(self, metadata: MessageMetadata) -> int:
        """Return how many chunks of a message are not there."""
        return metadata.num_chunks_from_msg - len(self._open.get(metadata.uuid, ()))

    def take(self, metadata: MessageMetadata) -> bytes:
        """Return the whole message of a chunk, all of which are there.

        Raises:
            ProtocolError: they are not as long together as was announced.
        """
        chunks = self._open.pop(metadata.uuid)
        body = b"".join(chunks[index] for index in range(metadata.num_chunks_from_msg))
        if metadata.total_chunk_msg_size and len(body) != metadata.total_chunk_msg_size:
            raise ProtocolError(
                f"{len(chunks)} chunks have {len(body)} bytes together, announced were {metadata.total_chunk_msg_size}"
            )
        return body

    def forget(self, metadata: MessageMetadata) -> None:
        """Drop the chunks of a message that cannot be completed."""
        self._open.pop(metadata.uuid, None)
