"""What this broker does not do is refused by name: nothing is stored and then ignored."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.admin.conftest import RunningBroker

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/t"
NAMESPACE_POLICIES: dict[str, tuple[str, Any]] = {
    "messageTTL": ("POST", 120),
    "subscriptionExpirationTime": ("POST", 30),
    "deduplicationSnapshotInterval": ("POST", 90),
    "dispatchRate": ("POST", {"dispatchThrottlingRateInMsg": 10}),
    "subscriptionDispatchRate": ("POST", {"dispatchThrottlingRateInMsg": 10}),
    "replicatorDispatchRate": ("POST", {"dispatchThrottlingRateInMsg": 10}),
    "publishRate": ("POST", {"publishThrottlingRateInMsg": 100}),
    "subscribeRate": ("POST", {"subscribeThrottlingRatePerConsumer": 5}),
    "persistence": ("POST", {"bookkeeperEnsemble": 1}),
    "persistence/bookieAffinity": ("POST", {"bookkeeperAffinityGroupPrimary": "g"}),
    "subscriptionAuthMode": ("POST", "Prefix"),
    "encryptionRequired": ("POST", True),
    "delayedDelivery": ("POST", {"active": False}),
    "inactiveTopicPolicies": ("POST", {"maxInactiveDurationSeconds": 100}),
    "maxProducersPerTopic": ("POST", 4),
    "maxConsumersPerTopic": ("POST", 4),
    "maxConsumersPerSubscription": ("POST", 4),
    "maxUnackedMessagesPerConsumer": ("POST", 4),
    "maxUnackedMessagesPerSubscription": ("POST", 4),
    "maxSubscriptionsPerTopic": ("POST", 4),
    "maxTopicsPerNamespace": ("POST", 4),
    "antiAffinity": ("POST", "group"),
    "offloadThreshold": ("PUT", 1000),
    "offloadThresholdInSeconds": ("PUT", 1000),
    "offloadDeletionLagMs": ("PUT", 1000),
    "offloadPolicies": ("POST", {"managedLedgerOffloadDriver": "aws-s3"}),
    "schemaCompatibilityStrategy": ("PUT", "FULL"),
    "schemaAutoUpdateCompatibilityStrategy": ("PUT", "Forward"),
    "isAllowAutoUpdateSchema": ("POST", False),
    "schemaValidationEnforced": ("POST", True),
    "subscriptionTypesEnabled": ("POST", ["Shared"]),
    "entryFilters": ("POST", {"entryFilterNames": "a"}),
    "dispatcherPauseOnAckStatePersistent": ("POST", None),
    "backlogQuota": ("POST", {"limitSize": 1, "policy": "producer_exception"}),
    "resourcegroup": ("POST", None),
}


async def test_each_namespace_policy_is_refused_by_name_and_not_kept(broker: RunningBroker) -> None:
    before = (await broker.http.get(NAMESPACE)).json()
    for name, (verb, value) in NAMESPACE_POLICIES.items():
        path = f"{NAMESPACE}/{name}" + ("/g" if name == "resourcegroup" else "")
        answer = await broker.http.request(verb, path, **({} if value is None else {"json": value}))
        reason = f"namespace policy {name} is not supported by this broker; leave it unset"
        assert (answer.status_code, answer.json()) == (501, {"reason": reason})
        assert (await broker.http.get(NAMESPACE)).json() == before


async def test_setting_a_policy_to_what_it_means_anyway_is_fine(broker: RunningBroker) -> None:
    for name, value in (("encryptionRequired", False), ("subscriptionTypesEnabled", [])):
        assert (await broker.http.post(f"{NAMESPACE}/{name}", json=value)).status_code == 204
    assert (await broker.http.post(f"{NAMESPACE}/messageTTL", json=0)).status_code == 204


async def test_no_limit_is_refused_where_the_broker_has_one(broker: RunningBroker) -> None:
    answer = await broker.http.post(f"{NAMESPACE}/maxUnackedMessagesPerConsumer", json=0)
    assert answer.status_code == 501
    body = {"max_unacked_messages_per_subscription": 0}
    assert (await broker.http.put("/admin/v2/namespaces/public/n", json=body)).status_code == 501


@pytest.mark.parametrize(
    ("field", "value", "status", "reason"),
    [
        ("max_producers_per_topic", 3, 501, "namespace policy maxProducersPerTopic (max_producers_per_topic) is not"),
        ("message_ttl_in_seconds", 60, 501, "namespace policy messageTTL (message_ttl_in_seconds) is not supported"),
        ("schema_compatibility_strategy", "FULL", 501, "namespace policy schemaCompatibilityStrategy"),
        ("backlog_quota_map", {"destination_storage": {}}, 501, "namespace policy backlogQuota (backlog_quota_map)"),
        ("auth_policies", {"namespace_auth": {"r": ["produce"]}}, 501, "Authorization is not enabled"),
        ("retention_policy", {"retentionSizeInMB": 1}, 400, "unknown field retention_policy in the policies"),
        ("replication_clusters", ["nope"], 403, "Cluster [nope] is not in the list of allowed clusters"),
    ],
)
async def test_a_namespace_is_not_created_with_what_would_be_ignored(
    field: str, value: Any, status: int, reason: str, broker: RunningBroker
) -> None:
    answer = await broker.http.put("/admin/v2/namespaces/public/n", json={field: value})
    assert (answer.status_code, answer.json()["reason"][: len(reason)]) == (status, reason)
    assert not broker.namespaces.has_namespace("public/n")


async def test_a_namespace_is_created_from_an_object_full_of_nothing(broker: RunningBroker) -> None:
    body: dict[str, Any] = {
        "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
        "replication_clusters": [],
        "bundles": {"boundaries": None, "numBundles": 0},
        "backlog_quota_map": {},
        "persistence": None,
        "max_topics_per_namespace": None,
        "message_ttl_in_seconds": 0,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "encryption_required": False,
        "schema_compatibility_strategy": "UNDEFINED",
    }
    assert (await broker.http.put("/admin/v2/namespaces/public/n", json=body)).status_code == 204
    assert (await broker.http.get("/admin/v2/namespaces/public/n/bundles")).json()["numBundles"] == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [("retention", {"retentionSizeInMB": 1}), ("maxProducers", 1), ("publishRate", {})],
)
async def test_a_topic_policy_reads_as_unset_and_is_refused_by_name(
    name: str, value: Any, broker: RunningBroker
) -> None:
    assert (await broker.http.get(f"{TOPIC}/{name}")).status_code == 404
    await broker.http.put(TOPIC)
    answer = await broker.http.get(f"{TOPIC}/{name}")
    assert (answer.status_code in (200, 204), answer.content) == (True, b"")
    answer = await broker.http.post(f"{TOPIC}/{name}", json=value)
    assert answer.status_code == 501
    assert answer.json()["reason"].startswith(f"topic policy {name} is not supported by this broker")


@pytest.mark.parametrize(
    ("verb", "path", "body", "feature"),
    [
        ("PUT", f"{TOPIC}/offload", {"ledgerId": 1, "entryId": 1}, "offloading"),
        ("PUT", f"{TOPIC}/subscription/r?replicated=true", None, "a replicated subscription"),
        ("PUT", "/admin/v2/non-persistent/public/default/n", None, "a non-persistent topic"),
        ("PUT", "/admin/v2/non-persistent/public/default/n/partitions", 2, "a non-persistent topic"),
        ("PUT", f"{NAMESPACE}/0x00000000_0x40000000/split", None, "splitting a bundle"),
        ("POST", "/admin/v2/clusters/standalone/failureDomains/d", {}, "failureDomains of a cluster"),
        ("POST", "/admin/v2/clusters/standalone/namespaceIsolationPolicies/p", {}, "namespaceIsolationPolicies"),
        ("POST", "/admin/v2/clusters/standalone/migrate", {}, "migrate of a cluster"),
        ("POST", "/admin/v2/resource-quotas", {}, "a resource quota"),
    ],
)
async def test_a_feature_is_refused_by_name(
    verb: str, path: str, body: Any, feature: str, broker: RunningBroker
) -> None:
    await broker.http.put(TOPIC)
    answer = await broker.http.request(verb, path, **({} if body is None else {"json": body}))
    assert answer.status_code == 501
    reason = answer.json()["reason"]
    assert reason.startswith(feature)
    assert "is not supported by this broker; " in reason
    assert "\n" not in reason


@pytest.mark.parametrize("path", [NAMESPACE, TOPIC])
async def test_a_permission_is_refused_because_nothing_would_check_it(path: str, broker: RunningBroker) -> None:
    await broker.http.put(TOPIC)
    answer = await broker.http.post(f"{path}/permissions/role", json=["produce"])
    assert (answer.status_code, answer.json()["reason"][:28]) == (501, "Authorization is not enabled")
    assert (await broker.http.get(f"{path}/permissions")).json() == {}


async def test_our_own_cluster_is_not_deleted(broker: RunningBroker) -> None:
    answer = await broker.http.delete("/admin/v2/clusters/standalone")
    assert answer.status_code == 412
    assert (await broker.http.get("/admin/v2/clusters")).json() == ["standalone"]
