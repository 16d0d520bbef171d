"""Sources and sinks by REST: apart from functions, with their secrets hidden, uploaded or installed, and removed."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from magnetar.web.deployments import NOTICE_HEADER

from tests.support.eventually import eventually

from .conftest import Cluster

pytestmark = pytest.mark.slow

BASE = "/admin/v3"
TICKER = """
import time
from dataclasses import dataclass
from magnetar.api import Record, Source, option

@dataclass
class TickerConfig:
    word: str = option("What each record says.")

class Ticker(Source):
    config = TickerConfig

    def open(self, config, context):
        if config.word == "boom":
            raise ValueError("boom is no word")
        self.word, self.number = config.word, 0

    def read(self):
        time.sleep(0.01)
        self.number += 1
        return Record(f"{self.word} {self.number}")
"""


async def status_of(cluster: Cluster, path: str) -> list[dict[str, Any]]:
    answer = await cluster.http.get(f"{BASE}/{path}/status")
    return [one["status"] for one in answer.json()["instances"]]


async def deploy(cluster: Cluster, kind: str, name: str, **config: Any) -> httpx.Response:
    return await cluster.deploy_connector("POST", kind, name, config)


async def test_functions_sources_and_sinks_do_not_see_each_other(cluster: Cluster) -> None:
    topic = cluster.topic("apart")
    await cluster.create("fn", "def process(x): return x", inputs=[topic])
    await deploy(cluster, "sources", "src", archive="builtin://generator", topicName=topic)
    await deploy(cluster, "sinks", "snk", archive="builtin://console", inputs=[topic])
    own = {"functions": "fn", "sources": "src", "sinks": "snk"}
    titles = {"functions": "Function", "sources": "Source", "sinks": "Sink"}
    configs: dict[str, dict[str, Any]] = {
        "sources": {"archive": "builtin://generator", "topicName": topic},
        "sinks": {"archive": "builtin://console", "inputs": [topic]},
    }
    for kind, title in titles.items():
        assert (await cluster.http.get(f"{BASE}/{kind}/public/default")).json() == [own[kind]]
        assert (
            await cluster.http.get(f"{BASE}/{kind[:-1] if kind != 'functions' else kind}/public/default")
        ).json() == [own[kind]]
        for other in set(own.values()) - {own[kind]}:
            path = f"{BASE}/{kind}/public/default/{other}"
            missing = (404, {"reason": f"{title} {other} doesn't exist"})
            answers = [
                await cluster.http.get(path), await cluster.http.get(f"{path}/status"),
                await cluster.http.get(f"{path}/0/status"), await cluster.http.delete(path),
                await cluster.http.post(f"{path}/stop"), await cluster.http.post(f"{path}/start"),
                await cluster.http.post(f"{path}/restart"), await cluster.http.post(f"{path}/0/restart"),
            ]  # fmt: skip
            if kind == "functions":
                answers += [
                    await cluster.http.get(f"{path}/stats"), await cluster.http.get(f"{path}/logs"),
                    await cluster.http.post(f"{path}/trigger", files={"data": (None, "x")}),
                    await cluster.http.post(f"{path}/reset-cursor", json={"timestamp": 0}),
                    await cluster.send("PUT", other, {}, inputs=[topic]),
                ]  # fmt: skip
            else:
                answers.append(await cluster.deploy_connector("PUT", kind, other, configs[kind]))
                clash = await cluster.deploy_connector("POST", kind, other, configs[kind])
                (there,) = (title for kind, title in titles.items() if own[kind] == other)
                assert (clash.status_code, clash.json()) == (400, {"reason": clash_of(title, other, there.lower())})
            assert [(one.status_code, one.json()) for one in answers] == [missing] * len(answers)
    clash = await cluster.create("snk", "def process(x): return x", inputs=[topic])
    assert (clash.status_code, clash.json()) == (400, {"reason": clash_of("Function", "snk", "sink")})


def clash_of(title: str, name: str, there: str) -> str:
    return (
        f"{title} {name} already exists: a {there} already has this name, and names must be unique across functions,"
        " sources and sinks; choose another name"
    )


async def test_metrics_have_pulsars_names(cluster: Cluster) -> None:
    topic = cluster.topic("measured")
    await deploy(cluster, "sinks", "snk", archive="builtin://console", inputs=[topic])
    await deploy(cluster, "sources", "src", archive="builtin://generator", topicName=topic, configs={"rate": 100})

    async def both_count() -> str | None:
        text = (await cluster.http.get("/metrics")).text
        counts = {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if "{" in line}
        wanted = ("pulsar_source_written_total", "pulsar_sink_written_total", "pulsar_sink_received_1min_total")
        return text if all(counts.get(name) for name in wanted) else None

    text = await eventually(both_count, "counts of source and sink")
    for name in (
        "pulsar_source_received_total", "pulsar_source_source_exceptions_total",
        "pulsar_source_system_exceptions_total", "pulsar_source_last_invocation", "pulsar_source_written_1min_total",
        "pulsar_sink_sink_exceptions_total", "pulsar_sink_system_exceptions_1min_total", "pulsar_sink_last_invocation",
    ):  # fmt: skip
        assert f"{name}{{" in text, name
    assert "pulsar_function_received_total{" not in text


class Receiver:
    """Answers every request with 200, and keeps the head of the last one."""

    def __init__(self) -> None:
        self.head = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                await reader.readexactly(int(re.findall(r"(?i)content-length: (\d+)", head)[0]))
                self.head = head
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()


async def test_secrets_are_hidden_and_stay_when_they_come_back_hidden(cluster: Cluster) -> None:
    receiver, topic = Receiver(), cluster.topic("secret")
    server = await asyncio.start_server(receiver.answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    config = {"archive": "builtin://http", "inputs": [topic], "secrets": {"token": "hush"}}
    configs = {"url": url, "headers": {"Cookie": "hush"}}
    created = await deploy(cluster, "sinks", "snk", **config, configs=configs)
    assert created.status_code == 204, created.text
    shown = (await cluster.http.get(f"{BASE}/sinks/public/default/snk")).json()
    assert "hush" not in json.dumps(shown)
    assert (shown["secrets"], shown["configs"]) == ({"token": "***"}, {"url": url, "headers": {"Cookie": "***"}})
    unchanged = await cluster.deploy_connector("PUT", "sinks", "snk", shown)
    assert unchanged.json() == {"reason": "Update contains no change"}
    shown["configs"]["headers"]["X-New"] = "new"
    assert (await cluster.deploy_connector("PUT", "sinks", "snk", shown)).status_code == 204
    await (await cluster.client.create_producer(topic)).send(b"{}")

    async def has_come() -> str:
        return receiver.head.lower()

    head = await eventually(has_come, "request of the sink")
    for line in ("authorization: bearer hush", "cookie: hush", "x-new: new"):
        assert line in head
    kept = "which keeps the current value, but no value is set: set a value"
    for wrong, reason in (
        ({"configs": {**configs, "token": "***"}}, f"configs.token is ***, {kept}"),
        ({"secrets": {"tokem": "x"}}, "secrets: unknown field tokem: did you mean token?"),
        ({"secrets": {"token": {"path": "x"}}}, "secrets.token must be a string"),
        ({"className": "a.B"}, "className a.B is not the class of the installed sink http: omit it"),
    ):
        refused = await cluster.deploy_connector("PUT", "sinks", "snk", wrong)
        assert (refused.status_code, refused.json()) == (400, {"reason": reason})
    assert (await cluster.http.delete(f"{BASE}/sinks/public/default/snk")).status_code == 204
    server.close()


async def test_an_uploaded_source_runs_and_says_what_is_wrong_with_it(cluster: Cluster) -> None:
    topic = cluster.topic("ticks")
    config = {"topicName": topic, "configs": {"word": "tick"}}
    package = ("ticker.py", TICKER.encode())
    created = await cluster.deploy_connector("POST", "sources", "ticks", config, package)
    assert (created.status_code, created.text) == (204, "")
    shown = (await cluster.http.get(f"{BASE}/sources/public/default/ticks")).json()
    assert (shown["className"], shown.get("archive")) == ("ticker.Ticker", None)

    async def has_written() -> bool:
        return any(one.get("numWritten", 0) > 3 for one in await status_of(cluster, "sources/public/default/ticks"))

    await eventually(has_written, "records of the uploaded source")

    async def error() -> str:
        (one,) = await status_of(cluster, "sources/public/default/ticks")
        return "" if one["running"] else str(one["error"])

    changed = await cluster.deploy_connector("PUT", "sources", "ticks", {"configs": {"wort": "tick"}})
    assert changed.status_code == 204
    reason = await eventually(error, "reason why it cannot start")
    assert (
        reason == "FunctionLoadError: unknown field wort: did you mean word?; word is missing: What each record says."
    )
    changed = await cluster.deploy_connector("PUT", "sources", "ticks", {"configs": {"word": "boom"}})
    assert changed.status_code == 204

    async def says_boom() -> bool:
        return "boom is no word" in await error()

    await eventually(says_boom, "what open raised")
    changed = await cluster.deploy_connector("PUT", "sources", "ticks", {"configs": {"word": "tock"}})
    assert changed.status_code == 204
    await eventually(has_written, "records after it was corrected")
    assert (await cluster.http.delete(f"{BASE}/sources/public/default/ticks")).status_code == 204

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("tickers/__init__.py", TICKER)
    zipped = ("tickers.zip", archive.getvalue())
    created = await cluster.deploy_connector("POST", "sources", "ticks", config, zipped)
    assert (created.status_code, created.text) == (204, "")
    await eventually(has_written, "records of the source in an archive")
    refused = await cluster.deploy_connector(
        "POST", "sources", "other", {**config, "className": "ticker.Tocker"}, package
    )
    assert (refused.status_code, refused.json()) == (400, {
        "reason": "Source class ticker.Tocker not found in class loader: module ticker has no Tocker;"
                  " it defines Ticker, TickerConfig"
    })  # fmt: skip


LEAKY = """
from dataclasses import dataclass
from magnetar.api import Retry, Source, option

