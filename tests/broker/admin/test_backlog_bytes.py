"""Backlog quotas and statistics go by the bytes that a subscription really has before it."""

from __future__ import annotations

import pytest
from magnetar.broker.topics.subscription import Subscription
from magnetar.broker.topics.topic import Topic
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import MessageMetadata
from magnetar.wire.topic_name import parse_topic_name

from tests.broker.admin.conftest import RunningBroker

TOPIC = "/admin/v2/persistent/public/default/t"
NAMESPACE = "/admin/v2/namespaces/public/default"


async def filled(broker: RunningBroker, sizes: list[int]) -> tuple[Topic, Subscription]:
    topic = await broker.service.topic(parse_topic_name("persistent://public/default/t"), create=True)
    subscription = await topic.create_subscription("s", "earliest")
    now_ms = broker.service.now_ms()
    for number, size in enumerate(sizes):
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=now_ms)
        await topic.publish(seal(metadata, bytes(size)), 1, now_ms)
    return topic, subscription


@pytest.mark.parametrize("policy", ["consumer_backlog_eviction", "producer_exception"])
async def test_acknowledged_large_messages_do_not_count(policy: str, broker: RunningBroker) -> None:
    await broker.http.post(f"{NAMESPACE}/backlogQuota", json={"limitSize": 300_000, "policy": policy})
    topic, subscription = await filled(broker, [100_000] * 5 + [10] * 20)
    await subscription.skip(5)
    await broker.service.check_backlogs()
    assert subscription.cursor.backlog_entries == 20
    stats = (await broker.http.get(f"{TOPIC}/stats")).json()
    assert 200 <= stats["subscriptions"]["s"]["backlogSize"] == stats["backlogSize"] < 2000
    assert stats["storageSize"] > 500_000
    assert topic.log.about_bytes_behind(subscription.cursor.mark_delete) == stats["backlogSize"]


async def test_eviction_leaves_nine_tenths_of_the_quota(broker: RunningBroker) -> None:
    topic, subscription = await filled(broker, [10] * 20 + [100_000] * 5)
    await broker.http.post(
        f"{NAMESPACE}/backlogQuota", json={"limitSize": 400_000, "policy": "consumer_backlog_eviction"}
    )
    await broker.service.check_backlogs()
    assert subscription.cursor.backlog_entries == 3
    left = await topic.log.bytes_behind(subscription.cursor.mark_delete)
    assert 300_000 < left <= 360_000
