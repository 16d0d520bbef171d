"""Another worker leads though nobody died: soon, and without touching an instance."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest
from magnetar.broker.dispatch.single_active import Candidate, choose_active
from magnetar.membership.manager import Member
from magnetar.worker.service import WorkerService

from tests.support.eventually import eventually
from tests.support.pulsar import Broker, free_ports

from .conftest import Cluster, worker_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

GAP_S = 2.0
FUNCTION = "def process(text):\n    return text\n"
PARALLELISM = 3


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def join(
    cluster: Cluster, broker: Broker, directory: Path, stack: AsyncExitStack, name: str, port: int = 0
) -> WorkerService:
    namespace = cluster.service.config.functions_namespace
    config = worker_config(broker, directory / name, namespace, name)
    service = WorkerService(replace(config, worker_port=port))
    await service.start()
    stack.push_async_callback(service.stop)
    return service


def id_that_leads(services: Sequence[WorkerService], port: int) -> str:
    """Return the id of a worker on ``port`` that the broker makes active as soon as it joins the others."""
    config = services[0].config
    topic = config.topic(config.coordination_topic)

    def candidate(worker_id: str, port: int) -> Candidate:
        return Candidate(0, Member(worker_id, config.reachable_host, port).consumer_name)

    others = [candidate(service.worker_id, httpx.URL(service.worker_url).port or 80) for service in services]
    for number in range(1000):
        if choose_active([*others, candidate(f"joining-{number}", port)], topic, -1) == len(others):
            return f"joining-{number}"
    raise AssertionError(f"no worker on port {port} would lead")


async def leader_of(http: httpx.AsyncClient, services: Sequence[WorkerService]) -> WorkerService | None:
    """The one that decides, by its own word."""
    for service in services:
        try:
            answer = await http.get(f"{service.worker_url}/admin/v2/worker/cluster/leader/ready")
        except httpx.HTTPError:
            continue
        if answer.status_code == 200:
            return service
    return None


class Gaps:
    """How long there was nobody who decides, at most."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.is_over = False

    async def watch(self, services: list[WorkerService]) -> None:
        led_at = monotonic()
        async with httpx.AsyncClient(timeout=5) as http:
            while not self.is_over:
                if await leader_of(http, services) is not None:
                    led_at = monotonic()
                self.longest_s = max(self.longest_s, monotonic() - led_at)
                await asyncio.sleep(0.02)


@asynccontextmanager
async def watched(services: list[WorkerService]) -> AsyncIterator[Gaps]:
    gaps = Gaps()
    task = asyncio.create_task(gaps.watch(services))
    try:
        yield gaps
        await eventually(lambda: led(services), "leader")
    finally:
        gaps.is_over = True
        await task


async def led(services: Sequence[WorkerService]) -> WorkerService | None:
    async with httpx.AsyncClient(timeout=5) as http:
        return await leader_of(http, services)


async def running(cluster: Cluster, name: str) -> dict[int, tuple[str, int, int]]:
    """Of each running instance: its worker, how often it was restarted, and how much it has received in this run."""
    status: dict[str, Any] = await cluster.get(f"{name}/status")
    return {
        one["instanceId"]: (one["status"]["workerId"], one["status"]["numRestarts"], one["status"]["numReceived"])
        for one in status["instances"]
        if one["status"]["running"]
    }


async def deploy(cluster: Cluster, name: str) -> dict[int, tuple[str, int, int]]:
    """Have a function run on all workers, and let it count to more than a fresh run would have."""
    topic = cluster.topic(name)
    created = await cluster.create(name, FUNCTION, inputs=[topic], parallelism=PARALLELISM, runtimeEnv="thread")
    assert created.is_success, created.text

    async def are_all() -> bool:
        return len(await running(cluster, name)) == PARALLELISM

    await eventually(are_all, "all instances")
    producer = await cluster.client.create_producer(topic)
    for number in range(30):
        await producer.send(b"%d" % number)
    await producer.close()

    async def are_received() -> bool:
        return sum(one[2] for one in (await running(cluster, name)).values()) == 30

    await eventually(are_received, "30 messages received")
    return await running(cluster, name)


async def test_a_join_that_moves_leadership_moves_no_instance(
    cluster: Cluster, broker: Broker, tmp_path: Path, stack: AsyncExitStack
) -> None:
    services = [cluster.service, await join(cluster, broker, tmp_path, stack, "w1")]
    before = await deploy(cluster, "stays")
    leader = await eventually(lambda: led(services), "leader")
    port = int(free_ports(1)[0])
    name = id_that_leads(services, port)
    async with watched(services) as gaps:
        services.append(await join(cluster, broker, tmp_path, stack, name, port))

        async def has_moved() -> bool:
            return (await led(services)) is services[-1]

        await eventually(has_moved, f"{name} leads instead of {leader.worker_id}", timeout_s=15)
    print(f"leadership went to {name}; nobody led for {gaps.longest_s:.2f} s at most")
    assert gaps.longest_s < GAP_S
    assert await running(cluster, "stays") == before


async def test_a_leader_that_leaves_moves_none_but_its_own_instances(
    cluster: Cluster, broker: Broker, tmp_path: Path, stack: AsyncExitStack
) -> None:
    services = [cluster.service, *[await join(cluster, broker, tmp_path, stack, name) for name in ("w1", "w2")]]
    leader = await eventually(lambda: led(services), "leader")
    staying = [service for service in services if service is not leader]
    cluster.http.base_url = staying[0].worker_url
    before = await deploy(cluster, "mostly")
    own = {number for number, (worker, _, _) in before.items() if worker == leader.worker_id}
    assert own
    assert len(own) < PARALLELISM
    async with watched(services) as gaps:
        await leader.stop()

        async def have_moved() -> bool:
            now = await running(cluster, "mostly")
            return len(now) == PARALLELISM and leader.worker_id not in {worker for worker, _, _ in now.values()}

        await eventually(have_moved, "the leader's instances elsewhere", timeout_s=15)
    print(f"nobody led for {gaps.longest_s:.2f} s at most")
    assert gaps.longest_s < GAP_S
    after = await running(cluster, "mostly")
    assert {number: after[number] for number in after if number not in own} == {
        number: before[number] for number in before if number not in own
    }
