"""Publish times come from producers, whose clocks may be wrong: one of them must not make other messages old."""

from __future__ import annotations

from typing import cast

import pytest
from magnetar.broker.policies.effective import EXCEPTION, Quota
from magnetar.broker.storage import TopicLog
from magnetar.broker.topics.backlog_quotas import exceeded
from magnetar.broker.topics.subscription import Subscription
from magnetar.broker.topics.topic import Topic
from magnetar.wire.payload import seal
from magnetar.wire.position import Position
from magnetar.wire.pulsar_api_pb2 import MessageMetadata
from magnetar.wire.topic_name import parse_topic_name

from tests.broker.admin.conftest import RunningBroker

TOPIC = "/admin/v2/persistent/public/default/t"
HOUR_MS = 3_600_000
OLD, FRESH, AHEAD = -240, 0, 240
"""Hours from now."""


async def filled(broker: RunningBroker, hours: list[int]) -> tuple[Topic, Subscription, list[Position]]:
    """Return a topic with an entry for each publish time, and a subscription that has read none of them."""
    topic = await broker.service.topic(parse_topic_name("persistent://public/default/t"), create=True)
    subscription = await topic.create_subscription("s", "earliest")
    positions = []
    for number, hour in enumerate(hours):
        time_ms = broker.service.now_ms() + hour * HOUR_MS
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=time_ms)
        positions.append(await topic.publish(seal(metadata, b"%d" % number), 1, time_ms))
    return topic, subscription, positions


@pytest.mark.parametrize(
    ("hours", "expired"),
    [
        ([FRESH, FRESH, OLD], 0),
        ([OLD, OLD, FRESH, OLD], 2),
        ([FRESH, OLD, FRESH], 0),
        ([OLD, OLD], 2),
    ],
)
async def test_messages_expire_up_to_the_first_that_is_not_old(
    hours: list[int], expired: int, broker: RunningBroker
) -> None:
    _, subscription, _ = await filled(broker, hours)
    await subscription.expire(3600)
    assert subscription.cursor.backlog_entries == len(hours) - expired
    await broker.http.post(f"{TOPIC}/subscription/s/expireMessages/3600")
    assert subscription.cursor.backlog_entries == len(hours) - expired


async def test_a_producer_whose_clock_is_ahead_delays_expiry_until_its_ledger_is_old(broker: RunningBroker) -> None:
    topic, subscription, _ = await filled(broker, [AHEAD, OLD])
    await subscription.expire(3600)
    assert subscription.cursor.backlog_entries == 2
    topic.log.close_ledger()
    ledger = cast(TopicLog, topic.log).last_ledger
    assert ledger is not None
    ledger.created_ms -= 3 * HOUR_MS
    ledger.closed_ms = ledger.created_ms + HOUR_MS
    await subscription.expire(3600)
    assert subscription.cursor.backlog_entries == 0


async def test_a_seek_by_time_does_not_skip_newer_messages(broker: RunningBroker) -> None:
    topic, subscription, positions = await filled(broker, [OLD, FRESH, FRESH, OLD])
    await subscription.reset_to_time(broker.service.now_ms() - HOUR_MS)
    assert subscription.read_position == positions[1]
    answer = await broker.http.get(f"{TOPIC}/messageid/{broker.service.now_ms() - HOUR_MS}")
    assert answer.json()["entryId"] == positions[1].entry_id
    await subscription.reset_to_time(broker.service.now_ms() + HOUR_MS)
    assert subscription.cursor.backlog_entries == 0
    assert topic.log.last_confirmed == positions[-1]


@pytest.mark.parametrize(("hours", "is_exceeded"), [([FRESH, OLD], False), ([OLD, FRESH], True), ([FRESH], False)])
async def test_a_quota_by_age_looks_at_the_oldest_message_of_the_backlog(
    hours: list[int], is_exceeded: bool, broker: RunningBroker
) -> None:
    path = "/admin/v2/namespaces/public/default/backlogQuota?backlogQuotaType=message_age"
    body = {"limitSize": -1, "limitTime": 3600, "policy": "producer_exception"}
    assert (await broker.http.post(path, json=body)).status_code == 204
    topic, subscription, _ = await filled(broker, hours)
    quota = Quota(-1, 3600, EXCEPTION)
    assert await exceeded(topic) == ([quota] if is_exceeded else [])
    await subscription.skip_all()
    assert await exceeded(topic) == []
