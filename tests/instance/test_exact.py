"""EFFECTIVELY_ONCE without state: outputs go straight to one topic, and the broker's deduplication makes them exact."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ProducerConfig
from magnetar.client.deduplication import memory_guard, switch_on
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.runtime.thread.runtime import ThreadRuntime

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
)  # fmt: skip
from tests.support.pulsar import BROKERS, Broker
from tests.support.servers import Server

ECHO = "def process(text):\n    return text + '!'\n"


@pytest.fixture(scope="module", params=BROKERS)
def server(request: pytest.FixtureRequest, server: Server) -> Broker:
    """Ours, and Apache Pulsar."""
    return request.getfixturevalue("apache_pulsar") if request.param == "pulsar" else server


async def test_every_message_comes_out_once_and_in_order(
    client: AsyncClient, server: Broker, exact_spec: ExactSpec, topic: str
) -> None:
    expected = await send(client, f"{topic}-in", 50, 20)
    async with running(server.service_url, exact_spec(ECHO)):

        async def is_done() -> bool:
            return len(await all_messages(client, f"{topic}-out")) >= len(expected)

        await eventually(is_done)
    assert await all_messages(client, f"{topic}-out") == expected


async def test_what_a_killed_process_did_is_not_stored_again(
    client: AsyncClient, server: Broker, exact_spec: ExactSpec, topic: str
) -> None:
    expected = await send(client, f"{topic}-in", 400, 5)
    spec = exact_spec("import time\ndef process(text):\n    time.sleep(0.0005)\n    return text + '!'\n")
    runtime = ProcessRuntime()
    for _ in range(4):
        done = await count(client, f"{topic}-out")
        await kill_at(runtime, spec, client, f"{topic}-out", min(len(expected), done + 50))
    await runtime.start(spec)
    await arrived(client, f"{topic}-out", len(expected))
    await no_backlog(server, f"{topic}-in")
    await runtime.close()
    assert await all_messages(client, f"{topic}-out") == expected


async def test_a_function_that_is_created_again_produces_again(
    client: AsyncClient, server: Broker, exact_spec: ExactSpec, topic: str
) -> None:
    expected = await send(client, f"{topic}-in", 10, 5)
    async with running(server.service_url, exact_spec(ECHO, uuid="first")):
        await arrived(client, f"{topic}-out", 50)
    await reset(client, f"{topic}-in")
    async with running(server.service_url, exact_spec(ECHO, uuid="second")):
        await arrived(client, f"{topic}-out", 100)
    assert await all_messages(client, f"{topic}-out") == expected * 2


async def test_a_new_incarnation_produces_again_and_the_old_one_skips(
    client: AsyncClient, server: Broker, exact_spec: ExactSpec, topic: str
) -> None:
    expected = await send(client, f"{topic}-in", 10, 5)
    async with running(server.service_url, exact_spec(ECHO)):
        await arrived(client, f"{topic}-out", 50)
    await reset(client, f"{topic}-in")
    async with running(server.service_url, exact_spec(ECHO)) as instance:
        expected += await send(client, f"{topic}-in", 1, 5, first=50)
        await arrived(client, f"{topic}-out", 55)
        assert (await instance.status()).numReceived == 5
    assert await all_messages(client, f"{topic}-out") == expected
    await reset(client, f"{topic}-in")
    async with running(server.service_url, exact_spec(ECHO, incarnation=1)):
        await arrived(client, f"{topic}-out", 110)
    assert await all_messages(client, f"{topic}-out") == expected * 2


async def test_a_raw_reset_under_a_running_instance_is_shown_with_the_remedy(
    client: AsyncClient, server: Broker, exact_spec: ExactSpec, topic: str
) -> None:
    expected = await send(client, f"{topic}-in", 10, 5)
    async with running(server.service_url, exact_spec(ECHO)) as instance:
        await arrived(client, f"{topic}-out", 50)
        await no_backlog(server, f"{topic}-in")
        await reset(client, f"{topic}-in", server)

        async def is_shown() -> bool:
            latest = (await instance.status()).latestSystemExceptions
            return any("use `functions reset-cursor`" in one.exceptionString for one in latest)

        await eventually(is_shown)
    assert await all_messages(client, f"{topic}-out") == expected


async def test_a_poison_message_stops_the_instance_behind_what_came_before_it(
    client: AsyncClient, server: Broker, exact_spec: ExactSpec, topic: str
) -> None:
    await send(client, f"{topic}-in", 10, 5)
    spec = exact_spec("def process(text):\n    if text == 'm27': raise ValueError('no 27')\n    return text + '!'\n")
    runtime = ThreadRuntime(server.service_url)
    reason = await asyncio.wait_for((await runtime.start(spec)).wait(), 30)
    await runtime.close()
    assert ":2 of persistent://" in reason
    assert f"{topic}-in" in reason
    assert "ValueError: no 27" in reason
    assert await all_messages(client, f"{topic}-out") == [b"m%d!" % number for number in range(25)]
    async with running(server.service_url, exact_spec(ECHO)):
        await arrived(client, f"{topic}-out", 50)
    assert await all_messages(client, f"{topic}-out") == [b"m%d!" % number for number in range(50)]


async def test_partitions_move_between_instances_without_loss_or_repetition(
    client: AsyncClient, server: Broker, exact_spec: ExactSpec, topic: str
) -> None:
    async with httpx.AsyncClient(base_url=server.web_url, timeout=60) as http:
        path = "/admin/v2/" + f"{topic}-in".replace("://", "/")
        (await http.put(f"{path}/partitions", json=4)).raise_for_status()
    code = "import time\ndef process(text):\n    time.sleep(0.0005)\n    return text + '!'\n"
    specs = [exact_spec(code, instance_id=number) for number in range(3)]
    expected = await send(client, f"{topic}-in", 200, 5)
    async with running(server.service_url, specs[0]):
        await arrived(client, f"{topic}-out", 50)
        async with running(server.service_url, specs[1]), running(server.service_url, specs[2]):
            await arrived(client, f"{topic}-out", 500)
        await arrived(client, f"{topic}-out", 1000)
    found = await all_messages(client, f"{topic}-out")
    assert Counter(found) == Counter(expected)


async def test_what_is_sent_again_right_after_a_topic_was_loaded_is_not_stored_twice(
    client: AsyncClient, server: Broker, topic: str
) -> None:
    await asyncio.to_thread(switch_on, server.web_url, topic)
    config = ProducerConfig(name="p", guard=memory_guard(server.web_url, topic))
    producer = await client.create_producer(topic, config)
    last = 300
    await asyncio.gather(*(producer.send(b"%d" % number, sequence_id=number) for number in range(last + 1)))
    unload = f"{server.web_url}/admin/v2/{topic.replace('://', '/')}/unload"
    async with httpx.AsyncClient(timeout=20) as http:
        for _ in range(10):
            await producer.close()
            (await http.put(unload)).raise_for_status()
            producer = await client.create_producer(topic, config)
            assert producer.last_sequence_id == last
            assert (await producer.send(b"again", sequence_id=last)).ledger_id == -1
    await producer.close()
    assert len(await all_messages(client, topic)) == last + 1
