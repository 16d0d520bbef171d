"""An async function with waiting calls, compared with the theoretical rate and with equivalent asyncio loops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from magnetar.client import AsyncClient, ProducerConfig, encode_entry
from magnetar.wire.pulsar_api_pb2 import SingleMessageMetadata

from tests.support.servers import Server

from .figure import Figure, Table
from .json_rates import SOURCE
from .load import hold
from .loops import OFFICIAL_LOOP, OWN_LOOP, Rate, figures_beside, looping
from .own_loops import CALLS_MAX
from .plan import Plan
from .sample_functions import PAUSE_S, wait
from .state_rates import Processed, deployed

KEYS = 1000
BATCH = 50
TARGET = 2000
TOPIC = "waited-for"


def measure_async(plan: Plan) -> Iterator[Figure]:
    """Measure calls that wait for 100 ms, over 1,000 keys."""
    possible = CALLS_MAX / PAUSE_S
    count = max(int(possible * plan.seconds), 10 * KEYS) // BATCH * BATCH
    names = [f"{who}{turn}" for turn in range(plan.repeats) for who in ("f", "loop")]
    turns = []
    with plan.server("standalone") as server:
        hold(server.service_url, TOPIC, *(f"public/default/{name}" for name in (*names, "official")))
        asyncio.run(_publish(server.service_url, TOPIC, count))
        for turn in range(plan.repeats):
            turns.append((_function(server, f"f{turn}", count), _loop(server, OWN_LOOP, f"loop{turn}", count)))
        official = _loop(server, OFFICIAL_LOOP, "official", count)
    name = f"async function with sleeps of {PAUSE_S * 1000:.0f} ms over {KEYS:,} keys, input batches of {BATCH}"
    beside, share = figures_beside(name, turns, official, unit="messages/s", table=Table.OWN)
    yield Figure(
        name=name,
        ours=beside.ours,
        unit=beside.unit,
        peer=possible,
        peer_name=f"{CALLS_MAX:,} calls at once",
        target=TARGET,
        note=f"one instance; each key's calls one after the other; an asyncio loop on the official client"
        f" {official.rate:,.0f}",
        table=Table.OWN,
    )
    yield share


def _function(server: Server, name: str, count: int) -> Rate:
    with deployed(server, name, f"{name}.{wait.__name__}", SOURCE, inputs=[TOPIC]):
        return Rate(Processed(server, TOPIC, name).slope(count // BATCH) * BATCH)


def _loop(server: Server, module: str, name: str, count: int) -> Rate:
    with looping(module, "pauses", server.service_url, TOPIC, "", f"public/default/{name}"):
        return Rate(Processed(server, TOPIC, name).slope(count // BATCH) * BATCH)


async def _publish(service_url: str, topic: str, count: int) -> None:
    """Publish numbered messages with alternating keys."""
    config = ProducerConfig(batching=False, max_pending_messages=10_000, block_if_queue_full=True)
    async with AsyncClient(service_url) as client:
        producer = await client.create_producer(topic, config)
        for begin in range(0, count, BATCH):
            numbers = range(begin, begin + BATCH)
            headers = [SingleMessageMetadata(partition_key=f"key{number % KEYS}") for number in numbers]
            await producer.ready()
            producer.send_entry(encode_entry([b"message %d" % number for number in numbers], headers))
        await producer.flush()
