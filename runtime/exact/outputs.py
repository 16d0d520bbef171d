"""The producers of one activity of an input partition: one per output topic, under the partition's own name.

A producer's name is what the broker's deduplication knows it by, and it admits one producer of a name at a time. So
opening one also waits for whoever had the partition before: until that one has closed its producer, or the broker has
given up a connection of which nothing was heard.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ...client.client import AsyncClient
from ...client.config import Guard, ProducerConfig
from ...client.producer import Producer
from ...errors import ClosedError, ConnectionLost, MagnetarError, OperationTimeout, ProducerBusy
from ...wire.message_id import MessageId
from ..details import producer_config
from ..state.values import OutboxEntry
from .deduplication import memory_guard

BUSY_PAUSE_S = 0.1
PRODUCERS_MAX = 1000  # output topic partitions of one input partition

Stored = Callable[[BaseException | None], None]


class Outputs:
    """Sends output entries, those of each topic in the order of `send`.

    Attributes:
        waits_for: why no producer can be opened now; empty if nothing hinders.
    """

    def __init__(self, client: AsyncClient, name: str, guard: Guard | None, admin_url: str) -> None:
        """Prepare; nothing is opened yet.

        Args:
            client: makes producers.
            name: of all of them.
            guard: of all of them.
            admin_url: tells whether the broker knows what it has stored; empty: nobody asks.
        """
        self.waits_for = ""
        self._client = client
        self._config = replace(producer_config(), name=name, guard=guard)
        self._admin_url = admin_url
        self._producers: dict[str, Producer] = {}
        self._queued: dict[str, deque[tuple[OutboxEntry, Stored]]] = {}  # of topics whose producer is being opened
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def open(self, topic: str) -> Producer:
        """Return the producer of a topic partition, waiting as long as another has its name.

        Cancellation: safe.

        Raises:
            MagnetarError: the broker refuses for good.
        """
        producer = self._producers.get(topic)
        while producer is None:
            if len(self._producers) >= PRODUCERS_MAX:
                raise MagnetarError(f"the instance publishes to {PRODUCERS_MAX} topics already; use fewer topics")
            try:
                made = await self._client.create_producer(topic, self._config_of(topic))
            except (ProducerBusy, ConnectionLost, OperationTimeout) as error:
                self.waits_for = str(error)
                await asyncio.sleep(BUSY_PAUSE_S)
                continue
            self.waits_for = ""
            if self._is_closed or not isinstance(made, Producer):
                await made.close()
                raise ClosedError(f"producers of {self._config.name} are closed, or {topic} has become partitioned")
            producer = self._producers[topic] = made
        return producer

    def _config_of(self, topic: str) -> ProducerConfig:
        if not self._admin_url:
            return self._config
        return replace(self._config, guard=memory_guard(self._admin_url, topic, self._config.guard))

    def send(self, row: OutboxEntry, stored: Stored) -> None:
        """Send an output entry; ``stored`` is called once, with the error if it was not stored."""
        producer = self._producers.get(row.topic)
        if producer is None or row.topic in self._queued:
            self._send_later(row, stored)
            return
        try:
            future = producer.send_sealed(row.payload, row.sequence_id, row.messages)
        except MagnetarError as error:
            stored(error)
            return
        future.add_done_callback(partial(_answered, stored))

    def _send_later(self, row: OutboxEntry, stored: Stored) -> None:
        queued = self._queued.get(row.topic)
        if queued is None:
            queued = self._queued[row.topic] = deque()
            task = asyncio.get_running_loop().create_task(self._open_and_send(row.topic))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        queued.append((row, stored))

    async def _open_and_send(self, topic: str) -> None:
        error: MagnetarError = ClosedError(f"the producer of {topic} was closed before this was stored")
        try:
            await self.open(topic)
        except MagnetarError as refused:
            error = refused
        finally:
            for row, stored in self._queued.pop(topic):
                if topic in self._producers and not self._is_closed:
                    self.send(row, stored)
                else:
                    stored(error)

    async def close(self) -> None:
        """Close the producers; what is not stored yet fails.

        Cancellation: they are closed all the same.
        """
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(MagnetarError):
            await asyncio.gather(*(producer.close() for producer in self._producers.values()))


def _answered(stored: Stored, future: asyncio.Future[MessageId]) -> None:
    stored(ClosedError("the producer was closed before this was stored") if future.cancelled() else future.exception())
