"""What was not acknowledged comes again when asked for, and says how often it came."""

from __future__ import annotations

import pulsar
import pytest

from tests.official.talk import RECEIVE_MS, datas, is_silent, receive_all, send_all

SHARED = pulsar.ConsumerType.Shared
NUMBERS = [b"%d" % i for i in range(5)]


def test_negatively_acknowledged_message_comes_again_alone(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED, negative_ack_redelivery_delay_ms=200)
    send_all(client.create_producer(topic), NUMBERS)
    for message in receive_all(consumer, 5, ack=False):
        if message.data() == b"2":
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    again = consumer.receive(RECEIVE_MS)
    assert (again.data(), again.redelivery_count()) == (b"2", 1)
    consumer.acknowledge(again)
    assert is_silent(consumer)


def test_redelivery_count_rises_with_every_negative_acknowledgement(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED, negative_ack_redelivery_delay_ms=100)
    client.create_producer(topic).send(b"x")
    counts = []
    for _ in range(4):
        message = consumer.receive(RECEIVE_MS)
        counts.append(message.redelivery_count())
        consumer.negative_acknowledge(message)
    assert counts == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_negative_acknowledgement_rewinds_an_ordered_subscription(
    client: pulsar.Client, topic: str, kind: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=kind, negative_ack_redelivery_delay_ms=200)
    send_all(client.create_producer(topic), NUMBERS)
    messages = receive_all(consumer, 5, ack=False)
    consumer.acknowledge(messages[0])
    consumer.negative_acknowledge(messages[1])
    again = [consumer.receive(RECEIVE_MS) for _ in range(4)]
    assert datas(again) == NUMBERS[1:]
    assert {m.redelivery_count() for m in again} == {0}


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover, SHARED])
def test_redeliver_unacknowledged_brings_back_all_that_is_open(
    client: pulsar.Client, topic: str, kind: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=kind)
    send_all(client.create_producer(topic), NUMBERS)
    messages = receive_all(consumer, 5, ack=False)
    consumer.acknowledge(messages[2])
    consumer.redeliver_unacknowledged_messages()
    again = receive_all(consumer, 4)
    assert datas(again) == [NUMBERS[i] for i in (0, 1, 3, 4)]
    assert is_silent(consumer)


def test_negatively_acknowledged_member_of_a_batch_brings_the_unacknowledged_rest(
    client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(
        topic, "s", consumer_type=SHARED, negative_ack_redelivery_delay_ms=300, batch_index_ack_enabled=True
    )
    send_all(client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=100), NUMBERS)
    messages = receive_all(consumer, 5, ack=False)
    for i in (0, 1, 3):
        consumer.acknowledge(messages[i])
    consumer.negative_acknowledge(messages[2])
    again = receive_all(consumer, 2)
    assert datas(again) == [b"2", b"4"]
    assert is_silent(consumer)


def test_redelivered_messages_may_go_to_another_shared_consumer_and_count(client: pulsar.Client, topic: str) -> None:
    first = client.subscribe(topic, "s", consumer_type=SHARED, negative_ack_redelivery_delay_ms=100)
    client.create_producer(topic).send(b"x")
    first.negative_acknowledge(first.receive(RECEIVE_MS))
    message = first.receive(RECEIVE_MS)
    assert message.redelivery_count() == 1
    second = client.subscribe(topic, "s", consumer_type=SHARED)
    first.close()
    moved = second.receive(RECEIVE_MS)
    # A disconnect alone is no redelivery request: the count stays.
    assert (moved.data(), moved.redelivery_count()) == (b"x", 1)


def test_message_that_fails_too_often_lands_in_the_dead_letter_topic(client: pulsar.Client, topic: str) -> None:
    policy = pulsar.ConsumerDeadLetterPolicy(max_redeliver_count=2, dead_letter_topic=f"{topic}-dead")
    consumer = client.subscribe(
        topic, "s", consumer_type=SHARED, negative_ack_redelivery_delay_ms=100, dead_letter_policy=policy
    )
    graveyard = client.subscribe(f"{topic}-dead", "s")
    client.create_producer(topic).send(b"x")
    for _ in range(3):
        consumer.negative_acknowledge(consumer.receive(RECEIVE_MS))
    assert graveyard.receive(RECEIVE_MS).data() == b"x"
    assert is_silent(consumer)
