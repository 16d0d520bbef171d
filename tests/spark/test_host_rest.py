"""Spark functions through the REST interface of two workers, with a host that has no Spark in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from magnetar.runtime.manager import InstanceEnvironment, RuntimeManager
from magnetar.runtime.spark.host_config import SparkConfig
from magnetar.runtime.spark.runtime import SparkRuntime
from magnetar.wire.functions_pb2 import PackageLocationMetaData
from magnetar.worker.config import WorkerConfig
from magnetar.worker.functions.owners import Owners
from magnetar.worker.service import WorkerService

from tests.spark.fake_host import PROGRAM, ROWS_A_TASK
from tests.spark.topics import fill
from tests.support.calm import Calm
from tests.support.eventually import eventually
from tests.support.servers import Server

pytestmark = [pytest.mark.spark, pytest.mark.slow]
CODE = b"def process(input):\n    return input\n"
STATE_URL = "bk://127.0.0.1:4181"  # nobody asks it: the fake keeps no plans


async def fake_runtime(
    config: WorkerConfig, worker_id: str, fetch: Callable[[PackageLocationMetaData], Awaitable[Path]], _: Owners
) -> RuntimeManager:
    around = InstanceEnvironment(
        worker_id=worker_id, service_url=config.service_url, admin_url=config.admin_url, data_dir=config.data_dir
    )
    spark = SparkRuntime(SparkConfig(data_dir=config.data_dir, master="local[2]", program=PROGRAM, starts_ahead=False))
    return RuntimeManager({"spark": spark}, fetch, around)


@dataclass
class Workers:
    """Two workers of one cluster."""

    https: list[httpx.AsyncClient]
    directory: Path
    broker: Server

    async def create(self, name: str, **fields: Any) -> httpx.Response:
        config = {
            "className": f"{name}.process", "py": f"{name}.py", "inputs": [f"{name}-in"], "output": f"{name}-out",
            "runtimeEnv": "spark", "userConfig": {"directory": str(self.directory)}, **fields,
        }  # fmt: skip
        files = {
            "functionConfig": (None, json.dumps(config).encode(), "application/json"),
            "data": (f"{name}.py", CODE, "application/octet-stream"),
        }
        return await self.https[0].post(name, files=files)

    async def run_of(self, name: str) -> dict[str, Any]:
        """The latest run, as any worker tells it."""
        status = (await self.https[1].get(f"{name}/0/status")).raise_for_status().json()
        return dict(status.get("run") or {})

    async def stage(self, name: str, wanted: str) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            run = await self.run_of(name)
            return run if run.get("stage") == wanted else None

        return await eventually(look, f"run {wanted}")


@pytest.fixture
async def workers(cluster: Server, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Workers]:
    services = []
    for worker_id in ("w1", "w2"):
        config = WorkerConfig(
            service_url=cluster.service_url, admin_url=cluster.web_url, data_dir=tmp_path / worker_id, worker_port=0,
            worker_id=worker_id, functions_namespace=f"public/{request.node.name}"[:60], state_url=STATE_URL,
        )  # fmt: skip
        services.append(WorkerService(config, fake_runtime))
    directory = tmp_path / "orders"
    directory.mkdir()
    try:
        for service in services:
            await service.start()
        https = [
            httpx.AsyncClient(base_url=f"{service.worker_url}/admin/v3/functions/public/default/", timeout=90)
            for service in services
        ]
        yield Workers(https, directory, cluster)
        for http in https:
            await http.aclose()
    finally:
        await asyncio.gather(*(service.stop() for service in services))


async def test_any_worker_triggers_a_run_and_tells_how_it_ended(workers: Workers) -> None:
    created = await workers.create("triggered")
    assert created.status_code == 204, created.text
    await asyncio.to_thread(fill, workers.broker.service_url, "triggered-in", [[b"a", b"b"], [b"c"]])

    async def is_behind() -> bool:
        return bool((await workers.run_of("triggered")).get("lag") == 2)

    await eventually(is_behind, "lag of two entries")
    (workers.directory / "tasks").write_text("2")
    (workers.directory / "go").write_text("all")
    for http in workers.https:
        answer = await http.post("triggered/trigger")
        assert answer.status_code == 200, answer.text
        run = answer.json()
        assert (run["stage"], run["tasksDone"], run["tasksTotal"], run["rows"]) == ("done", 2, 2, 2 * ROWS_A_TASK)
    status = (await workers.https[0].get("triggered/status")).json()["instances"][0]["status"]
    assert (status["running"], status["numReceived"]) == (True, 4 * ROWS_A_TASK)
    policy = f"{workers.broker.web_url}/admin/v2/persistent/public/default/triggered-out/deduplicationEnabled"
    assert (await workers.https[0].get(policy)).json() is True


async def test_a_run_that_is_not_waited_for_is_shown_by_status_and_ended_by_stop(workers: Workers) -> None:
    await workers.create("stopped")
    (workers.directory / "tasks").write_text("2")
    answers = [await http.post("stopped/trigger?noWait=true") for http in workers.https]
    assert answers[0].status_code == 200, answers[0].text
    run_id = answers[0].json()["runId"]
    assert (await workers.stage("stopped", "running"))["runId"] == run_id
    assert answers[1].status_code == 409
    assert f"run {run_id} is in progress" in answers[1].json()["reason"]
    calm = Calm()
    assert (await workers.https[0].post("stopped/stop")).status_code == 204
    assert calm.calm_s < 5
    again = await workers.https[1].post("stopped/trigger")
    assert again.status_code == 409
    assert "stopped: start it with `functions start`" in again.json()["reason"]


async def test_a_run_that_fails_is_an_error_for_who_waits(workers: Workers) -> None:
    await workers.create("failing")
    (workers.directory / "raises").write_text("Traceback (most recent call last):\nValueError: 7")
    answer = await workers.https[1].post("failing/trigger")
    assert answer.status_code == 500
    reason = answer.json()["reason"]
    assert reason.startswith("run ")
    assert reason.endswith("failed: ValueError: 7; run functions logs for details")


async def test_data_and_what_is_for_other_functions_is_refused(workers: Workers) -> None:
    await workers.create("refusing")
    with_data = await workers.https[0].post("refusing/trigger", files={"data": (None, b"x", "text/plain")})
    assert (with_data.status_code, with_data.json()["reason"]) == (
        400,
            "Function refusing is a Spark function, which processes the backlog of its inputs: trigger it without"
            " data"
        ,
    )  # fmt: skip


async def test_a_function_is_refused_where_it_could_not_run(
    workers: Workers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("magnetar.spark.java.find_spec", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    without_java = await workers.create("nojava")
    assert without_java.status_code == 400
    reason = without_java.json()["reason"]
    assert reason.startswith("runtimeEnv spark is not available on the machine of worker w1: no Java found")
    assert "pip install 'magnetar[spark]'" in reason
    monkeypatch.setattr("magnetar.spark.source.requirements.find_spec", lambda name: None)
    without_pyspark = await workers.create("nopyspark")
    assert "pyspark is not installed: run pip install 'magnetar[spark]'" in without_pyspark.json()["reason"]


async def test_a_function_needs_a_place_for_its_plans(cluster: Server, tmp_path: Path) -> None:
    config = WorkerConfig(
        service_url=cluster.service_url, admin_url=cluster.web_url, data_dir=tmp_path / "w", worker_port=0,
        functions_namespace="public/stateless",
    )  # fmt: skip
    service = WorkerService(config, fake_runtime)
    await service.start()
    try:
        url = f"{service.worker_url}/admin/v3/functions/public/default/"
        async with httpx.AsyncClient(base_url=url, timeout=90) as http:
            answer = await Workers([http], tmp_path, cluster).create("f")
        assert answer.status_code == 400
        assert "set stateStorageServiceUrl" in answer.json()["reason"]
    finally:
        await service.stop()
