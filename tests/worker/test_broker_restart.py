"""A worker outlives its broker: whatever comes back, it goes on, and nothing moves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from magnetar.client.client import AsyncClient
from magnetar.worker.service import WorkerService

from tests.support.eventually import eventually
from tests.support.pulsar import BROKERS, Broker, mortal, own_name
from tests.support.servers import server

from .conftest import Cluster, worker_config

pytestmark = pytest.mark.slow

EXCLAIM = "def process(input):\n    return f'{input}!'\n"


@pytest.fixture(params=BROKERS)
def broker_to_kill(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A broker that may be killed; it serves at the beginning."""
    if request.param == "pulsar":
        yield mortal(request.getfixturevalue("mortal_pulsar"))
        return
    broker = server("broker", tmp_path / "broker")
    broker.start()
    yield broker
    broker.stop()


async def answered(cluster: Cluster, name: str) -> None:
    """Return once the function answers a trigger, and requests to it succeed."""

    async def try_it() -> bool:
        url = f"/admin/v3/functions/public/default/{name}/trigger"
        try:
            answer = await cluster.http.post(url, files={"data": (None, "x")})
        except httpx.HTTPError:
            return False
        return answer.text == "x!"

    await eventually(try_it, f"answer of {name}", timeout_s=30)


@contextlib.asynccontextmanager
async def serving(service: WorkerService, broker: Broker, suffix: str) -> AsyncIterator[Cluster]:
    """A worker that has started, with a function that answers."""
    await service.start()
    async with (
        httpx.AsyncClient(base_url=service.worker_url, timeout=60) as http,
        AsyncClient(broker.service_url) as client,
    ):
        cluster = Cluster(service, broker, http, client, suffix)
        created = await cluster.create("ex", EXCLAIM, inputs=[cluster.topic("in")], output=cluster.topic("out"))
        assert (created.status_code, created.text) == (204, "")
        await answered(cluster, "ex")
        yield cluster


@pytest.mark.timeout(300)
async def test_after_a_killed_broker_is_back_everything_goes_on(broker_to_kill: Broker, tmp_path: Path) -> None:
    suffix = own_name("")
    service = WorkerService(worker_config(broker_to_kill, tmp_path / "worker", f"public/functions{suffix}"))
    try:
        async with serving(service, broker_to_kill, suffix) as cluster:
            before = (await cluster.http.get("/admin/v2/worker/assignments")).json()
            broker_to_kill.kill()
            await asyncio.to_thread(broker_to_kill.restart)
            await answered(cluster, "ex")
            created = await cluster.create(
                "second", EXCLAIM, inputs=[cluster.topic("in2")], output=cluster.topic("out2")
            )
            assert (created.status_code, created.text) == (204, "")
            await answered(cluster, "second")
            after: dict[str, Any] = (await cluster.http.get("/admin/v2/worker/assignments")).json()
            (instances,) = before.values()
            assert after == {service.worker_id: [*instances, "public/default/second:0"]}
            status = await cluster.get("ex/status")
            assert status["instances"][0]["status"]["numRestarts"] == 0
    finally:
        await service.stop()


@pytest.mark.timeout(300)
async def test_a_worker_stops_although_its_broker_is_gone(broker_to_kill: Broker, tmp_path: Path) -> None:
    suffix = own_name("")
    service = WorkerService(worker_config(broker_to_kill, tmp_path / "worker", f"public/functions{suffix}"))
    try:
        async with serving(service, broker_to_kill, suffix):
            pass
    finally:
        broker_to_kill.kill()
        async with asyncio.timeout(30):
            await service.stop()
