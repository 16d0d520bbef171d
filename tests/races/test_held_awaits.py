"""Single awaits of a topic's work, held while something else happens to it."""

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
from magnetar.membership.manager import Member, parse_member
from magnetar.testing.simulated_disk import SimulatedDisk
from magnetar.wire.pulsar_api_pb2 import CommandSubscribe, ProducerAccessMode
from magnetar.wire.topic_name import parse_topic_name

from .actions import NAMESPACE, TOPICS
from .facts import Facts
from .incarnation import Faults, Incarnation
from .peer import Peer

TOPIC = TOPICS[0]
NAME = parse_topic_name(TOPIC)
METADATA = "metadata"
JOURNAL = "journal"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(1)


@pytest.fixture
def incarnation(disk: SimulatedDisk) -> Iterator[Incarnation]:
    it = Incarnation(
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


def do(incarnation: Incarnation, work: Any) -> Any:
    """Run something with everything released."""
    task = incarnation.start(work)
    incarnation.hold()
    return task.result()


def peer(incarnation: Incarnation) -> Peer:
    it = Peer(incarnation, len(incarnation.peers) + 1, is_deaf=False)
    incarnation.peers.append(it)
    return it


def failure(task: Any) -> BaseException | None:
    assert task.done()
    error: BaseException | None = task.exception()
    return error


@pytest.mark.parametrize("mode", [ProducerAccessMode.Exclusive, ProducerAccessMode.ExclusiveWithFencing])
def test_an_exclusive_producer_does_not_join_a_topic_that_was_unloaded_meanwhile(
    incarnation: Incarnation, mode: int
) -> None:
    do(incarnation, incarnation.broker.create_topic(NAME))
    client = peer(incarnation)
    client.create_producer(TOPIC, mode, "p")
    incarnation.hold(METADATA)
    assert incarnation.store.queue, "the epoch is on its way"
    do_unload = incarnation.start(incarnation.broker.unload_topic(NAME))
    incarnation.hold(METADATA)
    assert do_unload.done()
    incarnation.hold()
    assert client.producers[1].state == "closed"
    assert not client.connection.producers


def test_a_waiting_producer_gets_the_topic_although_its_epoch_could_not_be_written_at_first(
    incarnation: Incarnation,
) -> None:
    client = peer(incarnation)
    client.create_producer(TOPIC, ProducerAccessMode.Shared, "p")
    incarnation.hold()
    client.create_producer(TOPIC, ProducerAccessMode.WaitForExclusive, "q")
    incarnation.hold()
    first, second = client.producers.values()
    assert second.state == "waiting"
    incarnation.store.fails = lambda: True
    client.close_producer(first)
    incarnation.hold()
    assert second.state == "waiting"
    incarnation.settle()
    assert second.state == "ready"


def test_a_closed_topic_refuses_entries_of_whoever_still_has_it(incarnation: Incarnation) -> None:
    topic: Topic = do(incarnation, incarnation.broker.create_topic(NAME))
    do(incarnation, incarnation.broker.unload_topic(NAME))
    told: list[Exception | None] = []
    topic.append(b"x", 1, 1, lambda _, error: told.append(error))
    assert isinstance(told[0], ServiceNotReady)
    assert not incarnation.storage.open_log(TOPIC).entry_count


def test_a_consumer_of_a_topic_that_is_unloaded_meanwhile_is_told_one_thing(incarnation: Incarnation) -> None:
    do(incarnation, incarnation.broker.create_topic(NAME))
    client = peer(incarnation)
    client.subscribe(TOPIC, "s", CommandSubscribe.Exclusive, is_durable=True)
    incarnation.hold(JOURNAL)
    do_unload = incarnation.start(incarnation.broker.unload_topic(NAME))
    incarnation.hold(JOURNAL)
    assert do_unload.done()
    incarnation.hold()
    assert client.consumers[1].state == "closed"
    assert not client.requests


def test_a_subscription_is_confirmed_by_the_reloaded_topic_only_once_it_is_stored(incarnation: Incarnation) -> None:
    do(incarnation, incarnation.broker.create_topic(NAME))
    first, second = peer(incarnation), peer(incarnation)
    first.subscribe(TOPIC, "s", CommandSubscribe.Shared, is_durable=True)
    incarnation.hold(JOURNAL)
    incarnation.start(incarnation.broker.unload_topic(NAME))
    second.subscribe(TOPIC, "s", CommandSubscribe.Shared, is_durable=True)
    incarnation.hold(JOURNAL)
    assert second.consumers[1].state == "opening"
    incarnation.hold()
    assert second.consumers[1].state == "attached"


def test_what_was_under_way_at_the_unload_is_stored_before_the_next_owner_hears_of_its_success(
    incarnation: Incarnation,
) -> None:
    first, second = peer(incarnation), peer(incarnation)
    first.create_producer(TOPIC, ProducerAccessMode.Shared, "p")
    incarnation.hold()
    first.send(first.producers[1])
    incarnation.hold(JOURNAL)
    incarnation.start(incarnation.broker.unload_topic(NAME))
    second.create_producer(TOPIC, ProducerAccessMode.Exclusive, "q")
    incarnation.hold(JOURNAL)
    assert second.producers[1].state == "opening"
    incarnation.hold()
    assert second.producers[1].state == "ready"
    assert incarnation.storage.open_log(TOPIC).entry_count == 1


def test_a_new_topic_inherits_nothing_of_the_one_that_is_being_deleted(incarnation: Incarnation) -> None:
    namespaces = incarnation.broker.namespaces
    client = peer(incarnation)
    client.create_producer(TOPIC, ProducerAccessMode.Exclusive, "p")
    incarnation.hold()
    do(incarnation, namespaces.change_topic_policies(NAME, lambda _: {"deduplicationEnabled": True}))
    do(incarnation, namespaces.set_properties(NAME, {"of": "the old one"}))
    late = incarnation.start(namespaces.change_topic_policies(NAME, lambda old: old | {"compaction_threshold": 5}))
    deleting = incarnation.start(incarnation.broker.delete_topic(NAME, force=True))
    incarnation.hold(METADATA, JOURNAL)
    creating = incarnation.start(incarnation.broker.create_topic(NAME, {"of": "the new one"}))
    incarnation.hold(METADATA, JOURNAL)
    assert not deleting.done()
    assert not creating.done()
    assert not incarnation.broker.has_topic(NAME)
    incarnation.hold()
    assert (failure(late), failure(deleting), failure(creating)) == (None, None, None)
    assert incarnation.broker.topics[TOPIC].producers.epoch is None
    assert namespaces.topic_policies(NAME) == {}
    assert namespaces.properties(NAME) == {"of": "the new one"}
    assert not [path for path in incarnation.store.records if "topic-policies" in path or "topic-epochs" in path]


def test_who_may_not_create_the_topic_hears_that_it_was_deleted_meanwhile(incarnation: Incarnation) -> None:
    do(incarnation, incarnation.broker.create_topic(NAME))
    do(incarnation, incarnation.broker.unload_topic(NAME))
    deleting = incarnation.start(incarnation.broker.delete_topic(NAME, force=True))
    finding = incarnation.start(incarnation.broker.topic(NAME, create=False))
    creating = incarnation.start(incarnation.broker.topic(NAME, create=True))
    incarnation.hold()
    assert failure(deleting) is None
    assert isinstance(failure(finding), TopicNotFound)
    assert creating.result() is incarnation.broker.topics[TOPIC]


def test_a_deletion_whose_caller_is_gone_is_carried_out(incarnation: Incarnation) -> None:
    do(incarnation, incarnation.broker.create_topic(NAME))
    do(incarnation, incarnation.broker.namespaces.change_topic_policies(NAME, lambda _: {"deduplicationEnabled": True}))
    deleting = incarnation.start(incarnation.broker.delete_topic(NAME, force=True))
    incarnation.hold(METADATA)
    deleting.cancel()
    incarnation.hold()
    assert not incarnation.broker.has_topic(NAME)
    assert incarnation.broker.namespaces.topic_policies(NAME) == {}


def test_a_topic_is_not_created_in_a_namespace_that_is_deleted_meanwhile(incarnation: Incarnation) -> None:
    creating = incarnation.start(incarnation.broker.create_topic(NAME))
    incarnation.hold(METADATA)
    deleting = incarnation.start(incarnation.broker.namespaces.delete_namespace(NAMESPACE))
    incarnation.hold(METADATA)
    assert not incarnation.broker.namespaces.has_namespace(NAMESPACE)
    incarnation.hold()
    assert isinstance(failure(creating), ServiceNotReady)
    assert failure(deleting) is None
    assert not incarnation.storage.has_log(TOPIC)
    do(incarnation, incarnation.broker.namespaces.create_namespace(NAMESPACE, default_policies("standalone")))
    assert incarnation.broker.topic_names(NAMESPACE) == []


def test_a_subscription_that_the_disk_refuses_is_gone_even_if_nobody_waits_for_it(
    incarnation: Incarnation, disk: SimulatedDisk
) -> None:
    do(incarnation, incarnation.broker.create_topic(NAME))
    client = peer(incarnation)
    client.subscribe(TOPIC, "s", CommandSubscribe.Shared, is_durable=True)
    incarnation.hold(JOURNAL)
    client.leave()
    disk.failures[disk.operations + 1] = errno.EIO
    incarnation.hold()
    assert "s" not in incarnation.broker.topics[TOPIC].subscriptions
    assert "s" not in incarnation.storage.open_log(TOPIC).cursors


def test_a_topic_that_fails_keeps_no_other_from_being_trimmed(
    incarnation: Incarnation, caplog: pytest.LogCaptureFixture
) -> None:
    topics = [do(incarnation, incarnation.broker.create_topic(parse_topic_name(name))) for name in TOPICS]
    trimmed: list[str] = []

    async def trim(retention_ms: int, retention_bytes: int) -> list[int]:
        trimmed.append(TOPICS[1])
        return []

    async def fail(retention_ms: int, retention_bytes: int) -> list[int]:
        raise StorageError("the disk refused")

    topics[0].log.trim, topics[1].log.trim = fail, trim
    began_s = incarnation.loop.time()
    with caplog.at_level(logging.ERROR, "magnetar.broker.topics.maintenance"):
        while incarnation.loop.time() < began_s + 2 * incarnation.broker.config.stats_period_s + 1:
            incarnation.hold()
            incarnation.loop.advance()
    assert trimmed  # once is enough: nothing changes in it
    assert caplog.text.count(f"{TOPIC}: trimming failed, retrying: the disk refused") >= 2


def test_two_who_create_a_partitioned_topic_at_first_use_agree(incarnation: Incarnation) -> None:
    base = parse_topic_name(f"persistent://{NAMESPACE}/parted")
    both = [incarnation.start(incarnation.broker.namespaces.ensure_partitioned_topic(base, count)) for count in (3, 5)]
    incarnation.hold()
    assert [task.result() for task in both] == [3, 3]


def test_changes_of_one_topics_policies_at_the_same_time_are_all_kept(incarnation: Incarnation) -> None:
    namespaces = incarnation.broker.namespaces

    def put(**fields: int) -> Any:
        return namespaces.change_topic_policies(NAME, lambda old: old | fields)

    changes = [incarnation.start(put(a=1)), incarnation.start(put(b=2)), incarnation.start(put(c=3))]
    incarnation.hold()
    assert [failure(task) for task in changes] == [None] * 3
    assert namespaces.topic_policies(NAME) == {"a": 1, "b": 2, "c": 3}
    clearing = [incarnation.start(namespaces.change_topic_policies(NAME, lambda _: {})) for _ in range(2)]
    adding = incarnation.start(put(d=4))
    incarnation.hold()
    assert [failure(task) for task in (*clearing, adding)] == [None] * 3
    assert namespaces.topic_policies(NAME) == {"d": 4}


def test_a_record_that_is_no_epoch_is_named(incarnation: Incarnation) -> None:
    do(incarnation, incarnation.store.put("/admin/topic-epochs/persistent/public/races/t0", b"x"))
    task = incarnation.start(incarnation.broker.create_topic(NAME))
    incarnation.hold()
    error = failure(task)
    assert isinstance(error, MagnetarError)
    assert "/admin/topic-epochs/persistent/public/races/t0" in str(error)


def test_statistics_are_shown_whatever_the_names_are(incarnation: Incarnation) -> None:
    client = peer(incarnation)
    client.create_producer(TOPIC, ProducerAccessMode.Shared, "p")
    client.subscribe(TOPIC, "s", CommandSubscribe.Exclusive, is_durable=True)
    incarnation.hold()
    topic = incarnation.broker.topics[TOPIC]
    client.connection.producers[1].name = client.connection.client_version = "\udc80"
    consumer = client.connection.consumers[3]
    consumer.name, consumer.metadata = "x:\ud800:1", {"\udfff": "\n"}
    text = json.dumps([topic.stats(), topic.internal_stats()], ensure_ascii=False).encode().decode()
    assert "\\\\udc80" in text
    assert topic.stats()["subscriptions"]["s"]["activeConsumerName"] == "x:\\ud800:1"


def test_a_topic_that_was_unloaded_takes_nothing_from_the_one_that_was_loaded_since(incarnation: Incarnation) -> None:
    old: Topic = do(incarnation, incarnation.broker.create_topic(NAME))
    do(incarnation, old.create_subscription("s"))
    do(incarnation, incarnation.broker.unload_topic(NAME))
    do(incarnation, incarnation.broker.topic(NAME))
    for work in (old.delete_subscription("s"), old.terminate(), old.create_subscription("t")):
        task = incarnation.start(work)
        incarnation.hold()
        assert isinstance(failure(task), ServiceNotReady)
    assert "s" in incarnation.storage.open_log(TOPIC).cursors


def test_names_that_only_resemble_a_workers_make_no_worker(incarnation: Incarnation) -> None:
    client = peer(incarnation)
    client.subscribe(COORDINATE_TOPIC, PARTICIPANTS, CommandSubscribe.Failover, is_durable=True)
    incarnation.hold()
    (consumer,) = client.connection.consumers.values()
    for name in ("x:host:\u00b2", "x:host:" + "9" * 5000, "x:host:", "x", "x:host:-1", "x:host:123456"):
        consumer.name = name
        assert [parse_member(*one) for one in incarnation.broker.election_participants()] == [None]
    consumer.name = "a:b:host:8080"
    assert [parse_member(*one) for one in incarnation.broker.election_participants()] == [Member("a:b", "host", 8080)]
