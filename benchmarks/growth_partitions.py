"""Many partitions of one topic, and many consumers of one Shared subscription: rates, and function start."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import httpx
import uvloop
from magnetar.client import AsyncClient, ConsumerConfig, PartitionedProducer, Producer, ProducerConfig

from tests.support.functions import Functions
from tests.support.waiting import wait_for

from .figure import Figure
from .footprint import SOURCE, config
from .growth import grown
from .machine import cpu_s
from .plan import Plan

SIZES, QUICK_SIZES = (1, 10, 100, 1000), (1, 10)
AT_ONCE = 5000
"""Maximum number of messages without receipt."""
MESSAGES, QUICK_MESSAGES = 50_000, 5000
TIMEOUT_S = 300.0
PAYLOAD = b"x" * 100


def measure_growth_partitions(plan: Plan) -> Iterator[Figure]:
    """Measure a topic with many partitions: creating it, sending and reading on all, and starting a function on it."""
    counted = "partitions"
    messages = QUICK_MESSAGES if plan.is_quick else MESSAGES
    with plan.server("standalone") as server:
        for size in QUICK_SIZES if plan.is_quick else SIZES:
            topic = f"parts-{size}"
            began = time.perf_counter()
            url = f"{server.web_url}/admin/v2/persistent/public/default/{topic}/partitions"
            httpx.put(url, json=size, timeout=TIMEOUT_S).raise_for_status()
            yield grown(counted, size, "create all", time.perf_counter() - began, "s")
            sent_s, received_s = uvloop.run(_send_and_receive(server.service_url, topic, messages))
            yield grown(counted, size, "send, one by one", messages / sent_s, "messages/s")
            yield grown(counted, size, "receive, one by one", messages / received_s, "messages/s")
            with Functions(server.web_url) as functions:
                name = f"over{size}"
                began = time.perf_counter()
                functions.create(name, SOURCE, {**config(name), "inputs": [topic]}).raise_for_status()
                wait_for(lambda name=name: functions.status(name)["running"], "running function", TIMEOUT_S)  # type: ignore[misc]
                yield grown(counted, size, "function: create until it runs", time.perf_counter() - began, "s")
                functions.delete(name)


async def _send_and_receive(service_url: str, topic: str, messages: int) -> tuple[float, float]:
    """Return the seconds of sending and of receiving single messages, in turn on all partitions."""
    sending = ProducerConfig(batching=False, max_pending_messages=AT_ONCE)
    receiving = ConsumerConfig(type="Shared", initial_position="Earliest")
    async with AsyncClient(service_url) as client, asyncio.timeout(TIMEOUT_S):
        producer = await client.create_producer(topic, sending)
        began = time.perf_counter()
        await _send(producer, messages)
        sent_s = time.perf_counter() - began
        await producer.close()
        consumer = await client.subscribe(topic, "reader", receiving)
        began = time.perf_counter()
        for _ in range(messages):
            message = consumer.poll() or await consumer.receive()
            consumer.ack(message)
        received_s = time.perf_counter() - began
        await consumer.close()
        return sent_s, received_s


async def _send(producer: Producer | PartitionedProducer, messages: int) -> None:
    for start in range(0, messages, AT_ONCE):
        await asyncio.gather(*(producer.send_nowait(PAYLOAD) for _ in range(start, min(messages, start + AT_ONCE))))


def measure_growth_consumers(plan: Plan) -> Iterator[Figure]:
    """Measure publishing to a Shared subscription with many consumers on one connection."""
    messages = QUICK_MESSAGES if plan.is_quick else MESSAGES
    with plan.server("broker") as server:
        for size in QUICK_SIZES if plan.is_quick else SIZES:
            before = cpu_s(server.pid)
            took_s = uvloop.run(_share(server.service_url, f"shared-{size}", size, messages))
            used_us = (cpu_s(server.pid) - before) / messages * 1e6
            yield grown("consumers", size, "publish and dispatch, one by one", messages / took_s, "messages/s")
            yield grown("consumers", size, "CPU of the broker a message", used_us, "µs")


async def _share(service_url: str, topic: str, consumers: int, messages: int) -> float:
    """Return the seconds until all consumers together have received everything."""
    receiving = ConsumerConfig(type="Shared", receiver_queue_size=100)
    sending = ProducerConfig(batching=False, max_pending_messages=AT_ONCE)
    received, done = 0, asyncio.Event()
    async with AsyncClient(service_url) as client, asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        opened = [await client.subscribe(topic, "shared", receiving) for _ in range(consumers)]
        producer = await client.create_producer(topic, sending)

        async def read(index: int) -> None:
            nonlocal received
            consumer = opened[index]
            while True:
                message = consumer.poll() or await consumer.receive()
                consumer.ack(message)
                received += 1
                if received == messages:
                    done.set()

        readers = [group.create_task(read(index)) for index in range(consumers)]
        began = time.perf_counter()
        await _send(producer, messages)
        await done.wait()
        took_s = time.perf_counter() - began
        for reader in readers:
            reader.cancel()
    return took_s
