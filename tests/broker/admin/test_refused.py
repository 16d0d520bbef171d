"""What this broker does not do is refused by name: nothing is stored and then ignored."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.admin.conftest import RunningBroker

NAMESPACE = "/admin/v2/namespaces/public/default"
TOPIC = "/admin/v2/persistent/public/default/t"
NAMESPACE_POLICIES: dict[str, tuple[str, Any]] = {
    "offloadThreshold": ("PUT", 1000),
    "offloadThresholdInSeconds": ("PUT", 1000),
    "offloadDeletionLagMs": ("PUT", 1000),
    "offloadPolicies": ("POST", {"managedLedgerOffloadDriver": "aws-s3"}),
    "migration": ("POST", True),
}


async def test_each_namespace_policy_is_refused_by_name_and_not_kept(broker: RunningBroker) -> None:
    before = (await broker.http.get(NAMESPACE)).json()
    for name, (verb, value) in NAMESPACE_POLICIES.items():
        answer = await broker.http.request(verb, f"{NAMESPACE}/{name}", json=value)
        reason = f"namespace policy {name} is not supported by this broker: leave it unset"
        assert (answer.status_code, answer.json()) == (501, {"reason": reason})
        assert (await broker.http.get(NAMESPACE)).json() == before


async def test_setting_a_policy_to_what_it_means_anyway_is_fine(broker: RunningBroker) -> None:
    for name, value in (
        ("replicatorDispatchRate", {"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": -1}),
        ("offloadPolicies", {}),
    ):
        assert (await broker.http.post(f"{NAMESPACE}/{name}", json=value)).status_code == 204
    assert (await broker.http.put(f"{NAMESPACE}/offloadThreshold", json=-1)).status_code == 204


@pytest.mark.parametrize(
    ("field", "value", "status", "reason"),
    [
        ("max_producers_per_topic", -3, 412, "maxProducersPerTopic must be 0 or more"),
        ("offload_threshold", 60, 501, "namespace policy offloadThreshold (offload_threshold) is not supported"),
        ("publishMaxMessageRate", {"other": {}}, 501, "publishRate for another cluster is not supported"),
        ("backlog_quota_map", {"nope": {}}, 400, "invalid backlog quota type 'nope'"),
        ("backlog_quota_map", {"message_age": {"limitTime": 5}}, 400, "Set namespace[public/n] backlog quota failed"),
        ("auth_policies", {"namespace_auth": {"r": ["fly"]}}, 400, "invalid action 'fly'"),
        ("retention_policy", {"retentionSizeInMB": 1}, 400, "unknown policies field retention_policy"),
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
    [
        ("offloadPolicies", {"managedLedgerOffloadDriver": "aws-s3"}),
        ("shadowTopics", ["persistent://public/default/other"]),
    ],
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
        ("PUT", f"{NAMESPACE}/0x00000000_0x40000000/split", None, "splitting bundles"),
        ("POST", "/admin/v2/clusters/standalone/failureDomains/d", {}, "cluster failureDomains"),
        (
            "POST",
            "/admin/v2/clusters/standalone/namespaceIsolationPolicies/p",
            {},
            "cluster namespaceIsolationPolicies",
        ),
        ("POST", "/admin/v2/clusters/standalone/migrate", {}, "cluster migrate"),
        ("POST", "/admin/v2/resource-quotas", {}, "changing resource quotas"),
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
    assert "is not supported by this broker: " in reason
    assert "\n" not in reason


async def test_our_own_cluster_is_not_deleted(broker: RunningBroker) -> None:
    answer = await broker.http.delete("/admin/v2/clusters/standalone")
    assert answer.status_code == 412
    assert (await broker.http.get("/admin/v2/clusters")).json() == ["standalone"]


async def test_a_namespace_is_created_with_all_that_another_one_shows(broker: RunningBroker) -> None:
    http, first = broker.http, "/admin/v2/namespaces/public/first"
    await http.put(first)
    rate = {"dispatchThrottlingRateInMsg": 5, "ratePeriodInSecond": 2, "relativeToPublishRate": True}
    sent: dict[str, Any] = {
        "retention": {"retentionTimeInMinutes": 10, "retentionSizeInMB": 20},
        "messageTTL": 60,
        "dispatchRate": rate,
        "subscriptionDispatchRate": rate,
        "publishRate": {"publishThrottlingRateInMsg": 5},
        "subscribeRate": {"subscribeThrottlingRatePerConsumer": 5},
        "backlogQuota": {"limitSize": 1000, "policy": "producer_exception"},
        "maxProducersPerTopic": 0,
        "maxTopicsPerNamespace": 5,
        "subscriptionTypesEnabled": ["Shared"],
        "inactiveTopicPolicies": {"maxInactiveDurationSeconds": 5, "deleteWhileInactive": True},
        "autoTopicCreation": {
            "allowAutoTopicCreation": True,
            "topicType": "partitioned",
            "defaultNumPartitions": 2,
        },
        "deduplicationSnapshotInterval": 5,
        "permissions/r": ["produce"],
    }
    for name, value in sent.items():
        assert (await http.post(f"{first}/{name}", json=value)).status_code == 204, name
    shown = (await http.get(first)).json()
    assert (await http.put("/admin/v2/namespaces/public/second", json=shown)).status_code == 204
    assert (await http.get("/admin/v2/namespaces/public/second")).json() == shown
