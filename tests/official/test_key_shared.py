"""Key_Shared by the official client: a key has one consumer and stays in order while consumers come and go."""

from __future__ import annotations

import itertools
import random
import time
from collections import defaultdict

import httpx
import pulsar
import pytest
from pulsar import ConsumerKeySharedPolicy, KeySharedMode

from tests.official.talk import RECEIVE_MS, receive_all

KEYS = [f"key-{number}" for number in range(20)]


def publish(
    client: pulsar.Client,
    topic: str,
    count: int,
    *,
    batching: pulsar.BatchingType | None = pulsar.BatchingType.KeyBased,
) -> None:
    options = {} if batching is None else {"batching_enabled": True, "batching_type": batching}
    producer = client.create_producer(topic, block_if_queue_full=True, **options)
    results: list[pulsar.Result] = []
    for number in range(count):
        key = KEYS[number % len(KEYS)]
        producer.send_async(b"%d" % number, lambda result, _: results.append(result), partition_key=key)
    producer.flush()
    producer.close()
    assert results == [pulsar.Result.Ok] * count


def subscribe(client: pulsar.Client, topic: str, name: str, **options: object) -> pulsar.Consumer:
    return client.subscribe(
        topic,
        "s",
        consumer_type=pulsar.ConsumerType.KeyShared,
        consumer_name=name,
        **options,
    )


@pytest.mark.parametrize("batching", [None, pulsar.BatchingType.KeyBased])
def test_each_key_has_one_consumer_and_is_in_order(
    client: pulsar.Client, topic: str, batching: pulsar.BatchingType | None
) -> None:
    consumers = [subscribe(client, topic, name) for name in "abc"]
    publish(client, topic, 600, batching=batching)
    seen: dict[str, list[int]] = defaultdict(list)
    readers: dict[str, set[int]] = defaultdict(set)
    turns = itertools.cycle(enumerate(consumers))
    deadline = time.monotonic() + 60
    while sum(map(len, seen.values())) < 600:
        assert time.monotonic() < deadline, f"only {sum(map(len, seen.values()))} of 600 came"
        index, consumer = next(turns)
        try:
            message = consumer.receive(5)
        except pulsar.Timeout:
            continue
        seen[message.partition_key()].append(int(message.data()))
        readers[message.partition_key()].add(index)
        consumer.acknowledge(message)
    assert {len(of_key) for of_key in readers.values()} == {1}
    assert seen == {key: list(range(number, 600, len(KEYS))) for number, key in enumerate(KEYS)}


def test_a_key_moves_when_its_consumer_has_acknowledged_all_of_it(
    client: pulsar.Client, topic: str, admin: httpx.Client
) -> None:
    elder = subscribe(client, topic, "a")
    publish(client, topic, 40)
    held = receive_all(elder, 40, ack=False)
    younger = subscribe(client, topic, "b")
    publish(client, topic, 200)
    with pytest.raises(pulsar.Timeout):
        younger.receive(500)
    path = f"/{topic.replace('://', '/')}/stats"
    subscription = admin.get(path).json()["subscriptions"]["s"]
    assert subscription["keySharedMode"] == "AUTO_SPLIT"
    assert subscription["drainingHashesCount"] > 0
    ranges = {each["consumerName"]: each["keyHashRangeArrays"] for each in subscription["consumers"]}
    assert sum(last - first + 1 for of_one in ranges.values() for first, last in of_one) == 65535
    for message in held:
        elder.acknowledge(message)
    moved = younger.receive(RECEIVE_MS)
    assert int(moved.data()) < len(KEYS), "the first of its key since the key moved"
    drained = admin.get(path).json()["subscriptions"]["s"]
    assert (drained["drainingHashesCount"], drained["drainingHashesClearedTotal"] > 0) == (0, True)


