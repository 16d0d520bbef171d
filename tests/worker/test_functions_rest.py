"""Functions through the worker's REST interface, on a real broker and with real processes."""

from __future__ import annotations

import asyncio
import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
from magnetar.client.config import ConsumerConfig
from magnetar.runtime.process import cpu_groups
from magnetar.runtime.process.cpu_groups import NoCpuLimit
from magnetar.worker.assembly import PACKAGES_FOLDER
from magnetar.worker.service import WorkerService

from tests.support.eventually import eventually
from tests.support.pulsar import Broker

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
    assert (await consumer.receive(30)).data == b"hello!"

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
        return bool((await cluster.http.get(f"{base}elsewhere{cluster.suffix}/subscriptions")).json() == [])

    # The queue of deletions is worked off in order: once the later one is done, the earlier one would be.
    await eventually(is_gone, "removed subscription")
    assert (await cluster.http.get(f"{base}in{cluster.suffix}/subscriptions")).json() == ["kept"]


async def test_trigger_returns_what_the_function_made(cluster: Cluster) -> None:
    source = cluster.topic("in")
    await cluster.create("trig", EXCLAIM, inputs=[source], output=cluster.topic("out"))
    await running(cluster, "trig")
    url = "/admin/v3/functions/public/default/trig/trigger"
    answers = await asyncio.gather(
        *(cluster.http.post(url, files={"data": (None, f"m{number}")}) for number in range(5))
    )
    assert [answer.text for answer in answers] == [f"m{number}!" for number in range(5)]
    for spelling in (source, source.rpartition("/")[2], source.partition("://")[2]):
        by_topic = await cluster.http.post(url, files={"data": (None, "x"), "topic": (None, spelling)})
        assert by_topic.text == "x!", spelling
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

    await eventually(look, "error in status")
    log = await cluster.http.get("/admin/v3/functions/public/default/boom/0/logs")
    assert "ValueError: boom at import" in log.text


async def test_logs_of_a_deleted_function_go_with_it(cluster: Cluster) -> None:
    source = "print('said')\ndef process(input): return input\n"
    folder = cluster.service.config.data_dir / "logs" / "functions" / "public" / "default"
    for name in ("brief", "lasting"):
        assert (await cluster.create(name, source, inputs=[cluster.topic(name)])).status_code == 204
        await running(cluster, name, 1)
    assert (await cluster.http.delete("/admin/v3/functions/public/default/brief")).status_code == 204

    async def are_gone() -> bool:
        return not (folder / "brief").exists()

    await eventually(are_gone, "end of the logs")
    assert "said" in (folder / "lasting" / "lasting-0.log").read_text()


async def test_memory_of_a_function_is_limited_and_status_says_so(cluster: Cluster) -> None:
    source = "x = []\ndef process(input):\n    while True: x.append(bytearray(1 << 23))\n"
    name, topic = "hungry", cluster.topic("hungry")
    config: dict[str, Any] = {"inputs": [topic], "resources": {"ram": 200 << 20}}
    assert (await cluster.create(name, source, **config)).status_code == 204
    await running(cluster, name, 1)
    assert (await cluster.get(name))["resources"]["ram"] == 200 << 20
    await (await cluster.client.create_producer(topic)).send(b"x")

    async def is_said() -> bool:
        status = await cluster.get(f"{name}/0/status")
        past = [one["exceptionString"] for one in status.get("latestSystemExceptions", [])]
        return any("more than 200 MiB (resources.ram)" in text for text in (status["error"], *past))

    await eventually(is_said, "reason in status")
    assert (await cluster.create("light", source, **config, runtimeEnv="thread")).status_code == 400


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


def files_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("files", "config", "reason"),
    [
        ({"f.py": b"x = 1\n"}, {}, "className f.process: module f has no process; it defines nothing"),
        ({"g.py": b"def process(x): pass\n"}, {}, "className f.process: the package has no module f; it has g"),
        ({"f.py": b"def process(:\n"}, {}, "f.py has a syntax error on line 1: invalid syntax"),
        ({"f.py": b"\0"}, {}, "f.py has a syntax error: source code string cannot contain null bytes"),
        (
            {"f.py": b"class F:\n    pass\n"},
            {"className": "f.F"},
            "className f.F: class F has no method process(self, input, context)",
        ),
        ({"f.py": b""}, {}, "the package is empty: expected a .py, .zip or .whl file with the function"),
        ({"f.txt": b"x"}, {}, "invalid package f.txt: expected a .py, .zip, .whl file"),
        ({"f.zip": b"no zip"}, {}, "package f.zip is not a readable zip file: File is not a zip file"),
        ({}, {"className": "f.F", "py": "f.py"}, "Function package is not provided"),
        ({"f.py": b"x"}, {"inputs": ["a/b"]}, "Input topic a/b is invalid"),
        ({"f.py": b"x"}, {"parallelism": 0}, "Function parallelism must be a positive number"),
        ({"f.py": b"x"}, {"paralelism": 2}, "unknown field paralelism: did you mean parallelism?"),
    ],
)
async def test_what_cannot_work_is_refused_at_creation_in_one_line(
    cluster: Cluster, tmp_path: Path, files: dict[str, bytes], config: dict[str, Any], reason: str
) -> None:
    answer = await cluster.send("POST", "f", files, **{"inputs": ["in"], **config})
    assert (answer.status_code, answer.json()) == (400, {"reason": reason})
    assert (await cluster.http.get("/admin/v3/functions/public/default")).json() == []
    assert files_below(tmp_path / "worker" / PACKAGES_FOLDER) == [], "nothing is left of what was refused"


