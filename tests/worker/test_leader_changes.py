"""What a leader has begun, the next one goes on with: drains and deletions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from magnetar.worker.cluster.broker_admin import BrokerAdmin
from magnetar.worker.service import WorkerService

from tests.support.eventually import eventually
from tests.support.pulsar import Broker, own_name

from .conftest import worker_config

pytestmark = pytest.mark.slow

SOURCE = b"def process(input):\n    return input\n"


class Three:
    """Three workers, and what one can ask them."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.http = httpx.AsyncClient(timeout=60, follow_redirects=True)
        self.services: dict[str, WorkerService] = {}
        self._directory = directory
        self._namespace = f"public/{own_name('changes')}"

    async def start(self, name: str) -> None:
        config = worker_config(self.broker, self._directory / name, self._namespace, name)
        self.services[name] = WorkerService(config)
        await self.services[name].start()

    async def stop(self, name: str) -> None:
        await self.services.pop(name).stop()

    async def close(self) -> None:
        await asyncio.gather(*(self.stop(name) for name in list(self.services)))
        await self.http.aclose()

    def url(self, name: str | None = None) -> str:
        return self.services[name or next(iter(self.services))].worker_url

    async def get(self, path: str, name: str | None = None) -> Any:
        return (await self.http.get(f"{self.url(name)}{path}")).raise_for_status().json()

    async def leader(self) -> str:
        async def look() -> str | None:
            answer = await self.http.get(f"{self.url()}/admin/v2/worker/cluster/leader")
            found = answer.json().get("workerId")
            if found not in self.services:
                return None
            ready = await self.http.get(f"{self.url(found)}/admin/v2/worker/cluster/leader/ready")
            return str(found) if ready.is_success else None

        return await eventually(look, "leader that decides")

    async def create(self, function: str, topic: str, parallelism: int) -> None:
        config = {
            "className": f"{function}.process", "py": f"{function}.py", "inputs": [topic], "parallelism": parallelism,
            "runtimeEnv": "thread", "cleanupSubscription": True,
        }  # fmt: skip
        form = (None, json.dumps(config).encode(), "application/json")
        package = (f"{function}.py", SOURCE, "application/octet-stream")
        url = f"{self.url()}/admin/v3/functions/public/default/{function}"
        (await self.http.post(url, files=[("functionConfig", form), ("data", package)])).raise_for_status()

    async def counts(self) -> dict[str, int]:
        found = await self.get("/admin/v2/worker/assignments")
        return {name: len(keys) for name, keys in found.items()}


@pytest.fixture
async def three(broker: Broker, tmp_path: Path) -> AsyncIterator[Three]:
    async with AsyncExitStack() as stack:
        three = Three(broker, tmp_path)
        stack.push_async_callback(three.close)
        for name in ("w0", "w1", "w2"):
            await three.start(name)
        yield three


async def test_a_drained_worker_stays_drained_under_the_next_leader_until_it_is_started_anew(three: Three) -> None:
    await three.create("busy", own_name("in"), parallelism=6)
    leader = await three.leader()
    drained, other = (name for name in three.services if name != leader)

    async def drain_status() -> str:
        return str((await three.get(f"/admin/v2/worker/leader/drain?workerId={drained}", other))["status"])

    path = f"/admin/v2/worker/leader/drain?workerId={drained}"
    assert (await three.http.put(f"{three.url(other)}{path}")).status_code == 204

    async def is_empty() -> bool:
        return await three.counts() == {leader: 3, other: 3}

    await eventually(is_empty, "three instances on each of the others")
    await three.stop(leader)

    async def has_moved() -> bool:
        return await three.counts() == {other: 6}

    await eventually(has_moved, "everything on the one that is not drained", timeout_s=60)
    await three.leader()
    assert await drain_status() == "SUCCESS"
    again = await three.http.put(f"{three.url(other)}{path}")
    assert again.status_code in (400, 412), again.text
    await three.stop(drained)
    await three.start(drained)
    await three.leader()
    assert await drain_status() == "NOT_RUN"
    assert (await three.http.put(f"{three.url(other)}/admin/v2/worker/rebalance")).status_code == 204

    async def is_even() -> bool:
        return await three.counts() == {other: 3, drained: 3}

    await eventually(is_even, "three instances on each")


async def test_a_deletion_that_loses_its_leader_is_carried_out_by_the_next_one(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever leads when the deletion is answered: function and subscription are gone then, not later."""
    topic = f"persistent://public/default/{own_name('in')}"
    await three.create("gone", topic, parallelism=1)
    leader = await three.leader()
    other = next(name for name in three.services if name != leader)
    subscriptions = f"{three.broker.web_url}/admin/v2/{topic.replace('://', '/')}/subscriptions"
    is_removing, may_remove = asyncio.Event(), asyncio.Event()
    delete = BrokerAdmin.delete_subscription

    async def held(self: BrokerAdmin, topic: str, subscription: str, *, is_forced: bool = False) -> bool:
        is_removing.set()
        await may_remove.wait()
        return await delete(self, topic, subscription, is_forced=is_forced)

    monkeypatch.setattr(BrokerAdmin, "delete_subscription", held)
    url = f"{three.url(other)}/admin/v3/functions/public/default/gone"
    deleting = asyncio.create_task(three.http.delete(url))
    await is_removing.wait()
    assert (await three.http.get(url)).is_success, "gone before its subscription"
    stopping = asyncio.create_task(three.stop(leader))

    async def has_another_leader() -> bool:
        found = (await three.http.get(f"{three.url(other)}/admin/v2/worker/cluster/leader")).json().get("workerId")
        return found not in (None, leader)

    await eventually(has_another_leader, "next leader")
    may_remove.set()
    assert (await deleting).status_code == 204
    assert (await three.http.get(subscriptions)).json() == []
    assert (await three.http.get(url)).status_code == 404
    await stopping
