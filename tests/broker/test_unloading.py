"""Topics that nobody uses leave memory and are whole when somebody comes; policies hold for them all the same."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from tests.support.servers import Server, running
from tests.support.waiting import wait_for

FAST = "brokerUnloadIdleTopicsAfterSeconds=0.4\nstatsUpdateFrequencyInSecs=0.2\n"


@contextmanager
def broker(directory: Path, settings: str = FAST) -> Iterator[tuple[Server, pulsar.Client, httpx.Client]]:
    (directory / "broker.conf").write_text(settings)
    with running("broker", directory, "--config", str(directory / "broker.conf")) as it:
        client = pulsar.Client(it.service_url)
        try:
            with httpx.Client(base_url=f"{it.web_url}/admin/v2/", timeout=60) as admin:
                yield it, client, admin
        finally:
            client.close()


def loaded(admin: httpx.Client) -> set[str]:
    """The local names of the persistent topics that are in memory."""
    answer: dict[str, Any] = admin.get("broker-stats/topics").raise_for_status().json()
    bundles = [bundle for namespace in answer.values() for bundle in namespace.values()]
    return {name.rpartition("/")[2] for bundle in bundles for name in bundle.get("persistent", {})}


def existing(admin: httpx.Client) -> set[str]:
    names: list[str] = admin.get("persistent/public/default").raise_for_status().json()
    return {name.rpartition("/")[2] for name in names}


@pytest.mark.slow
def test_an_idle_topic_is_unloaded_and_whole_when_somebody_comes(tmp_path: Path) -> None:
    with broker(tmp_path) as (_, client, admin):
        client.subscribe("idle", "s").close()
        producer = client.create_producer("idle")
        sent = [producer.send(b"%d" % number) for number in range(10)]
        consumer = client.subscribe("idle", "s")
        for _ in range(3):
            consumer.acknowledge(consumer.receive(10_000))
        consumer.close()
        producer.close()
        produced, consumed, read = client.create_producer("a"), client.subscribe("b", "s"), client.subscribe("c", "s")
        wait_for(lambda: loaded(admin) == {"a", "b", "c"}, "the idle topic to be unloaded, and no other one")
        assert existing(admin) == {"idle", "a", "b", "c"}
        consumer = client.subscribe("idle", "s")
        received = [consumer.receive(10_000) for _ in range(7)]
        assert [(one.data(), str(one.message_id())) for one in received] == [
            (b"%d" % number, str(sent[number])) for number in range(3, 10)
        ]
        produced.send(b"x")
        client.create_producer("b").send(b"y")
        assert consumed.receive(10_000).data() == b"y"
        read.close()


@pytest.mark.slow
def test_a_topic_stays_loaded_as_long_as_time_changes_something_in_it(tmp_path: Path) -> None:
    expiry = "messageExpiryCheckIntervalInMinutes=0.002\n"
    with broker(tmp_path, FAST + expiry) as (_, client, admin):
        for namespace, policy, value in (
            ("expiring", "messageTTL", 2),
            ("kept", "retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}),
        ):
            admin.put(f"namespaces/public/{namespace}").raise_for_status()
            admin.post(f"namespaces/public/{namespace}/{policy}", json=value).raise_for_status()
            topic = f"persistent://public/{namespace}/in-{namespace}"
            client.subscribe(topic, "s").close()
            producer = client.create_producer(topic)
            producer.send(b"x")
            producer.close()
        wait_for(lambda: loaded(admin) == {"in-expiring"}, "the topic without anything to come to be unloaded")
        wait_for(lambda: loaded(admin) == set(), "the other one to be unloaded once its message has expired")
        details = admin.get("persistent/public/expiring/in-expiring/stats").raise_for_status().json()
        assert details["subscriptions"]["s"]["msgBacklog"] == 0
        details = admin.get("persistent/public/kept/in-kept/stats").raise_for_status().json()
        assert details["subscriptions"]["s"]["msgBacklog"] == 1


@pytest.mark.slow
def test_messages_expire_after_a_restart_though_nobody_uses_the_topic(tmp_path: Path) -> None:
    expiry = "messageExpiryCheckIntervalInMinutes=0.05\n"  # 3 s, in which the topic is seen to be loaded
    with broker(tmp_path, FAST + expiry) as (it, client, admin):
        client.subscribe("t", "s").close()
        client.create_producer("t").send(b"x")
        client.subscribe("u", "s").close()
        admin.post("persistent/public/default/t/messageTTL", params={"messageTTL": 2}).raise_for_status()
        it.kill()
        it.restart()
        wait_for(lambda: "t" in loaded(admin), "the topic to be loaded for its policy")
        wait_for(lambda: loaded(admin) == set(), "the message to expire and the topic to be unloaded")
        details = admin.get("persistent/public/default/t/stats").raise_for_status().json()
        assert details["subscriptions"]["s"]["msgBacklog"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_who_comes_while_a_topic_is_unloaded_finds_it_whole(tmp_path: Path, seed: int) -> None:
    """Official clients come and go at about the pace of unloading; each message is received once, in order."""
    rng = random.Random(seed)
    names = ("t", "u", "v")
    with broker(tmp_path, "brokerUnloadIdleTopicsAfterSeconds=0.05\n") as (it, client, admin):
        for name in names:
            client.subscribe(name, "s").close()
        sent = dict.fromkeys(names, 0)
        received = dict.fromkeys(names, 0)
        unloaded = 0
        for _ in range(60):
            name = rng.choice(names)
            time.sleep(rng.uniform(0, 0.15))  # the random moment, not a wait for anything
            unloaded += name not in loaded(admin)
            if rng.random() < 0.5:
                producer = client.create_producer(name)
                for _ in range(rng.randint(1, 5)):
                    producer.send(b"%d" % sent[name])
                    sent[name] += 1
                producer.close()
            elif received[name] < sent[name]:
                consumer = client.subscribe(name, "s")
                for _ in range(rng.randint(1, sent[name] - received[name])):
                    message = consumer.receive(10_000)
                    assert message.data() == b"%d" % received[name]
                    consumer.acknowledge(message)
                    received[name] += 1
                consumer.close()
        assert unloaded > 5, "nothing was unloaded: nothing was tested"
        it.kill()
        it.restart()
        for name in names:
            consumer = client.subscribe(name, "s")
            found = [int(consumer.receive(10_000).data()) for _ in range(sent[name] - received[name])]
            assert found == list(range(received[name], sent[name]))


@pytest.mark.slow
@pytest.mark.parametrize("path", ["namespaces/public/default", "persistent/public/default/idle"])
def test_a_policy_set_after_a_topic_was_unloaded_holds_for_it(tmp_path: Path, path: str) -> None:
    with broker(tmp_path, f"{FAST}brokerDeleteInactiveTopicsFrequencySeconds=0.2\n") as (_, client, admin):
        client.create_producer("idle").close()
        wait_for(lambda: loaded(admin) == set(), "the idle topic to be unloaded")
        policy = {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 1,
            "deleteWhileInactive": True,
        }
        admin.post(f"{path}/inactiveTopicPolicies", json=policy).raise_for_status()
        wait_for(lambda: existing(admin) == set(), "the idle topic to be deleted though nobody used it")
