"""Backlog quotas: producers are refused or closed, or the oldest messages go; shown to the official client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.policies.effective import AGE, SIZE
from magnetar.broker.service import BrokerService
from magnetar.broker.topics.backlog_age import OldestMessage
from magnetar.broker.topics.backlog_quotas import backlog_bytes
from magnetar.broker.topics.topic import Topic
from magnetar.wire.payload import seal
from magnetar.wire.position import Position
from magnetar.wire.pulsar_api_pb2 import MessageMetadata

from tests.broker.test_rate_limits import TOPIC, limited
from tests.support.eventually import until


def quota(kind: str, policy: str, limit: int) -> dict[str, Any]:
    return {"backlog_quota_map": {kind: {"limitSize": limit, "limitTime": limit, "policy": policy}}}


def fill(client: pulsar.Client, count: int = 10) -> None:
    client.subscribe(str(TOPIC), "s").close()
    producer = client.create_producer(str(TOPIC), batching_enabled=False)
    for number in range(count):
        producer.send(b"%d" % number + b"x" * 1000)
    producer.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("producer_request_hold", pulsar.ProducerBlockedQuotaExceededError),
        ("producer_exception", pulsar.ProducerBlockedQuotaExceededException),
    ],
)
async def test_producers_are_refused_above_a_quota_and_admitted_below(
    tmp_path: Path, policy: str, error: type[Exception]
) -> None:
    async with limited(tmp_path, quota(SIZE, policy, 5000)) as (broker, client):
        await asyncio.to_thread(fill, client)
        with pytest.raises(error):
            await asyncio.to_thread(client.create_producer, str(TOPIC))
        await broker.topics[str(TOPIC)].subscriptions["s"].skip_all()
        producer = await asyncio.to_thread(client.create_producer, str(TOPIC))
        await asyncio.to_thread(producer.send, b"again")


@pytest.mark.slow
async def test_a_producer_that_is_there_is_held_until_there_is_room(tmp_path: Path) -> None:
    async with limited(tmp_path, quota(SIZE, "producer_request_hold", 5000)) as (broker, client):
        topic = broker.topics[str(TOPIC)]
        await asyncio.to_thread(fill, client, 1)
        producer = await asyncio.to_thread(client.create_producer, str(TOPIC), batching_enabled=False)
        for _ in range(9):
            await asyncio.to_thread(producer.send, b"x" * 1000)
        await broker.check_backlogs()
        assert not topic.producers
        sending = asyncio.create_task(asyncio.to_thread(producer.send, b"held"))
        await topic.subscriptions["s"].skip_all()
        await sending
        assert topic.producers.messages_in == 11


@pytest.mark.slow
async def test_the_oldest_messages_are_evicted_down_to_nine_tenths(tmp_path: Path) -> None:
    async with limited(tmp_path, quota(SIZE, "consumer_backlog_eviction", 5000)) as (broker, client):
        await asyncio.to_thread(fill, client)
        await broker.check_backlogs()
        subscription = broker.topics[str(TOPIC)].subscriptions["s"]
        assert subscription.cursor.backlog_entries == 4
        assert await backlog_bytes(subscription) <= 4500
        consumer = await asyncio.to_thread(client.subscribe, str(TOPIC), "s")
        first = await asyncio.to_thread(consumer.receive, 10_000)
        assert first.data().startswith(b"6x")
        producer = await asyncio.to_thread(client.create_producer, str(TOPIC))
        await asyncio.to_thread(producer.send, b"x")


@pytest.mark.slow
async def test_messages_of_a_certain_age_are_evicted(tmp_path: Path) -> None:
    policies = quota(AGE, "consumer_backlog_eviction", 1)
    async with limited(tmp_path, policies, backlog_check_s=0.1) as (broker, client):
        await asyncio.to_thread(fill, client)
        await _until_behind(broker, 0)


@pytest.mark.slow
async def test_producers_are_refused_once_a_message_is_too_old(tmp_path: Path) -> None:
    async with limited(tmp_path, quota(AGE, "producer_exception", 1)) as (_, client):
        await asyncio.to_thread(fill, client)

        async def is_refused() -> bool:
            try:
                producer = await asyncio.to_thread(client.create_producer, str(TOPIC))
            except pulsar.ProducerBlockedQuotaExceededException:
                return True
            await asyncio.to_thread(producer.close)
            return False

        await until(is_refused)


async def _until_behind(broker: BrokerService, entries: int) -> None:
    async def is_so() -> bool:
        return broker.topics[str(TOPIC)].subscriptions["s"].cursor.backlog_entries == entries

    await until(is_so)


@pytest.mark.slow
async def test_a_topic_without_a_quota_is_not_limited(tmp_path: Path) -> None:
    async with limited(tmp_path, {}) as (broker, client):
        await asyncio.to_thread(fill, client)
        await broker.check_backlogs()
        await asyncio.to_thread(client.create_producer, str(TOPIC))
        assert broker.topics[str(TOPIC)].subscriptions["s"].cursor.backlog_entries == 10


async def publish(topic: Topic, publish_time_ms: int) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=publish_time_ms)
    await topic.publish(seal(metadata, b"x"), 1, publish_time_ms)


def oldest(topic: Topic) -> tuple[int, str | None]:
    stats = topic.stats()
    return stats["oldestBacklogMessageAgeSeconds"], stats.get("oldestBacklogMessageSubscriptionName")


NONE = (-1, None)


@pytest.mark.slow
@pytest.mark.parametrize("policies", [{}, quota(SIZE, "producer_request_hold", 10)])
async def test_the_oldest_message_is_found_with_and_without_a_quota(tmp_path: Path, policies: dict[str, Any]) -> None:
    async with limited(tmp_path, policies) as (broker, client):
        topic = broker.topics[str(TOPIC)]
        for name in ("fast", "slow"):
            consumer = await asyncio.to_thread(client.subscribe, str(TOPIC), name)
            await asyncio.to_thread(consumer.close)
        await broker.check_backlogs()
        assert oldest(topic) == NONE
        now_ms = broker.now_ms()
        for age_s in (1000, 500, 0):
            await publish(topic, now_ms - age_s * 1000)
        assert oldest(topic) == NONE, "nobody has looked yet"
        await broker.check_backlogs()
        age_s, whose = oldest(topic)
        assert (1000 <= age_s < 1100, whose) == (True, "fast"), "both are as far behind, and names decide"

        await topic.subscriptions["fast"].skip_all()
        await topic.subscriptions["slow"].skip(1)
        assert oldest(topic)[0] >= 1000, "until somebody looks again"
        await broker.check_backlogs()
        age_s, whose = oldest(topic)
        assert (500 <= age_s < 600, whose) == (True, "slow")

        await topic.subscriptions["slow"].skip_all()
        await broker.check_backlogs()
        assert oldest(topic) == NONE


@pytest.mark.slow
async def test_the_oldest_message_is_the_first_that_is_not_acknowledged_whoever_read_it(tmp_path: Path) -> None:
    async with limited(tmp_path, {}) as (broker, client):
        topic = broker.topics[str(TOPIC)]
        consumer = await asyncio.to_thread(
            client.subscribe,
            str(TOPIC),
            "s",
            pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        reader = await asyncio.to_thread(client.create_reader, str(TOPIC), pulsar.MessageId.earliest)
        now_ms = broker.now_ms()
        await publish(topic, now_ms + 3_600_000)  # by a clock that is ahead
        await publish(topic, now_ms - 500_000)
        messages = [await asyncio.to_thread(consumer.receive, 10_000) for _ in range(2)]
        await broker.check_backlogs()
        assert oldest(topic) == (0, "s"), "of the reader nobody expects that it reads"
        await asyncio.to_thread(consumer.acknowledge, messages[0])

        async def is_next() -> bool:
            await broker.check_backlogs()
            return oldest(topic)[0] >= 500

        await until(is_next)
        await asyncio.to_thread(reader.close)


@pytest.mark.slow
async def test_the_oldest_message_is_found_again_after_an_unload_and_not_in_a_next_life(tmp_path: Path) -> None:
    async with limited(tmp_path, {}) as (broker, client):
        topic = broker.topics[str(TOPIC)]
        await asyncio.to_thread(lambda: client.subscribe(str(TOPIC), "s").close())
        await publish(topic, broker.now_ms() - 500_000)
        await broker.check_backlogs()
        await broker.unload_topic(TOPIC)
        again = await broker.topic(TOPIC)
        assert oldest(again) == NONE
        await broker.check_backlogs()
        assert oldest(again)[0] >= 500
        await broker.delete_topic(TOPIC, force=True)
        await broker.create_topic(TOPIC)
        await broker.check_backlogs()
        assert oldest(broker.topics[str(TOPIC)]) == NONE


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_an_age_is_never_below_zero(publish_time_ms: int, now_ms: int) -> None:
    age_s = OldestMessage(Position(0, 0), publish_time_ms, "s").age_s(now_ms)
    assert age_s == max(0, now_ms - publish_time_ms) // 1000 >= 0
