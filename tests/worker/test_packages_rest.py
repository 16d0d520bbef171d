"""Packages under names: kept, listed, described, deleted, and used by functions; by any worker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from magnetar.worker.rest.packages import METADATA_BYTES_MAX
from magnetar.worker.service import WorkerService

from tests.support.pulsar import Broker

from .conftest import Cluster, worker_config

pytestmark = pytest.mark.slow

BASE = "/admin/v3/packages/function/public/default"
CODE = b"def process(x): return x + '!'\n"
ABOUT = {"description": "louder", "contact": "a@b", "properties": {"k": "v"}}


async def upload(http: httpx.AsyncClient, name: str, content: bytes = CODE, about: Any = ABOUT) -> httpx.Response:
    files: dict[str, Any] = {
        "metadata": (None, json.dumps(about), "application/json"),
        "file": ("shout.py", content, "application/octet-stream"),
    }
    return await http.post(f"{BASE}/{name}", files=files)


async def reason(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["reason"])


async def test_packages_live_under_names_and_functions_come_from_them(
    cluster: Cluster, broker: Broker, tmp_path: Path
) -> None:
    http = cluster.http
    for version in ("1", "2"):
        answer = await upload(http, f"shout/{version}")
        assert (answer.status_code, answer.text) == (204, "")
    assert (await http.get(BASE)).json() == ["shout"]
    assert (await http.get(f"{BASE}/shout")).json() == ["1", "2"]
    assert (await http.get(f"{BASE}/shout/1")).content == CODE
    found = (await http.get(f"{BASE}/shout/1/metadata")).json()
    assert {**found, "createTime": 0, "modificationTime": 0} == {**ABOUT, "createTime": 0, "modificationTime": 0}
    assert found["createTime"] == found["modificationTime"] > 0
    assert await reason(await upload(http, "shout/1")) == (
        409,
            "Package 'function://public/default/shout@1' metadata already exists: delete the package, or use another"
            " version"
        ,
    )  # fmt: skip
    changed = await http.put(f"{BASE}/shout/1/metadata", json={"description": "loudest"})
    assert changed.status_code == 204
    later = (await http.get(f"{BASE}/shout/1/metadata")).json()
    assert (later["description"], later["properties"], later["createTime"]) == ("loudest", {}, found["createTime"])

    name = f"/admin/v3/functions/public/default/named{cluster.suffix}"
    config = {
        "className": "shout.process", "inputs": [cluster.topic("in")], "output": cluster.topic("out"),
        "runtimeEnv": "thread", "py": "function://public/default/shout@1",
    }  # fmt: skip
    parts = {"functionConfig": (None, json.dumps(config), "application/json")}
    missing = await http.post(name, files={**parts, "url": (None, "function://public/default/none@1", "text/plain")})
    assert await reason(missing) == (404, "Package 'function://public/default/none@1' does not exist")
    made = await http.post(name, files={**parts, "url": (None, "function://public/default/shout@1", "text/plain")})
    assert made.status_code == 204, made.text
    assert (await http.delete(f"{BASE}/shout/1")).status_code == 204
    assert await reason(await http.delete(f"{BASE}/shout/1")) == (
        404, "Package 'function://public/default/shout@1' does not exist",
    )  # fmt: skip
    assert (await http.get(f"{BASE}/shout")).json() == ["2"]
    output = await http.post(f"{name}/trigger", files={"data": (None, "x")})
    assert output.text == "x!", "a function keeps its code"

    config_of_second = worker_config(broker, tmp_path / "w2", cluster.service.config.functions_namespace, "w2")
    second = WorkerService(config_of_second)
    await second.start()
    try:
        async with httpx.AsyncClient(base_url=second.worker_url, timeout=60) as other:
            assert (await other.get(f"{BASE}/shout")).json() == ["2"]
            # Of many at once, by two workers, one is the first.
            answers = await asyncio.gather(*(upload(one, "race/1") for one in (http, other) for _ in range(3)))
            assert sorted(answer.status_code for answer in answers) == [204, 409, 409, 409, 409, 409]
            assert (await other.get(f"{BASE}/race/1")).content == CODE
    finally:
        await second.stop()


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/admin/v3/packages/nothing/public/default", 412, "Invalid package domain: 'nothing'"),
        ("GET", f"{BASE}/a@b/1", 412, "Invalid package name 'function://public/default/a@b@1'"),
        ("GET", f"{BASE}/{'x' * 200}/1", 412, "Invalid package name"),
        ("GET", f"{BASE}/%2e%2e/1", 412, "Invalid package name"),
        ("GET", f"{BASE}/a/%2e", 412, "Invalid package name"),
        ("GET", f"{BASE}/none/1", 404, "Package 'function://public/default/none@1' does not exist"),
        ("GET", f"{BASE}/none/1/metadata", 404, "does not exist"),
        ("PUT", f"{BASE}/none/1/metadata", 400, "the request is not JSON"),
    ],
)
async def test_refusals_of_packages_have_the_status_of_pulsar(
    cluster: Cluster, method: str, path: str, status: int, text: str
) -> None:
    answer = await cluster.http.request(method, path)
    assert answer.status_code == status
    assert text in answer.json()["reason"]


async def test_uploads_without_their_parts_are_refused(cluster: Cluster) -> None:
    for files, text in (
        ({"file": ("f.py", CODE, "application/octet-stream")}, "the part metadata is missing"),
        ({"metadata": (None, "{}", "application/json")}, "the part file is missing"),
    ):
        answer = await cluster.http.post(f"{BASE}/f/1", files=files)
        assert (answer.status_code, text in answer.json()["reason"]) == (400, True)
    bad = await upload(cluster.http, "f/1", about={"description": 5})
    assert (bad.status_code, "must be strings" in bad.json()["reason"]) == (400, True)
    large = await upload(cluster.http, "f/1", about={"description": "x" * METADATA_BYTES_MAX})
    assert (large.status_code, f"larger than {METADATA_BYTES_MAX}" in large.json()["reason"]) == (400, True)
    assert (await cluster.http.get(f"{BASE}/f")).json() == []
