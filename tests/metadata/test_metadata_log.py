"""Whatever leaders, connections and workers do meanwhile: each accepted request is applied once, and all agree.

A run is drawn from its seed alone, in virtual time; the message of a failing one names the seed and tells the story.
A few more are played in real time on the real broker, where the machine has its part in them.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.broker.brokers import running_broker

from .real_broker import RealBroker
from .requests import Requests
from .simulated_broker import Broker
from .simulated_cluster import METADATA
from .virtual_time import run


def play(seed: int) -> None:
    """Play one story; a failure tells its seed and what happened."""
    chance = random.Random(seed)
    story = Requests(Broker(chance, METADATA), chance)
    try:
        run(story.play())
    except AssertionError as exc:
        raise AssertionError(f"seed {seed}: {exc}\n{story.tail()}") from exc


SEEDS = [
    *(pytest.param(first, marks=pytest.mark.slow) for first in range(0, 60, 20)),
    *(pytest.param(first, marks=pytest.mark.crash) for first in range(60, 1000, 20)),
]
REAL_SEEDS = [
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2)),
    *(pytest.param(seed, marks=pytest.mark.crash) for seed in range(2, 20)),
]


@pytest.mark.parametrize("first", SEEDS)
def test_every_accepted_request_is_applied_once_and_all_workers_agree(first: int) -> None:
    for seed in range(first, first + 20):
        play(seed)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", REAL_SEEDS)
async def test_the_same_holds_on_the_real_broker(seed: int, tmp_path: Path) -> None:
    async with running_broker(tmp_path) as service, RealBroker(service) as broker:
        story = Requests(broker, random.Random(seed), calls=5)
        story.can_freeze = False  # the broker and all workers are one process
        try:
            await story.play()
        except AssertionError as exc:
            raise AssertionError(f"seed {seed}: {exc}\n{story.tail()}") from exc
        await asyncio.sleep(0)
