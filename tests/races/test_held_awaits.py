"""Single awaits in the life of a topic, held while something else happens to it."""

from __future__ import annotations

import errno
import json
import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest
from magnetar.broker.policies.policies import default_policies
from magnetar.broker.service import COORDINATE_TOPIC, PARTICIPANTS
from magnetar.broker.topics.topic import Topic
from magnetar.errors import MagnetarError, ServiceNotReady, StorageError, TopicNotFound
from magnetar.testing.simulated_disk import SimulatedDisk
from magnetar.wire.pulsar_api_pb2 import CommandSubscribe, ProducerAccessMode
from magnetar.wire.topic_name import parse_topic_name

from .actions import NAMESPACE, TOPICS
from .facts import Facts
from .life import Faults, Life
from .peer import Peer

TOPIC = TOPICS[0]
NAME = parse_topic_name(TOPIC)
METADATA = "metadata"
JOURNAL = "journal"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(1)


@pytest.fixture
def life(disk: SimulatedDisk) -> Iterator[Life]:
    it = Life(
        random.Random(1),
        disk,
        {},
        {name: Facts() for name in (*TOPICS, COORDINATE_TOPIC)},
        Faults(metadata=False, disk=True),
    )
    try:
        yield it
    finally:
        it.end()


def do(life: Life, work: Any) -> Any:
    """Run something with everything released."""
    task = life.start(work)
    life.hold()
    return task.result()


def peer(life: Life) -> Peer:
    it = Peer(life, len(life.peers) + 1, is_deaf=False)
    life.peers.append(it)
    return it


def failure(task: Any) -> BaseException | None:
    assert task.done()
    error: BaseException | None = task.exception()
    return error


@pytest.mark.parametrize("mode", [ProducerAccessMode.Exclusive, ProducerAccessMode.ExclusiveWithFencing])
def test_an_exclusive_producer_does_not_join_a_topic_that_was_unloaded_meanwhile(life: Life, mode: int) -> None:
    do(life, life.broker.create_topic(NAME))
    client = peer(life)
    client.create_producer(TOPIC, mode, "p")
    life.hold(METADATA)
    assert life.store.queue, "the epoch is on its way"
    do_unload = life.start(life.broker.unload_topic(NAME))
    life.hold(METADATA)
    assert do_unload.done()
    life.hold()
    assert client.producers[1].state == "closed"
    assert not client.connection.producers


def test_a_waiting_producer_gets_the_topic_although_its_epoch_could_not_be_written_at_first(life: Life) -> None:
    client = peer(life)
    client.create_producer(TOPIC, ProducerAccessMode.Shared, "p")
    life.hold()
    client.create_producer(TOPIC, ProducerAccessMode.WaitForExclusive, "q")
    life.hold()
    first, second = client.producers.values()
    assert second.state == "waiting"
    life.store.fails = lambda: True
    client.close_producer(first)
    life.hold()
    assert second.state == "waiting"
    life.settle()
    assert second.state == "ready"


def test_a_closed_topic_refuses_entries_of_whoever_still_has_it(life: Life) -> None:
    topic: Topic = do(life, life.broker.create_topic(NAME))
    do(life, life.broker.unload_topic(NAME))
    told: list[Exception | None] = []
    topic.append(b"x", 1, 1, lambda _, error: told.append(error))
    assert isinstance(told[0], ServiceNotReady)
    assert not life.storage.open_log(TOPIC).entry_count


def test_a_consumer_of_a_topic_that_is_unloaded_meanwhile_is_told_one_thing(life: Life) -> None:
    do(life, life.broker.create_topic(NAME))
    client = peer(life)
    client.subscribe(TOPIC, "s", CommandSubscribe.Exclusive, is_durable=True)
    life.hold(JOURNAL)
    do_unload = life.start(life.broker.unload_topic(NAME))
    life.hold(JOURNAL)
    assert do_unload.done()
    life.hold()
    assert client.consumers[1].state == "closed"
    assert not client.requests


def test_a_subscription_is_confirmed_by_the_reloaded_topic_only_once_it_is_stored(life: Life) -> None:
    do(life, life.broker.create_topic(NAME))
    first, second = peer(life), peer(life)
    first.subscribe(TOPIC, "s", CommandSubscribe.Shared, is_durable=True)
    life.hold(JOURNAL)
    life.start(life.broker.unload_topic(NAME))
    second.subscribe(TOPIC, "s", CommandSubscribe.Shared, is_durable=True)
    life.hold(JOURNAL)
    assert second.consumers[1].state == "opening"
    life.hold()
    assert second.consumers[1].state == "attached"


