"""Permissions are kept and shown, on namespaces, topics and subscriptions; a topic takes its own along."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.admin.conftest import RunningBroker

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/t"


async def test_permissions_of_a_namespace_are_kept_until_they_are_revoked(broker: RunningBroker) -> None:
    http = broker.http
    for role, actions in (("a", ["produce"]), ("b", ["consume", "consume", "functions"]), ("a", ["consume"])):
        assert (await http.post(f"{NAMESPACE}/permissions/{role}", json=actions)).status_code == 204
    assert (await http.get(f"{NAMESPACE}/permissions")).json() == {"a": ["consume"], "b": ["consume", "functions"]}
    assert (await http.delete(f"{NAMESPACE}/permissions/a")).status_code == 204
    policies = (await http.get(NAMESPACE)).json()
    assert policies["auth_policies"]["namespace_auth"] == {"b": ["consume", "functions"]}


async def test_a_topic_shows_what_its_namespace_grants_and_what_it_grants(broker: RunningBroker) -> None:
    http = broker.http
    await http.put(TOPIC)
    await http.post(f"{NAMESPACE}/permissions/a", json=["produce"])
    assert (await http.post(f"{TOPIC}/permissions/a", json=["consume"])).status_code == 204
    assert (await http.post(f"{TOPIC}/permissions/b", json=["sinks"])).status_code == 204
    assert (await http.get(f"{TOPIC}/permissions")).json() == {"a": ["produce", "consume"], "b": ["sinks"]}
    assert (await http.delete(f"{TOPIC}/permissions/a")).status_code == 204
    assert (await http.get(f"{TOPIC}/permissions")).json() == {"a": ["produce"], "b": ["sinks"]}


@pytest.mark.parametrize("partitions", [0, 2])
async def test_a_topic_made_anew_has_no_permissions_of_the_one_before(partitions: int, broker: RunningBroker) -> None:
    path = f"{TOPIC}/partitions" if partitions else TOPIC
    create: dict[str, Any] = {"json": partitions} if partitions else {}
    await broker.http.put(path, **create)
    await broker.http.post(f"{TOPIC}/permissions/a", json=["produce"])
    if partitions:
        await broker.http.post(f"{TOPIC}-partition-1/permissions/b", json=["consume"])
        of_partition = await broker.http.get(f"{TOPIC}-partition-1/permissions")
        assert of_partition.json() == {"b": ["consume"]}
    assert (await broker.http.delete(path)).status_code == 204
    await broker.http.put(path, **create)
    assert (await broker.http.get(f"{TOPIC}/permissions")).json() == {}
    assert (await broker.http.get(NAMESPACE)).json()["auth_policies"]["destination_auth"] == {}


async def test_a_partition_made_anew_has_no_permissions_of_the_one_before(broker: RunningBroker) -> None:
    http, partition = broker.http, f"{TOPIC}-partition-1"
    await http.put(f"{TOPIC}/partitions", json=2)
    for path in (TOPIC, partition, f"{TOPIC}-partition-0"):
        await http.post(f"{path}/permissions/a", json=["produce"])
    assert (await http.delete(partition)).status_code == 204
    kept = (await http.get(NAMESPACE)).json()["auth_policies"]["destination_auth"]
    assert list(kept) == [f"persistent://public/default/{name}" for name in ("t", "t-partition-0")]


async def test_a_namespace_made_anew_has_no_permissions_of_the_one_before(broker: RunningBroker) -> None:
    http, namespace = broker.http, "/admin/v2/namespaces/public/n"
    await http.put(namespace)
    await http.post(f"{namespace}/permissions/a", json=["produce"])
    await http.post(f"{namespace}/permissions/subscription/s", json=["a"])
    assert (await http.delete(namespace)).status_code == 204
    await http.put(namespace)
    for what in ("permissions", "permissions/subscription"):
        assert (await http.get(f"{namespace}/{what}")).json() == {}


async def test_the_mode_of_subscriptions_is_kept_and_shown(broker: RunningBroker) -> None:
    http, path = broker.http, f"{NAMESPACE}/subscriptionAuthMode"
    assert (await http.get(path)).json() == "None"
    assert (await http.post(path, json="Prefix")).status_code == 204
    assert (await http.get(path)).json() == "Prefix"
    answer = await http.post(path, json="Suffix")
    assert (answer.status_code, answer.json()["reason"]) == (
        400,
        "invalid subscriptionAuthMode 'Suffix': expected None or Prefix",
    )
    assert (await http.put("/admin/v2/namespaces/public/n", json={"subscription_auth_mode": "Prefix"})).is_success
    assert (await http.get("/admin/v2/namespaces/public/n/subscriptionAuthMode")).json() == "Prefix"


async def test_roles_of_a_subscription_are_those_granted_last_until_they_are_revoked(broker: RunningBroker) -> None:
    http = broker.http
    for roles in (["r3"], ["r1", "r2", "r1"]):
        assert (await http.post(f"{NAMESPACE}/permissions/subscription/s", json=roles)).status_code == 204
    assert (await http.get(f"{NAMESPACE}/permissions/subscription")).json() == {"s": ["r1", "r2"]}
    for role in ("r1", "r2"):
        assert (await http.delete(f"{NAMESPACE}/permissions/s/{role}")).status_code == 204
    assert (await http.get(f"{NAMESPACE}/permissions/subscription")).json() == {}


async def test_permissions_on_many_topics_are_granted_and_revoked_at_once(broker: RunningBroker) -> None:
    http, names = broker.http, [f"persistent://public/default/{name}" for name in ("t", "u")]
    await http.put(TOPIC)
    wanted = [{"topic": name, "role": "r", "actions": ["produce"]} for name in names]
    assert (await http.post("/admin/v2/namespaces/grantPermissionsOnTopics", json=wanted)).status_code == 204
    assert (await http.get(f"{TOPIC}/permissions")).json() == {"r": ["produce"]}
    assert (await http.post("/admin/v2/namespaces/revokePermissionsOnTopics", json=wanted)).status_code == 204
    assert (await http.get(NAMESPACE)).json()["auth_policies"]["destination_auth"] == {}


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ([{"topic": "persistent://public/default/t"}], 400, "each permission requires a topic and a role"),
        ([{"topic": "x://y", "role": "r"}], 412, "Topic name is not valid"),
        ({}, 400, "the request body must be an array"),
        ([{"topic": "persistent://public/none/t", "role": "r"}], 404, "Topic's namespace does not exist"),
    ],
)
async def test_permissions_on_topics_that_make_no_sense_are_refused(
    body: object, status: int, reason: str, broker: RunningBroker
) -> None:
    answer = await broker.http.post("/admin/v2/namespaces/grantPermissionsOnTopics", json=body)
    assert (answer.status_code, answer.json()["reason"][: len(reason)]) == (status, reason)


async def test_a_namespace_is_created_with_its_permissions(broker: RunningBroker) -> None:
    body = {"auth_policies": {"namespace_auth": {"r": ["produce", "consume"]}, "subscription_auth_roles": {"s": ["q"]}}}
    assert (await broker.http.put("/admin/v2/namespaces/public/n", json=body)).status_code == 204
    assert (await broker.http.get("/admin/v2/namespaces/public/n/permissions")).json() == {"r": ["produce", "consume"]}
