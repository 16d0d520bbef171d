"""Rates of sequential awaited sends, alternately with and without batching on one broker."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator

from magnetar.client import AsyncClient, Client, ProducerConfig

from .figure import Figure, Table
from .plan import Plan

PAYLOAD = b"x" * 100
SENDS = 100
"""Number of messages per round."""
ROUNDS = 15
SHARE = 0.77
"""Target share of the rate without batching, 1.3 times its duration; waiting for full batches reached a tenth of it."""

Seconds = dict[bool, list[float]]
"""Durations of the rounds with and without batching."""


def measure_awaited(plan: Plan) -> Iterator[Figure]:
    """Measure rates of sequential awaited sends."""
    with plan.server("broker") as server:
        yield _figure("awaited sends one by one", asyncio.run(_awaited(server.service_url)))
        yield _figure("blocking sends one by one", _blocking(server.service_url))


def _figure(name: str, seconds: Seconds) -> Figure:
    return Figure(
        name=f"{name}, batching on, {len(PAYLOAD)} B",
        ours=SENDS / statistics.median(seconds[True]),
        unit="messages/s",
        peer=SENDS / statistics.median(seconds[False]),
        peer_name="batching off, in turns",
        target_factor=SHARE,
        note=f"{ROUNDS} rounds of {SENDS} messages each",
        table=Table.OTHER,
    )


async def _awaited(service_url: str) -> Seconds:
    seconds: Seconds = {True: [], False: []}
    async with AsyncClient(service_url) as client:
        producers = {
            batching: await client.create_producer(f"awaited-{batching}", ProducerConfig(batching=batching))
            for batching in seconds
        }
        for _ in range(ROUNDS):
            for batching, producer in producers.items():
                began_s = time.perf_counter()
                for _ in range(SENDS):
                    await producer.send(PAYLOAD)
                seconds[batching].append(time.perf_counter() - began_s)
    return seconds


def _blocking(service_url: str) -> Seconds:
    seconds: Seconds = {True: [], False: []}
    with Client(service_url) as client:
        producers = {
            batching: client.create_producer(f"blocking-{batching}", ProducerConfig(batching=batching))
            for batching in seconds
        }
        for _ in range(ROUNDS):
            for batching, producer in producers.items():
                began_s = time.perf_counter()
                for _ in range(SENDS):
                    producer.send(PAYLOAD)
                seconds[batching].append(time.perf_counter() - began_s)
    return seconds
