"""Names and policies: in memory what is durable, durable what was answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.namespaces import PARTITIONED_TOPICS, POLICIES, Namespaces
from magnetar.broker.policies.policies import (
    AutoCreation,
    Policies,
    Retention,
    bundle_of,
    default_policies,
    make_bundles,
    topic_hash,
)
from magnetar.errors import BadVersion, StorageError
from magnetar.metadata.store.sqlite import SqliteStore
from magnetar.wire.topic_name import parse_topic_name

TOPIC = parse_topic_name("persistent://public/default/a b-partition")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(tmp_path / "metadata.db")
    yield store
    await store.close()


@pytest.fixture
async def namespaces(store: SqliteStore) -> Namespaces:
    namespaces = Namespaces(store, BrokerConfig())
    await namespaces.start()
    return namespaces


async def reopened(store: SqliteStore) -> Namespaces:
    again = Namespaces(store, BrokerConfig())
    await again.start()
    return again


async def test_a_fresh_store_gets_what_a_standalone_broker_always_has(namespaces: Namespaces) -> None:
    assert namespaces.clusters() == ["standalone"]
    assert namespaces.tenants() == ["public", "pulsar"]
    assert namespaces.namespaces("public") == ["public/default", "public/functions"]
    assert namespaces.retention("public/functions") == Retention(-1, -1)
    assert namespaces.retention("public/default") == Retention(0, 0)


async def test_what_was_changed_is_there_after_a_restart(store: SqliteStore, namespaces: Namespaces) -> None:
    await namespaces.create_tenant("t", {"allowedClusters": ["standalone"]})
    await namespaces.create_namespace("t/n", default_policies("standalone"))
    limits = {"retentionTimeInMinutes": 5, "retentionSizeInMB": -1}
    await namespaces.change_policies("t/n", lambda policies: policies | {"retention_policies": limits})
    await namespaces.create_partitioned_topic(TOPIC, 4, {"k": "v"})
    await namespaces.set_properties(parse_topic_name("t/n/plain"), {"o": "me"})
    again = await reopened(store)
    assert again.retention("t/n") == Retention(300_000, -1)
    assert again.partitions(TOPIC) == 4
    assert again.partitioned_topics("public/default") == [TOPIC]
    assert again.properties(TOPIC) == {"k": "v"}
    assert again.properties(parse_topic_name("t/n/plain")) == {"o": "me"}


async def test_a_start_does_not_undo_changes_to_the_first_records(store: SqliteStore, namespaces: Namespaces) -> None:
    await namespaces.change_policies("public/functions", lambda p: p | {"retention_policies": {}})
    assert (await reopened(store)).retention("public/functions") == Retention(0, 0)


async def test_concurrent_changes_lose_none(store: SqliteStore, namespaces: Namespaces) -> None:
    def add(number: int) -> Callable[[Policies], Policies]:
        return lambda policies: policies | {"properties": policies["properties"] | {str(number): "x"}}

    await asyncio.gather(*(namespaces.change_policies("public/default", add(number)) for number in range(8)))
    assert len(namespaces.policies("public/default")["properties"]) == 8
    assert len((await reopened(store)).policies("public/default")["properties"]) == 8


async def test_a_change_by_another_process_is_read_and_kept(store: SqliteStore, namespaces: Namespaces) -> None:
    other = await reopened(store)
    await other.change_policies("public/default", lambda p: p | {"properties": {"theirs": "1"}})
    await namespaces.change_policies("public/default", lambda p: p | {"properties": p["properties"] | {"ours": "1"}})
    assert namespaces.policies("public/default")["properties"] == {"theirs": "1", "ours": "1"}


async def test_what_exists_is_not_created_again(namespaces: Namespaces) -> None:
    await namespaces.create_partitioned_topic(TOPIC, 4)
    with pytest.raises(BadVersion):
        await namespaces.create_partitioned_topic(TOPIC, 8)
    assert namespaces.partitions(TOPIC) == 4


async def test_partitions_never_become_fewer(namespaces: Namespaces) -> None:
    await namespaces.create_partitioned_topic(TOPIC, 4)
    await asyncio.gather(namespaces.update_partitions(TOPIC, 6), namespaces.update_partitions(TOPIC, 5))
    assert namespaces.partitions(TOPIC) == 6


async def test_deleting_a_namespace_leaves_nothing_below_it(store: SqliteStore, namespaces: Namespaces) -> None:
    await namespaces.create_partitioned_topic(TOPIC, 4)
    await namespaces.delete_namespace("public/default")
    assert not namespaces.has_namespace("public/default")
    assert namespaces.partitions(TOPIC) == 0
    assert await store.children(f"{PARTITIONED_TOPICS}/public") == []
    assert await store.get(f"{POLICIES}/public/default") is None


async def test_memory_does_not_show_what_the_store_refused(store: SqliteStore, namespaces: Namespaces) -> None:
    await store._submit(lambda connection, _: connection.execute("PRAGMA query_only = ON").fetchall())
    with pytest.raises(StorageError):
        await namespaces.create_partitioned_topic(TOPIC, 4)
    assert namespaces.partitions(TOPIC) == 0


async def test_automatic_creation_follows_the_namespace_then_the_broker(namespaces: Namespaces) -> None:
    assert namespaces.auto_topic_creation(TOPIC) == AutoCreation(True, 0)
    override = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    await namespaces.change_policies("public/default", lambda p: p | {"autoTopicCreationOverride": override})
    assert namespaces.auto_topic_creation(TOPIC) == AutoCreation(True, 3)
    off = {"allowAutoSubscriptionCreation": False}
    assert namespaces.auto_subscription_creation(TOPIC) is True
    await namespaces.change_policies("public/default", lambda p: p | {"autoSubscriptionCreationOverride": off})
    assert namespaces.auto_subscription_creation(TOPIC) is False


def test_a_topic_falls_into_the_bundle_that_pulsar_puts_it_in() -> None:
    name = "persistent://public/default/test-get-topic-bundle-range"
    assert topic_hash(name) == 0xCA437FB1
    assert bundle_of(make_bundles({})["boundaries"], name) == "0xc0000000_0xffffffff"


def test_twelve_bundles_are_divided_as_pulsar_divides_them() -> None:
    boundaries = make_bundles({"numBundles": 12})["boundaries"]
    assert boundaries[:4] == ["0x00000000", "0x15555555", "0x2aaaaaaa", "0x3fffffff"]
    assert boundaries[-2:] == ["0xeaaaaaa7", "0xffffffff"]
