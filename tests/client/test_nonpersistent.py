"""Our client on non-persistent topics."""

from __future__ import annotations

import re
from typing import Any

import pytest
from magnetar.client import LATEST, AsyncClient, ConsumerConfig, MessageId
from magnetar.errors import BrokerError

from tests.client.clusters import Cluster
from tests.client.proxy import Proxy
from tests.client.test_consumer import assert_nothing_comes, data, producing, publish, subscribe

pytestmark = pytest.mark.slow


@pytest.fixture
def volatile(topic: str) -> str:
    return f"non-{topic}"


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Shared"])
async def test_messages_go_to_who_is_there(client: AsyncClient, volatile: str, kind: Any) -> None:
    assert await publish(client, volatile, b"for nobody") == [MessageId(0, 0)]
    consumer = await subscribe(client, volatile, type=kind, initial_position="Earliest", ack_receipts=True)
    await publish(client, volatile, b"0", b"1")
    messages = [await consumer.receive(30) for _ in range(2)]
    assert [message.data for message in messages] == [b"0", b"1"]
    for message in messages:
        await consumer.ack(message)
    await consumer.close()
    await publish(client, volatile, b"for nobody")
    consumer = await subscribe(client, volatile, type=kind, initial_position="Earliest")
    await publish(client, volatile, b"2")
    assert await data(consumer, 1) == [b"2"]
    await assert_nothing_comes(consumer)


async def test_the_next_message_comes_though_the_last_one_of_its_id_was_acknowledged(
    client: AsyncClient, volatile: str
) -> None:
    consumer = await subscribe(client, volatile)
    producer = await producing(client, volatile, batching=False)
    for number in range(10):
        await producer.send(b"%d" % number)
        message = await consumer.receive(30)
        assert message.data == b"%d" % number
        await (consumer.ack(message) if number % 2 else consumer.ack_cumulative(message))
        consumer.negative_ack(message)


async def test_a_consumer_comes_back_after_the_connection(proxied: AsyncClient, proxy: Proxy, volatile: str) -> None:
    consumer = await subscribe(proxied, volatile)
    producer = await producing(proxied, volatile)
    await producer.send(b"0")
    message = await consumer.receive(30)
    await consumer.ack(message)
    proxy.cut()
    sent = 0
    while True:  # what is sent before the consumer is back is lost
        sent += 1
        await producer.send(b"%d" % sent)
        if (again := consumer.poll()) is not None:
            break
    assert 0 < int(again.data) <= sent


async def test_a_reader_begins_with_what_comes(client: AsyncClient, volatile: str) -> None:
    await publish(client, volatile, b"for nobody")
    reader = await client.create_reader(volatile, LATEST)
    await publish(client, volatile, b"0")
    assert (await reader.receive(30)).data == b"0"


async def test_there_is_no_last_message(client: AsyncClient, volatile: str) -> None:
    consumer = await subscribe(client, volatile)
    with pytest.raises(BrokerError):
        await consumer.last_message_id()


async def test_partitions_share_the_messages(client: AsyncClient, cluster: Cluster, volatile: str) -> None:
    cluster.create_partitioned(volatile, 2)
    consumer = await client.subscribe(volatile, "s")
    producer = await client.create_producer(volatile)
    for number in range(4):
        await producer.send(b"%d" % number, key=f"k{number}")
    assert sorted([(await consumer.receive(30)).data for _ in range(4)]) == [b"0", b"1", b"2", b"3"]


async def test_a_pattern_of_non_persistent_topics_is_polled(client: AsyncClient, topic: str, volatile: str) -> None:
    local = topic.rsplit("/", 1)[1]
    config = ConsumerConfig(regex_subscription_mode="NonPersistentOnly", pattern_update_s=0.05)
    consumer = await client.subscribe(re.compile(f"{local}-.*"), "s", config)
    await producing(client, f"{topic}-a")
    producer = await producing(client, f"{volatile}-a")
    while (message := consumer.poll()) is None:
        await producer.send(b"0")
    assert message.topic == f"{volatile}-a"
