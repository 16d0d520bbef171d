"""ATMOST_ONCE with several instances and connections that end at any moment: no message is processed twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig
from magnetar.client.consumers.consumer import Consumer
from magnetar.client.producers.outgoing import encode_entry
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.runtime.thread.runtime import ThreadRuntime
from magnetar.wire import functions_pb2 as records
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from tests.client.proxy import Proxy
from tests.support.eventually import until
from tests.support.exact import no_backlog
from tests.support.function_topics import stats_of
from tests.support.instances import MakeSpec
from tests.support.servers import Server
from tests.support.servers import running as running_server

SUBSCRIPTION = "public/default/f"
CONSUMED_AS: dict[int, ConsumerConfig] = {
    records.SHARED: ConsumerConfig(type="Shared", initial_position="Earliest"),
    records.FAILOVER: ConsumerConfig(type="Failover", initial_position="Earliest"),
}
NOTING = """
import os
file = os.open({path!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def process(number):
    os.write(file, b"%d\\n" % number)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker that gives up a silent connection soon."""
    directory = tmp_path_factory.mktemp("at-most-once")
    config = directory / "broker.yml"
    config.write_text("keepAliveIntervalSeconds: 1\nactiveConsumerFailoverDelayTimeMillis: 0\n")
    with running_server("broker", directory, "--config", str(config)) as server:
        yield server


async def send(client: AsyncClient, topic: str, messages: int, per_entry: int) -> None:
    producer = await client.create_producer(topic)
    for first in range(0, messages, per_entry):
        await producer.ready()
        producer.send_entry(encode_entry([b"%d" % number for number in range(first, first + per_entry)]))
    await producer.close()


async def acknowledged(proxy: Proxy, commands: int) -> None:
    """Wait until an instance has sent so many acknowledgements, or a moment longer than it would take."""

    async def has_sent() -> bool:
        return proxy.count(BaseCommand.ACK) >= commands

    with contextlib.suppress(TimeoutError):
        await until(has_sent, 0.3)


async def hand_over(client: AsyncClient, topic: str, kind: str) -> Consumer:
    """Return a consumer that the topic's entries are delivered to."""
    config = ConsumerConfig(type=kind, initial_position="Earliest", name="a")  # type: ignore[arg-type]
    consumer = await client.subscribe(topic, "s", config)
    assert isinstance(consumer, Consumer)
    return consumer


async def test_a_claim_counts_on_the_connection_that_delivered_the_entry(
    server: Server, client: AsyncClient, topic: str
) -> None:
    await send(client, topic, 4, 2)
    async with Proxy(server.service_url) as proxy, AsyncClient(proxy.service_url) as proxied:
        consumer = await hand_over(proxied, topic, "Shared")
        entries = [await consumer.receive_entry() for _ in range(2)]
        assert await consumer.claim_entries(entries[:1]) == entries[:1]
        proxy.hold()
        claim = consumer.claim_entries(entries[1:])
        await asyncio.sleep(0)
        proxy.cut()
        proxy.resume()
        assert await asyncio.wait_for(claim, 30) == []
        again = await asyncio.wait_for(consumer.receive_entry(), 30)
        assert again.message_id == entries[1].message_id
        acks = [frame.command.ack for _, frame in proxy.frames if frame.command.type == BaseCommand.ACK]
        assert len({ack.message_id[0].entryId for ack in acks}) == len(acks), "an acknowledgement was sent again"


async def test_a_claim_is_lost_when_another_consumer_becomes_the_active_one(
    server: Server, client: AsyncClient, topic: str
) -> None:
    await send(client, topic, 2, 2)
    async with Proxy(server.service_url) as proxy, AsyncClient(proxy.service_url) as proxied:
        consumer = await hand_over(proxied, topic, "Failover")
        entry = await asyncio.wait_for(consumer.receive_entry(), 30)
        consumer.handle_active_change(False)
        await asyncio.sleep(0)
        proxy.hold()
        claim = consumer.claim_entries([entry])
        consumer.is_active = True
        consumer.handle_active_change(False)
        assert await asyncio.wait_for(claim, 30) == []
        proxy.resume()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [records.SHARED, records.FAILOVER])
async def test_at_most_once_processes_nothing_twice_when_connections_end(
    server: Server, client: AsyncClient, make_spec: MakeSpec, topic: str, tmp_path: Path, kind: int
) -> None:
    seed = random.getrandbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    notes = tmp_path / "notes"
    messages, per_entry, rounds = 4000, 2, 25
    producer = await client.create_producer(f"{topic}-in")
    await (await client.subscribe(f"{topic}-in", SUBSCRIPTION, CONSUMED_AS[kind])).close()
    async with Proxy(server.service_url) as one, Proxy(server.service_url) as other:
        runtimes = [ThreadRuntime(proxy.service_url) for proxy in (one, other)]
        instances = []
        for number, runtime in enumerate(runtimes):
            spec = make_spec(
                NOTING.format(path=str(notes)),
                instance_id=number,
                processingGuarantees=records.ATMOST_ONCE,
                source={"subscriptionType": kind},
                sink={"builtin": "none"},
            )
            spec.details.source.inputSpecs[f"{topic}-in"].receiverQueueSize.value = 20
            instances.append(await runtime.start(spec))
        numbers = iter(range(messages))
        for _ in range(rounds):
            proxy = rng.choice((one, other))
            sent, wanted = proxy.count(BaseCommand.ACK), rng.randrange(1, 4)
            for index in range(messages // per_entry // rounds):
                if index == messages // per_entry // rounds // 2 and rng.random() < 0.7:
                    proxy.hold_requests()  # what is acknowledged from now on does not arrive
                producer.send_entry([b"%d" % next(numbers) for _ in range(per_entry)])
                await asyncio.sleep(0)
            await acknowledged(proxy, sent + wanted)
            proxy.cut()
            proxy.resume()
        await producer.close()
        await no_backlog(server, f"{topic}-in")
        for instance in instances:
            await instance.stop(30)
        for runtime in runtimes:
            await runtime.close()
    counts = Counter(notes.read_text().split())
    twice = [number for number, count in counts.items() if count > 1]
    assert not twice, f"{len(twice)} of {messages} messages were processed twice, seed {seed}"
    assert len(counts) > messages // 2


@pytest.mark.slow
async def test_at_most_once_processes_nothing_twice_when_an_instance_freezes(
    server: Server, client: AsyncClient, make_spec: MakeSpec, topic: str, tmp_path: Path
) -> None:
    """What it had received before belongs to the other one once the broker has given its connection up."""
    notes = tmp_path / "notes"
    producer = await client.create_producer(f"{topic}-in")
    await (await client.subscribe(f"{topic}-in", SUBSCRIPTION, CONSUMED_AS[records.SHARED])).close()
    runtime = ProcessRuntime()
    code, sink = NOTING.format(path=str(notes)), {"builtin": "none"}
    instances = []
    for number in range(2):
        spec = make_spec(code, instance_id=number, processingGuarantees=records.ATMOST_ONCE, sink=sink)
        instances.append(await runtime.start(spec))

    async def consume(consumers: int) -> None:
        async def are_connected() -> bool:
            stats = await stats_of(server, f"{topic}-in")
            return len(stats["subscriptions"][SUBSCRIPTION]["consumers"]) == consumers

        await until(are_connected)

    numbers = iter(range(100_000))
    await consume(2)
    for instance in (*instances, instances[0]):
        for index in range(600):
            if index == 300:
                os.kill(instance.process_id, signal.SIGSTOP)
            await producer.ready()
            producer.send_entry([b"%d" % next(numbers)])
            await asyncio.sleep(0)
        await consume(1)
        os.kill(instance.process_id, signal.SIGCONT)
        await consume(2)
    await producer.close()
    await no_backlog(server, f"{topic}-in")
    for instance in instances:
        await instance.stop(30)
    await runtime.close()
    counts = Counter(notes.read_text().split())
    assert max(counts.values()) == 1, f"{sum(count > 1 for count in counts.values())} messages were processed twice"
    assert len(counts) > 1500
