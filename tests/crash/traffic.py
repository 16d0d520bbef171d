"""Run a producer and a consumer while the broker is killed and restarted, and record their observations."""

from __future__ import annotations

import asyncio
import contextlib
import random

from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig, ProducerConfig, ReaderConfig
from magnetar.client.consumers.consumer import Consumer
from magnetar.client.consumers.merged import MergedConsumer
from magnetar.client.consumers.received import Message
from magnetar.client.producers.partitioned import PartitionedProducer
from magnetar.client.producers.producer import Producer
from magnetar.errors import MagnetarError, OperationTimeout
from magnetar.wire.message_id import EARLIEST, MessageId

from tests.crash.history import History, Place, place

BURST = 40
PAUSE_S = 0.004  # between bursts: ten thousand messages a second are enough for a kill to find many in flight
ACKNOWLEDGED_SHARE = 0.7
PROGRESS = 200  # receipts after a restart before the next kill may come
PROGRESS_TIMEOUT_S = 60
IDLE_S = 0.5  # a drained subscription stays silent this long


class Traffic:
    """A producer and a consumer of one topic."""

    def __init__(self, history: History, rng: random.Random) -> None:
        self._history = history
        self._rng = rng
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, client: AsyncClient, topic: str, batching: bool) -> None:
        consumer = await client.subscribe(topic, "s", ConsumerConfig(ack_receipts=True, initial_position="Earliest"))
        config = ProducerConfig(batching=batching, batch_max_messages=20, batch_max_delay_ms=2, send_timeout_ms=0)
        producer = await client.create_producer(topic, config)
        self._tasks = [asyncio.create_task(self._publish(producer)), asyncio.create_task(self._consume(consumer))]

    async def progress(self) -> None:
        """Wait until some more messages have receipts and some acknowledgements are confirmed."""
        history = self._history
        receipts, confirmed = len(history.receipts), len(history.confirmed)
        async with asyncio.timeout(PROGRESS_TIMEOUT_S):
            while len(history.receipts) < receipts + PROGRESS or len(history.confirmed) < confirmed + PROGRESS // 4:
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.01)

    async def finish(self) -> None:
        """Stop publishing, and wait for all receipts."""
        self._stopping.set()
        async with asyncio.timeout(PROGRESS_TIMEOUT_S):
            await self._tasks[0]

    async def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _publish(self, producer: Producer | PartitionedProducer) -> None:
        history = self._history
        waiting: dict[int, asyncio.Future[MessageId]] = {}
        while not self._stopping.is_set():
            for _ in range(BURST):
                number = history.sent
                history.sent += 1
                waiting[number] = future = asyncio.ensure_future(producer.send(b"%d" % number))
                future.add_done_callback(lambda done, number=number: self._on_receipt(number, done))  # type: ignore[misc]
            await asyncio.sleep(PAUSE_S)
            waiting = {number: future for number, future in waiting.items() if not future.done()}
            if len(waiting) > 20 * BURST:
                await asyncio.wait(waiting.values(), return_when=asyncio.FIRST_COMPLETED)
        await producer.flush()
        await asyncio.gather(*waiting.values())

    def _on_receipt(self, number: int, done: asyncio.Future[MessageId]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._history.receipts[number] = place(done.result())

    async def _consume(self, consumer: Consumer | MergedConsumer) -> None:
        history = self._history
        while True:
            message = await consumer.receive()
            at = place(message.message_id)
            history.on_delivery(at, int(message.data))
            if self._rng.random() < ACKNOWLEDGED_SHARE:
                history.acknowledged.add(at)
                consumer.ack(message).add_done_callback(lambda done, at=at: self._on_confirmation(at, done))  # type: ignore[misc]

    def _on_confirmation(self, at: Place, done: asyncio.Future[None]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._history.confirmed.setdefault(at, self._history.session)


async def drain(consumer: Consumer | MergedConsumer) -> list[Message]:
    """Return all messages that a subscription still delivers."""
    messages: list[Message] = []
    while True:
        try:
            messages.append(await consumer.receive(timeout_s=IDLE_S if messages else 10 * IDLE_S))
        except (OperationTimeout, TimeoutError):
            return messages


async def read_all(client: AsyncClient, topic: str) -> list[tuple[Place, int]]:
    """Return all messages of the topic with their positions, in order."""
    reader = await client.create_reader(topic, EARLIEST, ReaderConfig())
    stored = []
    try:
        while await reader.has_message_available():
            message = await reader.read_next(timeout_s=30)
            stored.append((place(message.message_id), int(message.data)))
    except MagnetarError as exc:
        raise AssertionError(f"reading stopped after {len(stored)} messages: {exc}") from exc
    finally:
        await reader.close()
    return stored
