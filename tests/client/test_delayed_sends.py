"""Messages that are to be given out later, sent by our own client."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest
from magnetar.client import (
    AsyncClient,
    Client,
    ClientConfig,
    ConsumerConfig,
    InvalidConfig,
    OutgoingMessage,
    ProducerConfig,
    ProducerInterceptor,
    StringSchema,
)
from magnetar.wire.payload import open_payload
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from tests.client.clusters import Cluster
from tests.client.scripted import ScriptedBroker, partitions, producer_success

DELAY_MS = 1500
RECEIVE_S = 60


def soon() -> int:
    return int(time.time() * 1000) + DELAY_MS


@pytest.mark.parametrize("batching", [True, False])
async def test_a_delayed_message_comes_at_its_time(client: AsyncClient, topic: str, batching: bool) -> None:
    consumer = await client.subscribe(topic, "s", ConsumerConfig(type="Shared"))
    async with await client.create_producer(topic, ProducerConfig(batching=batching)) as producer:
        at = soon()
        await producer.send(b"later", key="k", properties={"a": "b"}, deliver_at_ms=at)
        await producer.send(b"now")
        assert (await consumer.receive(RECEIVE_S)).data == b"now"
        later = await consumer.receive(RECEIVE_S)
    assert time.time() * 1000 >= at
    assert (later.data, later.key, later.properties) == (b"later", "k", {"a": "b"})


async def test_a_delayed_message_is_not_delayed_under_exclusive(client: AsyncClient, topic: str) -> None:
    consumer = await client.subscribe(topic, "s")
    async with await client.create_producer(topic) as producer:
        await producer.send(b"later", deliver_at_ms=int(time.time() * 1000) + 3_600_000)
        assert (await consumer.receive(RECEIVE_S)).data == b"later"


async def test_delayed_messages_go_alone_and_in_order_with_the_others() -> None:
    async with ScriptedBroker() as scripted, AsyncClient(scripted.service_url) as client:
        producer = await client.create_producer("t", ProducerConfig(batch_max_delay_ms=60_000))
        sends = [producer.send_nowait(b"0"), producer.send_nowait(b"1"), producer.send_nowait(b"2", deliver_at_ms=9)]
        sends += [producer.send_nowait(b"3"), producer.send_nowait(b"4", deliver_at_ms=9, sequence_id=7)]
        await producer.flush()
        for send in sends:
            await send
    sent = [command.send for command in scripted.commands(BaseCommand.SEND)]
    assert [(one.sequence_id, one.num_messages) for one in sent] == [(0, 2), (2, 1), (3, 1), (7, 1)]


class Clock:
    """Wall time as the test sets it."""

    def __init__(self) -> None:
        self.now_s = 1000.0005

    def __call__(self) -> float:
        return self.now_s


def times(broker: ScriptedBroker) -> list[int]:
    """When each message that came is to be given out."""
    received = [payload for command, payload in broker.received if command.type == BaseCommand.SEND]
    return [open_payload(payload)[0].deliver_at_time for payload in received]


@pytest.mark.parametrize(("batching", "chunking"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("blocking", [False, True])
async def test_a_delay_counts_by_the_clock_of_the_client(batching: bool, chunking: bool, blocking: bool) -> None:
    config = ProducerConfig(batching=batching, chunking_enabled=chunking, block_if_queue_full=blocking)
    async with ScriptedBroker() as scripted, AsyncClient(scripted.service_url, clock=Clock()) as client:
        producer = await client.create_producer("t", config)
        await producer.send(b"0", deliver_after=timedelta(seconds=2))
        await producer.send(b"1", deliver_after=timedelta())
        await producer.send(b"2", deliver_after=None, deliver_at_ms=9)
        await producer.send(b"3", deliver_at_ms=0, deliver_after=timedelta(microseconds=1))
        with pytest.raises(InvalidConfig, match=r"deliver_at_ms=9 and deliver_after=.* are mutually exclusive"):
            await producer.send(b"x", deliver_at_ms=9, deliver_after=timedelta(seconds=2))
        wrong: Any
        for wrong, why in [(timedelta(microseconds=-1), "must not be negative"), (5, "expected a timedelta, got int")]:
            with pytest.raises(InvalidConfig, match=f"deliver_after.*{why}"):
                await producer.send(b"x", deliver_after=wrong)
        assert producer.pending_messages == 0
    assert times(scripted) == [1_002_001, 1_000_001, 9, 1_000_001]  # rounded up: never early


async def test_a_delay_begins_with_the_call_that_waits_for_room() -> None:
    clock = Clock()
    config = ProducerConfig(batching=False, max_pending_messages=1, block_if_queue_full=True)
    async with ScriptedBroker() as scripted, AsyncClient(scripted.service_url, clock=clock) as client:
        producer = await client.create_producer("t", config)
        arrived: asyncio.Future[BaseCommand] = asyncio.get_running_loop().create_future()

        def hold(command: BaseCommand, _payload: bytes) -> list[bytes]:
            arrived.set_result(command)
            return []

        scripted.answers[BaseCommand.SEND] = hold
        first = producer.send_nowait(b"0")
        second = asyncio.ensure_future(producer.send(b"1", deliver_after=timedelta(seconds=1)))
        held = await asyncio.wait_for(arrived, 30)
        clock.now_s += 60
        scripted.answers[BaseCommand.SEND] = scripted.stored
        scripted.say(*scripted.stored(held, b""))
        await asyncio.gather(first, second)
    assert times(scripted) == [0, 1_001_001]


class Recording(ProducerInterceptor):
    """Keeps what it sees."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def before_send(self, producer: Any, message: OutgoingMessage) -> OutgoingMessage:
        """Keep the time."""
        self.seen.append(message.deliver_at_ms)
        return message


