"""Numbered sentences for the partitions of a topic, in entries of any size, published while everything around dies.

What counts in the end is what the topic holds: a producer that lost its connection sends again what had no receipt, and
without deduplication on the input the broker may store an entry twice. Everything that was published is in there.
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
    """One thread that publishes as much as it may.

    Attributes:
        published: messages given to the producers so far.
        entries: in so many entries.
    """

    def __init__(
        self, service_url: str, topics: list[str], text: Text, seed: int, sizes: Sequence[int] = ENTRY_MESSAGES
    ):
        """Start; nothing is published before `allow`.

        Args:
            service_url: of the broker.
            topics: partitions, each with a producer of its own.
            text: makes the message of a number.
            seed: of the entries' sizes and partitions, and of the texts.
            sizes: of entries, in messages.
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
        """Publish up to so many messages in all."""
        self._allowed = messages

    def finish(self, timeout_s: float = 90.0) -> None:
        """Return once everything that was allowed is stored."""
        self._is_over = True
        self._thread.join(timeout_s)
        if self._failure is not None:
            raise self._failure
        assert not self._thread.is_alive(), f"{self.published} of {self._allowed} messages after {timeout_s} s"
        assert self.published == self._allowed

    def cancel(self) -> None:
        """End without waiting for receipts."""
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
