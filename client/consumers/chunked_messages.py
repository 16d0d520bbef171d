"""Reassembles a consumer's chunked messages, and acknowledges or redelivers the chunks of incomplete ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ..config import ConsumerConfig
from .acknowledger import Acknowledger
from .chunks import ChunkJoiner
from .received import ReceivedEntry

log = logging.getLogger(__name__)


class ChunkedMessages:
    """Handles the chunks that a consumer receives."""

    def __init__(self, topic: str, config: ConsumerConfig, acks: Acknowledger, clock: Callable[[], float]):
        """Create the chunk handler of a consumer.

        Args:
            topic: full name, for the log.
            config: the consumer's settings.
            acks: the consumer's acknowledgements.
            clock: wall time in seconds, for late chunks.
        """
        self._topic = topic
        self._config = config
        self._acks = acks
        self._clock = clock
        self._joiner: ChunkJoiner | None = None  # most consumers never see a chunk

    def join(self, entry: ReceivedEntry) -> ReceivedEntry | None:
        """Add a chunk; return the whole message after its last one."""
        config = self._config
        if self._joiner is None:
            self._joiner = ChunkJoiner(
                config.max_pending_chunked_message,
                config.expire_time_of_incomplete_chunked_message_ms / 1000,
                config.max_chunked_message_bytes,
                gives_up_oldest=config.auto_ack_oldest_chunked_message_on_queue_full,
            )
        now_s = asyncio.get_running_loop().time()
        joined = self._joiner.add(entry, now_s, int(self._clock() * 1000))
        for position in joined.done:
            log.warning("%s: dropped chunk %d:%d of an incomplete message", self._topic, *position)
            self._acks.entry(position)
        for position in joined.again:
            log.info("%s: requested redelivery of chunk %d:%d: its message is incomplete", self._topic, *position)
            self._acks.negative(position)
        if joined.entry is not None:
            self._acks.tracker.accompany(entry.position, joined.others)
        return joined.entry

    def forget(self) -> None:
        """Drop incomplete messages, whose chunks will be redelivered."""
        if self._joiner is not None:
            self._joiner.clear()
