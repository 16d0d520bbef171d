"""Non-persistent topics and patterns, as the official client sees them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import httpx
import pulsar
import pytest

from tests.official.talk import RECEIVE_MS, datas, position, receive_all, send_all
from tests.support.pulsar import Broker

EARLIEST = pulsar.InitialPosition.Earliest
SHARED = pulsar.ConsumerType.Shared
DEADLINE_S = 30.0


@pytest.fixture
def volatile(topic: str) -> str:
    return f"non-{topic}"


def path(topic: str) -> str:
    return topic.replace("://", "/")


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.05)


def test_messages_go_to_who_is_there(client: pulsar.Client, volatile: str) -> None:
    producer = client.create_producer(volatile)
    assert position(producer.send(b"for nobody")) == (0, 0)
    consumer = client.subscribe(volatile, "s", initial_position=EARLIEST)
    send_all(producer, [b"0", b"1"])
    messages = receive_all(consumer, 2)
    assert datas(messages) == [b"0", b"1"]
    assert [position(message.message_id()) for message in messages] == [(0, 0), (0, 0)]
    consumer.acknowledge(messages[0])
    consumer.close()
    producer.send(b"for nobody")
    consumer = client.subscribe(volatile, "s", initial_position=EARLIEST)
    producer.send(b"2")
    assert datas(receive_all(consumer, 1)) == [b"2"]


def test_a_consumer_that_takes_no_more_loses_messages(
    client: pulsar.Client, volatile: str, admin: httpx.Client
) -> None:
    consumer = client.subscribe(volatile, "s", SHARED, receiver_queue_size=1)
    producer = client.create_producer(volatile, batching_enabled=False)
    send_all(producer, [b"%d" % number for number in range(50)])
    stats = admin.get(f"{path(volatile)}/stats").json()
    assert stats["msgInCounter"] == 50
    assert stats["subscriptions"]["s"]["msgOutCounter"] < 50
    assert stats["subscriptions"]["s"]["msgBacklog"] == 0
    assert "msgDropRate" in stats["subscriptions"]["s"]
    assert stats["publishers"][0]["msgDropRate"] == 0
    assert datas(receive_all(consumer, 1)) == [b"0"]


def test_two_subscriptions_get_each_message(client: pulsar.Client, volatile: str) -> None:
    consumers = [client.subscribe(volatile, name) for name in ("a", "b")]
    client.create_producer(volatile).send(b"0")
    assert [datas(receive_all(consumer, 1)) for consumer in consumers] == [[b"0"], [b"0"]]


def test_a_second_exclusive_consumer_is_busy(client: pulsar.Client, volatile: str) -> None:
    client.subscribe(volatile, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(volatile, "s")


def test_partitions_share_the_messages(client: pulsar.Client, volatile: str, admin: httpx.Client) -> None:
    assert admin.put(f"{path(volatile)}/partitions", json=2).status_code == 204
    consumer = client.subscribe(volatile, "s")
    producer = client.create_producer(volatile)
    for number in range(10):
        producer.send(b"%d" % number, partition_key=f"k{number}")
    messages = receive_all(consumer, 10)
    assert sorted(datas(messages)) == [b"%d" % number for number in range(10)]
    assert {message.topic_name() for message in messages} == {f"{volatile}-partition-{index}" for index in range(2)}
    stats = admin.get(f"{path(volatile)}/partitioned-stats").json()
    assert stats["msgInCounter"] == 10
    assert stats["subscriptions"]["s"]["msgDropRate"] == 0
    listed = admin.get("non-persistent/public/default").json()
    assert {f"{volatile}-partition-0", f"{volatile}-partition-1"} <= set(listed)


def test_a_topic_comes_back_after_an_unload(client: pulsar.Client, volatile: str, admin: httpx.Client) -> None:
    consumer = client.subscribe(volatile, "s")
    producer = client.create_producer(volatile)
    producer.send(b"0")
    assert datas(receive_all(consumer, 1)) == [b"0"]
    assert admin.put(f"{path(volatile)}/unload").status_code == 204
    until(consumer.is_connected, "the consumer is back")
    until(lambda: admin.get(f"{path(volatile)}/subscriptions").json() == ["s"], "the subscription is there again")
    producer.send(b"1")
    assert datas(receive_all(consumer, 1)) == [b"1"]


def test_a_pattern_takes_topics_of_either_domain(client: pulsar.Client, topic: str, volatile: str) -> None:
    stored = client.create_producer(f"{topic}-a")
    client.create_producer(f"{topic}x").send(b"left")
    passing = client.create_producer(f"{volatile}-b")
    pattern = re.compile(f"{topic}-.*")
    consumer = client.subscribe(
        pattern, "s", initial_position=EARLIEST, regex_subscription_mode=pulsar.RegexSubscriptionMode.AllTopics
    )
    stored.send(b"0")
    passing.send(b"1")
    assert sorted(datas(receive_all(consumer, 2))) == [b"0", b"1"]
    with pytest.raises(pulsar.Timeout):
        consumer.receive(min(RECEIVE_MS, 300))


def test_a_pattern_is_looked_up_over_http(
    client: pulsar.Client, broker: Broker, topic: str, official_log: pulsar.FileLogger
) -> None:
    client.create_producer(f"{topic}-a").send(b"0")
    client.create_producer(f"{topic}x").send(b"left")
    over_http = pulsar.Client(broker.web_url, logger=official_log, operation_timeout_seconds=10)
    consumer = over_http.subscribe(re.compile(f"{topic}-.*"), "s", initial_position=EARLIEST)
    assert datas(receive_all(consumer, 1)) == [b"0"]
    over_http.close()
