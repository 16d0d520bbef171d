"""Delayed messages of the official client: when they come, to whom, and what cancels them."""

from __future__ import annotations

import time
from datetime import timedelta

import httpx
import pulsar
import pytest

from tests.official.talk import datas, is_silent, receive_all, send_all
from tests.support.pulsar import Broker
from tests.support.servers import Server
from tests.support.waiting import wait_for

EARLIEST = pulsar.InitialPosition.Earliest
SHARED = pulsar.ConsumerType.Shared
HOUR = timedelta(hours=1)
EARLY_S = 1.05
"""How much earlier Apache Pulsar may be, a tick; ours never is."""


def subscribe(client: pulsar.Client, topic: str) -> pulsar.Consumer:
    return client.subscribe(topic, "s", consumer_type=SHARED, initial_position=EARLIEST)


def stats(admin: httpx.Client, topic: str) -> dict[str, int]:
    answer = admin.get(f"{topic.replace('://', '/')}/stats").raise_for_status().json()
    subscription: dict[str, int] = answer["subscriptions"]["s"]
    return subscription


def wait_until_delayed(admin: httpx.Client, topic: str, count: int) -> None:
    wait_for(lambda: stats(admin, topic)["msgDelayed"] == count, f"{count} delayed messages")


@pytest.mark.slow
def test_delayed_messages_come_in_the_order_of_their_times_and_not_before(
    broker: Broker, client: pulsar.Client, topic: str
) -> None:
    # What is due within two ticks of each other Apache Pulsar may give out together, in the order of sending.
    early_s, last_s = (0.0, 3) if isinstance(broker, Server) else (EARLY_S, 5)
    consumer = subscribe(client, topic)
    producer = client.create_producer(topic)
    began_s = time.time()
    producer.send(b"last", deliver_at=round((began_s + last_s) * 1000))
    producer.send(b"1.5", deliver_after=timedelta(seconds=1.5))
    producer.send(b"past", deliver_at=1)
    producer.send(b"0")
    assert datas(receive_all(consumer, 2)) == [b"past", b"0"]
    for data, due_s in ((b"1.5", 1.5), (b"last", last_s)):
        assert datas(receive_all(consumer, 1)) == [data]
        assert time.time() >= began_s + due_s - early_s - 0.002
    assert is_silent(consumer)


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_one_active_consumer_gets_delayed_messages_at_once(
    client: pulsar.Client, topic: str, kind: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    producer = client.create_producer(topic)
    producer.send(b"a", deliver_after=HOUR)
    producer.send(b"b")
    assert datas(receive_all(consumer, 2)) == [b"a", b"b"]


def test_delayed_messages_take_no_permits_and_are_counted(
    client: pulsar.Client, admin: httpx.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED, receiver_queue_size=1)
    producer = client.create_producer(topic)
    send_all(producer, [b"later"] * 300, deliver_after=HOUR)
    producer.send(b"now")
    assert datas(receive_all(consumer, 1)) == [b"now"]
    wait_until_delayed(admin, topic, 300)
    wait_for(lambda: stats(admin, topic)["msgBacklog"] == 300, "the acknowledgement")
    assert stats(admin, topic)["msgBacklogNoDelayed"] == 0
    assert is_silent(consumer)


def test_batch_and_single_entries_are_delayed_alike(client: pulsar.Client, admin: httpx.Client, topic: str) -> None:
    consumer = subscribe(client, topic)
    producer = client.create_producer(topic, batching_enabled=True)
    send_all(producer, [b"later"] * 10, deliver_after=HOUR)
    send_all(producer, [b"now"] * 10)
    assert datas(receive_all(consumer, 10)) == [b"now"] * 10
    wait_until_delayed(admin, topic, 10)


def test_skipping_and_clearing_cancel_delayed_messages(
    broker: Broker, client: pulsar.Client, admin: httpx.Client, topic: str
) -> None:
    subscribe(client, topic)
    send_all(client.create_producer(topic), [b"later"] * 10, deliver_after=HOUR)
    wait_until_delayed(admin, topic, 10)
    path = f"{topic.replace('://', '/')}/subscription/s"
    admin.post(f"{path}/skip/4").raise_for_status()
    assert stats(admin, topic)["msgBacklog"] == 6
    if isinstance(broker, Server):  # Apache Pulsar counts a skipped message as delayed until its time
        wait_until_delayed(admin, topic, 6)
    admin.post(f"{path}/skip_all").raise_for_status()
    wait_until_delayed(admin, topic, 0)


@pytest.mark.slow
def test_an_acknowledgement_by_id_cancels_a_delayed_message(
    client: pulsar.Client, admin: httpx.Client, topic: str
) -> None:
    consumer = subscribe(client, topic)
    producer = client.create_producer(topic)
    cancelled = producer.send(b"cancelled", deliver_after=timedelta(seconds=2))
    producer.send(b"due", deliver_after=timedelta(seconds=2))
    wait_until_delayed(admin, topic, 2)
    consumer.acknowledge(cancelled)
    assert datas(receive_all(consumer, 1)) == [b"due"]
    assert is_silent(consumer)
    wait_for(lambda: stats(admin, topic)["msgBacklog"] == 0, "no backlog")


@pytest.mark.slow
def test_seek_and_a_new_consumer_find_what_is_delayed_again(
    client: pulsar.Client, admin: httpx.Client, topic: str
) -> None:
    consumer = subscribe(client, topic)
    producer = client.create_producer(topic)
    producer.send(b"now")
    send_all(producer, [b"later"] * 5, deliver_after=timedelta(seconds=4))
    receive_all(consumer, 1)
    wait_until_delayed(admin, topic, 5)
    consumer.seek(pulsar.MessageId.earliest)
    assert datas(receive_all(consumer, 1)) == [b"now"]
    wait_until_delayed(admin, topic, 5)
    consumer.close()
    again = subscribe(client, topic)
    wait_until_delayed(admin, topic, 5)
    assert datas(receive_all(again, 5)) == [b"later"] * 5
    assert is_silent(again)


def test_longer_delays_than_the_policy_allows_are_refused_once(
    broker: Broker, client: pulsar.Client, admin: httpx.Client, topic: str
) -> None:
    if not isinstance(broker, Server):
        pytest.skip("the Python client sends a refused message again to Apache Pulsar until it times out")
    subscribe(client, topic)
    producer = client.create_producer(topic)
    producer.send(b"before")
    path = f"{topic.replace('://', '/')}/delayedDelivery"
    policy = {"tickTime": 100, "active": True, "maxDeliveryDelayInMillis": 1000}
    admin.post(path, json=policy).raise_for_status()
    assert admin.get(path).json() == policy
    with pytest.raises(pulsar.ChecksumError):
        producer.send(b"x", deliver_after=HOUR)
    producer.send(b"y", deliver_after=timedelta(milliseconds=500))
    admin.post(path, json={"tickTime": 100, "active": False}).raise_for_status()
    assert admin.post(path, json={"tickTime": 0, "active": True}).status_code == 412
    admin.delete(path).raise_for_status()
    assert admin.get(path).content == b""


def test_without_delayed_delivery_messages_come_at_once(
    broker: Broker, client: pulsar.Client, admin: httpx.Client, topic: str
) -> None:
    if not isinstance(broker, Server):
        pytest.skip("topic policies need a system topic there, which takes a while")
    consumer = subscribe(client, topic)
    producer = client.create_producer(topic)
    producer.send(b"before")
    admin.post(f"{topic.replace('://', '/')}/delayedDelivery", json={"active": False}).raise_for_status()
    producer.send(b"x", deliver_after=HOUR)
    assert datas(receive_all(consumer, 2)) == [b"before", b"x"]
