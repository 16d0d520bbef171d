"""Reassembles chunked messages. Performs no I/O: the consumer executes the resulting acknowledgements and redeliveries.

Design: each chunk is a separate entry. Chunks of different messages may be interleaved, but the chunks of one message
arrive in order. The message is returned as an entry at the position of its last chunk; acknowledging it acknowledges
all chunks. Incomplete messages are dropped after a timeout, or, oldest first, if there are too many.

Invariant: each chunk is part of an incomplete message, part of a returned message, or listed in `Joined`.

Source: Pulsar binary protocol, section Chunked messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .received import EntryKey, ReceivedEntry


@dataclass(slots=True)
class Joined:
    """The outcome of adding a chunk.

    Attributes:
        entry: the whole message, if this was its last chunk.
        others: positions of its other chunks.
        done: chunks that are no longer needed and should be acknowledged.
        again: chunks that cannot be used now and should be redelivered.
    """

    entry: ReceivedEntry | None = None
    others: tuple[EntryKey, ...] = ()
    done: list[EntryKey] = field(default_factory=list)
    again: list[EntryKey] = field(default_factory=list)


@dataclass(slots=True)
class _Partial:
    """An incomplete message and the chunks received so far."""

    count: int
    began_s: float
    positions: list[EntryKey] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    size: int = 0


class ChunkJoiner:
    """The incomplete messages of one consumer."""

    def __init__(self, max_pending: int, expire_s: float, max_bytes: int, *, gives_up_oldest: bool):
        """Create a joiner.

        Args:
            max_pending: maximum number of incomplete messages.
            expire_s: timeout of an incomplete message; 0 disables it.
            max_bytes: size limit of a whole message, compressed and uncompressed.
            gives_up_oldest: whether the chunks of a message dropped at the limit are acknowledged instead of
                redelivered.
        """
        self._max_pending = max_pending
        self._expire_s = expire_s
        self._max_bytes = max_bytes
        self._gives_up_oldest = gives_up_oldest
        self._partial: dict[str, _Partial] = {}

    def __len__(self) -> int:
        return len(self._partial)

    def clear(self) -> None:
        """Drop all incomplete messages, whose chunks will be redelivered."""
        self._partial.clear()

    def add(self, entry: ReceivedEntry, now_s: float, now_ms: int) -> Joined:
        """Add a chunk.

        Args:
            entry: the chunk.
            now_s: monotonic time.
            now_ms: wall time, to compare with the publish time.
        """
        joined = Joined()
        self._expire(now_s, joined)
        metadata = entry.metadata
        uuid, number = metadata.uuid, metadata.chunk_id
        partial = self._partial.get(uuid)
        if number == 0:
            if partial is not None:  # resent from its first chunk: the earlier chunks are duplicates
                joined.done += [position for position in partial.positions if position != entry.position]
                del self._partial[uuid]
            partial = self._begin(uuid, metadata.num_chunks_from_msg, now_s, joined)
        elif partial is None or number > len(partial.positions):
            is_old = self._expire_s > 0 and now_ms - metadata.publish_time > self._expire_s * 1000
            (joined.done if is_old else joined.again).append(entry.position)
            if partial is not None:
                joined.again += partial.positions
                del self._partial[uuid]
            return joined
        elif number < len(partial.positions):
            if entry.position not in partial.positions:
                joined.done.append(entry.position)
            return joined
        partial.positions.append(entry.position)
        partial.bodies.append(entry.stored_body)
        partial.size += entry.body_bytes
        if partial.size > self._max_bytes:
            joined.done += partial.positions
            del self._partial[uuid]
        elif len(partial.positions) == partial.count:
            del self._partial[uuid]
            joined.entry = entry.with_body(b"".join(partial.bodies), self._max_bytes)
            joined.others = tuple(partial.positions[:-1])
        return joined

    def _begin(self, uuid: str, count: int, now_s: float, joined: Joined) -> _Partial:
        if len(self._partial) >= self._max_pending:
            oldest = self._partial.pop(next(iter(self._partial)))
            (joined.done if self._gives_up_oldest else joined.again).extend(oldest.positions)
        partial = self._partial[uuid] = _Partial(count, now_s)
        return partial

    def _expire(self, now_s: float, joined: Joined) -> None:
        while self._expire_s and self._partial:
            uuid, oldest = next(iter(self._partial.items()))
            if now_s - oldest.began_s < self._expire_s:
                return
            joined.done += oldest.positions
            del self._partial[uuid]
