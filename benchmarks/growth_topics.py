"""Many topics on one broker: the cost of each, the broker's start, and publishing to one of them."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator

import httpx
import uvloop
from magnetar.client import AsyncClient, ProducerConfig

from .figure import Figure
from .growth import IDLE_S, QUICK_IDLE_S, at_rest, grown
from .machine import cpu_s
from .plan import Plan

SIZES, QUICK_SIZES = (100, 10_000, 100_000), (100, 1000)
AT_ONCE = 64
"""Number of concurrent requests."""
SENDS = 300


def measure_growth_topics(plan: Plan) -> Iterator[Figure]:
    """Measure creating topics up to each size, publishing to one, and restarting the broker with them."""
    counted, created = "topics", 0
    with plan.server("broker") as server:
        for size in QUICK_SIZES if plan.is_quick else SIZES:
            before, began = cpu_s(server.pid), time.perf_counter()
            uvloop.run(_create(server.web_url, range(created, size)))
            took_s, used_s = time.perf_counter() - began, cpu_s(server.pid) - before
            yield grown(counted, size, "create each", took_s / (size - created) * 1000, "ms")
            yield grown(counted, size, "CPU of the broker for each created", used_s / (size - created) * 1000, "ms")
            created = size
            took_ms = uvloop.run(_publish(server.service_url, _name(size // 2)))
            yield grown(counted, size, "publish to one of them, p50", statistics.median(took_ms), "ms")
            yield grown(counted, size, "publish to one of them, p99", statistics.quantiles(took_ms, n=100)[98], "ms")
            yield from at_rest(server, counted, size, QUICK_IDLE_S if plan.is_quick else IDLE_S)
            server.kill()
            began = time.perf_counter()
            server.start()
            yield grown(counted, size, "start after kill -9", time.perf_counter() - began, "s")


def _name(number: int) -> str:
    return f"topic-{number:06d}"


async def _create(web_url: str, numbers: range) -> None:
    left = iter(numbers)
    async with httpx.AsyncClient(base_url=f"{web_url}/admin/v2/persistent/public/default/", timeout=60) as http:

        async def work() -> None:
            for number in left:
                (await http.put(_name(number))).raise_for_status()

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work())


async def _publish(service_url: str, topic: str) -> list[float]:
    """Return the publish latency of each message, in milliseconds."""
    took = []
    async with AsyncClient(service_url) as client:
        producer = await client.create_producer(topic, ProducerConfig(batching=False))
        for _ in range(SENDS):
            began = time.perf_counter()
            await producer.send(b"x" * 100)
            took.append((time.perf_counter() - began) * 1000)
        await producer.close()
    return took
