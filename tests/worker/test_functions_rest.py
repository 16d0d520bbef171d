"""Functions through the worker's REST interface, on a real broker and with real processes."""

from __future__ import annotations

import asyncio
import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
from magnetar.client.config import ConsumerConfig
from magnetar.worker.service import WorkerService

from tests.support.eventually import eventually
from tests.support.servers import Server

from .conftest import Cluster, worker_config

pytestmark = pytest.mark.slow

EXCLAIM = "def process(input):\n    print('got', input)\n    return f'{input}!'\n"


async def running(cluster: Cluster, name: str, count: int = 1) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        status = await cluster.get(f"{name}/status")
        return status if status["numRunning"] == count else None

    return await eventually(look, f"{count} running instances of {name}")


async def test_a_function_is_created_runs_and_is_deleted_with_its_subscription(cluster: Cluster) -> None:
    source, sink = cluster.topic("in"), cluster.topic("out")
    answer = await cluster.create("ex", EXCLAIM, inputs=[source], output=sink)
    assert (answer.status_code, answer.content) == (204, b"")
    assert (await cluster.http.get("/admin/v3/functions/public/default")).json() == ["ex"]
    await running(cluster, "ex")
    consumer = await cluster.client.subscribe(sink, "test", ConsumerConfig(initial_position="Earliest"))
    producer = await cluster.client.create_producer(source)
    await producer.send(b"hello")
    assert (await consumer.receive(10)).data == b"hello!"

    async def is_counted() -> bool:
        return bool((await cluster.get("ex/stats"))["processedSuccessfullyTotal"] == 1)

    await eventually(is_counted, "counted message")
    log = await cluster.http.get("/admin/v3/functions/public/default/ex/logs?tail=5")
    assert "got hello" in log.text
    assert log.headers["content-type"].startswith("text/plain")
    assert (await cluster.http.delete("/admin/v3/functions/public/default/ex")).status_code == 204
    assert (await cluster.http.get("/admin/v3/functions/public/default/ex")).status_code == 404

    async def is_gone() -> bool:
        url = f"{cluster.broker.web_url}/admin/v2/persistent/public/default/{source.rpartition('/')[2]}/subscriptions"
        return bool((await cluster.http.get(url)).json() == [])

    await eventually(is_gone, "removed subscription")


async def test_a_function_that_keeps_its_subscription_leaves_it(cluster: Cluster) -> None:
    source = cluster.topic("in")
    await cluster.create("keeper", EXCLAIM, inputs=[source], cleanupSubscription=False, subName="kept")
    await running(cluster, "keeper")
    await cluster.http.delete("/admin/v3/functions/public/default/keeper")
    await cluster.create("other", EXCLAIM, inputs=[cluster.topic("elsewhere")])
    await running(cluster, "other")
    await cluster.http.delete("/admin/v3/functions/public/default/other")
    base = f"{cluster.broker.web_url}/admin/v2/persistent/public/default/"

    async def is_gone() -> bool:
        return bool((await cluster.http.get(f"{base}elsewhere-{cluster.number}/subscriptions")).json() == [])

    # The queue of deletions is worked off in order: once the later one is done, the earlier one would be.
    await eventually(is_gone, "removed subscription")
    assert (await cluster.http.get(f"{base}in-{cluster.number}/subscriptions")).json() == ["kept"]


async def test_trigger_returns_what_the_function_made(cluster: Cluster) -> None:
    source = cluster.topic("in")
    await cluster.create("trig", EXCLAIM, inputs=[source], output=cluster.topic("out"))
    await running(cluster, "trig")
    url = "/admin/v3/functions/public/default/trig/trigger"
    answers = await asyncio.gather(
        *(cluster.http.post(url, files={"data": (None, f"m{number}")}) for number in range(5))
    )
    assert [answer.text for answer in answers] == [f"m{number}!" for number in range(5)]
    by_topic = await cluster.http.post(url, files={"data": (None, "x"), "topic": (None, source)})
    assert by_topic.text == "x!"
    wrong = await cluster.http.post(url, files={"data": (None, "x"), "topic": (None, "other")})
    assert (wrong.status_code, wrong.json()) == (
        400,
        {"reason": "Function in trigger function has unidentified topic"},
    )
    nothing = await cluster.http.post(url, files={"topic": (None, source)})
    assert (nothing.status_code, nothing.json()) == (400, {"reason": "Trigger Data is not provided"})


async def test_an_update_changes_code_and_parallelism(cluster: Cluster) -> None:
    source, sink = cluster.topic("in"), cluster.topic("out")
    await cluster.create("upd", EXCLAIM, inputs=[source], output=sink)
    await running(cluster, "upd")
    new = EXCLAIM.replace("!", "?").encode()
    assert (await cluster.send("PUT", "upd", {"upd.py": new}, parallelism=2)).status_code == 204
    await running(cluster, "upd", 2)
    answer = await cluster.http.post("/admin/v3/functions/public/default/upd/trigger", files={"data": (None, "really")})
    assert answer.text == "really?"
    unchanged = await cluster.send("PUT", "upd", {}, parallelism=2)
    assert (unchanged.status_code, unchanged.json()) == (400, {"reason": "Update contains no change"})
    assert (await cluster.get("upd"))["parallelism"] == 2


