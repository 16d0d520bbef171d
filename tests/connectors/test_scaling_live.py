"""A source that is scaled while it works loses nothing: the real worker, state store and broker."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from magnetar.client.client import AsyncClient

from tests.connectors.scaled import Scaled
from tests.support.eventually import eventually
from tests.support.instances import topic
from tests.support.servers import Server, running

__all__ = ["topic"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COUNTS = (2, 1, 3, 1)
FILES = 400
LINES = 20
NUMBERS = 12_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("standalone")) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.service_url) as client:
        yield client


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.web_url, timeout=60) as http:
        yield http


@pytest.mark.parametrize("keeps", [True, False])
async def test_file_source_reads_every_file_while_it_is_scaled(
    http: httpx.AsyncClient, client: AsyncClient, topic: str, tmp_path: Path, keeps: bool
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    expected: set[bytes] = set()

    async def write_files() -> None:
        for number in range(FILES):
            lines = [f"{number} {line}" for line in range(LINES)]
            expected.update(line.encode() for line in lines)
            (tmp_path / f".{number}").write_text("".join(f"{line}\n" for line in lines))
            (tmp_path / f".{number}").rename(tmp_path / f"{number}")
            await asyncio.sleep(0.01)  # the pace of the load, not a wait

    scaled = Scaled(http, client, topic, "files")
    await scaled.send(
        "POST",
        {
            "topicName": topic, "sourceType": "file", "runtimeEnv": "thread", "parallelism": 1,
            "configs": {"inputDirectory": str(tmp_path), "pollingInterval": 50, "keepFile": keeps},
        },
    )  # fmt: skip
    await scaled.subscribe()
    async with asyncio.TaskGroup() as load:
        load.create_task(write_files())
        load.create_task(scaled.scale(COUNTS, random.Random(seed)))

    twice = await scaled.receive_all(expected)
    print(f"{twice} of {len(expected)} lines came twice")
    assert twice < len(expected) / 2  # what an instance had read and not recorded when the next took over
    if not keeps:
        await eventually(lambda: _is_empty(tmp_path), "the removal of all files", 60)
    assert (await http.delete(scaled.path)).status_code == 204


async def _is_empty(directory: Path) -> bool:
    return not os.listdir(directory)


async def test_generator_makes_every_number_while_it_is_scaled(
    http: httpx.AsyncClient, client: AsyncClient, topic: str
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    scaled = Scaled(http, client, topic, "numbers")
    configs = {"fields": {"n": "sequence"}, "rate": 2000, "count": NUMBERS}
    await scaled.send(
        "POST", {"topicName": topic, "sourceType": "generator", "runtimeEnv": "thread", "configs": configs}
    )
    await scaled.subscribe()
    await scaled.scale((3, 1, 2), random.Random(seed))

    async def is_all_there() -> bool:
        await scaled.receive(1 << 20, 1.0)
        return len(scaled.found) == NUMBERS

    await eventually(is_all_there, "all numbers", 120)
    assert {json.loads(value)["n"] for value in scaled.found} == set(range(NUMBERS))
    print(f"{sum(scaled.found.values()) - NUMBERS} of {NUMBERS} numbers came twice")
    assert (await http.delete(scaled.path)).status_code == 204