async def test_a_delay_begins_with_the_call_where_a_partition_is_opened_for_it() -> None:
    clock, recording = Clock(), Recording()
    config = ProducerConfig(
        lazy_start_partitioned_producers=True, routing=lambda _message, _count: 1, interceptors=(recording,)
    )
    held: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def open_first(command: BaseCommand, _payload: bytes) -> list[bytes]:
        if command.producer.topic.endswith("-partition-0"):
            return [producer_success(command.producer.request_id)]
        held.set_result(command.producer.request_id)
        return []

    async with ScriptedBroker() as scripted, AsyncClient(scripted.service_url, clock=clock) as client:
        scripted.answers[BaseCommand.PARTITIONED_METADATA] = lambda c, _p: [
            partitions(c.partitionMetadata.request_id, 2)
        ]
        scripted.answers[BaseCommand.PRODUCER] = open_first
        producer = await client.create_producer("t", config)
        sent = asyncio.ensure_future(producer.send(b"0", deliver_after=timedelta(seconds=1)))
        request_id = await asyncio.wait_for(held, 30)
        clock.now_s += 60
        scripted.say(producer_success(request_id))
        await sent
    assert times(scripted) == recording.seen == [1_001_001]


async def test_a_message_with_a_delay_comes_after_it(client: AsyncClient, topic: str) -> None:
    consumer = await client.subscribe(topic, "s", ConsumerConfig(type="Shared"))
    async with await client.create_producer(topic, schema=StringSchema()) as producer:
        before_s = time.time()
        await producer.send("later", deliver_after=timedelta(milliseconds=DELAY_MS))
        await producer.send("now")
        assert (await consumer.receive(RECEIVE_S)).data == b"now"
        assert (await consumer.receive(RECEIVE_S)).data == b"later"
    assert time.time() >= before_s + DELAY_MS / 1000


async def test_large_messages_in_chunks_are_delayed(client: AsyncClient, topic: str) -> None:
    consumer = await client.subscribe(topic, "s", ConsumerConfig(type="Shared"))
    config = ProducerConfig(batching=False, chunking_enabled=True)
    large = b"x" * (6 * 1024 * 1024)
    async with await client.create_producer(topic, config) as producer:
        at = soon()
        await producer.send(large, deliver_at_ms=at)
        await producer.send(b"now")
        assert (await consumer.receive(RECEIVE_S)).data == b"now"
        assert (await consumer.receive(RECEIVE_S)).data == large
    assert time.time() * 1000 >= at


def test_the_blocking_client_sends_later_too(cluster: Cluster, topic: str) -> None:
    with Client(cluster.service_url, ClientConfig(operation_timeout_s=60)) as client:
        consumer = client.subscribe(topic, "s", ConsumerConfig(type="Shared"))
        producer = client.create_producer(topic)
        at = soon()
        producer.send(b"later", deliver_at_ms=at)
        producer.send(b"now")
        assert [consumer.receive(RECEIVE_S * 1000).data for _ in range(2)] == [b"now", b"later"]
        assert time.time() * 1000 >= at
        before_s = time.time()
        producer.send_async(b"later", deliver_after=timedelta(milliseconds=DELAY_MS))
        producer.send(b"sooner", deliver_after=timedelta(milliseconds=1))
        assert [consumer.receive(RECEIVE_S * 1000).data for _ in range(2)] == [b"sooner", b"later"]
        assert time.time() >= before_s + DELAY_MS / 1000
        with pytest.raises(InvalidConfig, match="deliver_at_ms"):
            producer.send(b"x", deliver_at_ms=-1)
        for send in (producer.send, producer.send_async):
            with pytest.raises(InvalidConfig, match=r"invalid deliver_after .*: must not be negative"):
                send(b"x", deliver_after=timedelta(seconds=-1))
            with pytest.raises(InvalidConfig, match="are mutually exclusive"):
                send(b"x", deliver_at_ms=5, deliver_after=timedelta(seconds=1))


@pytest.mark.parametrize("wrong", [-1, 1 << 63, 1.5, "tomorrow"])
async def test_what_is_no_time_is_refused(client: AsyncClient, topic: str, wrong: object) -> None:
    async with await client.create_producer(topic) as producer:
        with pytest.raises(InvalidConfig, match="deliver_at_ms"):
            await producer.send(b"x", deliver_at_ms=wrong)  # type: ignore[arg-type]
        await producer.send(b"x")
