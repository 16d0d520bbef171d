"""Settings that change while the broker runs: at once, for what is there, until they are removed, over a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies import dynamic
from magnetar.broker.policies.namespaces import CONFIGURATION, Namespaces
from magnetar.errors import InvalidConfig
from magnetar.metadata.store.sqlite import SqliteStore

from tests.broker.admin.conftest import RunningBroker
from tests.support.eventually import until

CONFIG = "/admin/v2/brokers/configuration"
TOPIC = "persistent://public/default/t"


@given(st.dictionaries(st.sampled_from(sorted(dynamic.NAMES)), st.text(max_size=5) | st.integers().map(str)))
def test_a_setting_is_taken_or_refused_and_shown_as_it_was_taken(values: dict[str, str]) -> None:
    try:
        config = dynamic.overridden(BrokerConfig(), values)
    except InvalidConfig:
        return
    texts = dynamic.shown(config)
    assert set(texts) == dynamic.NAMES
    assert dynamic.overridden(BrokerConfig(), texts) == config


@pytest.mark.parametrize(
    ("values", "partitions"),
    [
        ({"defaultNumPartitions": "3"}, 0),
        ({"defaultNumPartitions": "3", "allowAutoTopicCreationType": "partitioned"}, 3),
        ({"allowAutoTopicCreationType": "partitioned"}, 1),
    ],
)
def test_a_number_of_partitions_counts_where_topics_have_them(values: dict[str, str], partitions: int) -> None:
    assert dynamic.overridden(BrokerConfig(), values).auto_topic_partitions == partitions
    kept = dynamic.overridden(BrokerConfig(auto_topic_partitions=5), values).auto_topic_partitions
    assert kept == (5 if len(values) == 1 and "defaultNumPartitions" not in values else 3)


async def test_a_change_holds_for_topics_that_are_there_until_it_is_removed(broker: RunningBroker) -> None:
    http = broker.http
    await http.put("/admin/v2/persistent/public/default/t")
    topic = broker.service.topics[TOPIC]
    assert "dispatchThrottlingRatePerTopicInMsg" in (await http.get(CONFIG)).json()
    assert (await http.post(f"{CONFIG}/dispatchThrottlingRatePerTopicInMsg/100")).status_code == 200

    async def is_limited() -> bool:
        return topic.dispatch_limit is not None and topic.dispatch_limit.rate.messages == 100

    await until(is_limited)
    assert (await http.get(f"{CONFIG}/values")).json() == {"dispatchThrottlingRatePerTopicInMsg": "100"}
    assert (await http.get(f"{CONFIG}/runtime")).json()["dispatchThrottlingRatePerTopicInMsg"] == "100"
    assert (await http.delete(f"{CONFIG}/dispatchThrottlingRatePerTopicInMsg")).status_code == 200

    async def is_free() -> bool:
        return topic.dispatch_limit is None

    await until(is_free)
    assert (await http.get(f"{CONFIG}/values")).json() == {}


async def test_limits_of_names_follow(broker: RunningBroker) -> None:
    http = broker.http
    assert (await http.post(f"{CONFIG}/maxNamespacesPerTenant/2")).status_code == 200

    async def is_refused() -> bool:
        answer = await http.put("/admin/v2/namespaces/public/third")
        return answer.status_code == 412

    await until(is_refused)
    assert (await http.post(f"{CONFIG}/allowAutoTopicCreation/false")).status_code == 200
    answer = await http.get("/lookup/v2/topic/persistent/public/default/none")
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("name", "value", "status", "reason"),
    [
        ("dispatchThrottlingRatePerTopicInMsg", "abc", 412, "invalid dispatchThrottlingRatePerTopicInMsg 'abc'"),
        ("maxTopicsPerNamespace", "-1", 412, "max_topics_per_namespace=-1 is out of range"),
        ("brokerDeleteInactiveTopicsMode", "never", 412, "invalid inactive_mode 'never'"),
        ("dispatcherMinReadBatchSize", "2", 501, "changing dispatcherMinReadBatchSize at run time is not"),
        ("clusterName", "other", 412, "Can't update non-dynamic configuration"),
    ],
)
async def test_what_cannot_be_changed_is_refused(
    name: str, value: str, status: int, reason: str, broker: RunningBroker
) -> None:
    answer = await broker.http.post(f"{CONFIG}/{name}/{value}")
    assert (answer.status_code, answer.json()["reason"][: len(reason)]) == (status, reason)
    assert (await broker.http.get(f"{CONFIG}/values")).json() == {}


async def test_a_change_holds_after_a_restart_and_nonsense_of_others_is_ignored(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "metadata.db")
    await store.put(CONFIGURATION, b'{"maxTenants":"7","maxNamespacesPerTenant":"many","clusterName":"x"}')
    namespaces = Namespaces(store, BrokerConfig(max_namespaces_per_tenant=3))
    await namespaces.start()
    assert (namespaces.config.max_tenants, namespaces.config.max_namespaces_per_tenant) == (7, 3)
    await asyncio.shield(store.close())
