"""An async function whose calls wait: messages per second of one instance, and as a share of what waiting allows."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator

from magnetar.client import AsyncClient, ProducerConfig, encode_entry
from magnetar.wire.pulsar_api_pb2 import SingleMessageMetadata

from tests.support.servers import Server

from .figure import Figure, Table
from .load import hold
from .plan import Plan
from .state_rates import Processed, deployed

PAUSE_S = 0.1
KEYS = 1000
CALLS_MAX = 1000
BATCH = 50
TARGET = 2000
SOURCE = f"""
import asyncio

async def process(text):
    await asyncio.sleep({PAUSE_S})
    return text + "!"
"""


def measure_async(plan: Plan) -> Iterator[Figure]:
    """Calls that wait for 100 ms, over 1,000 keys."""
    possible = CALLS_MAX / PAUSE_S
    count = max(int(possible * plan.seconds), 10 * KEYS) // BATCH * BATCH
    with plan.server("standalone") as server:
        rates = [_rate(server, f"waiting{number}", count) for number in range(plan.repeats)]
    yield Figure(
        name=f"async function with sleeps of {PAUSE_S * 1000:.0f} ms over {KEYS:,} keys, input batches of {BATCH}",
        ours=statistics.median(rates),
        unit="messages/s",
        peer=possible,
        peer_name=f"{CALLS_MAX:,} calls at once",
        target=TARGET,
        note="one instance; each key's calls one after the other",
        table=Table.OWN,
    )


def _rate(server: Server, name: str, count: int) -> float:
    topic = f"{name}-in"
    hold(server.service_url, topic, f"public/default/{name}")
    asyncio.run(_publish(server.service_url, topic, count))
    with deployed(server, name, f"{name}.process", SOURCE):
        return Processed(server, topic, name).slope(count // BATCH) * BATCH


async def _publish(service_url: str, topic: str, count: int) -> None:
    """Publish numbered messages whose keys take turns."""
    config = ProducerConfig(batching=False, max_pending_messages=10_000, block_if_queue_full=True)
    async with AsyncClient(service_url) as client:
        producer = await client.create_producer(topic, config)
        for begin in range(0, count, BATCH):
            numbers = range(begin, begin + BATCH)
            headers = [SingleMessageMetadata(partition_key=f"key{number % KEYS}") for number in numbers]
            await producer.ready()
            producer.send_entry(encode_entry([b"message %d" % number for number in numbers], headers))
        await producer.flush()
