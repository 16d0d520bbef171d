"""Exclusive, Failover and Shared subscriptions, their positions and their acknowledgements."""

from __future__ import annotations

import itertools

import httpx
import pulsar
import pytest

from tests.official.talk import RECEIVE_MS, datas, is_silent, position, receive_all, send_all
from tests.support.waiting import wait_for

EARLIEST = pulsar.InitialPosition.Earliest
EXCLUSIVE = pulsar.ConsumerType.Exclusive
FAILOVER = pulsar.ConsumerType.Failover
SHARED = pulsar.ConsumerType.Shared
NUMBERS = [b"%d" % i for i in range(10)]


def test_new_subscription_begins_at_latest_unless_told_otherwise(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    producer.send(b"before")
    late = client.subscribe(topic, "late")
    early = client.subscribe(topic, "early", initial_position=EARLIEST)
    producer.send(b"after")
    assert late.receive(RECEIVE_MS).data() == b"after"
    assert datas(receive_all(early, 2)) == [b"before", b"after"]
    assert is_silent(late)


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED])
def test_subscription_goes_on_after_what_was_acknowledged(
    client: pulsar.Client, topic: str, kind: pulsar.ConsumerType
) -> None:
    first = client.subscribe(topic, "s", consumer_type=kind)
    send_all(client.create_producer(topic), NUMBERS)
    receive_all(first, 4)
    first.close()
    second = client.subscribe(topic, "s", consumer_type=kind)
    assert datas(receive_all(second, 6)) == NUMBERS[4:]


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED])
def test_what_was_not_acknowledged_comes_again_after_close(
    client: pulsar.Client, topic: str, kind: pulsar.ConsumerType
) -> None:
    first = client.subscribe(topic, "s", consumer_type=kind)
    send_all(client.create_producer(topic), NUMBERS)
    messages = receive_all(first, 10, ack=False)
    for message in (messages[0], messages[3], messages[7]):
        first.acknowledge(message)
    first.close()
    second = client.subscribe(topic, "s", consumer_type=kind)
    rest = [NUMBERS[i] for i in (1, 2, 4, 5, 6, 8, 9)]
    assert datas(receive_all(second, 7)) == rest
    assert is_silent(second)


def test_acknowledged_part_of_a_batch_does_not_come_again(client: pulsar.Client, topic: str) -> None:
    first = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    send_all(client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=100), NUMBERS)
    messages = receive_all(first, 10, ack=False)
    assert len({position(m.message_id()) for m in messages}) == 1
    for i in (0, 1, 5, 9):
        first.acknowledge(messages[i])
    first.close()
    second = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    assert datas(receive_all(second, 6)) == [NUMBERS[i] for i in (2, 3, 4, 6, 7, 8)]
    assert is_silent(second)


@pytest.mark.parametrize("batched", [False, True])
def test_cumulative_acknowledgement_covers_everything_before(client: pulsar.Client, topic: str, batched: bool) -> None:
    first = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    send_all(client.create_producer(topic, batching_enabled=batched, batching_max_publish_delay_ms=100), NUMBERS)
    messages = receive_all(first, 10, ack=False)
    first.acknowledge_cumulative(messages[6])
    first.close()
    second = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    assert datas(receive_all(second, 3)) == NUMBERS[7:]
    assert is_silent(second)


def test_cumulative_acknowledgement_is_refused_on_shared(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_type=SHARED)
    client.create_producer(topic).send(b"x")
    with pytest.raises(pulsar.CumulativeAcknowledgementNotAllowedError):
        consumer.acknowledge_cumulative(consumer.receive(RECEIVE_MS))


def test_second_exclusive_consumer_is_refused(client: pulsar.Client, topic: str) -> None:
    first = client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")
    client.subscribe(topic, "other")
    first.close()
    client.subscribe(topic, "s")


def test_consumer_of_another_type_is_refused_while_one_is_connected(client: pulsar.Client, topic: str) -> None:
    first = client.subscribe(topic, "s", consumer_type=SHARED)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", consumer_type=FAILOVER)
    first.close()
    client.subscribe(topic, "s", consumer_type=FAILOVER)


