"""Assembles messages sent in chunks, where each chunk is a separate entry. No I/O.

Design: a message belongs to the range that contains its last chunk. The reader of that range has either seen the
earlier chunks or goes back to read them, so each message is read once, regardless of how ranges are split, and no
reader has to wait for one. Memory for chunks of incomplete messages is limited: the oldest chunks are dropped, and
reread if needed.
"""

from __future__ import annotations

from ...errors import ProtocolError
from ...wire.pulsar_api_pb2 import MessageMetadata

MAX_OPEN_MESSAGES = 100
MAX_MESSAGE_BYTES = 512 * 1024 * 1024
"""Maximum size of an assembled or decompressed message; the broker's limit applies to neither."""


def is_chunk(metadata: MessageMetadata) -> bool:
    """Return whether an entry is a chunk of a message."""
    return metadata.num_chunks_from_msg > 1


class ChunkStore:
    """Chunks of incomplete messages."""

    def __init__(self) -> None:
        self._open: dict[str, dict[int, bytes]] = {}

    def add(self, metadata: MessageMetadata, body: bytes) -> bool:
        """Store a chunk, and return whether it is the last one of its message.

        Raises:
            ProtocolError: the chunk number is invalid, or the message is too large.
        """
        total = metadata.num_chunks_from_msg
        if not 0 <= metadata.chunk_id < total or metadata.total_chunk_msg_size > MAX_MESSAGE_BYTES:
            raise ProtocolError(
                f"chunk {metadata.chunk_id} of {total} of a message of "
                f"{metadata.total_chunk_msg_size} bytes cannot be read: the limit is {MAX_MESSAGE_BYTES} bytes"
            )
        chunks = self._open.setdefault(metadata.uuid, {})
        chunks[metadata.chunk_id] = body  # a chunk that was sent twice has the same content
        if len(self._open) > MAX_OPEN_MESSAGES:
            del self._open[next(iter(self._open))]
        return metadata.chunk_id == total - 1

    def missing(self, metadata: MessageMetadata) -> int:
        """Return the number of missing chunks of a message."""
        return metadata.num_chunks_from_msg - len(self._open.get(metadata.uuid, ()))

    def take(self, metadata: MessageMetadata) -> bytes:
        """Return the assembled message of a chunk, once all of its chunks are stored.

        Raises:
            ProtocolError: the total length differs from the announced length.
        """
        chunks = self._open.pop(metadata.uuid)
        body = b"".join(chunks[index] for index in range(metadata.num_chunks_from_msg))
        if metadata.total_chunk_msg_size and len(body) != metadata.total_chunk_msg_size:
            raise ProtocolError(
                f"{len(chunks)} chunks have {len(body)} bytes in total, but "
                f"{metadata.total_chunk_msg_size} were announced"
            )
        return body

    def forget(self, metadata: MessageMetadata) -> None:
        """Drop the chunks of a message that cannot be completed."""
        self._open.pop(metadata.uuid, None)
