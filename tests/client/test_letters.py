"""Dead letters, retry letters and the ack timeout, of our client and of the official one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.client import (
    NO_VALUE,
    AsyncClient,
    Base64Key,
    Client,
    ClientConfig,
    Consumer,
    ConsumerConfig,
    ConsumerDeadLetterPolicy,
    InvalidConfig,
    MergedConsumer,
    Message,
    ProducerConfig,
)
from magnetar.client.consumers.ack_timeouts import AckTimeouts
from magnetar.client.consumers.letters import reconsume_times
from magnetar.wire.payload import open_payload
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from tests.client.clusters import Cluster
from tests.client.scripted import ScriptedBroker

QUIET_S = 0.3


def shared(**settings: Any) -> ConsumerConfig:
    return ConsumerConfig(type="Shared", negative_ack_delay_ms=20, **settings)


async def dead_letters(client: AsyncClient, topic: str, count: int) -> list[Message]:
    consumer = await client.subscribe(topic, "readers", ConsumerConfig(initial_position="Earliest"))
    found = [await consumer.receive(8) for _ in range(count)]
    assert await silent(consumer)
    return found


async def silent(consumer: Consumer | MergedConsumer) -> bool:
    try:
        await asyncio.wait_for(consumer.receive(), QUIET_S)
    except TimeoutError:
        return True
    return False


async def backlog_is_empty(cluster: Cluster, topic: str, subscription: str = "s") -> bool:
    for _ in range(1000):
        if cluster.backlog(topic, subscription) == 0:
            return True
        await asyncio.sleep(0.01)
    return False


@pytest.mark.slow
async def test_message_becomes_a_dead_letter_when_it_is_refused_once_more_than_allowed(
    client: AsyncClient, cluster: Cluster, topic: str
) -> None:
    policy = ConsumerDeadLetterPolicy(max_redeliver_count=2, initial_subscription_name="readers")
    consumer = await client.subscribe(topic, "s", shared(dead_letter_policy=policy))
    producer = await client.create_producer(topic, ProducerConfig(batching=False))
    sent = await producer.send(
        b"bad", key="k", ordering_key=b"o", properties={"a": "b", "REAL_TOPIC": "mine"}, event_time_ms=7
    )
    await producer.send(b"good")
    counts = []
    for _ in range(4):
        message = await consumer.receive(8)
        if message.data == b"good":
            await consumer.ack(message)
        else:
            counts.append(message.redelivery_count)
            consumer.negative_ack(message)
    assert counts == [0, 1, 2]
    assert await silent(consumer)
    [letter] = await dead_letters(client, f"{topic}-s-DLQ", 1)
    assert (letter.data, letter.key, letter.ordering_key, letter.event_time_ms) == (b"bad", "k", b"o", 7)
    assert letter.properties == {
        "a": "b",
        "REAL_TOPIC": "mine",
        "REAL_SUBSCRIPTION": "s",
        "ORIGIN_MESSAGE_ID": str(sent),
        "ORIGIN_MESSAGE_IDY_TIME": str(sent),
    }
    assert letter.producer_name.startswith(f"{topic}-s-")
    assert letter.producer_name.endswith("-DLQ")
    assert await backlog_is_empty(cluster, topic)


@pytest.mark.slow
async def test_of_a_batch_only_what_is_open_becomes_dead_letters(
    client: AsyncClient, cluster: Cluster, topic: str
) -> None:
    policy = ConsumerDeadLetterPolicy(max_redeliver_count=1, dead_letter_topic=f"{topic}-dead")
    consumer = await client.subscribe(topic, "s", shared(dead_letter_policy=policy))
    dead = await client.subscribe(f"{topic}-dead", "readers")
    producer = await client.create_producer(topic, ProducerConfig(batch_max_delay_ms=60_000))
    for index in range(4):
        producer.send_nowait(b"%d" % index, key=f"k{index}")
    producer.send_nowait(NO_VALUE, key=Base64Key("a2V5"))
    await producer.flush()
    for message in [await consumer.receive(8) for _ in range(5)]:
        if message.data in (b"1", b"2"):
            await consumer.ack(message)
        else:
            consumer.negative_ack(message)
    again = [await consumer.receive(8) for _ in range(3)]
    assert [message.data for message in again] == [b"0", b"3", b""]
    await consumer.ack(again[0])
    consumer.negative_ack(again[1])
    letters = sorted([await dead.receive(8) for _ in range(2)], key=lambda letter: letter.data)
    assert [(letter.data, letter.key) for letter in letters] == [(b"", "a2V5"), (b"3", "k3")]
    assert letters[0].entry.metadata.null_value
    assert letters[0].entry.metadata.partition_key_b64_encoded
    assert await silent(dead)
    assert await backlog_is_empty(cluster, topic)


@pytest.mark.slow
async def test_message_that_came_too_often_is_never_handed_out(client: AsyncClient, topic: str) -> None:
    plain = await client.subscribe(topic, "s", shared())
    await (await client.create_producer(topic)).send(b"x")
    for _ in range(3):
        plain.negative_ack(await plain.receive(8))
    last = await plain.receive(8)
    assert last.redelivery_count == 3
    policy = ConsumerDeadLetterPolicy(max_redeliver_count=2, initial_subscription_name="readers")
    consumer = await client.subscribe(topic, "s", shared(dead_letter_policy=policy))
    await plain.close()
    assert await silent(consumer)
    assert [letter.data for letter in await dead_letters(client, f"{topic}-s-DLQ", 1)] == [b"x"]


@pytest.mark.slow
async def test_message_comes_again_when_its_dead_letter_is_refused(client: AsyncClient, topic: str) -> None:
    policy = ConsumerDeadLetterPolicy(max_redeliver_count=1, dead_letter_topic=f"{topic}-dead")
    blocker = await client.create_producer(f"{topic}-dead", ProducerConfig(access_mode="Exclusive"))
    consumer = await client.subscribe(topic, "s", shared(dead_letter_policy=policy))
    dead = await client.subscribe(f"{topic}-dead", "readers")
    await (await client.create_producer(topic)).send(b"x")
    for _ in range(2):
        consumer.negative_ack(await consumer.receive(8))
    assert await silent(dead)
    await blocker.close()
    receiving = asyncio.ensure_future(consumer.receive())
    assert (await dead.receive(20)).data == b"x"
    receiving.cancel()
    assert await silent(dead)


@pytest.mark.slow
async def test_message_waits_in_the_retry_topic_until_it_is_a_dead_letter(
    client: AsyncClient, cluster: Cluster, topic: str
) -> None:
    policy = ConsumerDeadLetterPolicy(max_redeliver_count=2, initial_subscription_name="readers")
    consumer = await client.subscribe(topic, "s", ConsumerConfig(dead_letter_policy=policy, retry_enable=True))
    assert isinstance(consumer, MergedConsumer)
    assert set(consumer.consumers) == {topic, f"{topic}-s-RETRY"}
    sent = await (await client.create_producer(topic)).send(b"x", key="k", properties={"a": "b"})
    for times in range(3):
        message = await consumer.receive(8)
        assert (message.data, message.key) == (b"x", "k")
        assert reconsume_times(message.properties) == times
        await consumer.reconsume_later(message, properties={"round": str(times)})
    assert await silent(consumer)
    [letter] = await dead_letters(client, f"{topic}-s-DLQ", 1)
    assert letter.properties == {
        "a": "b",
        "round": "2",
        "REAL_TOPIC": topic,
        "REAL_SUBSCRIPTION": "s",
        "ORIGIN_MESSAGE_ID": str(sent),
        "ORIGIN_MESSAGE_IDY_TIME": str(sent),
        "RECONSUMETIMES": "3",
        "DELAY_TIME": "0",
    }
    assert await backlog_is_empty(cluster, topic)
    assert await backlog_is_empty(cluster, f"{topic}-s-RETRY")


@pytest.mark.slow
async def test_partitions_share_the_retry_topic_of_their_topic(
    client: AsyncClient, cluster: Cluster, topic: str
) -> None:
    cluster.create_partitioned(topic, 2)
    consumer = await client.subscribe(topic, "s", shared(retry_enable=True))
    assert isinstance(consumer, MergedConsumer)
    assert set(consumer.consumers) == {f"{topic}-partition-0", f"{topic}-partition-1", f"{topic}-s-RETRY"}
    producer = await client.create_producer(topic, ProducerConfig(batching=False))
    for number in range(4):
        await producer.send(b"%d" % number)
    for message in [await consumer.receive(8) for _ in range(4)]:
        await consumer.reconsume_later(message)
    again = [await consumer.receive(8) for _ in range(4)]
    assert sorted(message.data for message in again) == [b"0", b"1", b"2", b"3"]
    assert {message.topic for message in again} == {f"{topic}-s-RETRY"}
    assert {message.properties["REAL_TOPIC"] for message in again} == {topic}
    await consumer.close()


async def test_delay_of_a_retry_letter_is_in_its_metadata() -> None:
    async with ScriptedBroker() as broker, AsyncClient(broker.service_url, clock=lambda: 1000.0) as client:
        config = ConsumerConfig(retry_enable=True)
        consumer = await client.subscribe("t", "s", config)
        assert isinstance(consumer, MergedConsumer)
        producer = await client.create_producer("other", ProducerConfig(batching=False, empty_deletes=False))
        await producer.send(b"x")
        source = consumer.consumers["persistent://public/default/t"]
        [(_, section)] = [each for each in broker.received if each[0].type == BaseCommand.SEND]
        from magnetar.client.consumers.received import open_entry
        from magnetar.wire.pulsar_api_pb2 import CommandMessage, MessageIdData

        command = CommandMessage(consumer_id=0, message_id=MessageIdData(ledgerId=3, entryId=4))
        entry = open_entry(command, section, source.topic, -1, 1 << 20)
        await consumer.reconsume_later(entry.messages()[0], 60_000)
        letter, _ = open_payload(broker.received[-1][1])
        found = {pair.key: pair.value for pair in letter.properties}
        assert letter.deliver_at_time == 1_060_000
        assert found["DELAY_TIME"] == "60000"
        assert found["RECONSUMETIMES"] == "1"
        assert found["ORIGIN_MESSAGE_ID"] == "3:4:-1"


@pytest.mark.slow
async def test_message_that_is_not_acknowledged_in_time_comes_again(
    client: AsyncClient, cluster: Cluster, topic: str
) -> None:
    config = ConsumerConfig(type="Shared", unacked_messages_timeout_ms=100, ack_timeout_tick_ms=20)
    consumer = await client.subscribe(topic, "s", config)
    producer = await client.create_producer(topic, ProducerConfig(batching=False))
    await producer.send(b"kept")
    await producer.send(b"done")
    first = [await consumer.receive(8) for _ in range(2)]
    await consumer.ack(first[1])
    again = await consumer.receive(8)
    assert (again.data, again.redelivery_count) == (b"kept", 1)
    await consumer.ack(again)
    assert await silent(consumer)
    assert await backlog_is_empty(cluster, topic)


@pytest.mark.slow
async def test_ack_timeout_makes_dead_letters(client: AsyncClient, topic: str) -> None:
    policy = ConsumerDeadLetterPolicy(max_redeliver_count=1, initial_subscription_name="readers")
    config = shared(unacked_messages_timeout_ms=60, ack_timeout_tick_ms=20, dead_letter_policy=policy)
    consumer = await client.subscribe(topic, "s", config)
    await (await client.create_producer(topic)).send(b"x")
    assert [(await consumer.receive(8)).redelivery_count for _ in range(2)] == [0, 1]
    assert [letter.data for letter in await dead_letters(client, f"{topic}-s-DLQ", 1)] == [b"x"]


@pytest.fixture
def blocking(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.service_url, ClientConfig(operation_timeout_s=60)) as it:
        yield it


@pytest.mark.slow
def test_blocking_consumer_reconsumes_later(blocking: Client, topic: str) -> None:
    policy = ConsumerDeadLetterPolicy(max_redeliver_count=1)
    consumer = blocking.subscribe(topic, "s", shared(dead_letter_policy=policy, retry_enable=True))
    dead = blocking.subscribe(f"{topic}-s-DLQ", "readers")
    blocking.create_producer(topic).send(b"x")
    for _ in range(2):
        consumer.reconsume_later(consumer.receive(8_000))
    assert dead.receive(8_000).properties["RECONSUMETIMES"] == "2"


@pytest.mark.slow
def test_official_client_sends_dead_letters_that_ours_reads(cluster: Cluster, blocking: Client, topic: str) -> None:
    official = pulsar.Client(cluster.service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    try:
        consumer = official.subscribe(
            topic,
            "s",
            consumer_type=pulsar.ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=50,
            dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2, initial_subscription_name="readers"),
        )
        sent = blocking.create_producer(topic).send(b"x", key="k")
        counts = []
        for _ in range(3):
            message = consumer.receive(8_000)
            counts.append(message.redelivery_count())
            consumer.negative_acknowledge(message)
        assert counts == [0, 1, 2]
        dead = blocking.subscribe(f"{topic}-s-DLQ", "readers", ConsumerConfig(initial_position="Earliest"))
        letter = dead.receive(8_000)
        assert (letter.data, letter.key) == (b"x", "k")
        assert letter.properties["REAL_TOPIC"] == topic
        assert f"({sent.ledger_id},{sent.entry_id}" in letter.properties["ORIGIN_MESSAGE_ID"]
    finally:
        official.close()


async def test_reconsume_later_without_a_retry_topic_is_refused() -> None:
    async with ScriptedBroker() as broker, AsyncClient(broker.service_url) as client:
        consumer = await client.subscribe("t", "s", ConsumerConfig())
        message: Any = None
        with pytest.raises(InvalidConfig, match="subscribe with ConsumerConfig\\(retry_enable=True\\)"):
            await consumer.reconsume_later(message)


def test_settings_without_effect_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="dead_letter_policy has no effect with type 'Failover'"):
        ConsumerConfig(type="Failover", dead_letter_policy=ConsumerDeadLetterPolicy())
    with pytest.raises(InvalidConfig, match="invalid max_redeliver_count 0: expected 1 to"):
        ConsumerDeadLetterPolicy(max_redeliver_count=0)
    with pytest.raises(InvalidConfig, match="shorten the tick"):
        ConsumerConfig(unacked_messages_timeout_ms=10)
    with pytest.raises(InvalidConfig, match="retry_letter_topic is empty"):
        ConsumerDeadLetterPolicy(retry_letter_topic="")


@given(st.text(max_size=12) | st.integers(-(10**30), 10**30).map(str))
def test_count_of_reconsumptions_is_a_number_whatever_the_property_says(text: str) -> None:
    times = reconsume_times({"RECONSUMETIMES": text})
    assert 0 <= times < 10**9
    assert times == 0 or str(times) == text.lstrip("0")


@given(
    st.integers(1, 20),
    st.lists(st.tuples(st.sampled_from(["add", "drop", "tick"]), st.integers(0, 4)), max_size=60),
)
def test_entry_is_due_after_the_timeout_and_within_a_tick_more(
    timeout_ticks: int, steps: list[tuple[str, int]]
) -> None:
    timeouts = AckTimeouts(timeout_ticks * 0.5, 0.5)
    added: dict[tuple[int, int], int] = {}
    now = 0
    for step, number in steps + [("tick", 0)] * (timeout_ticks + 2):
        position = (0, number)
        if step == "add":
            timeouts.add(position)
            added[position] = now
        elif step == "drop":
            timeouts.discard(position)
            added.pop(position, None)
        else:
            now += 1
            expected = sorted(known for known, since in added.items() if now - since > timeout_ticks)
            assert timeouts.tick() == expected
            for known in expected:
                del added[known]
        assert len(timeouts) == len(added)
    assert not added


@pytest.mark.slow
@pytest.mark.parametrize("subscription", ["public/default/f", "a/b c"])
async def test_a_subscription_with_a_slash_has_a_dead_letter_topic(
    client: AsyncClient, cluster: Cluster, topic: str, subscription: str
) -> None:
    policy = ConsumerDeadLetterPolicy(max_redeliver_count=1)
    dead = await client.subscribe(f"{topic}-{subscription.replace('/', '%2F').replace(' ', '+')}-DLQ", "readers")
    consumer = await client.subscribe(topic, subscription, shared(dead_letter_policy=policy))
    await (await client.create_producer(topic)).send(b"bad")
    for _ in range(2):
        consumer.negative_ack(await consumer.receive(30))
    letter = await dead.receive(30)
    assert (letter.data, letter.properties["REAL_SUBSCRIPTION"]) == (b"bad", subscription)
    assert await backlog_is_empty(cluster, topic, subscription)


@pytest.mark.slow
async def test_a_subscription_with_a_slash_has_a_retry_topic(client: AsyncClient, topic: str) -> None:
    consumer = await client.subscribe(topic, "a/b", shared(retry_enable=True))
    await (await client.create_producer(topic)).send(b"later")
    await consumer.reconsume_later(await consumer.receive(30))
    again = await consumer.receive(30)
    assert again.topic == f"{topic}-a%2Fb-RETRY"


@pytest.mark.slow
@pytest.mark.parametrize("retry_enable", [False, True])
async def test_letter_topics_without_a_valid_name_are_refused_at_subscribe(
    client: AsyncClient, topic: str, retry_enable: bool
) -> None:
    config = shared(dead_letter_policy=ConsumerDeadLetterPolicy(), retry_enable=retry_enable)
    with pytest.raises(InvalidConfig, match="longer than 1024 bytes: set dead_letter_topic in dead_letter_policy"):
        await client.subscribe(topic, "s" * 1000, config)
    named = ConsumerDeadLetterPolicy(dead_letter_topic=f"{topic}-dead", retry_letter_topic=f"{topic}-retry")
    await client.subscribe(topic, "s" * 1000, shared(dead_letter_policy=named, retry_enable=retry_enable))
