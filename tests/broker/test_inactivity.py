"""Inactive topics, subscriptions without consumers and old messages go, by the broker's settings, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.policies.policies import Retention
from magnetar.broker.topics.inactivity import Idleness, is_past

from tests.support.servers import Server, running
from tests.support.waiting import wait_for

FAST = "brokerDeleteInactiveTopicsEnabled=true\nbrokerDeleteInactiveTopicsFrequencySeconds=0.2\n"


@given(st.lists(st.tuples(st.integers(0, 1000), st.sampled_from([None, "a", "b"])), min_size=1))
def test_a_thing_is_idle_since_it_was_first_seen_so_without_a_break(looks: list[tuple[int, str | None]]) -> None:
    idleness = Idleness()
    now, began, last = 0, 0, None
    for step, state in looks:
        now += step
        if state is None or state != last:
            began = now
        last = state
        assert idleness.since("t", state, now) == began


def test_what_is_forgotten_begins_anew() -> None:
    idleness = Idleness()
    assert idleness.since("t", 1, 10) == 10
    idleness.keep_only(["u"])
    assert idleness.since("t", 1, 20) == 20


@given(st.integers(0, 10_000), st.integers(0, 10), st.integers(-1, 10_000))
def test_retention_by_time_holds_an_inactive_topic(idle_ms: int, wait_s: int, retention_ms: int) -> None:
    expected = retention_ms >= 0 and idle_ms >= wait_s * 1000 and idle_ms >= retention_ms
    assert is_past(idle_ms, wait_s, Retention(retention_ms, -1)) is expected


@contextmanager
def broker(directory: Path, settings: str) -> Iterator[tuple[Server, pulsar.Client, httpx.Client]]:
    (directory / "broker.conf").write_text(settings)
    with running("broker", directory, "--config", str(directory / "broker.conf")) as it:
        client = pulsar.Client(it.service_url)
        try:
            with httpx.Client(base_url=f"{it.web_url}/admin/v2/", timeout=60) as admin:
                yield it, client, admin
        finally:
            client.close()


def topics(admin: httpx.Client, namespace: str = "public/default") -> set[str]:
    return {str(name).rpartition("/")[2] for name in admin.get(f"persistent/{namespace}").raise_for_status().json()}


def stats(admin: httpx.Client, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = admin.get(f"persistent/public/default/{topic}/stats").raise_for_status().json()
    return found


@pytest.mark.slow
def test_topics_without_subscriptions_and_producers_are_deleted(tmp_path: Path) -> None:
    with broker(tmp_path, FAST) as (_, client, admin):
        admin.put("namespaces/public/kept").raise_for_status()
        forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        admin.post("namespaces/public/kept/retention", json=forever).raise_for_status()
        client.create_producer("persistent://public/kept/t").close()
        client.subscribe("subscribed", "s").close()
        held = client.create_producer("held")
        left = client.create_producer("left")
        left.send(b"x")
        left.close()
        wait_for(lambda: topics(admin) == {"subscribed", "held"}, "the unused topic to be gone")
        held.send(b"x")  # its producer was not disturbed
        held.close()
        wait_for(lambda: topics(admin) == {"subscribed"}, "the other one")
        assert topics(admin, "public/kept") == {"t"}
        client.create_producer("left").send(b"a new life")  # the name is free for a new topic
        assert "left" in topics(admin)


@pytest.mark.slow
def test_topics_whose_subscriptions_are_caught_up_are_deleted_in_that_mode(tmp_path: Path) -> None:
    mode = "brokerDeleteInactiveTopicsMode=delete_when_subscriptions_caught_up\n"
    with broker(tmp_path, FAST + mode) as (_, client, admin):
        for name in ("done", "behind"):
            consumer = client.subscribe(name, "s")
            producer = client.create_producer(name)
            producer.send(b"x")
            if name == "done":
                consumer.acknowledge(consumer.receive(10_000))
            producer.close()
            consumer.close()
        wait_for(lambda: topics(admin) == {"behind"}, "the topic that was read to be gone")
        consumer = client.subscribe("behind", "s")
        assert consumer.receive(10_000).data() == b"x"


@pytest.mark.slow
def test_subscriptions_without_consumers_expire(tmp_path: Path) -> None:
    settings = "subscriptionExpirationTimeMinutes=0.01\nsubscriptionExpiryCheckIntervalInMinutes=0.002\n"
    with broker(tmp_path, settings) as (_, client, admin):
        client.subscribe("t", "left").close()
        held = client.subscribe("t", "held")
        wait_for(lambda: set(stats(admin, "t")["subscriptions"]) == {"held"}, "the subscription to expire")
        client.create_producer("t").send(b"x")
        assert held.receive(10_000).data() == b"x"


@pytest.mark.slow
def test_producers_and_expired_messages_do_not_keep_a_subscription(tmp_path: Path) -> None:
    settings = (
        "subscriptionExpirationTimeMinutes=0.05\nsubscriptionExpiryCheckIntervalInMinutes=0.002\n"
        "ttlDurationDefaultInSeconds=1\nmessageExpiryCheckIntervalInMinutes=0.002\n"
    )
    with broker(tmp_path, settings) as (_, client, admin):
        client.subscribe("t", "left").close()

        def is_gone() -> bool:
            producer = client.create_producer("t")
            producer.send(b"x")
            producer.close()
            return not stats(admin, "t")["subscriptions"]

        wait_for(is_gone, "the subscription to expire while producers come and go")


@pytest.mark.slow
def test_messages_older_than_the_time_to_live_are_acknowledged(tmp_path: Path) -> None:
    settings = "ttlDurationDefaultInSeconds=1\nmessageExpiryCheckIntervalInMinutes=0.002\n"
    with broker(tmp_path, settings) as (_, client, admin):
        client.subscribe("t", "s").close()
        producer = client.create_producer("t")
        producer.send(b"old")
        wait_for(lambda: stats(admin, "t")["subscriptions"]["s"]["msgBacklog"] == 0, "the message to expire")
        consumer = client.subscribe("t", "s")
        producer.send(b"new")
        assert consumer.receive(10_000).data() == b"new"
