"""A hundred thousand idle topics: the broker's start with them, and the memory per topic.

Every topic has a subscription and one message, encoded by the official client, so each has a ledger with its own file;
their broker was stopped cleanly, or killed. They are created with the storage package, as in the broker, many
concurrently. After the start, some are read with the official client.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pulsar
import uvloop
from magnetar.broker.storage import EARLIEST, Position, Storage

from tests.support.servers import Server, server

from .figure import Figure
from .load import official
from .machine import usage, wait_until_quiet
from .plan import Plan
from .real_input import APPLICATION, official_input

TOPICS, QUICK_TOPICS = 100_000, 10_000
START_S = 10.0
TOPIC_BYTES = 1024
AT_ONCE = 2000
"""Number of topics created concurrently."""
SUBSCRIPTION = "s"
READ = 20
"""Number of topics to read afterwards."""
TIMEOUT_MS = 10_000


def measure_topics_on_disk(plan: Plan) -> Iterator[Figure]:
    """Measure starting a broker with many topics, and one without topics."""
    count = QUICK_TOPICS if plan.is_quick else TOPICS
    message = official_input(plan, APPLICATION, 1).entries[0].section
    with plan.server("broker") as empty:
        empty_mib = _pss_mib(empty)
    topics = server("broker", plan.directory / "topics-on-disk")
    began = time.perf_counter()
    uvloop.run(_make(topics.directory / "data" / "storage", count, message))
    made_s = time.perf_counter() - began
    stopped, killed, grown_mib = [], [], []
    try:
        for _ in range(plan.repeats):
            stopped.append(_start_s(topics))
            grown_mib.append(_pss_mib(topics) - empty_mib)
            topics.kill()
            killed.append(_start_s(topics))
            _read_some(topics, count)
            topics.stop()
    finally:
        topics.stop()
    yield Figure(
        name=f"{count:,} topics on disk: start of the broker",
        ours=statistics.median(stopped),
        unit="s",
        target=START_S,
        more_is_better=False,
        note=f"from the command to the ready file; after kill -9 {statistics.median(killed):.2f} s; made in"
        f" {made_s:.0f} s",
    )
    each = statistics.median(grown_mib) * 2**20 / count
    yield Figure(
        name=f"{count:,} topics on disk: memory of an idle one",
        ours=each,
        unit="bytes",
        target=TOPIC_BYTES,
        more_is_better=False,
        note=f"one subscription, one message; the broker {empty_mib:.0f} MiB (PSS) without them and"
        f" {empty_mib + statistics.median(grown_mib):.0f} with them",
    )


def topic_name(number: int) -> str:
    """Return the full name of a topic."""
    return f"persistent://public/default/topic-{number:06d}"


def _start_s(topics: Server) -> float:
    began = time.perf_counter()
    topics.start()
    return time.perf_counter() - began


def _pss_mib(one: Server) -> float:
    wait_until_quiet(one.pid)
    return usage(psutil.Process(one.pid)).pss_mib


async def _make(directory: Path, count: int, message: bytes) -> None:
    storage = Storage.open(directory)
    storage.attach(asyncio.get_running_loop())
    for first in range(0, count, AT_ONCE):
        async with asyncio.TaskGroup() as group:
            for number in range(first, min(first + AT_ONCE, count)):
                group.create_task(_make_one(storage, topic_name(number), message))
    await storage.close()


async def _make_one(storage: Storage, name: str, message: bytes) -> None:
    log = storage.open_log(name)
    log.open_cursor(SUBSCRIPTION, EARLIEST)
    stored: asyncio.Future[Position] = asyncio.get_running_loop().create_future()

    def done(position: Position, error: Exception | None) -> None:
        if error is None:
            stored.set_result(position)
        else:
            stored.set_exception(error)

    log.append(message, 1, time.time_ns() // 1_000_000, done)
    await stored


def _read_some(topics: Server, count: int) -> None:
    """Read the messages of some topics through their subscriptions, without acknowledging them."""
    client = official(topics.service_url)
    try:
        for number in range(0, count, count // READ):
            consumer = client.subscribe(topic_name(number), SUBSCRIPTION, consumer_type=pulsar.ConsumerType.Shared)
            consumer.receive(TIMEOUT_MS)
            consumer.close()
    finally:
        client.close()
