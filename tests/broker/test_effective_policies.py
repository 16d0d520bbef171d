"""What holds for a topic: its own policies, else its namespace's, else the broker's; shown to the official client."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.effective import AGE, SIZE, resolve
from magnetar.broker.policies.policies import Retention, default_policies

from tests.broker.test_rate_limits import TOPIC, limited
from tests.support.eventually import until

NUMBER = st.none() | st.integers(0, 5)
FIELDS = {
    "max_producers_per_topic": "max_producers",
    "max_consumers_per_topic": "max_consumers",
    "max_consumers_per_subscription": "max_consumers_per_subscription",
    "max_subscriptions_per_topic": "max_subscriptions",
    "max_unacked_messages_per_consumer": "max_unacked_per_consumer",
    "max_unacked_messages_per_subscription": "max_unacked_per_subscription",
    "message_ttl_in_seconds": "message_ttl_s",
    "deduplicationSnapshotIntervalSeconds": "snapshot_age_s",
}


@given(st.sampled_from(sorted(FIELDS)), NUMBER, NUMBER)
def test_the_topic_counts_first_then_its_namespace_then_the_broker(
    field: str, own: int | None, namespace: int | None
) -> None:
    config = BrokerConfig(max_producers_per_topic=7)
    found = getattr(resolve(config, {field: namespace}, {field: own}), FIELDS[field])
    unset = getattr(resolve(config, {}, {}), FIELDS[field])
    assert found == next((value for value in (own, namespace) if value is not None), unset)


@given(st.none() | st.integers(-1, 9), st.none() | st.integers(-1, 9), st.sampled_from([SIZE, AGE]))
def test_quotas_of_one_type_come_from_one_level(own: int | None, namespace: int | None, kind: str) -> None:
    def policies(number: int | None) -> dict[str, Any]:
        quota = {"limitSize": number, "limitTime": number, "policy": "producer_exception"}
        return {} if number is None else {"backlog_quota_map": {kind: quota}}

    found = resolve(BrokerConfig(), policies(namespace), policies(own))
    quota, other = (found.size_quota, found.age_quota) if kind == SIZE else (found.age_quota, found.size_quota)
    number = own if own is not None else namespace
    assert (quota.limit_bytes, quota.limit_s) == ((-1, -1) if number is None else (number, number))
    assert (other.limit_bytes, other.limit_s, other.policy) == (-1, -1, "producer_request_hold")


@given(st.sampled_from(["topicDispatchRate", "subscriptionDispatchRate"]), st.integers(-1, 9), st.integers(-1, 9))
def test_rates_of_a_namespace_are_those_of_its_cluster(field: str, messages: int, bytes_: int) -> None:
    rate = {"dispatchThrottlingRateInMsg": messages, "dispatchThrottlingRateInByte": bytes_, "ratePeriodInSecond": 0}
    found = resolve(BrokerConfig(), {field: {"standalone": rate, "other": {}}}, {})
    attribute = found.dispatch_rate if field == "topicDispatchRate" else found.subscription_rate
    assert (attribute.messages, attribute.bytes, attribute.period_s) == (max(messages, 0), max(bytes_, 0), 1)


def test_an_empty_list_of_subscription_types_is_none_set() -> None:
    config = BrokerConfig(subscription_types=("Shared",))
    assert resolve(config, default_policies("standalone"), {"subscription_types_enabled": []}).subscription_types == (
        "Shared",
    )
    assert resolve(config, {"subscription_types_enabled": ["Exclusive"]}, {}).subscription_types == ("Exclusive",)


def test_retention_of_a_topic_overrides_that_of_its_namespace() -> None:
    namespace = {"retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}}
    own = {"retention_policies": {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2}}
    assert resolve(BrokerConfig(), namespace, own).retention == Retention(60_000, 2 << 20)
    assert resolve(BrokerConfig(), namespace, {}).retention == Retention(-1, -1)


@pytest.mark.slow
async def test_counts_of_producers_consumers_and_subscriptions_are_limited_for_a_topic(tmp_path: Path) -> None:
    policies = {"max_producers_per_topic": 1, "max_consumers_per_topic": 2, "max_subscriptions_per_topic": 1}
    async with limited(tmp_path, policies | {"max_consumers_per_subscription": 1}) as (broker, client):

        def attempt() -> None:
            held = [client.create_producer(str(TOPIC))]
            with pytest.raises(pulsar.ProducerBusy):
                client.create_producer(str(TOPIC))
            held.append(client.subscribe(str(TOPIC), "s", pulsar.ConsumerType.Shared))
            with pytest.raises(pulsar.ConsumerBusy):
                client.subscribe(str(TOPIC), "s", pulsar.ConsumerType.Shared)
            with pytest.raises(pulsar.NotAllowedError):
                client.subscribe(str(TOPIC), "other")
            for one in held:
                one.close()

        await asyncio.to_thread(attempt)
        await broker.namespaces.change_topic_policies(TOPIC, lambda _: {})
        held = [await asyncio.to_thread(client.create_producer, str(TOPIC)) for _ in range(2)]
        assert len(held) == 2


@pytest.mark.slow
async def test_a_topic_has_the_types_of_subscriptions_that_its_policy_names(tmp_path: Path) -> None:
    async with limited(tmp_path, {"subscription_types_enabled": ["Shared"]}) as (_, client):
        with pytest.raises(pulsar.NotAllowedError):
            await asyncio.to_thread(client.subscribe, str(TOPIC), "s")
        await asyncio.to_thread(client.subscribe, str(TOPIC), "s", pulsar.ConsumerType.Shared)


@pytest.mark.slow
async def test_messages_above_the_size_of_a_topic_fail_alone(tmp_path: Path) -> None:
    async with limited(tmp_path, {"maxMessageSize": 500}) as (broker, client):

        def attempt() -> None:
            producer = client.create_producer(str(TOPIC), batching_enabled=False)
            producer.send(b"small")
            with pytest.raises(pulsar.PulsarException):
                producer.send(b"x" * 600)
            producer.send(b"small again")

        await asyncio.to_thread(attempt)
        assert broker.topics[str(TOPIC)].producers.messages_in == 2


@pytest.mark.slow
async def test_a_lower_limit_of_unacknowledged_messages_stops_and_a_higher_one_lets_go_on(tmp_path: Path) -> None:
    async with limited(tmp_path, {"max_unacked_messages_per_consumer": 3}) as (broker, client):
        consumer = await asyncio.to_thread(client.subscribe, str(TOPIC), "s", pulsar.ConsumerType.Shared)

        def publish() -> None:
            producer = client.create_producer(str(TOPIC), batching_enabled=False)
            for _ in range(10):
                producer.send(b"x")

        await asyncio.to_thread(publish)
        found = [await asyncio.to_thread(consumer.receive, 10_000) for _ in range(3)]
        (held,) = broker.topics[str(TOPIC)].subscriptions["s"].consumers
        assert (held.unacked_messages, held.is_blocked) == (3, True)
        await broker.namespaces.change_topic_policies(TOPIC, lambda _: {"max_unacked_messages_per_consumer": 0})
        found += [await asyncio.to_thread(consumer.receive, 10_000) for _ in range(7)]
        assert len({message.message_id().entry_id() for message in found}) == 10


@pytest.mark.slow
async def test_messages_expire_by_the_topics_time_to_live(tmp_path: Path) -> None:
    async with limited(tmp_path, {"message_ttl_in_seconds": 1}, message_expiry_check_s=0.1) as (broker, client):

        def fill() -> None:
            client.subscribe(str(TOPIC), "s").close()
            client.create_producer(str(TOPIC)).send(b"x")

        await asyncio.to_thread(fill)
        subscription = broker.topics[str(TOPIC)].subscriptions["s"]

        async def is_empty() -> bool:
            return not subscription.cursor.backlog_entries

        await until(is_empty)


@pytest.mark.slow
async def test_a_topic_nobody_uses_is_deleted_by_its_own_policy(tmp_path: Path) -> None:
    policy = {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 0,
        "deleteWhileInactive": True,
    }
    async with limited(tmp_path, {"inactive_topic_policies": policy}, inactive_check_s=0.1) as (broker, client):
        other = await asyncio.to_thread(client.create_producer, "persistent://public/default/other")
        await asyncio.to_thread(other.close)

        async def is_gone() -> bool:  # while it is being deleted, it is there no more and its policies still are
            return not broker.has_topic(TOPIC) and broker.namespaces.topic_policies(TOPIC) == {}

        await until(is_gone)
        assert "persistent://public/default/other" in broker.topics


@pytest.mark.slow
async def test_subscriptions_are_not_created_on_use_where_a_topic_forbids_it(tmp_path: Path) -> None:
    policies = {"autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": False}}
    async with limited(tmp_path, policies) as (broker, client):
        hasty = await asyncio.to_thread(pulsar.Client, broker.broker_url, operation_timeout_seconds=2)
        with pytest.raises(pulsar.PulsarException):  # it asks again for as long as an operation may take
            await asyncio.to_thread(hasty.subscribe, str(TOPIC), "s")
        await asyncio.to_thread(hasty.close)
        await (await broker.topic(TOPIC)).create_subscription("s")
        await asyncio.to_thread(client.subscribe, str(TOPIC), "s")
