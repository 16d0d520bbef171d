"""A message whose call ends the process is tried as often as any other that fails, and then goes to the letters.

Real processes, ended in real ways: `KILLS` by `KINDS` of functions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from magnetar.client.client import AsyncClient
from magnetar.instance.deaths.careful import SUFFIX
from magnetar.runtime.manager import InstanceEnvironment, RuntimeManager
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.wire import functions_pb2 as records

from tests.support.eventually import until
from tests.support.function_topics import no_backlog, receive, send_batches
from tests.support.instances import MakeSpec
from tests.support.servers import Server

KEY = "public/default/f:0"
RETRIES = 2

KILLS = {
    "os._exit": ("import os; os._exit(7)", "the process exited with exit code 7"),
    "os._exit(0)": ("import os; os._exit(0)", "the process exited with exit code 0"),
    "crash in C": ("import ctypes; ctypes.string_at(0)", "the process was terminated by SIGSEGV"),
    "abort": ("import os; os.abort()", "the process was terminated by SIGABRT"),
    "SIGKILL": ("import os, time; os.kill(os.getpid(), 9); time.sleep(60)", "the process was terminated by SIGKILL"),
    "SystemExit": ("raise SystemExit('enough')", "SystemExit: enough"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "GeneratorExit": ("raise GeneratorExit", "GeneratorExit"),
    "CancelledError": ("import asyncio; raise asyncio.CancelledError", "cancelled|CancelledError"),
    "run-time limit": ("while True: pass", "runTimeLimitMs"),
}

KINDS = {
    "plain": """
def process(text):
    visit(text)
    return text
""",
    "with context": """
class Visitor:
    def process(self, text, context):
        visit(text)
        context.publish(context.get_output_topic(), text)
process = Visitor().process
""",
    "generator": """
def process(text):
    visit(text)
    yield text
""",
    "generator, after its first output": """
def process(text):
    if text != "poison":
        yield text
    visit(text)
""",
    "async": """
import asyncio
async def process(text):
    await asyncio.sleep(0)
    visit(text)
    return text
""",
    "async generator": """
async def process(text):
    visit(text)
    yield text
""",
    "batch": """
from magnetar import batch_function
@batch_function
def process(texts):
    for text in texts:
        visit(text)
    return list(texts)
""",
    "ordered": """
def process(text):
    visit(text)
    return text
""",
}

VISIT = """
def visit(text):
    with open({visits!r}, "a") as file:
        file.write(text + "\\n")
    if text == "poison":
        {kill}
"""


@pytest.fixture
async def manager(server: Server, tmp_path: Path) -> AsyncIterator[RuntimeManager]:
    around = InstanceEnvironment(
        worker_id="w-1", service_url=server.service_url, admin_url="", data_dir=tmp_path / "data"
    )
    manager = RuntimeManager({"process": ProcessRuntime()}, _fetch, around)
    yield manager
    await manager.close()


async def _fetch(location: records.PackageLocationMetaData) -> Path:
    return Path(location.packagePath)


def assignment(
    make_spec: MakeSpec, code: str, topic: str, retries: int = RETRIES, **details: Any
) -> records.Assignment:
    letters = records.RetryDetails(maxMessageRetries=retries, deadLetterTopic=f"{topic}-letters")
    spec = make_spec(code, retryDetails=letters, **details)
    spec.metadata.packageLocation.packagePath = str(spec.package)
    spec.metadata.instanceStates[0] = records.RUNNING
    return records.Assignment(instance=records.Instance(functionMetaData=spec.metadata), workerId="w-1")


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kill", KILLS)
async def test_poison_is_tried_as_often_as_configured_and_becomes_a_letter(
    manager: RuntimeManager,
    client: AsyncClient,
    make_spec: MakeSpec,
    server: Server,
    topic: str,
    tmp_path: Path,
    kill: str,
    kind: str,
) -> None:
    if kill == "CancelledError" and kind.startswith("async"):
        kill = "SystemExit"  # of an async call it is a cancellation, which is tested elsewhere
    statement, reason = KILLS[kill]
    visits = tmp_path / "visits"
    code = VISIT.format(visits=str(visits), kill=statement) + KINDS[kind]
    details: dict[str, Any] = {"customRuntimeOptions": '{"runTimeLimitMs": 2000}'}
    if kind == "ordered":
        details["source"] = records.SourceSpec(subscriptionType=records.FAILOVER)
    one = assignment(make_spec, code, topic, **details)
    texts = [b"m%d" % number for number in range(20)]
    await send_batches(client, f"{topic}-in", [[*texts[:5], b"poison", *texts[5:10]], texts[10:15], texts[15:]])
    await manager.apply({KEY: one})
    await no_backlog(server, f"{topic}-in")

    (letter,) = await receive(client, f"{topic}-letters", 1)
    assert letter.data == b"poison"
    assert any(part in letter.properties["EXCEPTION"] for part in reason.split("|")), letter.properties
    assert letter.properties["TRIES"] == str(RETRIES + 1)
    lines = visits.read_text().split()
    assert lines.count("poison") == RETRIES + 1
    assert set(lines) == {"poison", *(text.decode() for text in texts)}
    if kind == "ordered":
        firsts = list(dict.fromkeys(lines))
        assert firsts == ["m0", "m1", "m2", "m3", "m4", "poison", *(f"m{number}" for number in range(5, 20))]


async def test_status_names_how_the_message_ended_the_process(
    manager: RuntimeManager, client: AsyncClient, make_spec: MakeSpec, topic: str, tmp_path: Path
) -> None:
    code = VISIT.format(visits=str(tmp_path / "visits"), kill="import os; os._exit(7)") + KINDS["plain"]
    await send_batches(client, f"{topic}-in", [[b"poison"]])
    await manager.apply({KEY: assignment(make_spec, code, topic, retries=1)})
    await receive(client, f"{topic}-letters", 1)

    async def is_told() -> bool:
        found = [one.exceptionString for one in (await manager.status(KEY)).latestSystemExceptions]
        return any("ended the process in attempt 2 of 2: the process exited with exit code 7" in text for text in found)

    await until(is_told)


async def test_an_instance_that_is_stopped_leaves_no_journal(
    manager: RuntimeManager, client: AsyncClient, make_spec: MakeSpec, topic: str, tmp_path: Path
) -> None:
    code = VISIT.format(visits=str(tmp_path / "visits"), kill="pass") + KINDS["plain"]
    await manager.apply({KEY: assignment(make_spec, code, topic)})
    await send_batches(client, f"{topic}-in", [[b"m"]])
    await receive(client, f"{topic}-out", 1)
    journal = manager.log_file(KEY).with_suffix(SUFFIX)
    assert journal.exists()
    await manager.apply({})
    await manager.ended("public/default/f")
    assert not journal.exists()