def test_what_was_under_way_at_the_unload_is_stored_before_the_next_owner_hears_of_its_success(life: Life) -> None:
    first, second = peer(life), peer(life)
    first.create_producer(TOPIC, ProducerAccessMode.Shared, "p")
    life.hold()
    first.send(first.producers[1])
    life.hold(JOURNAL)
    life.start(life.broker.unload_topic(NAME))
    second.create_producer(TOPIC, ProducerAccessMode.Exclusive, "q")
    life.hold(JOURNAL)
    assert second.producers[1].state == "opening"
    life.hold()
    assert second.producers[1].state == "ready"
    assert life.storage.open_log(TOPIC).entry_count == 1


def test_a_new_topic_inherits_nothing_of_the_one_that_is_being_deleted(life: Life) -> None:
    namespaces = life.broker.namespaces
    client = peer(life)
    client.create_producer(TOPIC, ProducerAccessMode.Exclusive, "p")
    life.hold()
    do(life, namespaces.change_topic_policies(NAME, lambda _: {"deduplicationEnabled": True}))
    do(life, namespaces.set_properties(NAME, {"of": "the old one"}))
    late = life.start(namespaces.change_topic_policies(NAME, lambda old: old | {"compaction_threshold": 5}))
    deleting = life.start(life.broker.delete_topic(NAME, force=True))
    life.hold(METADATA, JOURNAL)
    creating = life.start(life.broker.create_topic(NAME, {"of": "the new one"}))
    life.hold(METADATA, JOURNAL)
    assert not deleting.done()
    assert not creating.done()
    assert not life.broker.has_topic(NAME)
    life.hold()
    assert (failure(late), failure(deleting), failure(creating)) == (None, None, None)
    assert life.broker.topics[TOPIC].epoch is None
    assert namespaces.topic_policies(NAME) == {}
    assert namespaces.properties(NAME) == {"of": "the new one"}
    assert not [path for path in life.store.records if "topic-policies" in path or "topic-epochs" in path]


def test_who_may_not_create_the_topic_hears_that_it_was_deleted_meanwhile(life: Life) -> None:
    do(life, life.broker.create_topic(NAME))
    do(life, life.broker.unload_topic(NAME))
    deleting = life.start(life.broker.delete_topic(NAME, force=True))
    finding = life.start(life.broker.topic(NAME, create=False))
    creating = life.start(life.broker.topic(NAME, create=True))
    life.hold()
    assert failure(deleting) is None
    assert isinstance(failure(finding), TopicNotFound)
    assert creating.result() is life.broker.topics[TOPIC]


def test_a_deletion_whose_caller_is_gone_is_carried_out(life: Life) -> None:
    do(life, life.broker.create_topic(NAME))
    do(life, life.broker.namespaces.change_topic_policies(NAME, lambda _: {"deduplicationEnabled": True}))
    deleting = life.start(life.broker.delete_topic(NAME, force=True))
    life.hold(METADATA)
    deleting.cancel()
    life.hold()
    assert not life.broker.has_topic(NAME)
    assert life.broker.namespaces.topic_policies(NAME) == {}


def test_a_topic_is_not_created_in_a_namespace_that_is_deleted_meanwhile(life: Life) -> None:
    creating = life.start(life.broker.create_topic(NAME))
    life.hold(METADATA)
    deleting = life.start(life.broker.namespaces.delete_namespace(NAMESPACE))
    life.hold(METADATA)
    assert not life.broker.namespaces.has_namespace(NAMESPACE)
    life.hold()
    assert isinstance(failure(creating), ServiceNotReady)
    assert failure(deleting) is None
    assert not life.storage.has_log(TOPIC)
    do(life, life.broker.namespaces.create_namespace(NAMESPACE, default_policies("standalone")))
    assert life.broker.topic_names(NAMESPACE) == []


def test_a_subscription_that_the_disk_refuses_is_gone_even_if_nobody_waits_for_it(
    life: Life, disk: SimulatedDisk
) -> None:
    do(life, life.broker.create_topic(NAME))
    client = peer(life)
    client.subscribe(TOPIC, "s", CommandSubscribe.Shared, is_durable=True)
    life.hold(JOURNAL)
    client.leave()
    disk.failures[disk.operations + 1] = errno.EIO
    life.hold()
    assert "s" not in life.broker.topics[TOPIC].subscriptions
    assert "s" not in life.storage.open_log(TOPIC).cursors


