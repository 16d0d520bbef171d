"""The messages in chunks of one consumer: put together, and the chunks of no whole message acknowledged or refused."""

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
    """Takes the chunks that a consumer receives."""

    def __init__(self, topic: str, config: ConsumerConfig, acks: Acknowledger, clock: Callable[[], float]):
        """Prepare.

        Args:
            topic: full name, for the log.
            config: settings of the consumer.
            acks: of the consumer.
            clock: wall time in seconds, for chunks that came late.
        """
        self._topic = topic
        self._config = config
        self._acks = acks
        self._clock = clock
        self._joiner: ChunkJoiner | None = None  # most consumers never see a chunk

    def join(self, entry: ReceivedEntry) -> ReceivedEntry | None:
        """Take a chunk; return the whole message with its last one."""
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
            log.warning("%s: chunk %d:%d of no whole message is dropped", self._topic, *position)
            self._acks.entry(position)
        for position in joined.again:
            log.info("%s: chunk %d:%d is asked for again, as its message is not whole", self._topic, *position)
            self._acks.negative(position)
        if joined.entry is not None:
            self._acks.tracker.accompany(entry.position, joined.others)
        return joined.entry

    def forget(self) -> None:
        """Drop what is not whole: its chunks come again."""
        if self._joiner is not None:
            self._joiner.clear()
