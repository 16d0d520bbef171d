"""EFFECTIVELY_ONCE over the 2^20th entry of a ledger: the numbers of its outputs begin anew under another name."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import replace

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ProducerConfig
from magnetar.client.deduplication import switch_on
from magnetar.client.producers.outgoing import encode_entry, seal_entry
from magnetar.client.producers.producer import Producer
from magnetar.instance.exact import outputs
from magnetar.instance.identity import producer_name
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.wire.position_sequence import ENTRY_MAX
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from tests.client.proxy import Proxy
from tests.instance.shifting_proxy import ShiftingProxy
from tests.support.exact import ExactSpec, all_messages, arrived, count, kill_at, no_backlog, reset, running, send
from tests.support.servers import Server

pytestmark = pytest.mark.slow

ECHO = "def process(text):\n    return text + '!'\n"
SLOW_ECHO = "import time\ndef process(text):\n    time.sleep(0.001)\n    return text + '!'\n"
BEFORE = 30
"""Entries before the 2^20th."""


@pytest.fixture
def names_of(server: Server) -> ShiftingProxy:
    return ShiftingProxy(server.service_url, ENTRY_MAX + 1 - BEFORE)


def names(proxy: Proxy) -> set[str]:
    """Return how the names of the exact producers begin that were created."""
    created = (command.producer.producer_name for command in proxy.sent if command.type == BaseCommand.PRODUCER)
    return {name.partition("/")[0] for name in created if "/" in name}


async def test_no_message_is_lost_or_repeated_behind_the_first_segment(
    client: AsyncClient, server: Server, names_of: ShiftingProxy, exact_spec: ExactSpec, topic: str
) -> None:
    seed = random.getrandbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    expected = await send(client, f"{topic}-in", 2 * BEFORE, 3)
    spec = exact_spec(SLOW_ECHO)
    async with names_of as proxy:
        while (done := await count(client, f"{topic}-out")) < len(expected):
            async with running(proxy.service_url, spec) as instance:
                for _ in range(2):
                    done = min(len(expected), done + rng.randrange(1, 60))
                    await arrived(client, f"{topic}-out", done)
                    proxy.cut()
                assert (await instance.status()).failureException == ""
        async with running(proxy.service_url, spec):
            await no_backlog(server, f"{topic}-in")
        assert await all_messages(client, f"{topic}-out") == expected
        assert names(proxy) == {"public", "~1"}

        # And when its input comes again: what is stored under either name is dropped.
        await reset(client, f"{topic}-in")
        more = await send(client, f"{topic}-in", 1, 1, first=10_000)
        async with running(proxy.service_url, spec):
            await arrived(client, f"{topic}-out", len(expected) + 1)
            await no_backlog(server, f"{topic}-in")
        assert await all_messages(client, f"{topic}-out") == expected + more


async def test_what_killed_processes_did_behind_the_first_segment_is_not_stored_again(
    client: AsyncClient, server: Server, names_of: ShiftingProxy, exact_spec: ExactSpec, topic: str
) -> None:
    expected = await send(client, f"{topic}-in", 2 * BEFORE, 5)
    runtime = ProcessRuntime()
    async with names_of as proxy:
        spec = replace(exact_spec(SLOW_ECHO), service_url=proxy.service_url)
        for done in (130, 200):
            await kill_at(runtime, spec, client, f"{topic}-out", done)
        await runtime.start(spec)
        await arrived(client, f"{topic}-out", len(expected))
        await no_backlog(server, f"{topic}-in")
        await runtime.close()
    assert await all_messages(client, f"{topic}-out") == expected


COUNTING = """
def process(text, context):
    context.incr_counter("n", 1)
    context.publish({side!r}, str(context.get_counter("n")))
    return text + "!"
"""


async def test_state_and_several_topics_are_exact_behind_the_first_segment(
    client: AsyncClient, server: Server, names_of: ShiftingProxy, committing_spec: ExactSpec, topic: str
) -> None:
    expected = await send(client, f"{topic}-in", 2 * BEFORE, 3)
    runtime = ProcessRuntime()
    async with names_of as proxy:
        code = COUNTING.format(side=f"{topic}-side")
        spec = replace(committing_spec(code), service_url=proxy.service_url)
        for done in (80, 110):
            await kill_at(runtime, spec, client, f"{topic}-out", done)
        await runtime.start(spec)
        await arrived(client, f"{topic}-out", len(expected))
        await arrived(client, f"{topic}-side", len(expected))
        await no_backlog(server, f"{topic}-in")
        await runtime.close()
    assert await all_messages(client, f"{topic}-out") == expected
    numbers = [int(message) for message in await all_messages(client, f"{topic}-side")]
    assert numbers == list(range(1, len(expected) + 1))


async def test_an_instance_goes_on_where_one_stopped_at_the_end_of_the_first_segment(
    client: AsyncClient, server: Server, names_of: ShiftingProxy, exact_spec: ExactSpec, topic: str
) -> None:
    """The numbers before are those that there always were: an update in the middle of a ledger repeats nothing."""
    expected = await send(client, f"{topic}-in", 2 * BEFORE, 1)
    spec = exact_spec(ECHO)
    await asyncio.to_thread(switch_on, server.web_url, f"{topic}-out")
    consumer = await client.subscribe(f"{topic}-in", "look")
    ledger_id = (await consumer.last_message_id()).ledger_id
    name = producer_name(spec, f"{topic}-in")
    producer = await client.create_producer(f"{topic}-out", ProducerConfig(name=name))
    assert isinstance(producer, Producer)
    for number in range(BEFORE):
        sequence_id = ledger_id << 30 | (ENTRY_MAX + 1 - BEFORE + number) << 10
        entry = encode_entry([expected[number]])
        payload = seal_entry(entry, name, sequence_id, time.time_ns() // 1_000_000)
        await producer.send_sealed(payload, sequence_id, 1)
    await producer.close()
    async with names_of as proxy, running(proxy.service_url, spec):
        await arrived(client, f"{topic}-out", len(expected))
        await no_backlog(server, f"{topic}-in")
    assert await all_messages(client, f"{topic}-out") == expected


async def test_more_output_topics_than_producers_are_served(
    client: AsyncClient,
    server: Server,
    committing_spec: ExactSpec,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outputs, "PRODUCERS_MAX", 3)
    code = f"def process(text, context):\n    context.publish('{topic}-' + str(int(text[1:]) % 8), text)\n"
    await send(client, f"{topic}-in", 12, 4)
    async with running(server.service_url, committing_spec(code)) as instance:
        await arrived(client, f"{topic}-7", 6)
        await no_backlog(server, f"{topic}-in")
        assert (await instance.status()).numSystemExceptions == 0
    for number in range(8):
        messages = await all_messages(client, f"{topic}-{number}")
        assert messages == [b"m%d" % sent for sent in range(number, 48, 8)]