async def test_functions_survive_the_worker(broker: Broker, tmp_path: Path, cluster: Cluster) -> None:
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

        await eventually(has_moved, "instance on the other worker")
        answer = await cluster.http.post("/admin/v3/functions/public/default/ex/trigger", files={"data": (None, "a")})
        assert answer.text == "a!"
    finally:
        await other.stop()


@pytest.mark.parametrize("environment", ["process", "thread"])
async def test_several_inputs_one_of_them_partitioned_in_order(cluster: Cluster, environment: str) -> None:
    parts, plain, sink = (cluster.topic(f"{name}-{environment}") for name in ("parts", "plain", "out"))
    local = parts.rpartition("/")[2]
    url = f"{cluster.broker.web_url}/admin/v2/persistent/public/default/{local}/partitions"
    assert (await cluster.http.put(url, json=3)).status_code == 204
    created = await cluster.create(
        "multi", EXCLAIM, inputs=[parts, plain], output=sink, runtimeEnv=environment, retainOrdering=True,
        userConfig={"n": 5},
    )  # fmt: skip
    assert created.status_code == 204, created.text
    # No wait for the instance: the subscriptions are there since the answer.
    consumer = await cluster.client.subscribe(sink, "test", ConsumerConfig(initial_position="Earliest"))
    for topic in (parts, plain):
        producer = await cluster.client.create_producer(topic)
        for number in range(6):
            await producer.send(f"{topic}{number}".encode())
    received = sorted([(await consumer.receive(30)).data.decode() for _ in range(12)])
    assert received == sorted(f"{topic}{number}!" for topic in (parts, plain) for number in range(6))
    described = await cluster.get("multi")
    assert (described["runtimeEnv"], described["retainOrdering"], described["userConfig"]) == (
        environment,
        True,
        {"n": 5},
    )
    await cluster.http.delete("/admin/v3/functions/public/default/multi")

    async def is_gone() -> bool:
        return bool((await cluster.http.get(url.replace("/partitions", "-partition-1/subscriptions"))).json() == [])

    await eventually(is_gone, "removed subscription of a partition")


async def test_metrics_are_there_for_prometheus(cluster: Cluster) -> None:
    source = cluster.topic("in")
    await cluster.create("met", EXCLAIM, inputs=[source], output=cluster.topic("out"))
    await cluster.http.post("/admin/v3/functions/public/default/met/trigger", files={"data": (None, "x")})

    async def is_counted() -> bool:
        text = (await cluster.http.get("/metrics")).text
        mine = [line for line in text.splitlines() if 'fqfn="public/default/met"' in line]
        lines = [line for line in mine if "processed_successfully_total" in line]
        return len(lines) == 1 and lines[0].endswith(" 1.0")

    await eventually(is_counted, "counter of the function")
    text = (await cluster.http.get("/metrics")).text
    assert "pulsar_function_worker_is_leader{" in text
    assert "pulsar_function_worker_total_function_count{" in text


async def test_a_package_larger_than_one_part_arrives_whole(cluster: Cluster) -> None:
    padding = "# " + "x" * 1000 + "\n"
    source = EXCLAIM + padding * 3000
    created = await cluster.create("large", source, inputs=[cluster.topic("in")], output=cluster.topic("out"))
    assert created.status_code == 204, created.text
    download = await cluster.http.get("/admin/v3/functions/public/default/large/download")
    assert download.content == source.encode()
    answer = await cluster.http.post("/admin/v3/functions/public/default/large/trigger", files={"data": (None, "x")})
    assert answer.text == "x!"


async def test_a_limit_of_cpu_time_is_refused_where_no_group_can_be_made(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find() -> None:
        raise NoCpuLimit("nothing was delegated; leave resources.cpu out")

    monkeypatch.setattr(cpu_groups, "find", find)
    source, inputs = "def process(x): return x", [cluster.topic("in")]
    refused = await cluster.create("held", source, inputs=inputs, resources={"cpu": 0.5})
    assert refused.status_code == 400
    assert "does not support resources.cpu" in refused.json()["reason"]
    assert "nothing was delegated; leave resources.cpu out" in refused.json()["reason"]
    (await cluster.create("held", source, inputs=inputs, resources={"cpu": 1.0})).raise_for_status()
