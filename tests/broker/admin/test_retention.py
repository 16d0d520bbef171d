"""Retention of a namespace is obeyed: what is consumed goes when it is trimmed, or stays as long as it was told."""

from __future__ import annotations

import pytest
from magnetar.broker.storage.config import StorageConfig
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import MessageMetadata
from magnetar.wire.topic_name import parse_topic_name

from tests.broker.admin.conftest import RunningBroker

TOPIC = "/admin/v2/persistent/public/default/t"
RETENTION = "/admin/v2/namespaces/public/default/retention"


@pytest.fixture
def storage_config() -> StorageConfig:
    return StorageConfig(journal_file_bytes=4 * 1024 * 1024, checkpoint_bytes=2 * 1024 * 1024, max_ledger_entries=2)


async def publish(broker: RunningBroker, count: int) -> None:
    topic = await broker.service.topic(parse_topic_name("public/default/t"), create=True)
    for number in range(count):
        metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=broker.service.now_ms())
        await topic.publish(seal(metadata, b"%d" % number), 1, broker.service.now_ms())


async def entries_left(broker: RunningBroker) -> int:
    assert (await broker.http.post(f"{TOPIC}/trim")).status_code == 200
    left: int = (await broker.http.get(f"{TOPIC}/internalStats")).json()["numberOfEntries"]
    return left


async def test_without_retention_consumed_ledgers_go_and_others_stay(broker: RunningBroker) -> None:
    await broker.http.put(f"{TOPIC}/subscription/s")
    await publish(broker, 7)
    assert await entries_left(broker) == 7
    await broker.http.post(f"{TOPIC}/subscription/s/skip/4")
    assert await entries_left(broker) == 3


async def test_retention_keeps_consumed_entries_until_it_is_removed(broker: RunningBroker) -> None:
    await broker.http.put(f"{TOPIC}/subscription/s")
    await publish(broker, 7)
    await broker.http.post(f"{TOPIC}/subscription/s/skip_all")
    unlimited = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert (await broker.http.post(RETENTION, json=unlimited)).status_code == 204
    assert await entries_left(broker) == 7
    assert (await broker.http.delete(RETENTION)).status_code == 204
    assert await entries_left(broker) == 1


async def test_truncate_drops_everything_though_retention_would_keep_it(broker: RunningBroker) -> None:
    await broker.http.put(f"{TOPIC}/subscription/s")
    await publish(broker, 7)
    await broker.http.post(RETENTION, json={"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    assert (await broker.http.delete(f"{TOPIC}/truncate")).status_code == 204
    assert await entries_left(broker) == 0
    await publish(broker, 1)
    assert (await broker.http.get(f"{TOPIC}/subscription/s/position/1")).content == b"0"
