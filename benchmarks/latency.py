"""Latency from publishing an input to receiving its output, at 1,000 messages per second."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pulsar
import uvloop
from magnetar.client import AsyncClient, ClientConfig, ConsumerConfig, ProducerConfig

from tests.support.functions import Functions
from tests.support.servers import Server

from .figure import Figure
from .function_rates import SOURCE, official_loop
from .load import official, official_producer
from .plan import Plan

RATE = 1000
WARM_S = 1.0
TARGETS_MS = {50: 3.0, 99: 10.0}
CONFIG = {
    "className": "f.process",
    "inputs": ["latency-in"],
    "output": "latency-out",
    "subscriptionPosition": "Earliest",
    "runtimeEnv": "process",
}


def measure_latency(plan: Plan) -> Iterator[Figure]:
    """Measure the end-to-end latency of a function, compared with a loop on the official client."""
    seconds = max(3.0, 2 * plan.seconds)
    with plan.server("standalone") as server:
        with Functions(server.web_url) as functions:
            functions.create("f", SOURCE, CONFIG).raise_for_status()
            ours = sorted(uvloop.run(_latencies(server, seconds)))
            functions.delete("f")
        with official_loop(server.service_url, "official-in", "official-out", 1):
            theirs = sorted(_official_latencies(server, seconds))
    for percent, target in TARGETS_MS.items():
        yield Figure(
            name=f"latency p{percent} at {RATE:,} messages/s",
            ours=_percentile(ours, percent),
            unit="ms",
            peer=_percentile(theirs, percent),
            peer_name="loop and ends on the official client, our broker",
            target=target,
            more_is_better=False,
            note=f"worst {ours[-1]:.1f} ms of {len(ours):,}",
        )


def stamp() -> bytes:
    """Return a payload with its creation time; not just digits, which the function would receive as an int."""
    return b"at %d" % time.perf_counter_ns()


def sent_ns_of(output: bytes) -> int:
    return int(output.removeprefix(b"at ").removesuffix(b"!"))


def _percentile(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


async def _latencies(server: Server, seconds: float) -> list[float]:
    """Return the latency of each message after the warm-up, in milliseconds."""
    total = int(RATE * (WARM_S + seconds))
    latencies: list[float] = []
    async with AsyncClient(server.service_url, ClientConfig()) as client:
        consumer = await client.subscribe("latency-out", "s", ConsumerConfig(ack_grouping_ms=100))
        producer = await client.create_producer("latency-in", ProducerConfig(batching=False, block_if_queue_full=True))
        await producer.send(stamp())  # the function responds once it is running
        await consumer.receive(timeout_s=15)

        async def receive() -> None:
            for i in range(total):
                message = await consumer.receive(timeout_s=15)
                sent_ns = sent_ns_of(message.data)
                if i >= RATE * WARM_S:
                    latencies.append((time.perf_counter_ns() - sent_ns) / 1e6)
                consumer.ack(message)

        async with asyncio.TaskGroup() as group:
            group.create_task(receive())
            began = time.perf_counter()
            for i in range(total):
                pause = began + i / RATE - time.perf_counter()
                if pause > 0:
                    await asyncio.sleep(pause)
                producer.send_nowait(stamp())
    return latencies


def _official_latencies(server: Server, seconds: float) -> list[float]:
    total = int(RATE * (WARM_S + seconds))
    latencies: list[float] = []
    client = official(server.service_url)
    consumer = client.subscribe("official-out", "s")
    producer = official_producer(client, "official-in", 1)
    producer.send(stamp())
    consumer.acknowledge(consumer.receive(15_000))

    def receive() -> None:
        for i in range(total):
            message = consumer.receive(15_000)
            if i >= RATE * WARM_S:
                latencies.append((time.perf_counter_ns() - sent_ns_of(message.data())) / 1e6)
            consumer.acknowledge(message)

    receiver = threading.Thread(target=receive)
    receiver.start()
    began = time.perf_counter()
    for i in range(total):
        pause = began + i / RATE - time.perf_counter()
        if pause > 0:
            time.sleep(pause)
        producer.send_async(stamp(), _ignore)
    receiver.join(60)
    client.close()
    return latencies


def _ignore(_result: pulsar.Result, _message_id: pulsar.MessageId) -> None:
    pass
