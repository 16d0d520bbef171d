"""Publishes to all topics at a given rate, in bursts: to most with our client, to some with the official one."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any, Protocol

import pulsar
from magnetar.client import AsyncClient, JsonSchema, ProducerConfig

from .account import EXAMPLES, Faults
from .topics import Body, Source
from .waiting import holds

BURST_MAX = 20
TICK_S = 0.01
PENDING_MAX = 5000
RECEIPTS_S = 60.0


class Sender(Protocol):
    """Sends the messages of one topic."""

    def send(self, body: Body) -> None:
        """Send a message; a failure is recorded as a fault."""

    @property
    def pending(self) -> int:
        """Number of messages without receipt."""

    async def close(self) -> None:
        """Send pending messages, and close the producer."""


class OwnSender:
    """A producer of our client."""

    def __init__(self, producer: Any, source: Source, faults: Faults) -> None:
        self._producer = producer
        self._source = source
        self._faults = faults

    @classmethod
    async def open(cls, client: AsyncClient, source: Source, faults: Faults) -> OwnSender:
        """Open the producer. Delayed messages and those of several keys are batched by key, or not at all."""
        topic = source.topic
        config = ProducerConfig(
            batching=not topic.is_delaying,
            batching_type="KeyBased" if topic.keys > 1 and not topic.is_delaying else "Default",
            max_pending_messages=PENDING_MAX,
        )
        schema: Any = {"schema": JsonSchema(Body)} if topic.has_schema else {}
        return cls(await client.create_producer(topic.name, config, **schema), source, faults)

    @property
    def pending(self) -> int:
        """Number of messages without receipt."""
        return int(self._producer.pending_messages)

    def send(self, body: Body) -> None:
        """Send a message, as described in `Sender.send`."""
        given = body if self._source.topic.has_schema else body.encode()
        self._producer.send_nowait(given, key=str(body.key), deliver_at_ms=body.due_ms).add_done_callback(self._stored)

    def _stored(self, receipt: asyncio.Future[Any]) -> None:
        if not receipt.cancelled() and (error := receipt.exception()) is not None:
            self._faults.add("message not stored", f"{self._source.topic.name}: {error!r}")

    async def close(self) -> None:
        """Send pending messages, and close the producer."""
        await self._producer.close()


class OfficialSender:
    """A producer of the official client."""

    def __init__(self, producer: pulsar.Producer, source: Source, faults: Faults) -> None:
        self._producer = producer
        self._source = source
        self._faults = faults
        self._sent = 0
        self._stored = 0

    @classmethod
    async def open(cls, client: pulsar.Client, source: Source, faults: Faults) -> OfficialSender:
        """Open the producer."""
        topic = source.topic

        def create() -> pulsar.Producer:
            return client.create_producer(
                topic.name,
                batching_enabled=not topic.is_delaying,
                batching_type=pulsar.BatchingType.KeyBased if topic.keys > 1 else pulsar.BatchingType.Default,
                max_pending_messages=PENDING_MAX,
            )

        return cls(await asyncio.to_thread(create), source, faults)

    @property
    def pending(self) -> int:
        """Number of messages without receipt."""
        return self._sent - self._stored

    def send(self, body: Body) -> None:
        """Send a message, as described in `Sender.send`."""
        self._sent += 1
        self._producer.send_async(
            body.encode(), self._received, partition_key=str(body.key), deliver_at=body.due_ms or None
        )

    def _received(self, result: pulsar.Result, _: object) -> None:
        """Count a receipt, on the client's thread."""
        self._stored += 1
        if result != pulsar.Result.Ok:
            self._faults.add("message not stored", f"{self._source.topic.name}: {result}")

    async def close(self) -> None:
        """Send pending messages, and close the producer."""
        await asyncio.to_thread(self._producer.flush)
        await asyncio.to_thread(self._producer.close)


class Publishing:
    """Publishes to all topics at a given rate."""

    def __init__(
        self, sources: Sequence[Source], senders: Sequence[Sender], rng: random.Random, faults: Faults
    ) -> None:
        self._pairs = list(zip(sources, senders, strict=True))
        self._faults = faults
        self._rng = rng

    @property
    def published(self) -> int:
        """Return the number of messages published so far."""
        return sum(sum(source.published) for source, _ in self._pairs)

    async def run(self, rate: float, seconds: float) -> None:
        """Publish at a given rate for some time."""
        loop = asyncio.get_running_loop()
        began, sent = loop.time(), 0
        while (past_s := loop.time() - began) < seconds:
            while sent < rate * past_s:
                source, sender = self._rng.choice(self._pairs)
                if sender.pending > PENDING_MAX // 2:
                    break
                count = self._rng.randint(1, BURST_MAX)
                self.burst(source, sender, count)
                sent += count
            await asyncio.sleep(TICK_S)

    def burst(self, source: Source, sender: Sender, count: int) -> None:
        """Publish some messages to one topic."""
        now_ms = int(time.time() * 1000)
        for _ in range(count):
            sender.send(source.next(now_ms))

    def burst_to_all(self, count: int) -> None:
        """Publish some messages to each topic."""
        for source, sender in self._pairs:
            self.burst(source, sender, count)

    async def stored(self) -> None:
        """Wait until all messages have receipts; a missing receipt after a minute is a fault."""
        if not await holds(lambda: not any(sender.pending for _, sender in self._pairs), RECEIPTS_S):
            late = [f"{source.topic.name}: {sender.pending:,}" for source, sender in self._pairs if sender.pending]
            self._faults.add("messages without receipt", ", ".join(late[:EXAMPLES]))

    async def close(self) -> None:
        """Close all producers."""
        for _, sender in self._pairs:
            await sender.close()
