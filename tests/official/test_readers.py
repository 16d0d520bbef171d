"""Readers and seeking: any place of a topic can be read again."""

from __future__ import annotations

import time

import httpx
import pulsar
import pytest

from tests.official.talk import RECEIVE_MS, datas, is_silent, read_available, receive_all, send_all

EARLIEST = pulsar.InitialPosition.Earliest
NUMBERS = [b"%d" % i for i in range(10)]


@pytest.fixture(params=[False, True], ids=["single", "batched"])
def batched(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def fill(client: pulsar.Client, topic: str, batched: bool) -> list[pulsar.MessageId]:
    producer = client.create_producer(
        topic, batching_enabled=batched, batching_max_messages=4, batching_max_publish_delay_ms=200
    )
    return send_all(producer, NUMBERS)


def test_reader_from_earliest_sees_all_and_then_the_new(client: pulsar.Client, topic: str, batched: bool) -> None:
    fill(client, topic, batched)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert read_available(reader) == NUMBERS
    assert not reader.has_message_available()
    client.create_producer(topic).send(b"new")
    assert reader.read_next(RECEIVE_MS).data() == b"new"


def test_reader_from_latest_sees_only_the_new(client: pulsar.Client, topic: str, batched: bool) -> None:
    fill(client, topic, batched)
    reader = client.create_reader(topic, pulsar.MessageId.latest)
    assert not reader.has_message_available()
    client.create_producer(topic).send(b"new")
    assert reader.read_next(RECEIVE_MS).data() == b"new"


@pytest.mark.parametrize("inclusive", [False, True])
def test_reader_from_an_id_begins_there(client: pulsar.Client, topic: str, batched: bool, inclusive: bool) -> None:
    ids = fill(client, topic, batched)
    for i in (0, 5, 9):
        reader = client.create_reader(topic, ids[i], start_message_id_inclusive=inclusive)
        assert read_available(reader) == NUMBERS[i + (not inclusive) :]
        reader.close()


def test_message_id_survives_serialisation(client: pulsar.Client, topic: str) -> None:
    ids = fill(client, topic, batched=True)
    restored = pulsar.MessageId.deserialize(ids[6].serialize())
    assert read_available(client.create_reader(topic, restored)) == NUMBERS[7:]


def test_reader_does_not_disturb_subscriptions_and_leaves_none_behind(
    client: pulsar.Client, admin: httpx.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s")
    fill(client, topic, batched=False)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert read_available(reader) == NUMBERS
    reader.close()
    assert admin.get(topic.replace("://", "/") + "/subscriptions").json() == ["s"]
    assert datas(receive_all(consumer, 10)) == NUMBERS


def test_reader_on_a_new_topic_waits(client: pulsar.Client, topic: str) -> None:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert not reader.has_message_available()
    with pytest.raises(pulsar.Timeout):
        reader.read_next(100)


def test_seek_by_id_goes_back_and_forth(client: pulsar.Client, topic: str, batched: bool) -> None:
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    ids = fill(client, topic, batched)
    assert datas(receive_all(consumer, 10)) == NUMBERS
    for i in (3, 8, 0):
        consumer.seek(ids[i])
        assert datas(receive_all(consumer, 10 - i)) == NUMBERS[i:]
        assert is_silent(consumer)


def test_seek_to_earliest_and_latest(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    fill(client, topic, batched=False)
    consumer.seek(pulsar.MessageId.latest)
    assert is_silent(consumer)
    consumer.seek(pulsar.MessageId.earliest)
    assert datas(receive_all(consumer, 10)) == NUMBERS


def test_seek_by_time_finds_the_first_message_published_since(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    send_all(producer, NUMBERS[:6])
    time.sleep(0.01)  # publish times are whole milliseconds: the second half must lie in a later one
    middle = int(time.time() * 1000)
    send_all(producer, NUMBERS[6:])
    assert datas(receive_all(consumer, 10)) == NUMBERS
    consumer.seek(middle)
    assert datas(receive_all(consumer, 4)) == NUMBERS[6:]
    consumer.seek(1)
    assert datas(receive_all(consumer, 10)) == NUMBERS
    consumer.seek(int(time.time() * 1000) + 60_000)
    assert is_silent(consumer)


def test_seek_moves_a_shared_subscription_for_all_its_consumers(client: pulsar.Client, topic: str) -> None:
    one, two = (
        client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=5) for _ in range(2)
    )
    fill(client, topic, batched=False)
    seen = datas(receive_all(one, 5)) + datas(receive_all(two, 5))
    assert sorted(seen) == NUMBERS
    one.seek(pulsar.MessageId.earliest)
    again = datas(receive_all(one, 5)) + datas(receive_all(two, 5))
    assert sorted(again) == NUMBERS


def test_reader_seeks(client: pulsar.Client, topic: str, batched: bool) -> None:
    ids = fill(client, topic, batched)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert read_available(reader) == NUMBERS
    reader.seek(ids[6])
    assert read_available(reader) == NUMBERS[7:]
    reader.seek(pulsar.MessageId.earliest)
    assert read_available(reader) == NUMBERS
