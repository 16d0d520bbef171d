"""Rates: what passes over time is the rate, and topics without one are not asked; shown to the official client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.policies.effective import Rate
from magnetar.broker.policies.rate_limit import LONGEST_WAIT_S, RateLimit, SubscribeLimit, TokenBucket, follow
from magnetar.broker.service import BrokerService
from magnetar.wire.topic_name import parse_topic_name

from tests.broker.brokers import running_broker
from tests.broker.raw import Raw
from tests.support.eventually import until

TOPIC = parse_topic_name("persistent://public/default/t")
SIZES = st.lists(st.tuples(st.floats(0, 3), st.integers(1, 50)), max_size=60)


@given(st.integers(1, 100), st.integers(1, 5), SIZES)
def test_no_more_passes_than_the_rate_a_full_bucket_and_one_overdraft(
    amount: int, period_s: int, attempts: list[tuple[float, int]]
) -> None:
    bucket = TokenBucket(amount, period_s, 0.0)
    now_s, passed, largest = 0.0, 0, 0
    for step_s, size in attempts:
        now_s += step_s
        bucket.fill(now_s)
        if bucket.wait_s == 0:
            bucket.tokens -= size
            passed, largest = passed + size, max(largest, size)
    assert passed <= amount + now_s * amount / period_s + largest + 1e-6


@given(st.integers(1, 100), st.integers(1, 5), st.integers(1, 1000))
def test_whoever_waits_as_long_as_told_passes_in_the_end(amount: int, period_s: int, debt: int) -> None:
    bucket = TokenBucket(amount, period_s, 0.0)
    bucket.tokens -= amount + debt
    now_s = 0.0
    while (wait_s := bucket.wait_s) > 0:
        assert wait_s <= LONGEST_WAIT_S
        now_s += wait_s
        bucket.fill(now_s)
    assert now_s <= debt * period_s / amount + LONGEST_WAIT_S


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(10, 1, 5.0)
    bucket.tokens = -10
    bucket.fill(4.0)
    assert bucket.tokens == -10


def test_a_limit_goes_on_while_its_rate_is_the_same() -> None:
    def clock() -> float:
        return 0.0

    limit = follow(None, Rate(5), clock)
    assert limit is not None
    assert follow(limit, Rate(5), clock) is limit
    assert follow(limit, Rate(6), clock) is not limit
    assert follow(limit, Rate(), clock) is None


def test_a_relative_rate_has_what_is_published_on_top() -> None:
    times = iter([0.0, 1.0])
    limit = RateLimit(Rate(messages=10, is_relative=True), lambda: next(times), lambda: (5.0, 0.0))
    limit.take(30, 0)
    assert limit.wait_s() > 0
    assert limit.room()[0] == 1
    assert limit._messages is not None
    assert limit._messages.tokens == -5  # 10 - 30 + (10 + 5) in a second


def test_each_consumer_subscribes_as_often_as_it_may() -> None:
    now = [0.0]
    limit = SubscribeLimit(Rate(2, 0, 30), lambda: now[0])
    assert [limit.admits("a"), limit.admits("a"), limit.admits("a"), limit.admits("b")] == [True, True, False, True]
    now[0] = 30.0
    assert limit.admits("a")


@asynccontextmanager
async def limited(
    directory: Path, policies: dict[str, Any], **settings: Any
) -> AsyncIterator[tuple[BrokerService, pulsar.Client]]:
    """A broker with policies for `TOPIC`, and the official client."""
    async with running_broker(directory, **settings) as broker:
        await broker.create_topic(TOPIC)
        await broker.namespaces.change_topic_policies(TOPIC, lambda _: policies)
        client = await asyncio.to_thread(
            pulsar.Client, broker.broker_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        try:
            yield broker, client
        finally:
            await asyncio.to_thread(client.close)


def publish(client: pulsar.Client, count: int, batching: bool, size: int = 10) -> float:
    """Return how long it took until all were confirmed."""
    producer = client.create_producer(str(TOPIC), batching_enabled=batching, batching_max_messages=5)
    began = time.monotonic()
    for _ in range(count):
        producer.send_async(b"x" * size, None)
    producer.flush()
    producer.close()
    return time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("batching", [False, True])
async def test_a_publish_rate_slows_producers_down_without_an_error(tmp_path: Path, batching: bool) -> None:
    rate = {"publishThrottlingRateInMsg": 20, "publishThrottlingRateInByte": -1}
    async with limited(tmp_path, {"publishMaxMessageRate": rate}) as (broker, client):
        took_s = await asyncio.to_thread(publish, client, 50, batching)
        assert took_s > 1.2  # 20 at once, then 20 a second
        topic = broker.topics[str(TOPIC)]
        assert topic.producers.messages_in == 50
        assert topic.stats()["publishRateLimitedTimes"] > 0


@pytest.mark.slow
async def test_a_publish_rate_in_bytes_slows_producers_down(tmp_path: Path) -> None:
    rate = {"publishThrottlingRateInMsg": 0, "publishThrottlingRateInByte": 2000}
    async with limited(tmp_path, {"publishMaxMessageRate": rate}) as (_, client):
        assert await asyncio.to_thread(publish, client, 5, False, 1000) > 1.0


@pytest.mark.slow
async def test_a_rate_that_is_removed_lets_those_go_on_who_wait(tmp_path: Path) -> None:
    rate = {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": -1}
    async with limited(tmp_path, {"publishMaxMessageRate": rate}) as (broker, client):
        topic = broker.topics[str(TOPIC)]
        publishing = asyncio.create_task(asyncio.to_thread(publish, client, 500, False))
        await until(lambda: _is(topic.gate is not None and topic.gate.limit is not None and topic.gate.limit.stops > 0))
        await broker.namespaces.change_topic_policies(TOPIC, lambda _: {})
        assert await publishing < 20  # and not 500 s
        assert topic.gate is None


async def _is(value: bool) -> bool:
    return value


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
@pytest.mark.parametrize(
    "policies",
    [
        {"topicDispatchRate": {"dispatchThrottlingRateInMsg": 10, "ratePeriodInSecond": 1}},
        {"subscriptionDispatchRate": {"dispatchThrottlingRateInMsg": 10, "ratePeriodInSecond": 1}},
        {"subscriptionRates": {"s": {"dispatchThrottlingRateInMsg": 10, "ratePeriodInSecond": 1}}},
        {"topicDispatchRate": {"dispatchThrottlingRateInByte": 400, "ratePeriodInSecond": 1}},
    ],
)
async def test_a_dispatch_rate_slows_consumers_down(
    tmp_path: Path, policies: dict[str, Any], kind: pulsar.ConsumerType
) -> None:
    def receive(client: pulsar.Client) -> tuple[float, list[int]]:
        consumer = client.subscribe(str(TOPIC), "s", kind, initial_position=pulsar.InitialPosition.Earliest)
        began = time.monotonic()
        found = []
        for _ in range(25):
            message = consumer.receive(30_000)
            consumer.acknowledge(message)
            found.append(message.message_id().entry_id())
        return time.monotonic() - began, found

    async with limited(tmp_path, policies) as (broker, client):
        await asyncio.to_thread(publish, client, 25, False)
        took_s, found = await asyncio.to_thread(receive, client)
        assert took_s > 1.0
        assert found == list(range(25))
        throttled = broker.topics[str(TOPIC)].subscriptions["s"].throttled
        level = "Topic" if "topicDispatchRate" in policies else "Subscription"
        what = "Bytes" if "dispatchThrottlingRateInByte" in str(policies) else "Msg"
        assert [name for name, times in throttled.items() if times] == [f"dispatchThrottled{what}EventsBy{level}Limit"]


@pytest.mark.slow
async def test_a_consumer_that_subscribes_too_often_is_refused(tmp_path: Path) -> None:
    rate = {"subscribeThrottlingRatePerConsumer": 2, "ratePeriodInSecond": 3600}

    def subscribe(client: pulsar.Client, name: str) -> None:
        client.subscribe(str(TOPIC), "s", consumer_name=name).close()

    async with limited(tmp_path, {"clusterSubscribeRate": rate}) as (broker, client):
        limit = broker.topics[str(TOPIC)].subscribe_limit
        assert limit is not None
        limit.admits(("/127.0.0.1", "n", 2))
        limit.admits(("/127.0.0.1", "n", 2))
        for _ in range(2):  # its consumers number 0 and 1
            await asyncio.to_thread(subscribe, client, "n")
        with pytest.raises(pulsar.NotAllowedError):
            await asyncio.to_thread(subscribe, client, "n")
        await broker.namespaces.change_topic_policies(TOPIC, lambda _: {})
        await asyncio.to_thread(subscribe, client, "n")


async def sender(broker: BrokerService, topic: str, id_: int = 1) -> Raw:
    raw = await Raw.connected(broker.port)
    raw.send("PRODUCER", topic=topic, producer_id=id_, request_id=id_)
    assert (await raw.receive()).command.HasField("producer_success")
    return raw


@pytest.mark.parametrize("sizes", [[10] * 40, [10, 2_000, 10, 300_000] * 8])
async def test_what_waits_for_the_rate_is_answered_in_its_order_and_what_is_behind_it_after_it(
    tmp_path: Path, sizes: list[int]
) -> None:
    rate = {"publishThrottlingRateInMsg": 20, "publishThrottlingRateInByte": -1}
    async with running_broker(tmp_path) as broker:
        await broker.namespaces.change_topic_policies(TOPIC, lambda _: {"publishMaxMessageRate": rate})
        raw = await sender(broker, str(TOPIC))
        for number, size in enumerate(sizes):
            raw.send_message(b"x" * size, sequence_id=number)
        raw.send("PARTITIONED_METADATA", topic=str(TOPIC), request_id=9)
        answers = [(await raw.receive()).command for _ in range(len(sizes) + 1)]
        receipts = [answer.send_receipt.sequence_id for answer in answers if answer.HasField("send_receipt")]
        assert receipts == list(range(len(sizes)))
        # Twenty may pass at once. The receipts of those that waited may be on their way from the disk.
        assert [answer.HasField("partitionMetadataResponse") for answer in answers].index(True) >= 20
        await raw.close()


async def test_other_connections_and_topics_are_not_held_up_and_one_may_end_while_it_waits(tmp_path: Path) -> None:
    rate = {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": -1}
    async with running_broker(tmp_path) as broker:
        await broker.namespaces.change_topic_policies(TOPIC, lambda _: {"publishMaxMessageRate": rate})
        slow = await sender(broker, str(TOPIC))
        for number in range(500):
            slow.send_message(b"x", sequence_id=number)
        assert (await slow.receive()).command.HasField("send_receipt")
        (connection,) = broker.connections
        assert not connection.is_reading
        free = await sender(broker, "persistent://public/default/free")
        for number in range(500):
            free.send_message(b"x", sequence_id=number)
        for number in range(500):
            assert (await free.receive()).command.send_receipt.sequence_id == number
        await slow.close()
        connection.abort()
        await free.close()

        async def is_gone() -> bool:
            return not broker.connections and not broker.topics[str(TOPIC)].producers

        await until(is_gone)
        assert broker.topics[str(TOPIC)].producers.messages_in < 10


async def test_a_message_above_the_largest_size_is_refused_among_others_in_its_order(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.namespaces.change_topic_policies(TOPIC, lambda _: {"maxMessageSize": 1000})
        raw = await sender(broker, str(TOPIC))
        for number in range(20):
            raw.send_message(b"x" * (2000 if number == 7 else 10), sequence_id=number)
        for number in range(20):
            answer = (await raw.receive()).command
            if number == 7:
                assert (answer.send_error.sequence_id, answer.send_error.message) == (7, "Exceed maximum message size")
            else:
                assert answer.send_receipt.sequence_id == number
        await raw.close()


@pytest.mark.parametrize("policy", [{}, {"publishRate": {"publishThrottlingRateInByte": 1 << 40}}])
async def test_a_message_of_the_brokers_largest_size_is_stored_with_its_metadata(
    tmp_path: Path, policy: dict[str, Any]
) -> None:
    async with running_broker(tmp_path, max_message_bytes=2000) as broker:
        await broker.namespaces.change_topic_policies(TOPIC, lambda _: policy)
        raw = await sender(broker, str(TOPIC))
        raw.send_message(b"x" * 2000, sequence_id=0)
        assert (await raw.receive()).command.send_receipt.sequence_id == 0
        await raw.close()


async def test_chunks_are_exempt_from_a_topics_largest_size(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.namespaces.change_topic_policies(TOPIC, lambda _: {"maxMessageSize": 1000})
        raw = await sender(broker, str(TOPIC))
        chunk = {"uuid": "u", "num_chunks_from_msg": 2, "total_chunk_msg_size": 4000}
        for number in range(2):
            raw.send_message(b"x" * 2000, sequence_id=0, is_chunk=True, metadata=chunk | {"chunk_id": number})
        for _ in range(2):
            assert (await raw.receive()).command.HasField("send_receipt")
        await raw.close()


async def test_generated_producer_names_are_short_and_differ_after_a_restart(tmp_path: Path) -> None:
    names = []
    for start in range(2):
        async with running_broker(tmp_path) as broker:
            names += [broker.new_producer_name() for _ in range(2)]
            assert names[-2:] == [f"{broker.config.cluster}-{start}-1", f"{broker.config.cluster}-{start}-2"]
    assert len(set(names)) == 4
