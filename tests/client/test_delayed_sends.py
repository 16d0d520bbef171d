"""Messages that are to be given out later, sent by our own client."""

from __future__ import annotations

import time

import pytest
from magnetar.client import AsyncClient, Client, ClientConfig, ConsumerConfig, InvalidConfig, ProducerConfig
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from tests.client.clusters import Cluster
from tests.client.scripted import ScriptedBroker

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
        with pytest.raises(InvalidConfig, match="deliver_at_ms"):
            producer.send(b"x", deliver_at_ms=-1)


@pytest.mark.parametrize("wrong", [-1, 1 << 63, 1.5, "tomorrow"])
async def test_what_is_no_time_is_refused(client: AsyncClient, topic: str, wrong: object) -> None:
    async with await client.create_producer(topic) as producer:
        with pytest.raises(InvalidConfig, match="deliver_at_ms"):
            await producer.send(b"x", deliver_at_ms=wrong)  # type: ignore[arg-type]
        await producer.send(b"x")
