"""Two workers on one broker: any of them takes a request, the leader decides, the other takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from magnetar.worker.service import WorkerService

from tests.support.eventually import eventually
from tests.support.pulsar import Broker

from .conftest import Cluster, worker_config

pytestmark = pytest.mark.slow

EXCLAIM = "def process(input):\n    print('got', input)\n    return f'{input}!'\n"


@pytest.fixture
async def second(cluster: Cluster, broker: Broker, tmp_path: Path) -> AsyncIterator[WorkerService]:
    config = worker_config(broker, tmp_path / "second", cluster.service.config.functions_namespace, "second:worker")
    service = WorkerService(config)
    await service.start()
    yield service
    await service.stop()


async def leader_of(cluster: Cluster, services: list[WorkerService]) -> WorkerService:
    async def look() -> WorkerService | None:
        answer = await cluster.http.get("/admin/v2/worker/cluster/leader")
        found = [one for one in services if answer.is_success and one.worker_id == answer.json()["workerId"]]
        return found[0] if found else None

    return await eventually(look, "leader")


async def test_both_are_members_and_instances_are_spread(cluster: Cluster, second: WorkerService) -> None:
    members = (await cluster.http.get("/admin/v2/worker/cluster")).json()
    assert sorted(member["workerId"] for member in members) == sorted([cluster.service.worker_id, "second:worker"])
    assert (await cluster.create("spread", EXCLAIM, inputs=[cluster.topic("in")], parallelism=4)).status_code == 204

    async def is_spread() -> bool:
        status = await cluster.get("spread/status")
        workers = [one["status"]["workerId"] for one in status["instances"] if one["status"]["running"]]
        return sorted(workers) == sorted([cluster.service.worker_id, "second:worker"] * 2)

    await eventually(is_spread, "two instances on each worker")
    assignments = (await cluster.http.get("/admin/v2/worker/assignments")).json()
    assert {worker: len(keys) for worker, keys in assignments.items()} == {
        cluster.service.worker_id: 2,
        "second:worker": 2,
    }


async def test_each_takes_requests_and_shows_them_at_once(cluster: Cluster, second: WorkerService) -> None:
    for number, service in enumerate([cluster.service, second] * 2):
        cluster.http.base_url = service.worker_url
        name = f"fn{number}"
        created = await cluster.create(name, EXCLAIM, inputs=[cluster.topic(name)], output=cluster.topic(f"{name}-out"))
        assert (created.status_code, created.text) == (204, "")
        assert (await cluster.get(name))["name"] == name
        again = await cluster.create(name, EXCLAIM, inputs=[cluster.topic(name)])
        assert (again.status_code, again.json()) == (400, {"reason": f"Function {name} already exists"})
        answer = await cluster.http.post(
            f"/admin/v3/functions/public/default/{name}/trigger", files={"data": (None, "x")}
        )
        assert answer.text == "x!"
    for service in (cluster.service, second):
        cluster.http.base_url = service.worker_url
        for number in range(4):
            assert "got x" in (await cluster.http.get(f"/admin/v3/functions/public/default/fn{number}/logs")).text
            assert (await cluster.get(f"fn{number}/stats"))["receivedTotal"] == 1
    assert (await cluster.post("fn0/restart")).status_code == 204
    assert (await cluster.post("fn1/0/stop")).status_code == 204
    assert (await cluster.http.delete("/admin/v3/functions/public/default/fn2")).status_code == 204
    assert sorted((await cluster.http.get("/admin/v3/functions/public/default")).json()) == ["fn0", "fn1", "fn3"]


async def test_of_two_equal_requests_at_once_one_wins(cluster: Cluster, second: WorkerService) -> None:
    async with httpx.AsyncClient(base_url=second.worker_url, timeout=60) as other:
        twin = Cluster(second, cluster.broker, other, cluster.client, cluster.suffix)
        answers = await asyncio.gather(
            *(one.create("twin", EXCLAIM, inputs=[cluster.topic("in")]) for one in (cluster, twin) for _ in range(2))
        )
    assert sorted(answer.status_code for answer in answers) == [204, 400, 400, 400]
    refusals = {answer.json()["reason"] for answer in answers if answer.status_code == 400}
    assert refusals == {"Function twin already exists"}


async def test_when_the_leader_leaves_the_other_takes_its_instances(cluster: Cluster, second: WorkerService) -> None:
    leader = await leader_of(cluster, [cluster.service, second])
    other = second if leader is cluster.service else cluster.service
    await cluster.create("heal", EXCLAIM, inputs=[cluster.topic("in")], output=cluster.topic("out"), parallelism=2)
    cluster.http.base_url = other.worker_url
    leaving = asyncio.ensure_future(leader.stop())
    # A request in the middle of it is answered, not lost.
    created = await cluster.create("during", EXCLAIM, inputs=[cluster.topic("in2")])
    assert (created.status_code, created.text) == (204, "")
    await leaving

    async def has_healed() -> bool:
        workers = set()
        for name, count in (("heal", 2), ("during", 1)):
            status = await cluster.get(f"{name}/status")
            if status["numRunning"] != count:
                return False
            workers |= {one["status"]["workerId"] for one in status["instances"]}
        return workers == {other.worker_id}

    await eventually(has_healed, "all instances on the worker that stayed", timeout_s=60)
    assert (await cluster.http.get("/admin/v2/worker/cluster/leader")).json()["workerId"] == other.worker_id


async def test_instances_move_by_rebalance_and_drain_through_any_worker(
    cluster: Cluster, second: WorkerService
) -> None:
    cluster.http.follow_redirects = True
    services = {one.worker_id: one for one in (cluster.service, second)}
    await cluster.create("moving", EXCLAIM, inputs=[cluster.topic("in")], parallelism=5)
    leader = await leader_of(cluster, list(services.values()))
    (other,) = (one for one in services.values() if one is not leader)

    async def counts() -> dict[str, int]:
        status = await cluster.get("moving/status")
        running = [one["status"]["workerId"] for one in status["instances"] if one["status"]["running"]]
        return {worker: running.count(worker) for worker in services if worker in running}

    async def are(expected: dict[str, int]) -> bool:
        return await counts() == expected

    async def drain_status(worker: str) -> str:
        url = f"{other.worker_url}/admin/v2/worker/leader/drain"
        return str((await cluster.http.get(url, params={"workerId": worker})).json()["status"])

    assert await drain_status(other.worker_id) == "NOT_RUN"
    assert (await cluster.http.put(f"{other.worker_url}/admin/v2/worker/drain")).status_code == 204
    await eventually(lambda: are({leader.worker_id: 5}), "everything on the leader")
    assert await drain_status(other.worker_id) == "SUCCESS"
    again = await cluster.http.put(f"{other.worker_url}/admin/v2/worker/drain")
    assert again.status_code == 412
    refused = await cluster.http.put(f"{other.worker_url}/admin/v2/worker/rebalance")
    assert (refused.status_code, refused.json()) == (400, {"reason": "Too few workers (need at least 2)"})
    unknown = await cluster.http.put(f"{other.worker_url}/admin/v2/worker/leader/drain?workerId=nobody")
    assert unknown.json() == {"reason": "Worker nobody is not among the current workers in the system"}
    assert await drain_status("nobody") == "ERROR"


async def test_rebalance_moves_no_more_than_it_must(cluster: Cluster, broker: Broker, tmp_path: Path) -> None:
    cluster.http.follow_redirects = True
    await cluster.create("even", EXCLAIM, inputs=[cluster.topic("in")], parallelism=5)
    alone = (await cluster.http.get("/admin/v2/worker/assignments")).json()
    assert alone == {cluster.service.worker_id: [f"public/default/even:{number}" for number in range(5)]}
    late = WorkerService(worker_config(broker, tmp_path / "late", cluster.service.config.functions_namespace, "late"))
    await late.start()
    try:
        await leader_of(cluster, [cluster.service, late])
        assert (await cluster.http.get("/admin/v2/worker/assignments")).json() == alone
        assert (await cluster.http.put(f"{late.worker_url}/admin/v2/worker/rebalance")).status_code == 204

        async def is_even() -> bool:
            found = (await cluster.http.get("/admin/v2/worker/assignments")).json()
            return {worker: len(held) for worker, held in found.items()} == {cluster.service.worker_id: 3, "late": 2}

        await eventually(is_even, "three and two")
    finally:
        await late.stop()


async def test_connectors_are_asked_and_restarted_wherever_they_run(cluster: Cluster, second: WorkerService) -> None:
    workers = sorted([cluster.service.worker_id, "second:worker"])
    topic = cluster.topic("generated")
    source = {"topicName": topic, "archive": "builtin://generator", "configs": {"rate": 50}, "parallelism": 4}
    sink = {"inputs": [topic], "archive": "builtin://console", "parallelism": 4}
    for kind, config in (("sources", source), ("sinks", sink)):
        created = await cluster.deploy_connector("POST", kind, f"spread-{kind}", config)
        assert (created.status_code, created.text) == (204, "")

    async def all_work(path: str, written: str) -> Any:
        status = (await cluster.http.get(f"{path}/status")).json()
        are_busy = [one["status"]["running"] and one["status"].get(written) for one in status["instances"]]
        return len(are_busy) == 4 and all(are_busy) and status

    for url in (cluster.service.worker_url, second.worker_url):
        cluster.http.base_url = url
        for kind, written in (("sources", "numWritten"), ("sinks", "numWrittenToSink")):
            path = f"/admin/v3/{kind}/public/default/spread-{kind}"
            work = partial(all_work, path, written)
            status = await eventually(work, "four instances at work")
            same = ("running", "error", "workerId")
            shown = [one["status"] for one in status["instances"]]
            assert sorted(one["workerId"] for one in shown) == [workers[0], workers[0], workers[1], workers[1]]
            for number in range(4):
                one = (await cluster.http.get(f"{path}/{number}/status")).json()
                assert one.keys() == shown[number].keys()
                assert {name: one[name] for name in same} == {name: shown[number][name] for name in same}
                assert (await cluster.http.post(f"{path}/{number}/restart")).status_code == 204
            assert (await cluster.http.post(f"{path}/restart")).status_code == 204
            await eventually(work, "four instances at work again")
            if kind == "sinks":
                for number in range(4):
                    assert '"id": ' in (await cluster.http.get(f"{path}/{number}/logs")).text
            assert (await cluster.http.post(f"{path}/stop")).status_code == 204
            assert (await cluster.http.get(f"{path}/status")).json()["numRunning"] == 0
            assert (await cluster.http.post(f"{path}/start")).status_code == 204
            await eventually(work, "four instances at work after a start")
    for kind in ("sources", "sinks"):
        path = f"/admin/v3/{kind}/public/default/spread-{kind}"
        assert (await cluster.http.delete(path)).status_code == 204
        assert (await cluster.http.get(path)).status_code == 404
