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
from magnetar.broker.topics.backlog_quotas import backlog, entries_to_drop

from tests.broker.test_rate_limits import TOPIC, limited
from tests.support.eventually import until


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(-1, 1_000_000))
def test_eviction_leaves_nine_tenths_of_the_quota_at_most(entries: int, size: int, limit: int) -> None:
    bytes_ = entries * size
    dropped = entries_to_drop(entries, bytes_, limit)
    assert 0 <= dropped <= entries
    if limit < 0 or bytes_ < limit:
        assert dropped == 0
    elif size:
        assert (entries - dropped) * size <= 0.9 * limit
        assert dropped == 0 or (entries - dropped + 1) * size > 0.9 * limit - 1e-6


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
        entries, bytes_ = backlog(subscription)
        assert entries == subscription.cursor.backlog_entries == 4
        assert bytes_ <= 4500
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
