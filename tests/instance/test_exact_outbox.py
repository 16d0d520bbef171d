"""EFFECTIVELY_ONCE with more than one output topic: input position, outputs and state in one commit."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import httpx
import pytest
from magnetar.client.client import AsyncClient
from magnetar.instance.identity import table_of
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.runtime.thread.runtime import ThreadRuntime
from magnetar.state.client import Position, TableClient

from tests.support.exact import (
    ExactSpec,
    all_messages,
    arrived,
    count,
    eventually,
    kill_at,
    no_backlog,
    reset,
    running,
    send,
)
from tests.support.pulsar import BROKERS, Broker
from tests.support.servers import Server

COUNT = """
def process(text, context):
    context.incr_counter("all", 1)
    context.put_state("last", text)
    return text + "!"
"""


@pytest.fixture(scope="module", params=BROKERS)
def server(request: pytest.FixtureRequest, server: Server) -> Broker:
    """Ours, and Apache Pulsar."""
    return request.getfixturevalue("apache_pulsar") if request.param == "pulsar" else server


async def partitioned(server: Broker, topic: str, partitions: int) -> str:
    async with httpx.AsyncClient(base_url=server.web_url, timeout=60) as http:
        path = "/admin/v2/" + topic.replace("://", "/")
        (await http.put(f"{path}/partitions", json=partitions)).raise_for_status()
    return topic


def number_of(tables: TableClient, table: str, key: bytes) -> int | None:
    (value,) = tables.read(table, [key])
    return None if value is None else value.number


async def test_state_and_outputs_agree(
    client: AsyncClient, server: Broker, tables: TableClient, committing_spec: ExactSpec, topic: str
) -> None:
    expected = await send(client, f"{topic}-in", 50, 20)
    spec = committing_spec(COUNT)
    async with running(server.service_url, spec):
        await arrived(client, f"{topic}-out", 1000)
        await no_backlog(server, f"{topic}-in")
    assert await all_messages(client, f"{topic}-out") == expected
    assert number_of(tables, table_of(spec.metadata), b"all") == 1000


COUNT_OR_LOOK = """
def process(text, context):
    pair, is_odd = divmod(int(text[1:]), 2)
    if is_odd:
        return f"{pair} {context.get_counter(str(pair))}"
    context.incr_counter(str(pair), 1)
"""


async def test_counter_that_the_entry_before_has_incremented_is_read(
    client: AsyncClient, server: Broker, committing_spec: ExactSpec, topic: str
) -> None:
    """Although the results of entries that wait together leave together, and the read waits for their commit."""
    await send(client, f"{topic}-in", 200, 1)
    async with running(server.service_url, committing_spec(COUNT_OR_LOOK)):
        await arrived(client, f"{topic}-out", 100)
        await no_backlog(server, f"{topic}-in")
    assert await all_messages(client, f"{topic}-out") == [b"%d 1" % pair for pair in range(100)]


TWO_TOPICS = """
def process(text, context):
    number = int(text[1:])
    context.incr_counter("all", 1)
    context.incr_counter(str(number % 7), number)
    context.put_state("seen", str(int(context.get_state("seen") or 0) + 1))
    context.publish("{topic}-second", "second " + text, message_conf={{"partition_key": text}})
    return text + "!"
"""


async def test_two_partitioned_topics_and_state_are_exact_over_kills(
    client: AsyncClient, server: Broker, tables: TableClient, committing_spec: ExactSpec, topic: str
) -> None:
    for name in ("out", "second"):
        await partitioned(server, f"{topic}-{name}", 3)
    await partitioned(server, f"{topic}-in", 2)
    expected = await send(client, f"{topic}-in", 400, 5)
    spec = committing_spec(TWO_TOPICS.format(topic=topic))
    runtime = ProcessRuntime()
    for _ in range(4):
        done = await count(client, f"{topic}-out")
        await kill_at(runtime, spec, client, f"{topic}-out", min(len(expected), done + 50))
    await runtime.start(spec)
    await arrived(client, f"{topic}-out", 2000)
    await arrived(client, f"{topic}-second", 2000)
    for partition in range(2):
        await no_backlog(server, f"{topic}-in-partition-{partition}")
    await runtime.close()
    assert Counter(await all_messages(client, f"{topic}-out")) == Counter(expected)
    seconds = Counter(b"second " + text[:-1] for text in expected)
    assert Counter(await all_messages(client, f"{topic}-second")) == seconds
    table = table_of(spec.metadata)
    assert number_of(tables, table, b"all") == 2000
    sums = [number_of(tables, table, b"%d" % modulus) for modulus in range(7)]
    assert sums == [sum(range(modulus, 2000, 7)) for modulus in range(7)]
    (seen,) = tables.read(table, [b"seen"])
    assert seen is not None
    assert seen.data == b"2000"


async def test_the_first_change_of_state_waits_for_what_went_directly(
    client: AsyncClient, server: Broker, tables: TableClient, committing_spec: ExactSpec, topic: str
) -> None:
    expected = await send(client, f"{topic}-in", 100, 5)
    code = """
