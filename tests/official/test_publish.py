"""What a producer of the official client sends comes out as it went in."""

from __future__ import annotations

from typing import Any

import pulsar
import pytest

from tests.official.talk import RECEIVE_MS, datas, position, receive_all, send_all

EARLIEST = pulsar.InitialPosition.Earliest
LIMIT_BYTES = 5 * 1024 * 1024


def test_messages_sent_one_by_one_arrive_in_order(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    ids = [producer.send(b"%d" % i) for i in range(20)]
    assert sorted(map(position, ids)) == list(map(position, ids))
    assert len(set(map(position, ids))) == 20
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    messages = receive_all(consumer, 20)
    assert datas(messages) == [b"%d" % i for i in range(20)]
    assert [position(m.message_id()) for m in messages] == list(map(position, ids))


def test_messages_of_a_batch_share_an_entry_and_keep_their_order(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=100, batching_max_publish_delay_ms=5000
    )
    ids = send_all(producer, (b"%d" % i for i in range(250)))
    entries = sorted({position(i) for i in ids})
    assert len(entries) == 3
    assert [i.batch_index() for i in ids] == [*range(100), *range(100), *range(50)]
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    messages = receive_all(consumer, 250)
    assert datas(messages) == [b"%d" % i for i in range(250)]
    assert [m.message_id().batch_index() for m in messages] == [*range(100), *range(100), *range(50)]


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_compressed_messages_arrive_as_sent(client: pulsar.Client, topic: str, codec: str, batched: bool) -> None:
    producer = client.create_producer(
        topic, compression_type=getattr(pulsar.CompressionType, codec), batching_enabled=batched
    )
    payloads = [b"all work and no play " * (1 + 20 * i) for i in range(10)]
    send_all(producer, payloads)
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    assert datas(receive_all(consumer, 10)) == payloads


@pytest.mark.parametrize("batched", [False, True])
def test_key_properties_event_time_and_producer_name_travel(client: pulsar.Client, topic: str, batched: bool) -> None:
    producer = client.create_producer(topic, producer_name=f"press-{batched}", batching_enabled=batched)
    producer.send_async(
        b"x",
        None,
        partition_key="käse",
        ordering_key="order",
        properties={"a": "1", "b": "zwei ✓", "": "empty key"},
        event_timestamp=1_234_567_890_123,
    )
    producer.send_async(b"", None)
    producer.flush()
    consumer = client.subscribe(topic, "s", initial_position=EARLIEST)
    first, second = receive_all(consumer, 2)
    assert first.partition_key() == "käse"
    assert first.ordering_key() == "order"
    assert first.properties() == {"a": "1", "b": "zwei ✓", "": "empty key"}
    assert first.event_timestamp() == 1_234_567_890_123
    assert first.producer_name() == f"press-{batched}"
    assert first.topic_name() == topic
    assert first.publish_timestamp() > 1_600_000_000_000
    assert (second.data(), second.partition_key(), second.properties(), second.event_timestamp()) == (b"", "", {}, 0)


def test_producer_gets_a_generated_name_that_no_other_has(client: pulsar.Client, topic: str) -> None:
    names = {client.create_producer(topic).producer_name() for _ in range(3)}
    assert len(names) == 3
    assert "" not in names


def test_second_producer_of_one_name_is_refused_as_busy(client: pulsar.Client, topic: str) -> None:
    first = client.create_producer(topic, producer_name="only")
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="only")
    first.close()
    client.create_producer(topic, producer_name="only").send(b"x")


def test_sequence_ids_continue_from_the_initial_one(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, initial_sequence_id=41)
    producer.send(b"x")
    assert producer.last_sequence_id() == 42
    producer.send(b"x", sequence_id=100)
    assert producer.last_sequence_id() == 100


@pytest.mark.parametrize("codec", ["NONE", "LZ4"])
def test_message_just_below_the_limit_passes(client: pulsar.Client, topic: str, codec: str) -> None:
    payload = bytes(range(256)) * ((LIMIT_BYTES - 1024) // 256)
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic, compression_type=getattr(pulsar.CompressionType, codec)).send(payload)
    message = consumer.receive(RECEIVE_MS)
    assert message.data() == payload


def test_message_above_the_limit_is_refused_and_the_producer_lives_on(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(bytes(LIMIT_BYTES + 1))
    consumer = client.subscribe(topic, "s")
    producer.send(b"small")
    assert consumer.receive(RECEIVE_MS).data() == b"small"


def test_several_megabytes_in_flight_arrive_complete(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", receiver_queue_size=10)
    payloads = [bytes([i]) * 1_000_000 for i in range(12)]
    send_all(client.create_producer(topic), payloads)
    assert datas(receive_all(consumer, 12)) == payloads


def test_unknown_namespace_and_bad_names_are_refused(client: pulsar.Client) -> None:
    for name, error in (
        ("persistent://public/absent/t", (pulsar.TopicNotFound, pulsar.AuthorizationError, pulsar.BrokerMetadataError)),
        ("persistent://public/default", pulsar.InvalidTopicName),
    ):
        with pytest.raises(error):
            client.create_producer(name)


def test_short_and_full_names_are_one_topic(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic.rsplit("/", 1)[1]).send(b"short")
    message: Any = consumer.receive(RECEIVE_MS)
    assert message.data() == b"short"
    assert message.topic_name() == topic