def test_shared_consumers_divide_the_messages(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", consumer_type=SHARED, receiver_queue_size=10) for _ in range(3)]
    payloads = [b"%d" % i for i in range(30)]
    send_all(client.create_producer(topic), payloads)
    parts = [datas(receive_all(consumer, 10)) for consumer in consumers]
    assert sorted(itertools.chain(*parts), key=int) == payloads
    assert all(is_silent(consumer) for consumer in consumers)


def test_unacknowledged_messages_of_a_closed_shared_consumer_go_to_the_others(
    client: pulsar.Client, topic: str
) -> None:
    leaver = client.subscribe(topic, "s", consumer_type=SHARED, receiver_queue_size=10)
    stayer = client.subscribe(topic, "s", consumer_type=SHARED, receiver_queue_size=10)
    send_all(client.create_producer(topic), [b"%d" % i for i in range(20)])
    kept = receive_all(stayer, 10)
    receive_all(leaver, 10, ack=False)
    leaver.close()
    assert sorted(datas(kept) + datas(receive_all(stayer, 10)), key=int) == [b"%d" % i for i in range(20)]


def test_two_failover_consumers_have_one_active_and_the_other_takes_over(
    client: pulsar.Client, admin: httpx.Client, topic: str
) -> None:
    path = topic.replace("://", "/") + "/stats"

    def active() -> str:
        return str(admin.get(path).raise_for_status().json()["subscriptions"]["s"].get("activeConsumerName", ""))

    consumers = {
        name: client.subscribe(topic, "s", consumer_type=FAILOVER, consumer_name=name) for name in ("first", "second")
    }
    stats = admin.get(path).raise_for_status().json()
    assert stats["subscriptions"]["s"]["type"] == "Failover"
    assert sorted(c["consumerName"] for c in stats["subscriptions"]["s"]["consumers"]) == ["first", "second"]
    name = wait_for(active, "active consumer")
    producer = client.create_producer(topic)
    send_all(producer, NUMBERS)
    assert datas(receive_all(consumers[name], 4)) == NUMBERS[:4]
    consumers.pop(name).close()
    ((other_name, other),) = consumers.items()
    wait_for(lambda: active() == other_name, f"activeConsumerName {other_name}")
    assert datas(receive_all(other, 6)) == NUMBERS[4:]


def test_unsubscribe_forgets_the_position(client: pulsar.Client, admin: httpx.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    path = topic.replace("://", "/") + "/subscriptions"
    assert admin.get(path).json() == ["s"]
    send_all(client.create_producer(topic), NUMBERS)
    consumer.unsubscribe()
    assert admin.get(path).json() == []
    assert is_silent(client.subscribe(topic, "s"))


def test_unsubscribe_is_refused_while_another_consumer_is_connected(client: pulsar.Client, topic: str) -> None:
    one = client.subscribe(topic, "s", consumer_type=SHARED)
    client.subscribe(topic, "s", consumer_type=SHARED)
    with pytest.raises(pulsar.PulsarException):
        one.unsubscribe()


def test_small_receiver_queue_still_gets_everything(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", receiver_queue_size=1)
    payloads = [b"%d" % i for i in range(300)]
    send_all(client.create_producer(topic, batching_enabled=True, batching_max_messages=50), payloads)
    assert datas(receive_all(consumer, 300)) == payloads


def test_receiver_queue_of_zero_fetches_message_by_message(client: pulsar.Client, topic: str) -> None:
    heard: list[bytes] = []

    def listen(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        heard.append(message.data())
        consumer.acknowledge(message)

    # Without a queue the official client refuses receive() with a timeout; a listener fetches the same way.
    client.subscribe(topic, "s", consumer_type=SHARED, receiver_queue_size=0, message_listener=listen)
    send_all(client.create_producer(topic), NUMBERS)
    wait_for(lambda: len(heard) == 10, "ten messages")
    assert heard == NUMBERS


def test_last_message_id_is_that_of_the_last_message(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    assert consumer.get_last_message_id().entry_id() == -1
    ids = send_all(client.create_producer(topic), NUMBERS)
    assert position(consumer.get_last_message_id()) == position(ids[-1])
    batch = send_all(client.create_producer(topic, batching_enabled=True), NUMBERS)
    last = consumer.get_last_message_id()
    assert (*position(last), last.batch_index()) == (*position(batch[-1]), batch[-1].batch_index())


def test_topic_and_its_parties_are_shown_by_the_admin(client: pulsar.Client, admin: httpx.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", consumer_name="ears", properties={"role": "listener"})
    producer = client.create_producer(topic, producer_name="mouth", properties={"role": "speaker"})
    send_all(producer, NUMBERS)
    assert topic in admin.get("persistent/public/default").raise_for_status().json()
    receive_all(consumer, 3)
    stats = admin.get(topic.replace("://", "/") + "/stats").raise_for_status().json()
    assert stats["msgInCounter"] == 10
    assert [(p["producerName"], p["metadata"]) for p in stats["publishers"]] == [("mouth", {"role": "speaker"})]
    (shown,) = stats["subscriptions"]["s"]["consumers"]
    assert (shown["consumerName"], shown["metadata"]) == ("ears", {"role": "listener"})
    assert shown["clientVersion"].startswith("Pulsar-CPP-v")
    assert stats["publishers"][0]["address"].startswith("/127.0.0.1:")