def process(text, context):
    if int(text[1:]) >= 250:
        context.incr_counter("late", 1)
    return text + "!"
"""
    spec = committing_spec(code)
    async with running(server.service_url, spec):
        await arrived(client, f"{topic}-out", 500)
        await no_backlog(server, f"{topic}-in")
    assert await all_messages(client, f"{topic}-out") == expected
    assert number_of(tables, table_of(spec.metadata), b"late") == 250


async def test_outputs_above_the_frame_limit_are_several_entries(
    client: AsyncClient, server: Broker, committing_spec: ExactSpec, topic: str
) -> None:
    await send(client, f"{topic}-in", 3, 4)
    async with running(server.service_url, committing_spec("def process(text):\n    return text * 1000 * 1000\n")):
        await arrived(client, f"{topic}-out", 12)
        await no_backlog(server, f"{topic}-in")
    expected = [b"m%d" % number * 1_000_000 for number in range(12)]
    assert await all_messages(client, f"{topic}-out") == expected


async def test_without_a_state_store_more_than_one_topic_stops_the_instance_with_the_remedy(
    client: AsyncClient, server: Broker, exact_spec: ExactSpec, topic: str
) -> None:
    await send(client, f"{topic}-in", 1, 1)
    spec = exact_spec(f"def process(text, context):\n    context.publish('{topic}-second', text)\n")
    runtime = ThreadRuntime(server.service_url)
    reason = await asyncio.wait_for((await runtime.start(spec)).wait(), 30)
    await runtime.close()
    assert "set stateStorageServiceUrl" in reason


async def test_an_instance_that_lost_its_input_to_another_is_fenced(
    client: AsyncClient, server: Broker, tables: TableClient, committing_spec: ExactSpec, topic: str
) -> None:
    """Another instance moves the position behind this one's back."""
    await send(client, f"{topic}-in", 1, 5)
    spec = committing_spec(COUNT)
    runtime = ThreadRuntime(server.service_url)
    instance = await runtime.start(spec)
    await arrived(client, f"{topic}-out", 5)
    table, partition = table_of(spec.metadata), f"{topic}-in"
    life = f"{spec.metadata.functionUuid}/0"
    position = tables.open(table, life, partition).position
    assert position is not None
    later = Position(position.ledger_id, position.entry_id + 1000)
    tables.commit(table, life, partition, position, later, [], [], None)
    await send(client, f"{topic}-in", 1, 5, first=5)
    reason = await asyncio.wait_for(instance.wait(), 30)
    await runtime.close()
    assert reason.startswith("FENCED: ")
    assert number_of(tables, table, b"all") == 5
    assert await count(client, f"{topic}-out") == 5


async def test_a_new_incarnation_commits_anew(
    client: AsyncClient, server: Broker, tables: TableClient, committing_spec: ExactSpec, topic: str
) -> None:
    expected = await send(client, f"{topic}-in", 10, 5)
    spec = committing_spec(COUNT)
    async with running(server.service_url, spec):
        await arrived(client, f"{topic}-out", 50)
    await reset(client, f"{topic}-in")
    spec.metadata.cursorIncarnation = 1
    async with running(server.service_url, spec):
        await arrived(client, f"{topic}-out", 100)
        await no_backlog(server, f"{topic}-in")
    assert await all_messages(client, f"{topic}-out") == expected * 2
    assert number_of(tables, table_of(spec.metadata), b"all") == 100


async def test_callbacks_of_publish_are_called_when_the_message_is_stored(
    client: AsyncClient, server: Broker, committing_spec: ExactSpec, topic: str, tmp_path: Path
) -> None:
    await send(client, f"{topic}-in", 2, 3)
    told = tmp_path / "told"
    code = f"""
def stored(result, message):
    with open({str(told)!r}, "a") as file:
        file.write(f"{{result.name}} {{message}}\\n")

def process(text, context):
    context.publish("{topic}-out", text, callback=stored)
"""
    async with running(server.service_url, committing_spec(code)):
        await arrived(client, f"{topic}-out", 6)

        async def is_told() -> bool:
            return told.exists() and len(told.read_text().splitlines()) == 6

        await eventually(is_told)
    assert told.read_text().splitlines() == [f"Ok m{number}" for number in range(6)]


async def test_only_the_thread_of_the_function_may_publish(
    client: AsyncClient, server: Broker, committing_spec: ExactSpec, topic: str
) -> None:
    """What comes from elsewhere belongs to no input; taken with the next one it might be lost between two."""
    code = f"""
import threading

def process(text, context):
    said = []
    def publish():
        try:
            context.publish("{topic}-other", text)
        except Exception as error:
            said.append(f"{{type(error).__name__}}: {{error}}")
    thread = threading.Thread(target=publish)
    thread.start()
    thread.join()
    return "".join(said)
"""
    await send(client, f"{topic}-in", 1, 1)
    async with running(server.service_url, committing_spec(code)):
        await arrived(client, f"{topic}-out", 1)
    (said,) = await all_messages(client, f"{topic}-out")
    assert said.startswith(b"InvalidConfig: context.publish was called on thread")