async def test_start_and_stop_of_one_instance_and_all(cluster: Cluster) -> None:
    await cluster.create("steer", EXCLAIM, inputs=[cluster.topic("in")], parallelism=2)
    await running(cluster, "steer", 2)
    refused = await cluster.post("steer/start")
    assert (refused.status_code, refused.json()) == (400, {"reason": "Operation not permitted"})
    assert (await cluster.post("steer/1/stop")).status_code == 204
    await running(cluster, "steer", 1)
    stopped = await cluster.get("steer/1/status")
    assert stopped["running"] is False
    assert "latestUserExceptions" not in stopped
    assert (await cluster.post("steer/stop")).status_code == 204
    await running(cluster, "steer", 0)
    assert (await cluster.post("steer/stop")).status_code == 400
    assert (await cluster.post("steer/start")).status_code == 204
    await running(cluster, "steer", 2)
    assert (await cluster.post("steer/restart")).status_code == 204
    await running(cluster, "steer", 2)


async def test_a_function_that_raises_at_import_says_so_in_status_and_logs(cluster: Cluster) -> None:
    source = "raise ValueError('boom at import')\ndef process(input): return input\n"
    assert (await cluster.create("boom", source, inputs=[cluster.topic("in")])).status_code == 204

    async def look() -> bool:
        return "ValueError: boom at import" in (await cluster.get("boom/0/status"))["error"]

    await eventually(look, "error in status", timeout_s=2.0)
    log = await cluster.http.get("/admin/v3/functions/public/default/boom/0/logs")
    assert "ValueError: boom at import" in log.text


def archive(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        for name, text in files.items():
            zipped.writestr(name.replace("__", "/") + ".py", text)
    return buffer.getvalue()


async def test_a_zip_with_several_modules_runs_and_comes_back_as_it_was_sent(cluster: Cluster) -> None:
    package = archive(
        src__main="from helper import loud\ndef process(x): return loud(x)\n", src__helper="loud = str.upper\n"
    )
    answer = await cluster.send(
        "POST", "zipped", {"code.zip": package}, className="main.process", inputs=[cluster.topic("in")],
        output=cluster.topic("out"),
    )  # fmt: skip
    assert answer.status_code == 204, answer.text
    await running(cluster, "zipped")
    url = "/admin/v3/functions/public/default/zipped/"
    assert (await cluster.http.post(url + "trigger", files={"data": (None, "abc")})).text == "ABC"
    assert (await cluster.http.get(url + "download")).content == package


@pytest.mark.parametrize(
    ("files", "config", "reason"),
    [
        ({"f.py": b"x = 1\n"}, {}, "className f.process: module f has no process; it defines nothing"),
        ({"g.py": b"def process(x): pass\n"}, {}, "className f.process: the package has no module f; it has g"),
        ({"f.py": b"def process(:\n"}, {}, "f.py has a syntax error in line 1: invalid syntax"),
        ({"f.py": b"\0"}, {}, "f.py has a syntax error: source code string cannot contain null bytes"),
        (
            {"f.py": b"class F:\n    pass\n"},
            {"className": "f.F"},
            "className f.F: class F has no method process(self, input, context)",
        ),
        ({"f.py": b""}, {}, "the package is empty; give a .py, .zip or .whl file with the function"),
        ({"f.txt": b"x"}, {}, "the package f.txt is not a .py, .zip, .whl file; give one of these"),
        ({"f.zip": b"no zip"}, {}, "the package f.zip is not a readable zip file: File is not a zip file"),
        ({}, {"className": "f.F", "py": "f.py"}, "Function package is not provided"),
        ({"f.py": b"x"}, {"inputs": ["a/b"]}, "Input topic a/b is invalid"),
        ({"f.py": b"x"}, {"parallelism": 0}, "Function parallelism must be a positive number"),
        ({"f.py": b"x"}, {"paralelism": 2}, "unknown field paralelism; did you mean parallelism?"),
    ],
)
async def test_what_cannot_work_is_refused_at_creation_in_one_line(
    cluster: Cluster, files: dict[str, bytes], config: dict[str, Any], reason: str
) -> None:
    answer = await cluster.send("POST", "f", files, **{"inputs": ["in"], **config})
    assert (answer.status_code, answer.json()) == (400, {"reason": reason})
    assert (await cluster.http.get("/admin/v3/functions/public/default")).json() == []


async def test_functions_survive_the_worker(broker: Server, tmp_path: Path, cluster: Cluster) -> None:
    source, sink = cluster.topic("in"), cluster.topic("out")
    await cluster.create("ex", EXCLAIM, inputs=[source], output=sink)
    await running(cluster, "ex")
    await cluster.service.stop()
    config = worker_config(broker, tmp_path / "other-machine", cluster.service.config.functions_namespace, "other")
    other = WorkerService(config)
    await other.start()
    try:
        cluster.http.base_url = other.worker_url

        async def has_moved() -> bool:
            instances = (await cluster.get("ex/status"))["instances"]
            return (
                bool(instances) and instances[0]["status"]["workerId"] == "other" and instances[0]["status"]["running"]
            )

        await eventually(has_moved, "instance on the other worker", timeout_s=8)
        answer = await cluster.http.post("/admin/v3/functions/public/default/ex/trigger", files={"data": (None, "a")})
        assert answer.text == "a!"
    finally:
        await other.stop()
