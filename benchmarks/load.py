"""Load of a given shape, generated with our own client or with the official one."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulsar
import uvloop
from magnetar.client import AsyncClient, ClientConfig, ConsumerConfig, ProducerConfig, ReceivedEntry, encode_entry

IN_FLIGHT = 20_000  # messages without receipt; enough for group commit with both clients
RECEIVER_QUEUE = 20_000
BURST = 50  # single messages sent between two checks of the clock
TIMEOUT_S = 120
COMPARED = "compare"  # the subscription for reading outputs


def payloads_of(size_bytes: int, count: int, first: int = 0) -> list[bytes]:
    """Return distinct lines of text of one size."""
    filler = b"x" * (size_bytes - len(b"line 000000000000 "))
    return [b"line %012d " % number + filler for number in range(first, first + count)]


def hold(service_url: str, topic: str, *subscriptions: str) -> None:
    """Create subscriptions before publishing, so that the messages are retained."""
    client = official(service_url)
    try:
        for subscription in subscriptions:
            client.subscribe(topic, subscription, initial_position=pulsar.InitialPosition.Earliest).close()
    finally:
        client.close()


@dataclass(frozen=True)
class Shape:
    """The shape of a load.

    Attributes:
        batch: number of messages per entry.
        size_bytes: size of a message.
        in_flight: maximum number of messages without receipt.
    """

    batch: int
    size_bytes: int
    in_flight: int = IN_FLIGHT


def publish(
    service_url: str,
    topic: str,
    shape: Shape,
    seconds: float,
    client_settings: Mapping[str, Any] | None = None,
    **settings: Any,
) -> tuple[int, float]:
    """Publish for some seconds with our client; return the number of receipts and the seconds until the last one.

    Args:
        service_url: address of the broker.
        topic: target topic.
        shape: shape of the load.
        seconds: how long to publish.
        client_settings: client settings; None for the defaults.
        settings: additional producer settings.
    """
    client_config = ClientConfig(**(client_settings or {}))
    return uvloop.run(_publish(service_url, topic, shape, seconds, client_config, settings))


async def _publish(
    service_url: str, topic: str, shape: Shape, seconds: float, client_config: ClientConfig, settings: dict[str, Any]
) -> tuple[int, float]:
    batch, size_bytes = shape.batch, shape.size_bytes
    payloads = payloads_of(size_bytes, max(batch, 1000))
    config = ProducerConfig(batching=False, max_pending_messages=shape.in_flight, block_if_queue_full=True, **settings)
    failures: list[BaseException] = []

    def check(done: asyncio.Future[Any]) -> None:
        if done.exception() is not None:
            failures.append(done.exception())  # type: ignore[arg-type]

    async with AsyncClient(service_url, client_config) as client:
        producer = await client.create_producer(topic, config)
        sent = 0
        began = time.perf_counter()
        until = began + seconds
        if batch > 1:
            while time.perf_counter() < until:
                await producer.ready()
                producer.send_entry(encode_entry(payloads[:batch])).add_done_callback(check)
                sent += batch
        else:
            while time.perf_counter() < until:
                await producer.ready()
                for payload in payloads[:BURST]:
                    if not producer.has_room:
                        break
                    producer.send_nowait(payload).add_done_callback(check)
                    sent += 1
        await producer.flush()
        took_s = time.perf_counter() - began
        await producer.close()
    if failures:
        raise failures[0]
    return sent, took_s


def publish_entries(service_url: str, topic: str, payloads: list[bytes], batch: int) -> None:
    """Publish exactly these payloads, in order, in entries of `batch` messages."""
    uvloop.run(_publish_entries(service_url, topic, payloads, batch))


async def _publish_entries(service_url: str, topic: str, payloads: list[bytes], batch: int) -> None:
    config = ProducerConfig(batching=False, max_pending_messages=IN_FLIGHT, block_if_queue_full=True)
    async with AsyncClient(service_url, ClientConfig()) as client:
        producer = await client.create_producer(topic, config)
        for start in range(0, len(payloads), batch):
            await producer.ready()
            chunk = payloads[start : start + batch]
            if batch > 1:
                producer.send_entry(encode_entry(chunk))
            else:
                producer.send_nowait(chunk[0])
        await producer.flush()
        await producer.close()


def publish_repeated(service_url: str, topic: str, payloads: list[bytes], entries: int, **settings: Any) -> None:
    """Publish one batch of these payloads repeatedly."""
    uvloop.run(_publish_repeated(service_url, topic, payloads, entries, settings))


async def _publish_repeated(
    service_url: str, topic: str, payloads: list[bytes], entries: int, settings: dict[str, Any]
) -> None:
    config = ProducerConfig(batching=False, max_pending_messages=IN_FLIGHT, block_if_queue_full=True, **settings)
    async with AsyncClient(service_url, ClientConfig()) as client:
        producer = await client.create_producer(topic, config)
        for _ in range(entries):
            await producer.ready()
            producer.send_entry(encode_entry(payloads))
        await producer.flush()
        await producer.close()


def consume(service_url: str, topic: str, subscription: str, count: int, **settings: Any) -> tuple[int, float]:
    """Receive and acknowledge `count` messages from the earliest one with our client; return bytes and seconds."""
    return uvloop.run(_consume(service_url, topic, subscription, count, settings))


async def _consume(
    service_url: str, topic: str, subscription: str, count: int, settings: dict[str, Any]
) -> tuple[int, float]:
    config = ConsumerConfig(initial_position="Earliest", receiver_queue_size=RECEIVER_QUEUE, **settings)
    async with AsyncClient(service_url, ClientConfig()) as client, asyncio.timeout(TIMEOUT_S):
        began = time.perf_counter()
        consumer = await client.subscribe(topic, subscription, config)
        received = received_bytes = 0
        while received < count:
            entry: ReceivedEntry | None = await consumer.receive_entry()
            while entry is not None:
                received += len(entry.payloads)
                received_bytes += sum(map(len, entry.payloads))
                consumer.ack_entry(entry)
                entry = consumer.poll_entry()
        took_s = time.perf_counter() - began
        await consumer.close()
        assert received == count, (received, count)
        return received_bytes, took_s


def read_outputs(service_url: str, topic: str, count: int) -> list[bytes]:
    """Return the first `count` payloads of a topic, in order."""
    return uvloop.run(_read_outputs(service_url, topic, count))


async def _read_outputs(service_url: str, topic: str, count: int) -> list[bytes]:
    config = ConsumerConfig(initial_position="Earliest", receiver_queue_size=RECEIVER_QUEUE)
    found: list[bytes] = []
    async with AsyncClient(service_url, ClientConfig()) as client, asyncio.timeout(TIMEOUT_S):
        consumer = await client.subscribe(topic, COMPARED, config)
        while len(found) < count:
            entry = await consumer.receive_entry()
            found += entry.payloads
            consumer.ack_entry(entry)
        await consumer.close()
    return found


def official(service_url: str, **settings: Any) -> pulsar.Client:
    """Provide the official client, logging only errors."""
    return pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), **settings)


def official_producer(client: pulsar.Client, topic: str, batch: int, **settings: Any) -> pulsar.Producer:
    """Return a producer of the official client that sends batches of `batch` messages, or single ones."""
    return client.create_producer(
        topic,
        batching_enabled=batch > 1,
        batching_max_messages=max(batch, 2),  # it rejects 1 even if batching is disabled
        batching_max_allowed_size_in_bytes=4 * 1024 * 1024,
        batching_max_publish_delay_ms=10,
        max_pending_messages=IN_FLIGHT,
        block_if_queue_full=True,
        **settings,
    )


def official_publish(
    service_url: str,
    topic: str,
    shape: Shape,
    seconds: float,
    client_settings: Mapping[str, Any] | None = None,
    **settings: Any,
) -> tuple[int, float]:
    """Publish the same load as `publish` with the official client."""
    client = official(service_url, **(client_settings or {}))
    try:
        producer = official_producer(client, topic, shape.batch, **settings)
        payloads = itertools.cycle(payloads_of(shape.size_bytes, 1000))
        counter = Receipts()
        sent = 0
        began = time.perf_counter()
        until = began + seconds
        while time.perf_counter() < until:
            for payload in itertools.islice(payloads, 100):
                producer.send_async(payload, counter)
            sent += 100
        producer.flush()
        counter.wait_for(sent)
        return sent, time.perf_counter() - began
    finally:
        client.close()


class Receipts:
    """Counts receipts of the official client."""

    def __init__(self) -> None:
        self._count = 0
        self._target = -1
        self._reached = threading.Event()

    def __call__(self, result: Any, _message_id: Any) -> None:
        if result != pulsar.Result.Ok:
            raise RuntimeError(f"message was not stored: {result}")
        self._count += 1
        if self._count == self._target:
            self._reached.set()

    def wait_for(self, count: int) -> None:
        self._target = count
        if self._count < count and not self._reached.wait(TIMEOUT_S):
            raise TimeoutError(f"only {self._count} of {count} receipts")


def official_consume(service_url: str, topic: str, subscription: str, count: int, **settings: Any) -> tuple[int, float]:
    """Consume like `consume`, with the official client."""
    client = official(service_url)
    try:
        began = time.perf_counter()
        consumer = client.subscribe(
            topic,
            subscription,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=RECEIVER_QUEUE,
            **settings,
        )
        received_bytes = 0
        for _ in range(count):
            message = consumer.receive(TIMEOUT_S * 1000)
            received_bytes += len(message.data())
            consumer.acknowledge(message)
        return received_bytes, time.perf_counter() - began
    finally:
        client.close()
