"""The broker's limits (`maxProducersPerTopic` and others), asked for by the official client."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.effective import resolve
from magnetar.broker.policies.namespaces import Namespaces
from magnetar.broker.topics.limits import check_consumers, check_producers, check_subscriptions, connection_refusal
from magnetar.errors import BrokerError
from magnetar.metadata.store.sqlite import SqliteStore
from magnetar.wire.topic_name import parse_topic_name

from tests.support.servers import Server, running

LIMITS = """\
maxProducersPerTopic=2
maxConsumersPerTopic=3
maxConsumersPerSubscription=2
maxSubscriptionsPerTopic=2
maxTopicsPerNamespace=4
maxTenants=3
maxNamespacesPerTenant=1
brokerMaxConnections=6
subscriptionTypesEnabled=Exclusive,Shared
"""
NAME = parse_topic_name("persistent://public/default/t")
SYSTEM = parse_topic_name("persistent://public/default/__t")
COUNT = st.integers(0, 5)


def refuses(check: Callable[..., None], *arguments: Any) -> bool:
    try:
        check(*arguments)
    except BrokerError:
        return True
    return False


@given(COUNT, COUNT)
def test_as_many_are_let_in_as_the_limit_says(limit: int, present: int) -> None:
    config = BrokerConfig(
        max_producers_per_topic=limit, max_subscriptions_per_topic=limit, max_consumers_per_topic=limit
    )
    policies = resolve(config, {}, {})
    is_full = 0 < limit <= present
    assert refuses(check_producers, policies, NAME, present) is is_full
    assert refuses(check_subscriptions, policies, NAME, present) is is_full
    assert refuses(check_consumers, policies, NAME, lambda: present, 0) is is_full
    assert not refuses(check_producers, policies, SYSTEM, present)


@given(COUNT, COUNT, st.integers(1, 5))
def test_connections_are_counted_with_the_new_one(limit: int, limit_per_ip: int, present: int) -> None:
    config = BrokerConfig(max_connections=limit, max_connections_per_ip=limit_per_ip)
    is_refused = 0 < limit < present or 0 < limit_per_ip < present
    assert (connection_refusal(config, present, present, "/a") is not None) is is_refused


@pytest.mark.parametrize(
    ("policy", "kept"),
    [(None, (600_000, 5 << 20)), ({"retentionTimeInMinutes": -1, "retentionSizeInMB": 1}, (-1, 1 << 20))],
)
async def test_retention_of_a_namespace_without_a_policy_is_the_brokers(
    tmp_path: Path, policy: dict[str, int] | None, kept: tuple[int, int]
) -> None:
    store = SqliteStore.open(tmp_path / "metadata.db")
    namespaces = Namespaces(store, BrokerConfig(retention_minutes=10, retention_mb=5))
    await namespaces.start()
    await namespaces.change_policies("public/default", lambda old: old | {"retention_policies": policy})
    assert namespaces.retention("public/default") == kept
    assert namespaces.retention("public/functions") == (-1, -1)  # whatever the broker's is
    await asyncio.shield(store.close())


@contextmanager
def connected(broker: Server) -> Iterator[pulsar.Client]:
    client = pulsar.Client(str(broker.service_url), operation_timeout_seconds=10)
    try:
        yield client
    finally:
        client.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("broker")
    (directory / "broker.conf").write_text(LIMITS)
    with running("broker", directory, "--config", str(directory / "broker.conf")) as server:
        yield server


@pytest.mark.slow
def test_third_producer_of_a_topic_is_refused_until_one_leaves(broker: Server) -> None:
    with connected(broker) as client:
        first, _ = client.create_producer("a"), client.create_producer("a")
        with pytest.raises(pulsar.ProducerBusy):
            client.create_producer("a")
        first.close()
        client.create_producer("a").send(b"x")


@pytest.mark.slow
def test_consumers_and_subscriptions_of_a_topic_are_limited(broker: Server) -> None:
    with connected(broker) as client:
        shared = pulsar.ConsumerType.Shared
        held = [client.subscribe("a", "s", shared) for _ in range(2)]
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe("a", "s", shared)  # of the subscription
        held.append(client.subscribe("a", "other", shared))
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe("a", "other", shared)  # of the topic
        held.pop().close()
        with pytest.raises(pulsar.NotAllowedError):
            client.subscribe("a", "third")
        with pytest.raises(pulsar.NotAllowedError):
            client.create_reader("a", pulsar.MessageId.earliest)
        with pytest.raises(pulsar.NotAllowedError):
            client.subscribe("a", "s", pulsar.ConsumerType.Failover)


@pytest.mark.slow
def test_topics_namespaces_and_tenants_are_limited(broker: Server) -> None:
    with httpx.Client(base_url=f"{broker.web_url}/admin/v2/", timeout=60) as admin:
        assert admin.put("tenants/t", json={"allowedClusters": ["standalone"]}).status_code == 204
        answer = admin.put("tenants/u", json={"allowedClusters": ["standalone"]})
        assert (answer.status_code, answer.json()["reason"]) == (412, "Exceed the maximum number of tenants")
        assert admin.put("namespaces/t/n").status_code == 204
        answer = admin.put("namespaces/t/m")
        assert answer.status_code == 412
        assert answer.json()["reason"] == "Exceed the maximum number of namespace in tenant :t"
        assert admin.put("persistent/t/n/p/partitions", json=3).status_code == 204
        assert admin.put("persistent/t/n/q/partitions", json=2).status_code == 412
        assert admin.put("persistent/t/n/a").status_code == 204
        answer = admin.put("persistent/t/n/b")
        assert (answer.status_code, answer.json()["reason"]) == (412, "Exceed maximum number of topics in namespace.")
        with connected(broker) as client:
            with pytest.raises(pulsar.PulsarException):
                client.create_producer("persistent://t/n/b")
            client.create_producer("persistent://t/n/p").send(b"x")
        assert admin.delete("persistent/t/n/a").status_code == 204
        assert admin.put("persistent/t/n/b").status_code == 204


@pytest.mark.slow
def test_connections_beyond_the_limit_are_refused_with_the_reason(broker: Server) -> None:
    host, port = str(broker.service_url).removeprefix("pulsar://").split(":")
    held = [socket.create_connection((host, int(port)), timeout=10) for _ in range(7)]
    assert b"Reached the maximum number of connections" in held[-1].recv(1000)
    assert held[-1].recv(1000) == b""
    for one in held:
        one.close()
    with connected(broker) as client:  # those are gone, and so there is room
        client.create_producer("a").send(b"x")