@dataclass
class LeakyConfig:
    url: str = option("Where it is.")
    password: str = option("Of the user.", secret=True)

class Leaky(Source):
    config = LeakyConfig

    def open(self, config, context):
        print("connecting to", config.url, "with", config.password)
        context.logger.warning("password %s", context.secret("password"))
        raise Retry(f"{config.url} refuses {config.password}")

    def read(self):
        return None
"""


@pytest.mark.parametrize("runtime", ["thread", "process"])
async def test_neither_status_nor_log_shows_secrets(cluster: Cluster, runtime: str) -> None:
    config = {
        "topicName": cluster.topic("leaks"), "runtimeEnv": runtime, "secrets": {"password": "hushhush"},
        "configs": {"url": "amqp://me:hushurl@nowhere/"}, "parallelism": 1,
    }  # fmt: skip
    package = ("leaky.py", LEAKY.encode())
    assert (await cluster.deploy_connector("POST", "sources", "leaks", config, package)).status_code == 204

    async def trouble() -> str:
        return str((await status_of(cluster, "sources/public/default/leaks"))[0]["error"])

    async def is_retrying() -> bool:
        said = await trouble()
        return said.startswith("retrying") and said.endswith(": amqp://me:***@nowhere/ refuses ***")

    await eventually(is_retrying, "trouble without a password")
    log = (await cluster.http.get(f"{BASE}/sources/public/default/leaks/logs")).text
    assert "hush" not in log
    assert "connecting to amqp://me:***@nowhere/ with ***" in log
    assert "password ***" in log


async def test_a_sink_takes_its_subscription_with_it_unless_it_is_to_stay(cluster: Cluster) -> None:
    topic = cluster.topic("subscribed")
    url = f"{cluster.broker.web_url}/admin/v2/{topic.replace('://', '/')}/subscriptions"
    for name, config in (("goes", {}), ("stays", {"cleanupSubscription": False})):
        created = await deploy(cluster, "sinks", name, archive="builtin://console", inputs=[topic], **config)
        assert created.status_code == 204, created.text
    assert set((await cluster.http.get(url)).json()) == {"public/default/goes", "public/default/stays"}
    for name in ("goes", "stays"):
        assert (await cluster.http.delete(f"{BASE}/sinks/public/default/{name}")).status_code == 204
    assert (await cluster.http.get(url)).json() == ["public/default/stays"]


async def test_what_comes_while_a_sink_is_stopped_is_written_later(cluster: Cluster) -> None:
    topic = cluster.topic("kept")
    await deploy(cluster, "sinks", "snk", archive="builtin://console", inputs=[topic])
    path = f"{BASE}/sinks/public/default/snk"
    producer = await cluster.client.create_producer(topic)

    async def written() -> int:
        return sum(one.get("numWrittenToSink", 0) for one in await status_of(cluster, "sinks/public/default/snk"))

    await producer.send(b"first")
    await eventually(written, "first message")
    for logs in (f"{path}/logs", f"{path}/0/logs"):
        assert "first" in (await cluster.http.get(logs)).text
    assert (await cluster.http.get(f"{path}/1/logs")).status_code == 400
    for change in ("stop", "update"):
        if change == "stop":
            assert (await cluster.http.post(f"{path}/stop")).status_code == 204
            await producer.send(b"meanwhile")
            assert (await cluster.http.post(f"{path}/start")).status_code == 204
        else:
            changed = await cluster.deploy_connector("PUT", "sinks", "snk", {"configs": {"showMetadata": True}})
            assert changed.status_code == 204
            await producer.send(b"meanwhile")

        async def is_one() -> bool:
            return await written() == 1

        await eventually(is_one, "only the message of meanwhile")
    stats = (await cluster.http.get(f"{cluster.broker.web_url}/admin/v2/{topic.replace('://', '/')}/stats")).json()
    assert stats["subscriptions"]["public/default/snk"]["msgBacklog"] == 0


async def test_definitions_are_those_of_pulsar(cluster: Cluster) -> None:
    for kind in ("source", "sink"):
        found = (await cluster.http.get(f"{BASE}/{kind}s/builtin{kind}s")).json()
        assert found == (await cluster.http.get(f"{BASE}/{kind}/builtin{kind}s")).json()
        for one in found:
            assert set(one) >= {"name", "description", f"{kind}Class", f"{kind}ConfigClass"}, one
            assert one["description"].endswith("."), one
            path = f"{BASE}/{kind}s/builtin{kind}s/{one['name']}/configdefinition"
            for field in (await cluster.http.get(path)).json():
                assert set(field) == {"fieldName", "typeName", "attributes"}, (one, field)
                assert {"required", "defaultValue", "sensitive", "help"} <= set(field["attributes"])
    every = (await cluster.http.get("/admin/v2/worker/connectors")).json()
    assert {"console", "file", "generator", "http"} <= {one["name"] for one in every}


async def test_file_source_keeps_files_by_default_and_says_so_if_it_deletes(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.topic("lines")
    configs = {"inputDirectory": str(tmp_path)}
    created = await deploy(cluster, "sources", "kept", archive="builtin://file", topicName=topic, configs=configs)
    assert (created.status_code, NOTICE_HEADER in created.headers) == (204, False), created.text
    config = (await cluster.http.get(f"{BASE}/sources/public/default/kept")).json()
    assert config["configs"] == {**configs, "keepFile": True}
    again = await cluster.deploy_connector("PUT", "sources", "kept", {"configs": configs})
    assert again.json() == {"reason": "Update contains no change"}
    deleting = {**configs, "keepFile": False}
    changed = await cluster.deploy_connector("PUT", "sources", "kept", {"configs": deleting})
    assert f"deletes the files in '{tmp_path}'" in changed.headers[NOTICE_HEADER]
    created = await deploy(cluster, "sources", "gone", archive="builtin://file", topicName=topic, configs=deleting)
    assert "set keepFile to true" in created.headers[NOTICE_HEADER]
