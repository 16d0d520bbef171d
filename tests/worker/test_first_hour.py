"""What a new user asks a worker: why a trigger has no output, and which functions run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from magnetar.worker.functions.trigger_outcome import covers
from magnetar.worker.service import WorkerService

from tests.support.eventually import eventually
from tests.support.pulsar import Broker

from .conftest import Cluster, worker_config

SOURCE = """
import os, time
def process(input):
    if input == "none":
        return None
    if input == "slow":
        time.sleep(0.8)
        return None
    if input == "raise":
        raise ValueError("no " + input)
    if input == "dict":
        return {"a": 1}
    return str(input) + "!"
"""
BASE = "/admin/v3/functions/public/default"


async def running(cluster: Cluster, name: str) -> None:
    async def look() -> bool:
        return bool((await cluster.get(f"{name}/status"))["numRunning"] == 1)

    await eventually(look, f"running {name}")


async def trigger(cluster: Cluster, name: str, text: str) -> tuple[int, str, str]:
    """The status, the body or the reason, and the header that says why there is no output."""
    answer = await cluster.http.post(f"{BASE}/{name}/trigger", files={"data": (None, text)})
    body = answer.json()["reason"] if answer.status_code >= 400 else answer.text
    return answer.status_code, body, answer.headers.get("Magnetar-No-Output", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runtime", "guarantee"), [("process", "ATLEAST_ONCE"), ("thread", "ATLEAST_ONCE"), ("thread", "EFFECTIVELY_ONCE")]
)
async def test_trigger_says_why_there_is_no_output(cluster: Cluster, runtime: str, guarantee: str) -> None:
    config: dict[str, Any] = {"runtimeEnv": runtime, "processingGuarantees": guarantee}
    await cluster.create("why", SOURCE, inputs=[cluster.topic("in")], output=cluster.topic("out"), **config)
    await running(cluster, "why")
    assert await trigger(cluster, "why", "a") == (200, "a!", "")
    none = (204, "", "the function returned None, so there is no output")
    assert await trigger(cluster, "why", "none") == none
    if runtime == "process":
        assert await trigger(cluster, "why", "slow") == none
    status, reason, _ = await trigger(cluster, "why", "raise")
    assert status == 400
    assert "ValueError: no raise" in reason
    assert len(reason.splitlines()) == 1


@pytest.mark.slow
async def test_trigger_names_an_output_that_cannot_be_serialised(cluster: Cluster) -> None:
    await cluster.create("why", SOURCE, inputs=[cluster.topic("in")], output=cluster.topic("out"), runtimeEnv="thread")
    await running(cluster, "why")
    status, reason, _ = await trigger(cluster, "why", "dict")
    assert status == 400
    assert "dict" in reason


@pytest.mark.slow
async def test_trigger_of_a_function_that_does_not_run_says_so_at_once(cluster: Cluster) -> None:
    await cluster.create("off", SOURCE, inputs=[cluster.topic("in")], output=cluster.topic("out"), runtimeEnv="thread")
    assert (await cluster.post("off/stop")).status_code == 204
    stopped = (
        408,
        "Function off is stopped: the message remains in its input until the function is started",
        "",
    )
    assert await trigger(cluster, "off", "a") == stopped
    broken = "raise RuntimeError('at import')\n" + SOURCE
    await cluster.create("broken", broken, inputs=[cluster.topic("in2")], output=cluster.topic("out2"))

    async def has_failed() -> bool:
        return bool((await cluster.get("broken/0/status"))["error"])

    await eventually(has_failed, "error in status")
    status, reason, _ = await trigger(cluster, "broken", "a")
    assert status == 400
    assert reason.startswith("Function broken is not running: ")
    assert "RuntimeError: at import" in reason


@pytest.mark.slow
async def test_trigger_without_an_output_topic_does_not_wait(cluster: Cluster) -> None:
    await cluster.create("sink", SOURCE, inputs=[cluster.topic("in")], runtimeEnv="thread")
    status, body, why = await trigger(cluster, "sink", "a")
    assert (status, body) == (204, "")
    assert "no output topic" in why


@pytest.mark.parametrize(
    ("mark", "ranges", "position", "covered"),
    [
        ("3:5", "[]", (3, 5), True),
        ("3:5", "[]", (3, 6), False),
        ("3:-1", "[]", (3, 0), False),
        ("4:-1", "[]", (3, 9), True),
        ("3:5", "[(3:7..3:9],(4:-1..4:2]]", (3, 7), False),
        ("3:5", "[(3:7..3:9],(4:-1..4:2]]", (3, 8), True),
        ("3:5", "[(3:7..3:9],(4:-1..4:2]]", (4, 0), True),
        ("3:5", "[(3:7..3:9],(4:-1..4:2]]", (4, 3), False),
        ("", "", (0, 0), False),
    ],
)
def test_cursors_are_read_as_the_broker_shows_them(
    mark: str, ranges: str, position: tuple[int, int], covered: bool
) -> None:
    cursor = {"markDeletePosition": mark, "individuallyDeletedMessages": ranges}
    assert covers(cursor, position) is covered


@pytest.mark.slow
async def test_list_shows_states_of_all_workers_and_logs_are_followed_to_the_next(
    cluster: Cluster, broker: Broker, tmp_path: Path
) -> None:
    config = worker_config(broker, tmp_path / "second", cluster.service.config.functions_namespace, "second")
    second = WorkerService(config)
    await second.start()
    try:
        source = "import socket\nprint('began')\n" + SOURCE
        await cluster.create("many", source, inputs=[cluster.topic("in")], parallelism=3, runtimeEnv="thread")
        await cluster.create("off", source, inputs=[cluster.topic("in2")], runtimeEnv="thread")
        assert (await cluster.post("off/stop")).status_code == 204
        bad = "raise RuntimeError('at import')\n" + source
        await cluster.create("bad", bad, inputs=[cluster.topic("in3")], runtimeEnv="thread")

        async def rows() -> list[dict[str, Any]]:
            answer = await cluster.http.get(BASE, params={"states": "true"})
            found: list[dict[str, Any]] = answer.json()
            return found

        async def is_up() -> bool:
            return ("many", "running") in [(row["name"], row["state"]) for row in await rows()]

        await eventually(is_up, "all three instances")

        async def has_error() -> bool:
            return "RuntimeError: at import" in (await rows())[0]["error"]

        await eventually(has_error, "the reason")
        assert [(row["name"], row["state"], row["numRunning"], row["numInstances"]) for row in await rows()] == [
            ("bad", "down", 0, 1),
            ("many", "running", 3, 3),
            ("off", "stopped", 0, 0),
        ]
        assert (await cluster.post("many/1/stop")).status_code == 204

        async def two_are_left() -> bool:
            many = (await rows())[1]
            return [many["state"], many["numRunning"], many["numInstances"]] == ["running", 2, 2]

        await eventually(two_are_left, "two of two")
        assert (await cluster.http.get(BASE)).json() == ["bad", "many", "off"]
        assert (await cluster.post("many/1/start")).status_code == 204
        await _logs_follow(cluster, second)
    finally:
        await second.stop()


async def _logs_follow(cluster: Cluster, second: WorkerService) -> None:
    """Follow the log of an instance of the second worker, which then leaves: the first one's log comes next."""

    async def there() -> int | None:
        status = await cluster.get("many/status")
        found = [one["instanceId"] for one in status["instances"] if one["status"]["workerId"] == "second"]
        return found[0] if found else None

    number = await eventually(there, "an instance of the second worker")
    lines: list[str] = []

    async def follow() -> None:
        url = f"{BASE}/many/{number}/logs?follow=true"
        async with cluster.http.stream("GET", url, timeout=None) as answer:
            async for line in answer.aiter_lines():
                lines.append(line)

    following = asyncio.ensure_future(follow())

    async def has_begun() -> bool:
        return any("began" in line for line in lines)

    async def has_begun_again() -> bool:
        return sum("began" in line for line in lines) >= 2

    try:
        await eventually(has_begun, "the log there")
        await second.stop()
        await eventually(has_begun_again, f"the log here; {lines}", timeout_s=30)
    finally:
        following.cancel()
