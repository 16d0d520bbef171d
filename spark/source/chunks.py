"""Assembles messages that were sent in chunks, each chunk a separate entry. No I/O.

Design: a message belongs to the range that holds its last chunk. The reader of that range has seen the earlier chunks
or goes back for them, so that a message is read once wherever ranges are split, and is never waited for. Memory for
chunks of unfinished messages is limited: the oldest is dropped, and read again if needed.
"""

from __future__ import annotations

from ...errors import ProtocolError
from ...wire.pulsar_api_pb2 import MessageMetadata

MAX_OPEN_MESSAGES = 100
MAX_MESSAGE_BYTES = 512 * 1024 * 1024
"""Maximum size of an assembled or decompressed message. The broker's limit applies to neither."""


def is_chunk(metadata: MessageMetadata) -> bool:
    """Return whether an entry is one of several chunks of a message."""
    return metadata.num_chunks_from_msg > 1


class ChunkStore:
    """The chunks of incomplete messages."""

    def __init__(self) -> None:
        self._open: dict[str, dict[int, bytes]] = {}

    def add(self, metadata: MessageMetadata, body: bytes) -> bool:
        """Store a chunk; return whether it is the last one of its message.

        Raises:
            ProtocolError: its number is invalid, or the message is too large.
        """
        total = metadata.num_chunks_from_msg
        if not 0 <= metadata.chunk_id < total or metadata.total_chunk_msg_size > MAX_MESSAGE_BYTES:
            raise ProtocolError(
                f"chunk {metadata.chunk_id} of {total} of a message of {metadata.total_chunk_msg_size} bytes cannot be"
                f" read; the limit is {MAX_MESSAGE_BYTES} bytes"
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
        """Assemble the message of a chunk, all of whose chunks are stored.

        Raises:
            ProtocolError: their total length differs from the announced one.
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
