"""Properties and the replicated flag of a subscription: accepted, shown, and kept over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulsar
import pytest
from magnetar.client import Client, ConsumerConfig
from magnetar.wire.topic_name import parse_topic_name

from tests.client.clusters import OurBroker

pytestmark = pytest.mark.slow


def stats(broker: OurBroker, topic: str) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        return (await broker.service.topic(parse_topic_name(topic))).stats()

    found: dict[str, Any] = broker.call(ask())["subscriptions"]
    return found


def test_subscription_keeps_properties_and_that_it_is_replicated(tmp_path: Path) -> None:
    topic = "persistent://public/default/flags"
    broker = OurBroker(tmp_path)
    with Client(broker.service_url) as client:
        client.create_producer(topic).send(b"x")
        asked = ConsumerConfig(
            subscription_properties={"a": "b"}, replicate_subscription_state_enabled=True, initial_position="Earliest"
        )
        client.subscribe(topic, "ours", asked)
        client.subscribe(topic, "plain", ConsumerConfig(initial_position="Earliest"))
    official = pulsar.Client(broker.service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    official.subscribe(topic, "theirs", replicate_subscription_state_enabled=True)
    official.close()
    for _ in range(2):
        found = stats(broker, topic)
        assert {name: (each["isReplicated"], each["replicated"]) for name, each in found.items()} == {
            "ours": (True, True),
            "plain": (False, False),
            "theirs": (True, True),
        }
        assert found["ours"]["subscriptionProperties"] == {"a": "b"}
        assert (found["ours"]["msgBacklog"], found["plain"]["msgBacklog"], found["theirs"]["msgBacklog"]) == (1, 1, 0)
        broker.close()
        broker = OurBroker(tmp_path)
    broker.close()


def test_shared_consumer_that_holds_too_much_is_blocked_until_it_acknowledges_half(tmp_path: Path) -> None:
    topic = "persistent://public/default/held"
    broker = OurBroker(tmp_path, max_unacked_per_consumer=10, max_unacked_per_subscription=14)
    official = pulsar.Client(broker.service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    try:
        shared = pulsar.ConsumerType.Shared
        consumers = [official.subscribe(topic, "s", consumer_type=shared, consumer_name=f"c{n}") for n in range(2)]
        producer = official.create_producer(topic, batching_enabled=False)
        for number in range(30):
            producer.send(b"%d" % number)
        held: list[list[Any]] = [[], []]
        for consumer, its in zip(consumers, held, strict=True):
            while True:
                try:
                    its.append(consumer.receive(500))
                except pulsar.Timeout:
                    break
        found = stats(broker, topic)["s"]
        counts = sorted(each["unackedMessages"] for each in found["consumers"])
        assert (found["blockedSubscriptionOnUnackedMsgs"], found["unackedMessages"]) == (True, sum(counts))
        assert counts[1] <= 10
        assert 14 <= sum(counts) <= 20
        assert [each["blockedConsumerOnUnackedMsgs"] for each in found["consumers"]] == [
            each["unackedMessages"] >= 10 for each in found["consumers"]
        ]
        seen = {message.data() for its in held for message in its}
        while len(seen) < 30:
            for consumer, its in zip(consumers, held, strict=True):
                for message in its:
                    consumer.acknowledge(message)
                its.clear()
            for consumer, its in zip(consumers, held, strict=True):
                try:
                    while True:
                        its.append(consumer.receive(200))
                except pulsar.Timeout:
                    seen |= {message.data() for message in its}
        for consumer, its in zip(consumers, held, strict=True):
            for message in its:
                consumer.acknowledge(message)
        assert seen == {b"%d" % number for number in range(30)}
    finally:
        official.close()
        broker.close()
