"""Functions of each kind as threads and as processes, on a real broker."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from magnetar.client.client import AsyncClient
from magnetar.runtime.interface import Runtime
from magnetar.runtime.process.runtime import ProcessRuntime

from tests.support.eventually import until
from tests.support.exact import ExactSpec, all_messages, arrived
from tests.support.function_topics import no_backlog, receive, send_batches
from tests.support.instances import MakeSpec
from tests.support.servers import Server

KINDS = """
import asyncio, functools
from magnetar import batch_function

def logged(function):
    @functools.wraps(function)
    def with_log(*arguments):
        return function(*arguments)
    return with_log

@logged
def generator(text, context):
    context.publish(context.get_output_topic() + "-more", "published " + text)
    yield text + "a"
    yield text + "b"

class Coroutine:
    def __init__(self):
        self.loop = asyncio.get_running_loop()

    async def process(self, text, context):
        assert self.loop is asyncio.get_running_loop()
        await asyncio.to_thread(lambda: None)
        context.publish(context.get_output_topic() + "-more", "published " + text)
        return text + "a"

async def stream(text, context):
    yield text + "a"
    await asyncio.sleep(0)
    context.publish(context.get_output_topic() + "-more", "published " + text)
    yield text + "b"

@batch_function
def batch(texts, context):
    for text in texts:
        context.publish(context.get_output_topic() + "-more", "published " + text)
    return [text + "a" for text in texts]
"""
MESSAGES = [b"m%d" % number for number in range(60)]
BATCHES = [MESSAGES[:1], MESSAGES[1:3], MESSAGES[3:]]


@pytest.mark.parametrize(
    ("name", "suffixes"), [("generator", "ab"), ("Coroutine", "a"), ("stream", "ab"), ("batch", "a")]
)
async def test_each_kind_runs_on_each_runtime(
    client: AsyncClient,
    server: Server,
    make_spec: MakeSpec,
    any_runtime: Runtime,
    topic: str,
    name: str,
    suffixes: str,
) -> None:
    await send_batches(client, f"{topic}-in", BATCHES)
    instance = await any_runtime.start(make_spec(KINDS, f"user_code.{name}"))
    outputs = await receive(client, f"{topic}-out", len(MESSAGES) * len(suffixes))
    expected = [message + suffix.encode() for message in MESSAGES for suffix in suffixes]
    assert sorted(output.data for output in outputs) == sorted(expected)
    published = await receive(client, f"{topic}-out-more", len(MESSAGES))
    assert sorted(one.data for one in published) == sorted(b"published " + message for message in MESSAGES)
    await no_backlog(server, f"{topic}-in")
    await instance.stop(10)
    assert instance.leftover() == ""


@pytest.mark.parametrize("name", ["generator", "Coroutine"])
async def test_what_a_killed_process_did_is_there_once_effectively_once(
    client: AsyncClient, committing_spec: ExactSpec, topic: str, name: str
) -> None:
    """Killed in the middle of an entry; what it published and returned of entries before is not there again."""
    code = KINDS.replace("await asyncio.to_thread(lambda: None)", "await asyncio.sleep(0.002)")
    code = code.replace('yield text + "b"', 'yield text + "b"; import time; time.sleep(0.002)')
    batches = [[b"%d-%d" % (number, index) for index in range(5)] for number in range(60)]
    sent = [message for batch in batches for message in batch]
    suffixes = [b"a", b"b"] if name == "generator" else [b"a"]
    await send_batches(client, f"{topic}-in", batches)
    spec = committing_spec(code)
    spec.details.className = f"user_code.{name}"
    runtime = ProcessRuntime()
    instance = await runtime.start(spec)
    await arrived(client, f"{topic}-out", 20)
    os.kill(instance.process_id, signal.SIGKILL)
    await instance.wait()
    await runtime.start(spec)
    await arrived(client, f"{topic}-out", len(sent) * len(suffixes))
    await arrived(client, f"{topic}-out-more", len(sent))
    await runtime.close()
    assert await all_messages(client, f"{topic}-out") == [message + one for message in sent for one in suffixes]
    assert Counter(await all_messages(client, f"{topic}-out-more")) == Counter(b"published " + one for one in sent)


def resident_bytes(process_id: int) -> int:
    return int(Path(f"/proc/{process_id}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_a_million_outputs_of_one_message_take_no_memory(
    client: AsyncClient, server: Server, make_spec: MakeSpec, topic: str, kind: str
) -> None:
    code = f"{kind} process(count):\n    for number in range(count):\n        yield 'output %d' % number\n"
    runtime = ProcessRuntime()
    instance = await runtime.start(make_spec(code))
    await send_batches(client, f"{topic}-in", [[b"50000"]])
    await no_backlog(server, f"{topic}-in")
    before, most = resident_bytes(instance.process_id), 0
    await send_batches(client, f"{topic}-in", [[b"1000000"]])

    async def is_done() -> bool:
        nonlocal most
        most = max(most, resident_bytes(instance.process_id))
        return (await instance.status()).numSuccessfullyProcessed == 2

    await until(is_done, 240)
    await no_backlog(server, f"{topic}-in")
    await runtime.close()
    assert most - before < 60 * 1024 * 1024
    consumer = await client.subscribe(f"{topic}-out", "count")
    last = await consumer.last_message_id()
    assert last.entry_id > 0
    await consumer.close()


@pytest.mark.parametrize("kind", ["return text", "yield text"])
async def test_an_async_call_whose_message_cannot_be_published_fails_alone(
    client: AsyncClient, any_runtime: Runtime, make_spec: MakeSpec, topic: str, kind: str
) -> None:
    code = f"""
import pathlib
async def process(text, context):
    with open(pathlib.Path(__file__).parent / "calls", "a") as log:
        log.write(text + "\\n")
    if text == "bad":
        context.publish("persistent://no/such/topic", text)
    {kind}
"""
    spec = make_spec(code, source={"negativeAckRedeliveryDelayMs": 20})
    await send_batches(client, f"{topic}-in", [[b"a", b"bad", b"b"], [b"c"]])
    instance = await any_runtime.start(spec)
    calls = spec.package / "calls"

    async def is_tried_again() -> bool:
        return calls.exists() and calls.read_text().split().count("bad") > 2

    await until(is_tried_again)
    counts = Counter(calls.read_text().split())
    await instance.stop(30)
    assert counts.pop("bad") > 2
    assert counts == {"a": 1, "b": 1, "c": 1}
