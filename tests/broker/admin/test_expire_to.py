"""Expiring messages up to a position moves nothing back: it is an acknowledgement, not a seek."""

from __future__ import annotations

import pytest
from magnetar.broker.topics.subscription import Subscription
from magnetar.broker.topics.topic import Topic
from magnetar.wire.payload import seal
from magnetar.wire.position import Position
from magnetar.wire.pulsar_api_pb2 import MessageMetadata
from magnetar.wire.topic_name import parse_topic_name

from tests.broker.admin.conftest import RunningBroker
from tests.broker.raw import Raw

NAME = "persistent://public/default/t"
PATH = "/admin/v2/persistent/public/default/t/subscription/s/expireMessages"


async def filled(broker: RunningBroker) -> tuple[Topic, Subscription, list[Position]]:
    topic = await broker.service.topic(parse_topic_name(NAME), create=True)
    subscription = await topic.create_subscription("s", "earliest")
    positions = []
    for number in range(6):
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
        positions.append(await topic.publish(seal(metadata, b"%d" % number), 1, 1))
    return topic, subscription, positions


@pytest.mark.parametrize("is_excluded", [False, True])
async def test_acknowledgements_behind_the_position_stay(is_excluded: bool, broker: RunningBroker) -> None:
    _, subscription, positions = await filled(broker)
    subscription.cursor.acknowledge([(positions[4], None)])
    ledger_id, entry_id = positions[2]
    body = {"ledgerId": ledger_id, "entryId": entry_id, "excluded": is_excluded}
    assert (await broker.http.post(PATH, json=body)).status_code == 204
    left = [0, 1, 2, 3, 4, 5][2 if is_excluded else 3 :]
    left.remove(4)
    assert subscription.cursor.backlog_entries == len(left)
    assert subscription.cursor.is_acknowledged(positions[4])
    assert subscription.read_position == positions[left[0]]
    assert subscription.resets == 0


async def test_consumers_stay_connected(broker: RunningBroker) -> None:
    topic, subscription, positions = await filled(broker)
    sink = await Raw.connected(broker.service.port)
    await sink.request("SUBSCRIBE", topic=NAME, subscription="s", subType="Shared", consumer_id=1, request_id=1)
    ledger_id, entry_id = positions[1]
    assert (await broker.http.post(PATH, json={"ledgerId": ledger_id, "entryId": entry_id})).status_code == 204
    assert len(subscription.consumers) == 1
    assert subscription.cursor.backlog_entries == 4
    # A position before the mark, which a seek would go back to, changes nothing.
    assert (await broker.http.post(PATH, json={"ledgerId": ledger_id, "entryId": 0})).status_code == 204
    assert subscription.cursor.backlog_entries == 4
    assert topic.subscriptions["s"].resets == 0
    await sink.close()
