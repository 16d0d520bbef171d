"""Policies set over REST, on a namespace and on a topic, hold for clients that are connected already."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from tests.support.servers import Server, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow
SETTINGS = "backlogQuotaCheckIntervalInSeconds=0.2\nmessageExpiryCheckIntervalInMinutes=0.005\n"
QUOTA = {"limitSize": 1024, "policy": "producer_exception"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory: Path = tmp_path_factory.mktemp("broker")
    (directory / "broker.conf").write_text(SETTINGS)
    with running("broker", directory, "--config", str(directory / "broker.conf")) as server:
        yield server


@pytest.fixture
def client(broker: Server) -> Iterator[pulsar.Client]:
    client = pulsar.Client(str(broker.service_url), operation_timeout_seconds=10)
    yield client
    client.close()


@pytest.fixture
def admin(broker: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{broker.web_url}/admin/v2/", timeout=60) as admin:
        yield admin


def namespace(admin: httpx.Client, name: str, **policies: Any) -> str:
    admin.put(f"namespaces/public/{name}", json=policies).raise_for_status()
    return f"persistent://public/{name}/t"


def test_a_publish_rate_of_a_namespace_holds_and_a_topics_own_overrides_it(
    admin: httpx.Client, client: pulsar.Client
) -> None:
    producer = client.create_producer(namespace(admin, "rates"), batching_enabled=False)
    rate = {"publishThrottlingRateInMsg": 5}
    admin.post("namespaces/public/rates/publishRate", json=rate).raise_for_status()
    began = time.monotonic()
    for _ in range(15):
        producer.send(b"x")
    assert time.monotonic() - began > 1.0
    admin.post("persistent/public/rates/t/publishRate", json={"publishThrottlingRateInMsg": 0}).raise_for_status()
    began = time.monotonic()
    for _ in range(50):
        producer.send(b"x")
    assert time.monotonic() - began < 5


def test_a_quota_refuses_producers_as_clients_of_pulsar_expect_it(admin: httpx.Client, client: pulsar.Client) -> None:
    topic = namespace(admin, "quotas")
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    producer.send(b"x" * 1024)
    producer.close()
    admin.post("namespaces/public/quotas/backlogQuota", json=QUOTA).raise_for_status()
    with pytest.raises(pulsar.ProducerBlockedQuotaExceededException):
        client.create_producer(topic)
    evict = QUOTA | {"policy": "consumer_backlog_eviction"}
    admin.post("namespaces/public/quotas/backlogQuota", json=evict).raise_for_status()
    client.create_producer(topic).send(b"y")
    stats = "persistent/public/quotas/t/stats"
    wait_for(lambda: admin.get(stats).json()["subscriptions"]["s"]["msgBacklog"] <= 1, "the oldest to be evicted")
    assert admin.get(stats).json()["backlogQuotaLimitSize"] == 1024
    consumer.close()


def test_limits_given_with_a_new_namespace_hold(admin: httpx.Client, client: pulsar.Client) -> None:
    limits = {"max_producers_per_topic": 1, "max_topics_per_namespace": 1, "subscription_types_enabled": ["Shared"]}
    topic = namespace(admin, "limits", **limits)
    held = client.create_producer(topic)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("persistent://public/limits/other")
    with pytest.raises(pulsar.NotAllowedError):
        client.subscribe(topic, "s")
    admin.delete("namespaces/public/limits/subscriptionTypesEnabled").raise_for_status()
    client.subscribe(topic, "s").close()
    held.close()


def test_retention_and_time_to_live_of_a_topic(admin: httpx.Client, client: pulsar.Client) -> None:
    topic = namespace(admin, "times")
    client.subscribe(topic, "s").close()
    client.create_producer(topic).send(b"x")
    path = "persistent/public/times/t"
    admin.post(f"{path}/messageTTL", params={"messageTTL": 1}).raise_for_status()
    wait_for(
        lambda: admin.get(f"{path}/stats").json()["subscriptions"]["s"]["msgBacklog"] == 0, "the message to expire"
    )
    assert admin.get(f"{path}/messageTTL", params={"applied": True}).json() == 1


def test_a_policy_ends_with_its_topic(admin: httpx.Client, client: pulsar.Client) -> None:
    topic = namespace(admin, "lives")
    path = "persistent/public/lives/t"
    client.create_producer(topic).close()
    admin.post(f"{path}/maxProducers", json=1).raise_for_status()
    admin.post(f"{path}/s/dispatchRate", json={"dispatchThrottlingRateInMsg": 1}).raise_for_status()
    admin.delete(path).raise_for_status()
    held = [client.create_producer(topic) for _ in range(2)]
    assert admin.get(f"{path}/maxProducers").content == b""
    assert admin.get(f"{path}/s/dispatchRate").content == b""
    assert len(held) == 2


def test_policies_hold_after_a_restart(tmp_path: Path) -> None:
    for start in (1, 2):
        with running("broker", tmp_path) as server, httpx.Client(base_url=f"{server.web_url}/admin/v2/") as admin:
            if start == 1:
                admin.put("persistent/public/default/t").raise_for_status()
                admin.post("persistent/public/default/t/maxProducers", json=1).raise_for_status()
                admin.post("brokers/configuration/maxTenants/2").raise_for_status()
            client = pulsar.Client(str(server.service_url))
            held = client.create_producer("t")
            with pytest.raises(pulsar.ProducerBusy):
                client.create_producer("t")
            assert admin.put("tenants/third", json={"allowedClusters": ["standalone"]}).status_code == 412
            held.close()
            client.close()