def test_a_topic_that_fails_keeps_no_other_from_being_trimmed(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    topics = [do(life, life.broker.create_topic(parse_topic_name(name))) for name in TOPICS]
    trimmed: list[str] = []

    async def trim(retention_ms: int, retention_bytes: int) -> list[int]:
        trimmed.append(TOPICS[1])
        return []

    async def fail(retention_ms: int, retention_bytes: int) -> list[int]:
        raise StorageError("the disk refused")

    topics[0].trim, topics[1].trim = fail, trim
    began_s = life.loop.time()
    with caplog.at_level(logging.ERROR, "magnetar.broker.topics.maintenance"):
        while life.loop.time() < began_s + 2 * life.broker.config.stats_period_s + 1:
            life.hold()
            life.loop.advance()
    assert trimmed  # once is enough: nothing changes in it
    assert caplog.text.count(f"{TOPIC}: trimming it failed and is tried again: the disk refused") >= 2


def test_two_who_create_a_partitioned_topic_at_first_use_agree(life: Life) -> None:
    base = parse_topic_name(f"persistent://{NAMESPACE}/parted")
    both = [life.start(life.broker.auto_create_partitioned(base, count)) for count in (3, 5)]
    life.hold()
    assert [task.result() for task in both] == [3, 3]


def test_changes_of_one_topics_policies_at_the_same_time_are_all_kept(life: Life) -> None:
    namespaces = life.broker.namespaces

    def put(**fields: int) -> Any:
        return namespaces.change_topic_policies(NAME, lambda old: old | fields)

    changes = [life.start(put(a=1)), life.start(put(b=2)), life.start(put(c=3))]
    life.hold()
    assert [failure(task) for task in changes] == [None] * 3
    assert namespaces.topic_policies(NAME) == {"a": 1, "b": 2, "c": 3}
    clearing = [life.start(namespaces.change_topic_policies(NAME, lambda _: {})) for _ in range(2)]
    adding = life.start(put(d=4))
    life.hold()
    assert [failure(task) for task in (*clearing, adding)] == [None] * 3
    assert namespaces.topic_policies(NAME) == {"d": 4}


def test_a_record_that_is_no_epoch_is_named(life: Life) -> None:
    do(life, life.store.put("/admin/topic-epochs/persistent/public/races/t0", b"x"))
    task = life.start(life.broker.create_topic(NAME))
    life.hold()
    error = failure(task)
    assert isinstance(error, MagnetarError)
    assert "/admin/topic-epochs/persistent/public/races/t0" in str(error)


def test_statistics_are_shown_whatever_the_names_are(life: Life) -> None:
    client = peer(life)
    client.create_producer(TOPIC, ProducerAccessMode.Shared, "p")
    client.subscribe(TOPIC, "s", CommandSubscribe.Exclusive, is_durable=True)
    life.hold()
    topic = life.broker.topics[TOPIC]
    client.connection.producers[1].name = client.connection.client_version = "\udc80"
    consumer = client.connection.consumers[3]
    consumer.name, consumer.metadata = "x:\ud800:1", {"\udfff": "\n"}
    text = json.dumps([topic.stats(), topic.internal_stats()], ensure_ascii=False).encode().decode()
    assert "\\\\udc80" in text
    assert topic.stats()["subscriptions"]["s"]["activeConsumerName"] == "x:\\ud800:1"


def test_a_topic_that_was_unloaded_takes_nothing_from_the_one_that_was_loaded_since(life: Life) -> None:
    old: Topic = do(life, life.broker.create_topic(NAME))
    do(life, old.create_subscription("s"))
    do(life, life.broker.unload_topic(NAME))
    do(life, life.broker.topic(NAME))
    for work in (old.delete_subscription("s"), old.terminate(), old.create_subscription("t")):
        task = life.start(work)
        life.hold()
        assert isinstance(failure(task), ServiceNotReady)
    assert "s" in life.storage.open_log(TOPIC).cursors


def test_names_that_only_resemble_a_workers_make_no_worker(life: Life) -> None:
    client = peer(life)
    client.subscribe(COORDINATE_TOPIC, PARTICIPANTS, CommandSubscribe.Failover, is_durable=True)
    life.hold()
    (consumer,) = client.connection.consumers.values()
    for name in ("x:host:\u00b2", "x:host:" + "9" * 5000, "x:host:", "x", "x:host:-1", "x:host:123456"):
        consumer.name = name
        assert life.broker.live_workers() == []
    consumer.name = "a:b:host:8080"
    assert life.broker.live_workers() == [("a:b", "host", 8080)]
