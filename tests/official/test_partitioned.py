"""Partitioned topics, made through the admin REST as the field does."""

from __future__ import annotations

import httpx
import pulsar
import pytest

from tests.official.talk import RECEIVE_MS, datas, receive_all, send_all

EARLIEST = pulsar.InitialPosition.Earliest
PARTITIONS = 4


@pytest.fixture
def partitioned(admin: httpx.Client, topic: str) -> str:
    admin.put(topic.replace("://", "/") + "/partitions", json=PARTITIONS).raise_for_status()
    return topic


def test_four_partitions_are_shown_with_their_numbers(
    client: pulsar.Client, admin: httpx.Client, partitioned: str
) -> None:
    names = [f"{partitioned}-partition-{i}" for i in range(PARTITIONS)]
    assert client.get_topic_partitions(partitioned) == names
    listed = admin.get("persistent/public/default").raise_for_status().json()
    assert [name for name in sorted(listed) if name.startswith(partitioned)] == names
    assert partitioned in admin.get("persistent/public/default/partitioned").raise_for_status().json()
    assert admin.get(partitioned.replace("://", "/") + "/partitions").json()["partitions"] == PARTITIONS


def test_plain_topic_has_itself_as_only_partition(client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic).close()
    assert client.get_topic_partitions(topic) == [topic]


def test_round_robin_spreads_and_a_consumer_gets_all(
    client: pulsar.Client, admin: httpx.Client, partitioned: str
) -> None:
    payloads = [b"%d" % i for i in range(40)]
    consumer = client.subscribe(partitioned, "s")
    send_all(client.create_producer(partitioned), payloads)
    messages = receive_all(consumer, 40)
    assert sorted(datas(messages), key=int) == payloads
    assert {m.topic_name() for m in messages} == {f"{partitioned}-partition-{i}" for i in range(PARTITIONS)}
    stats = admin.get(partitioned.replace("://", "/") + "/partitioned-stats").raise_for_status().json()
    assert stats["metadata"]["partitions"] == PARTITIONS
    assert stats["msgInCounter"] == 40
    assert {name: p["msgInCounter"] for name, p in stats["partitions"].items()} == {
        f"{partitioned}-partition-{i}": 10 for i in range(PARTITIONS)
    }


def test_messages_of_one_key_stay_on_one_partition_in_order(client: pulsar.Client, partitioned: str) -> None:
    consumer = client.subscribe(partitioned, "s")
    producer = client.create_producer(partitioned, batching_enabled=True)
    for i in range(60):
        producer.send_async(b"%d" % i, None, partition_key=f"key-{i % 6}")
    producer.flush()
    by_key: dict[str, list[tuple[int, int]]] = {}
    for message in receive_all(consumer, 60):
        by_key.setdefault(message.partition_key(), []).append((message.message_id().partition(), int(message.data())))
    assert len(by_key) == 6
    for seen in by_key.values():
        assert len({partition for partition, _ in seen}) == 1
        assert [number for _, number in seen] == sorted(number for _, number in seen)


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Shared, pulsar.ConsumerType.Failover])
def test_two_consumers_share_the_partitions(client: pulsar.Client, partitioned: str, kind: pulsar.ConsumerType) -> None:
    one, two = (
        client.subscribe(partitioned, "s", consumer_type=kind, consumer_name=name, receiver_queue_size=100)
        for name in ("a", "b")
    )
    payloads = [b"%d" % i for i in range(40)]
    send_all(client.create_producer(partitioned), payloads)
    seen: list[bytes] = []
    for consumer in (one, two) * 200:
        try:
            message = consumer.receive(50)
        except pulsar.Timeout:
            continue
        consumer.acknowledge(message)
        seen.append(message.data())
        if len(set(seen)) == 40:
            break
    assert sorted(set(seen), key=int) == payloads


def test_consumer_of_several_topics_hears_all(client: pulsar.Client, topic: str) -> None:
    topics = [f"{topic}-{i}" for i in range(3)]
    consumer = client.subscribe(topics, "s")
    for name in topics:
        client.create_producer(name).send(name.encode())
    assert sorted(datas(receive_all(consumer, 3))) == sorted(name.encode() for name in topics)


def test_single_partition_can_be_used_as_a_topic(client: pulsar.Client, partitioned: str) -> None:
    consumer = client.subscribe(f"{partitioned}-partition-2", "s")
    client.create_producer(f"{partitioned}-partition-2").send(b"x")
    assert consumer.receive(RECEIVE_MS).data() == b"x"


def test_reader_reads_a_partitioned_topic(client: pulsar.Client, partitioned: str) -> None:
    send_all(client.create_producer(partitioned), [b"%d" % i for i in range(12)])
    reader = client.create_reader(partitioned, pulsar.MessageId.earliest)
    seen = [reader.read_next(RECEIVE_MS).data() for _ in range(12)]
    assert sorted(seen, key=int) == [b"%d" % i for i in range(12)]
