"""EFFECTIVELY_ONCE while instances freeze, the broker dies, and the state store dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.instance.exact.activation import HELD_MESSAGES_MAX
from magnetar.instance.identity import table_of
from magnetar.instance.spec import InstanceSpec
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.state.client import TableClient

from tests.support.exact import (
    SUBSCRIPTION,
    ExactSpec,
    all_messages,
    arrived,
    count,
    eventually,
    exact_spec_maker,
    running,
    send,
)
from tests.support.instances import MakeSpec, spec_maker
from tests.support.servers import Server
from tests.support.servers import running as running_server

DIRECT = "import time\ndef process(text):\n    time.sleep(0.001)\n    return text + '!'\n"
COMMITTED = """
import time
def process(text, context):
    time.sleep(0.001)
    context.incr_counter("all", 1)
    context.put_state("seen", str(int(context.get_state("seen") or 0) + 1))
    return text + "!"
"""
MESSAGES = 2000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker that gives up a silent connection soon."""
    directory = tmp_path_factory.mktemp("bad-days")
    config = directory / "broker.yml"
    config.write_text("keepAliveIntervalSeconds: 1\nactiveConsumerFailoverDelayTimeMillis: 0\n")
    with running_server("broker", directory, "--config", str(config)) as server:
        yield server


@pytest.fixture
def make_spec(server: Server, tmp_path: Path, topic: str) -> MakeSpec:
    return spec_maker(server.service_url, tmp_path, topic)


@pytest.fixture(params=["direct", "committed"])
def spec(request: pytest.FixtureRequest, make_spec: MakeSpec, server: Server, state_url: str) -> InstanceSpec:
    make = exact_spec_maker(make_spec, server, state_url)
    return make(DIRECT if request.param == "direct" else COMMITTED)


def check_state(tables: TableClient, spec: InstanceSpec) -> None:
    """The state, if the function keeps one, has each message once."""
    number, seen = tables.read(table_of(spec.metadata), [b"all", b"seen"])
    if number is not None:
        assert number.number == MESSAGES
        assert seen is not None
        assert seen.data == b"%d" % MESSAGES


@pytest.mark.slow
@pytest.mark.parametrize("locks", ["", "persistent://public/default/locks"], ids=["fenced alone", "locked"])
async def test_a_frozen_instance_that_goes_on_writes_nothing(
    client: AsyncClient, tables: TableClient, spec: InstanceSpec, topic: str, locks: str
) -> None:
    expected = await send(client, f"{topic}-in", MESSAGES // 5, 5)
    spec = replace(spec, locks_topic=locks)
    runtime = ProcessRuntime()
    frozen = await runtime.start(spec)
    await arrived(client, f"{topic}-out", 100)
    os.kill(frozen.process_id, signal.SIGSTOP)
    before = await count(client, f"{topic}-out")
    second = await runtime.start(replace(spec, control_socket=spec.control_socket.with_suffix(".2")))
    await arrived(client, f"{topic}-out", min(before + 200, MESSAGES))
    os.kill(frozen.process_id, signal.SIGCONT)
    await arrived(client, f"{topic}-out", MESSAGES)
    assert await all_messages(client, f"{topic}-out") == expected
    check_state(tables, spec)
    await second.stop(30)
    await runtime.close()


@pytest.mark.slow
async def test_nothing_is_lost_or_repeated_when_the_broker_is_killed(
    client: AsyncClient, server: Server, tables: TableClient, spec: InstanceSpec, topic: str
) -> None:
    expected = await send(client, f"{topic}-in", MESSAGES // 5, 5)
    async with running(server.service_url, spec):
        for number in range(3):
            await arrived(client, f"{topic}-out", 300 * (number + 1))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.restart)
        await arrived(client, f"{topic}-out", MESSAGES)
    assert await all_messages(client, f"{topic}-out") == expected
    check_state(tables, spec)


@pytest.mark.slow
async def test_nothing_is_lost_or_repeated_when_the_state_store_is_killed(
    client: AsyncClient, server: Server, state_store: Server, tables: TableClient, make_spec: MakeSpec, topic: str
) -> None:
    spec = exact_spec_maker(make_spec, server, str(state_store.addresses["stateStorageServiceUrl"]))(COMMITTED)
    part = MESSAGES // 4
    expected = await send(client, f"{topic}-in", part // 5, 5)
    async with running(server.service_url, spec) as instance:
        for number in range(1, 4):
            await arrived(client, f"{topic}-out", part * number - 200)
            await asyncio.to_thread(state_store.kill)
            expected += await send(client, f"{topic}-in", part // 5, 5, part * number)  # however quick it was

            async def is_shown() -> bool:
                return "cannot be reached" in (await instance.status()).failureException

            await eventually(is_shown)
            await asyncio.to_thread(state_store.restart)
        await arrived(client, f"{topic}-out", MESSAGES)
        assert (await instance.status()).failureException == ""
    assert await all_messages(client, f"{topic}-out") == expected
    check_state(tables, spec)


@pytest.mark.slow
async def test_nothing_is_lost_or_repeated_when_a_partition_goes_and_comes_back_under_load(
    client: AsyncClient, server: Server, tables: TableClient, spec: InstanceSpec, topic: str
) -> None:
    """More is there than an instance takes, so that some waits in its consumer when the partition goes."""
    batches = HELD_MESSAGES_MAX // 1000 + 30
    package = spec.package if spec.package.is_dir() else spec.package.parent
    code = package / "user_code.py"
    code.write_text(code.read_text().replace("time.sleep(0.001)", "text.endswith('999') and time.sleep(0.05)"))
    async with httpx.AsyncClient(base_url=server.web_url, timeout=60) as http:
        (await http.put(f"/admin/v2/{topic.replace('://', '/')}-in/partitions", json=1)).raise_for_status()
    partition = f"{topic}-in-partition-0"
    expected: list[bytes] = []
    first_of_all = ConsumerConfig(type="Failover", name="!", receiver_queue_size=1)
    async with running(server.service_url, spec):
        takeovers = 0
        while takeovers < 2:
            before = len(expected)
            expected += await send(client, partition, batches, 1000, before)
            await arrived(client, f"{topic}-out", before + 2000)
            rival = await client.subscribe(partition, SUBSCRIPTION, first_of_all)
            with contextlib.suppress(TimeoutError):  # all was done before it came: once more
                async with asyncio.timeout(10):
                    await rival.receive_entry()  # and never acknowledges it
                takeovers += 1
            await rival.close()
        await arrived(client, f"{topic}-out", len(expected), 90)
    assert await all_messages(client, f"{topic}-out") == expected
    number = tables.read(table_of(spec.metadata), [b"all"])[0]
    assert number is None or number.number == len(expected)


async def test_the_outbox_of_an_idle_instance_is_cleared(
    client: AsyncClient, server: Server, tables: TableClient, committing_spec: ExactSpec, topic: str
) -> None:
    await send(client, f"{topic}-in", 2, 5)
    spec = committing_spec(COMMITTED)
    async with running(server.service_url, spec):
        await arrived(client, f"{topic}-out", 10)

        async def is_cleared() -> bool:
            opened = tables.open(table_of(spec.metadata), f"{spec.metadata.functionUuid}/0", f"{topic}-in")
            return opened.position is not None and not opened.outbox

        await eventually(is_cleared)
    assert Counter(await all_messages(client, f"{topic}-out")) == Counter(b"m%d!" % number for number in range(10))
