"""File source and file sink in an instance: what is written is acknowledged, what is refused goes away alone."""

from __future__ import annotations

import json
import resource
from pathlib import Path

from magnetar.client.client import AsyncClient
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.thread.runtime import ThreadRuntime
from magnetar.wire import functions_pb2 as records

from tests.support.eventually import until
from tests.support.function_topics import no_backlog, receive, send_batches
from tests.support.instances import MakeSpec, any_runtime, client, make_spec, server, topic
from tests.support.servers import Server

__all__ = ["any_runtime", "client", "make_spec", "server", "topic"]


def sink_of(make_spec: MakeSpec, configs: dict[str, object]) -> InstanceSpec:
    sink = {"builtin": "file", "configs": json.dumps(configs), "typeClassName": "none"}
    return make_spec("", sink=sink, componentType=records.FunctionDetails.SINK)


async def test_file_sink_writes_json_lines_and_gives_bad_records_away(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path
) -> None:
    runtime = ThreadRuntime(server.service_url)
    spec = sink_of(make_spec, {"path": str(tmp_path / "out"), "rollSeconds": 0.5})
    instance = await runtime.start(spec)
    values = [json.dumps({"n": number, "ä": "ü"}).encode() for number in range(1000)]
    values[500] = b"{no json"
    await send_batches(client, f"{topic}-in", [values[begin : begin + 100] for begin in range(0, 1000, 100)])
    await no_backlog(server, f"{topic}-in")

    def lines() -> list[bytes]:
        files = sorted((tmp_path / "out").glob("[!.]*.jsonl"))
        return [line for file in files for line in file.read_bytes().splitlines()]

    async def are_there() -> bool:
        return len(lines()) == 999

    await until(are_there)
    assert [json.loads(line)["n"] for line in lines()] == [n for n in range(1000) if n != 500]
    (refused,) = await receive(client, f"{topic}-in-f-DLQ", 1)
    assert refused.data == b"{no json"
    await instance.stop(10)
    await runtime.close()


async def test_file_sink_waits_while_the_disk_is_full_and_loses_nothing(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path
) -> None:
    runtime = ThreadRuntime(server.service_url)
    instance = await runtime.start(sink_of(make_spec, {"path": str(tmp_path / "out"), "rollSeconds": 0.5}))
    values = [json.dumps({"n": number, "text": "x" * 100}).encode() for number in range(5000)]

    async def is_full() -> bool:
        status = (await instance.status()).failureException
        return "retrying (3 attempts)" in status and "File too large" in status

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        await send_batches(client, f"{topic}-in", [values[begin : begin + 1000] for begin in range(0, 5000, 1000)])
        await until(is_full)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    await no_backlog(server, f"{topic}-in")
    await instance.stop(10)
    files = sorted((tmp_path / "out").iterdir())
    lines = [line for file in files for line in file.read_bytes().splitlines()]
    assert lines == values
    assert not any(file.name.startswith(".") for file in files)
    await runtime.close()


async def test_file_source_sends_lines_and_removes_what_is_durable(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path
) -> None:
    runtime = ThreadRuntime(server.service_url)
    files = tmp_path / "in"
    files.mkdir()
    for number in range(3):
        (files / f"{number}.txt").write_text("".join(f"{number}-{line}\n" for line in range(2000)))
    source = {"builtin": "file", "configs": json.dumps({"path": str(files), "pollingInterval": 100})}
    spec = make_spec("", source=source, componentType=records.FunctionDetails.SOURCE)
    instance = await runtime.start(spec)
    messages = await receive(client, f"{topic}-out", 6000)
    assert [message.data.decode() for message in messages] == [f"{n}-{line}" for n in range(3) for line in range(2000)]
    assert messages[0].properties["file"] == "0.txt"

    async def are_gone() -> bool:
        return not list(files.iterdir())

    await until(are_gone)
    await instance.stop(10)
    await runtime.close()


async def test_file_source_gives_lines_the_path_of_their_file_as_key(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, tmp_path: Path
) -> None:
    runtime = ThreadRuntime(server.service_url)
    for number in range(3):
        (tmp_path / "in" / "b").mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / "b" / f"{number}.txt").write_text("x\ny\n")
    configs = {"path": str(tmp_path / "in"), "keepFile": True, "key": "path", "withProperties": False}
    source = {"builtin": "file", "configs": json.dumps(configs)}
    instance = await runtime.start(make_spec("", source=source, componentType=records.FunctionDetails.SOURCE))
    messages = await receive(client, f"{topic}-out", 6)
    assert sorted((message.key, message.data) for message in messages) == [
        (f"b/{number}.txt", line) for number in range(3) for line in (b"x", b"y")
    ]
    assert not any(message.properties for message in messages)
    await instance.stop(10)
    await runtime.close()
