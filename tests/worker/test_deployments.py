"""Versions on a real worker: what runs, what does not come up, the way back; on both runtimes."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from magnetar.web.deployments import ROLLBACK_PARAMETER, VERSION_HEADER

from tests.support.eventually import eventually

from .conftest import Cluster

pytestmark = pytest.mark.slow

GOOD = "def process(input):\n    return f'{input} %s'\n"
BAD = "raise ValueError('no good')\ndef process(input):\n    return input\n"


async def update(cluster: Cluster, name: str, source: str, **query: Any) -> httpx.Response:
    files = [
        ("functionConfig", (None, b"{}", "application/json")),
        ("data", (f"{name}.py", source.encode(), "application/octet-stream")),
    ]
    path = f"/admin/v3/functions/public/default/{name}"
    return await cluster.http.put(path, files=files, params=query)


async def state_of(cluster: Cluster, name: str, version: str) -> dict[str, Any]:
    """The state of a version once it is decided."""

    async def decided() -> dict[str, Any] | None:
        found: dict[str, Any] = await cluster.get(f"{name}/deployment?version={version}")
        is_open = found["state"] == "starting" or (found["state"] == "failed" and found["rollsBack"])
        return None if is_open else found

    return await eventually(decided, f"decision about version {version} of {name}")


async def triggered(cluster: Cluster, name: str) -> str:
    answer = await cluster.http.post(f"/admin/v3/functions/public/default/{name}/trigger", files={"data": (None, "x")})
    return answer.text


@pytest.mark.parametrize("runtime", ["thread", "process"])
async def test_what_does_not_come_up_is_rolled_back_and_earlier_versions_come_back(
    cluster: Cluster, runtime: str
) -> None:
    config = {"inputs": [cluster.topic("in")], "output": cluster.topic("out"), "runtimeEnv": runtime, "parallelism": 2}
    created = await cluster.create("f", GOOD % "first", **config)
    assert (created.status_code, created.headers[VERSION_HEADER], created.text) == (204, "0", "")
    assert (await state_of(cluster, "f", "0"))["state"] == "running"
    answer = await update(cluster, "f", BAD, **{ROLLBACK_PARAMETER: "true"})
    version = answer.headers[VERSION_HEADER]
    assert version == "1", answer.text
    found = await state_of(cluster, "f", version)
    assert (found["state"], found["restoredVersion"]) == ("rolledBack", 0)
    assert "ValueError: no good" in found["error"]
    assert (await state_of(cluster, "f", "2"))["state"] == "running"
    assert await triggered(cluster, "f") == "x first"
    # By default, as from Pulsar's tools, what was sent stays.
    assert (await update(cluster, "f", BAD)).status_code == 204
    assert (await state_of(cluster, "f", "3"))["state"] == "failed"
    second = await update(cluster, "f", GOOD % "second", **{ROLLBACK_PARAMETER: "true"})
    assert (await state_of(cluster, "f", second.headers[VERSION_HEADER]))["state"] == "running"
    assert await triggered(cluster, "f") == "x second"

    async def is_kept() -> bool:
        return bool((await cluster.get("f/versions"))[0]["state"] == "deployed")

    await eventually(is_kept, "end of the trial")
    assert [(one["version"], one["state"]) for one in await cluster.get("f/versions")] == [
        (4, "deployed"), (3, "replaced"), (2, "replaced"), (1, "rolledBack"), (0, "replaced"),
    ]  # fmt: skip
    back = await cluster.post("f/rollback?toVersion=2")
    assert (back.status_code, back.headers[VERSION_HEADER]) == (204, "5"), back.text
    assert (await state_of(cluster, "f", "5"))["state"] == "running"
    assert await triggered(cluster, "f") == "x first"


async def test_refusals_of_a_rollback_say_why(cluster: Cluster) -> None:
    await cluster.create("f", GOOD % "", inputs=[cluster.topic("in")], runtimeEnv="thread")
    for path, status, reason in (
        ("f/rollback?toVersion=0", 400, "version 0 of f is already deployed: nothing to roll back"),
        ("f/rollback?toVersion=7", 400, "version 7 of f was not retained: earlier versions available: none"),
        ("f/rollback", 400, "toVersion: Field required"),
        ("none/rollback?toVersion=0", 404, "Function none doesn't exist"),
    ):
        answer = await cluster.post(path)
        assert (answer.status_code, answer.json()["reason"]) == (status, reason)
    (await update(cluster, "f", GOOD % "second")).raise_for_status()
    for answer in (
        await cluster.post("f/rollback?toVersion=0&withState=true"),
        await update(cluster, "f", GOOD % "third", keepState="true"),
    ):
        assert answer.status_code == 503
        assert "This worker has no state store; set stateStorageServiceUrl" in answer.json()["reason"]
    asked = await cluster.http.get("/admin/v3/functions/public/default/f/deployment?version=3")
    assert (asked.status_code, asked.json()["reason"]) == (400, "version 3 does not exist: the newest version is 1")
