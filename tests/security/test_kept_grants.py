"""Grants that an earlier version stored count, and what is stored now is where an earlier version keeps it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from magnetar.broker.config import BrokerConfig
from magnetar.broker.policies.authorization import Authorization
from magnetar.broker.policies.namespaces import POLICIES, Namespaces
from magnetar.broker.policies.policies import default_policies
from magnetar.metadata.store.sqlite import SqliteStore
from magnetar.metadata.store.store import ABSENT
from magnetar.security.authorization.operations import TopicOperation
from magnetar.security.authorization.rules import Resource, Rule, Who
from magnetar.security.authorization.settings import AuthorizationSettings
from magnetar.security.roles import Roles
from magnetar.wire.topic_name import parse_topic_name

SETTINGS = AuthorizationSettings(is_enabled=True)
CONSUME = Rule(Who.TOPIC, TopicOperation.CONSUME)
EARLIER: dict[str, Any] = {
    **default_policies("standalone"),
    "auth_policies": {
        "namespace_auth": {"a": ["consume"]},
        "destination_auth": {"persistent://t/n/p": {"b": ["consume"]}},  # what was granted on any of its partitions
        "subscription_auth_roles": {"s": ["a"]},
    },
    "of_a_later_version": [1],
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore.open(tmp_path / "metadata.db")
    tenant = {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
    for path, value in (("t", tenant), ("t/n", EARLIER)):
        await store.put(f"{POLICIES}/{path}", json.dumps(value).encode(), ABSENT)
    yield store
    await store.close()


async def opened(store: SqliteStore) -> Namespaces:
    namespaces = Namespaces(store, BrokerConfig())
    await namespaces.start()
    return namespaces


async def test_grants_of_an_earlier_version_count(store: SqliteStore) -> None:
    authorization = Authorization(SETTINGS, await opened(store))
    for role, local, subscription, is_allowed in (
        ("a", "x", None, True), ("a", "x", "s", True), ("b", "x", None, False), ("b", "p-partition-3", None, True),
        ("b", "p-partition-3", "s", False), ("boss", "x", "s", True), ("c", "x", None, False),
    ):  # fmt: skip
        topic = parse_topic_name(f"persistent://t/n/{local}")
        refusal = authorization.judge(Roles(role), CONSUME, Resource.of_topic(topic, subscription))
        assert (refusal is None) == is_allowed, (role, local, subscription)


async def test_a_change_of_grants_keeps_what_it_does_not_know(store: SqliteStore) -> None:
    namespaces = await opened(store)
    await namespaces.forget_grants(parse_topic_name("persistent://t/n/p"), with_partitions=True)
    record = await store.get(f"{POLICIES}/t/n")
    assert record is not None
    kept = json.loads(record.value)
    assert kept["of_a_later_version"] == [1]
    assert kept["auth_policies"] == EARLIER["auth_policies"] | {"destination_auth": {}}


async def test_another_topic_of_a_similar_name_keeps_its_grants(store: SqliteStore) -> None:
    namespaces = await opened(store)
    names = ["p", "p-partition-1", "p-partition-x", "pp", "p-partition-1-partition-2"]
    of_topics = {f"persistent://t/n/{name}": {"a": ["consume"]} for name in names}

    def grant(policies: dict[str, Any]) -> dict[str, Any]:
        return policies | {"auth_policies": {"destination_auth": of_topics}}

    await namespaces.change_policies("t/n", grant)
    await namespaces.forget_grants(parse_topic_name("persistent://t/n/p"))
    kept = namespaces.policies("t/n")["auth_policies"]["destination_auth"]
    assert list(kept) == [f"persistent://t/n/{name}" for name in names[1:]]
    await namespaces.forget_grants(parse_topic_name("persistent://t/n/p"), with_partitions=True)
    kept = namespaces.policies("t/n")["auth_policies"]["destination_auth"]
    assert list(kept) == [f"persistent://t/n/{name}" for name in names[2:]]


async def test_a_tenant_made_anew_has_no_administrators_of_the_one_before(store: SqliteStore) -> None:
    namespaces = await opened(store)
    authorization = Authorization(SETTINGS, namespaces)
    resource = Resource.of_topic(parse_topic_name("persistent://t/n/x"))
    await namespaces.delete_namespace("t/n")
    await namespaces.delete_tenant("t")
    assert authorization.judge(Roles("boss"), CONSUME, resource) is not None
    await namespaces.create_tenant("t", {"allowedClusters": ["standalone"]})
    await namespaces.create_namespace("t/n", default_policies("standalone"))
    for role in ("boss", "a", "b"):
        assert authorization.judge(Roles(role), CONSUME, resource) is not None
