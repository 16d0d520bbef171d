"""`kill -9` of the broker under a producer and a consumer with receipts in hand."""

from __future__ import annotations

import asyncio
import random

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig

from tests.crash.history import History, place
from tests.crash.traffic import Traffic, drain, read_all
from tests.support.servers import Server

TOPIC = "persistent://public/default/killed"
KILL_WITHIN_S = 0.5


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
async def test_three_kills_lose_nothing_receipted(broker: Server, batching: bool) -> None:
    await rounds(broker, batching, kills=3, seed=20261121)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_twenty_kills_lose_nothing_receipted(broker: Server, batching: bool, seed: int) -> None:
    await rounds(broker, batching, kills=20, seed=seed)


async def rounds(broker: Server, batching: bool, kills: int, seed: int) -> None:
    """Publish and consume through `kills` deaths of the broker, then compare with what is stored."""
    rng = random.Random(seed)
    history = History()
    async with AsyncClient(broker.service_url) as client:
        traffic = Traffic(history, random.Random(seed + 1))
        await traffic.start(client, TOPIC, batching)
        try:
            for _ in range(kills):
                await traffic.progress()
                await asyncio.sleep(rng.uniform(0, KILL_WITHIN_S))  # the random moment, not a wait for anything
                await kill_and_restart(broker)
                history.session += 1
            await traffic.progress()
            await traffic.finish()
        finally:
            await traffic.cancel()
        stored = await read_all(client, TOPIC)
    assert len(history.receipts) == history.sent
    duplicates = history.check_stored(stored)
    await kill_and_restart(broker)
    async with AsyncClient(broker.service_url) as client:
        consumer = await client.subscribe(TOPIC, "s", ConsumerConfig())
        rest = [(place(m.message_id), int(m.data)) for m in await drain(consumer)]
    history.check_rest(rest, stored)
    assert history.confirmed, "no acknowledgement was confirmed: nothing was tested"
    print(
        f"seed {seed}: {history.sent} sent, {duplicates} stored twice, "
        f"{len(history.confirmed)} of {len(history.acknowledged)} acknowledgements confirmed, {len(rest)} left open"
    )


async def kill_and_restart(broker: Server) -> None:
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.restart)
