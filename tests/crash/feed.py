"""Publish numbered sentences to the partitions of a topic, in entries of any size, while processes are killed.

Tests compare with the content of the topic: a producer that lost its connection resends messages without a receipt, and
without deduplication on the input the broker may store an entry twice. The topic contains every published message.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence

from magnetar.client.client import AsyncClient
from magnetar.client.config import ProducerConfig
from magnetar.client.producers.outgoing import encode_entry

ENTRY_MESSAGES = (1, 3, 50, 200, 700)
SMALL_ENTRIES = (1, 2, 4, 20)  # many of them on their way at any moment
_LOOK_S = 0.005

Text = Callable[[random.Random, int], bytes]


class Feed:
    """A thread that publishes up to an allowed number of messages.

    Attributes:
        published: messages sent so far.
        entries: number of entries that contain them.
    """

    def __init__(
        self, service_url: str, topics: list[str], text: Text, seed: int, sizes: Sequence[int] = ENTRY_MESSAGES
    ):
        """Start the thread; `allow` permits publishing.

        Args:
            service_url: URL of the broker.
            topics: partitions, each with a separate producer.
            text: returns the message with a number.
            seed: seed for sizes and partitions of entries, and for the texts.
            sizes: sizes of entries, in messages.
        """
        self.published = 0
        self.entries = 0
        self._url = service_url
        self._topics = topics
        self._text = text
        self._sizes = sizes
        self._rng = random.Random(seed)
        self._allowed = 0
        self._is_over = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded)
        self._thread.start()

    def allow(self, messages: int) -> None:
        """Permit publishing up to a total number of messages."""
        self._allowed = messages

    def finish(self, timeout_s: float = 90.0) -> None:
        """Wait until all permitted messages are stored."""
        self._is_over = True
        self._thread.join(timeout_s)
        if self._failure is not None:
            raise self._failure
        assert not self._thread.is_alive(), f"{self.published} of {self._allowed} messages after {timeout_s} s"
        assert self.published == self._allowed

    def cancel(self) -> None:
        """Stop without waiting for receipts."""
        self._allowed, self._is_over = 0, True
        self._thread.join(60)

    def _guarded(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001  told by `finish`
            self._failure = error

    async def _run(self) -> None:
        config = ProducerConfig(batching=False, send_timeout_ms=0, max_pending_messages=5000, block_if_queue_full=True)
        async with AsyncClient(self._url) as client:
            producers = [await client.create_producer(topic, config) for topic in self._topics]
            while self.published < self._allowed or not self._is_over:
                if self.published >= self._allowed:
                    await asyncio.sleep(_LOOK_S)
                    continue
                size = min(self._rng.choice(self._sizes), self._allowed - self.published)
                texts = [self._text(self._rng, number) for number in range(self.published, self.published + size)]
                producer = self._rng.choice(producers)
                await producer.ready()
                if not self._is_over or self._allowed:
                    producer.send_entry(encode_entry(texts))
                    self.published += size
                    self.entries += 1
            if self._allowed:
                for producer in producers:
                    await producer.flush()