def test_order_of_each_key_holds_while_consumers_come_and_go(client: pulsar.Client, topic: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    choices = random.Random(seed)
    total = 2000
    consumers = {"c0": subscribe(client, topic, "c0", receiver_queue_size=50)}
    publish(client, topic, total)
    seen: dict[str, list[int]] = defaultdict(list)
    names = itertools.count(1)
    deadline = time.monotonic() + 90
    acknowledged: set[int] = set()
    while len(acknowledged) < total:
        assert time.monotonic() < deadline, f"only {len(acknowledged)} of {total} came"
        step = choices.random()
        if step < 0.004 and len(consumers) < 5:
            name = f"c{next(names)}"
            consumers[name] = subscribe(client, topic, name, receiver_queue_size=50)
        elif step < 0.008 and len(consumers) > 1:
            consumers.pop(choices.choice(sorted(consumers))).close()
        consumer = consumers[choices.choice(sorted(consumers))]
        try:
            message = consumer.receive(20)
        except pulsar.Timeout:
            continue
        number = int(message.data())
        seen[message.partition_key()].append(number)
        consumer.acknowledge(message)
        acknowledged.add(number)
    for numbers in seen.values():
        # An acknowledgement may be under way while its consumer closes: then the message comes again, and in order.
        first_times = list(dict.fromkeys(numbers))
        assert first_times == sorted(first_times)


def test_sticky_ranges_and_a_third_consumer_that_wants_some_of_them(client: pulsar.Client, topic: str) -> None:
    def policy(*ranges: tuple[int, int]) -> ConsumerKeySharedPolicy:
        return ConsumerKeySharedPolicy(key_shared_mode=KeySharedMode.Sticky, sticky_ranges=list(ranges))

    low = subscribe(client, topic, "low", key_shared_policy=policy((0, 32767)))
    high = subscribe(client, topic, "high", key_shared_policy=policy((32768, 65535)))
    with pytest.raises(pulsar.ConsumerAssignError):
        subscribe(client, topic, "both", key_shared_policy=policy((30000, 40000)))
    with pytest.raises(pulsar.ConsumerBusy):
        subscribe(client, topic, "other")
    publish(client, topic, 6, batching=None)
    high.close()
    freed = subscribe(client, topic, "freed", key_shared_policy=policy((32768, 65535)))
    found = [message.partition_key() for consumer in (low, freed) for message in _all_of(consumer)]
    assert sorted(found) == KEYS[:6]


def _all_of(consumer: pulsar.Consumer) -> list[pulsar.Message]:
    messages = []
    while True:
        try:
            messages.append(consumer.receive(1000))
        except pulsar.Timeout:
            return messages


def test_out_of_order_is_a_way_of_its_own(client: pulsar.Client, topic: str) -> None:
    loose = ConsumerKeySharedPolicy(allow_out_of_order_delivery=True)
    elder = subscribe(client, topic, "a", key_shared_policy=loose)
    publish(client, topic, 40)
    receive_all(elder, 40, ack=False)
    with pytest.raises(pulsar.ConsumerBusy):
        subscribe(client, topic, "strict")
    younger = subscribe(client, topic, "b", key_shared_policy=loose)
    publish(client, topic, 200)
    younger.receive(RECEIVE_MS)  # though the other one has some of the key


def test_redelivered_messages_stay_with_their_key(client: pulsar.Client, topic: str) -> None:
    consumers = [subscribe(client, topic, name, negative_ack_redelivery_delay_ms=100) for name in "ab"]
    publish(client, topic, 40)
    refused: dict[str, str] = {}
    again: dict[str, str] = {}
    deadline = time.monotonic() + 60
    while len(again) < 40:
        assert time.monotonic() < deadline, f"{len(again)} of 40 came again"
        for name, consumer in zip("ab", consumers, strict=True):
            try:
                message = consumer.receive(5)
            except pulsar.Timeout:
                continue
            body = message.data().decode()
            if body in refused:
                again[body] = name
                assert message.redelivery_count() == 1
                consumer.acknowledge(message)
            else:
                refused[body] = name
                consumer.negative_acknowledge(message)
    assert again == refused
