"""Supported namespace policies, with one endpoint each.

No policy is silently ignored: creating a namespace with a policy listed in `refused_policies` fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from ....security.authorization.grants import SUBSCRIPTION_AUTH_MODES
from ....web.answers import Refused, as_json, not_supported, nothing
from ...policies.effective import AGE, SIZE
from ...policies.namespaces import Namespaces
from ...policies.policies import MAX_BUNDLES, Policies, default_policies
from ..backlog_quotas import FIELD as QUOTAS
from ..backlog_quotas import refuse_retention_misfit, with_quota
from ..bodies import as_bool, as_int, as_object, as_string, as_text_list, as_text_map
from ..call import Call
from ..permissions import read_auth_policies
from ..policy_bodies import (
    at_least_zero,
    read_auto_subscription,
    read_backlog_quota,
    read_dispatch_rate,
    read_entry_filters,
    read_inactive_topics,
    read_persistence,
    read_publish_rate,
    read_retention,
    read_subscribe_rate,
    read_subscription_types,
)
from ..routing import NAMESPACE, Routes
from ..topics.lookup import refuse_too_many
from ..topics.policies import adjust_deduplication, check_delayed_delivery
from . import encryption_policy, properties, schema_policies
from .placement import NO_GROUP, RESOURCE_GROUP
from .policy import Number, PauseOnAckState, Policy, Rate, ReplicatorRate, Retention
from .refused_policies import refuse_unsupported

AUTO_CREATION = "autoTopicCreationOverride"
_BOUNDARY = re.compile(r"0x[0-9a-fA-F]{1,8}")


def new_policies(namespaces: Namespaces, namespace: str, wanted: Mapping[str, Any] | None) -> Policies:
    """Return the policies of a new namespace, parsed from the request body.

    Raises:
        Refused: a field is invalid or unsupported.
    """
    tenant = namespace.partition("/")[0]
    wanted = {field: value for field, value in (wanted or {}).items() if value is not None}
    bundles = _check_bundles(as_object(wanted.pop("bundles", None), "bundles") or {})
    policies = default_policies(namespaces.cluster_name, bundles)
    if clusters := as_text_list(wanted.pop("replication_clusters", None), "replication_clusters"):
        _check_clusters(namespaces, tenant, clusters)
    if clusters := as_text_list(wanted.pop("allowed_clusters", None), "allowed_clusters"):
        _check_clusters(namespaces, tenant, clusters)
        policies["allowed_clusters"] = clusters
    for rate in _RATES:
        by_cluster = as_object(wanted.pop(rate.field, None), rate.name) or {}
        found = {cluster: rate.read(value) for cluster, value in by_cluster.items()}
        if any(cluster != namespaces.cluster_name for cluster in found):
            raise not_supported(f"{rate.name} for another cluster", f"use only {namespaces.cluster_name}")
        policies |= rate.fields_of(namespaces.cluster_name, found.get(namespaces.cluster_name))
    for policy in _POLICIES:
        value = wanted.pop(policy.field, None)
        if value is not None and (read := policy.read(value)) is not None:
            policies[policy.field] = read
    for kind, quota in (as_object(wanted.pop(QUOTAS, None), "backlog quotas") or {}).items():
        if kind not in (SIZE, AGE):
            raise Refused(400, f"invalid backlog quota type {kind!r}: expected {SIZE} or {AGE}")
        policies = with_quota(policies, kind, read_backlog_quota(quota, namespace), keeps_empty=True)
    refuse_retention_misfit(policies.get("retention_policies"), policies, "namespace")
    _refuse_absurd_creation(namespaces, policies.get(AUTO_CREATION))
    if properties := as_text_map(wanted.pop("properties", None), "properties"):
        policies["properties"] = properties
    if (group := as_string(wanted.pop(RESOURCE_GROUP, None), "resource group")) is not None:
        if namespaces.resource_group(group) is None:
            raise Refused(412, NO_GROUP)
        policies[RESOURCE_GROUP] = group
    policies["auth_policies"] = read_auth_policies(wanted.pop("auth_policies", None))
    schema_policies.take(wanted, policies)
    encryption_policy.take(wanted, policies)
    refuse_unsupported(policies, wanted)
    return policies


def _check_bundles(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bundles in a request body with sorted boundaries, including both ends, in Pulsar's format."""
    count = as_int(wanted.get("numBundles"), "numBundles")
    boundaries = as_text_list(wanted.get("boundaries"), "bundle boundaries")
    if not boundaries:
        return {"numBundles": count}
    if len(boundaries) > MAX_BUNDLES:
        raise Refused(400, f"too many bundle boundaries: {len(boundaries)}, the maximum is {MAX_BUNDLES}")
    for boundary in boundaries:
        if not _BOUNDARY.fullmatch(boundary):
            raise Refused(400, f"invalid bundle boundary {boundary[:40]!a}: expected 0x00000000 to 0xffffffff")
    places = sorted({0, 0xFFFFFFFF, *(int(boundary, 16) for boundary in boundaries)})
    return {"boundaries": [f"0x{place:08x}" for place in places]}


def _read_auto_topic_creation(value: Any) -> dict[str, Any] | None:
    body = as_object(value, "automatic creation of topics")
    if body is None:
        return None
    invalid = "Invalid configuration for autoTopicCreationOverride. the detail is"
    is_allowed = as_bool(body.get("allowAutoTopicCreation"), "allowAutoTopicCreation") or False
    kind = as_string(body.get("topicType"), "topicType")
    partitions = as_int(body.get("defaultNumPartitions"), "defaultNumPartitions")
    override = {"allowAutoTopicCreation": is_allowed, "topicType": kind, "defaultNumPartitions": partitions}
    override = {field: value for field, value in override.items() if value is not None}
    if not is_allowed:
        return override  # as in Pulsar, the rest is checked only if used: the Go client always sends a type
    if (kind or "").lower() not in ("partitioned", "non-partitioned"):
        raise Refused(412, f"{invalid} Unknown topic type [{'null' if kind is None else kind}]")
    if (kind or "").lower() == "partitioned":
        if partitions is None:
            raise Refused(412, f"{invalid} [defaultNumPartitions] cannot be null when the type is partitioned.")
        if partitions <= 0:
            raise Refused(412, f"{invalid} [defaultNumPartitions] cannot be less than 1 for partition type.")
    elif partitions is not None:
        detail = "[defaultNumPartitions] is not allowed to be set when the type is non-partition."
        raise Refused(412, f"{invalid} {detail}")
    return override


def _refuse_absurd_creation(namespaces: Namespaces, override: Mapping[str, Any] | None) -> None:
    """Raise if automatic creation would exceed the maximum number of partitions."""
    refuse_too_many(namespaces, (override or {}).get("defaultNumPartitions", 0))


class _AutoTopicCreation(Policy):
    """The automatic topic creation policy."""

    async def _change(self, call: Call, namespace: str, value: Any) -> None:
        _refuse_absurd_creation(call.namespaces, value)
        await super()._change(call, namespace, value)


async def _set_replication(call: Call) -> Response:
    clusters = as_text_list(await call.json(), "clusters")
    call.require_namespace()
    if not clusters:
        raise Refused(412, "ClusterIds should not be null or empty")
    if "global" in clusters:
        raise Refused(412, "Cannot specify global in the list of replication clusters")
    for cluster in clusters:
        if call.namespaces.cluster(cluster) is None:
            raise Refused(412, f"Invalid replication cluster {cluster}")
    _check_clusters(call.namespaces, call.tenant, clusters)
    return nothing()  # only the local cluster remains, which is always the policy's value


async def _set_allowed_clusters(call: Call) -> Response:
    clusters = as_text_list(await call.json(), "clusters") or []
    namespace = call.require_namespace()
    _check_clusters(call.namespaces, call.tenant, clusters)
    await call.namespaces.change_policies(namespace, lambda policies: policies | {"allowed_clusters": clusters})
    return nothing()


def _check_clusters(namespaces: Namespaces, tenant: str, clusters: list[str]) -> None:
    allowed = (namespaces.tenant(tenant) or {}).get("allowedClusters", [])
    for cluster in clusters:
        if cluster not in allowed:
            raise Refused(403, f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant [{tenant}]")
        if cluster != namespaces.cluster_name:
            raise not_supported(f"replication to cluster {cluster}", f"use only {namespaces.cluster_name}")


_NO_POLICIES = "Namespace policies does not exist"


def _read_deduplication(body: Any) -> bool:
    is_on = as_bool(body, "deduplication")
    if is_on is None:
        raise Refused(400, "The request entity cannot be empty.")
    return is_on


def _read_subscription_auth_mode(body: Any) -> str:
    mode = SUBSCRIPTION_AUTH_MODES[0] if body is None else body
    if mode not in SUBSCRIPTION_AUTH_MODES:
        raise Refused(
            400, f"invalid subscriptionAuthMode {str(mode)[:80]!r}: expected {' or '.join(SUBSCRIPTION_AUTH_MODES)}"
        )
    return str(mode)


async def _adjust_deduplication(call: Call, namespace: str) -> None:
    await adjust_deduplication(call, lambda topic: topic.namespace_name == namespace)


_POLICIES = (
    Retention("POST", "retention", "retention_policies", read_retention, missing=_NO_POLICIES),
    Number(
        "POST", "messageTTL", "message_ttl_in_seconds",
        at_least_zero("messageTTL", "Invalid value for message TTL, message TTL must >= 0"),
    ),
    Number(
        "POST", "subscriptionExpirationTime", "subscription_expiration_time_minutes",
        at_least_zero("subscriptionExpirationTime", "Invalid value for subscription expiration time"),
    ),
    Policy("POST", "delayedDelivery", "delayed_delivery_policies", check_delayed_delivery, missing=_NO_POLICIES),
    Policy("PUT", "compactionThreshold", "compaction_threshold", at_least_zero("compactionThreshold", bits=64)),
    Policy("POST", "deduplication", "deduplicationEnabled", _read_deduplication, _adjust_deduplication),
    Policy(
        "POST", "deduplicationSnapshotInterval", "deduplicationSnapshotIntervalSeconds",
        at_least_zero("interval", "interval must be greater than or equal to 0"),
        missing=_NO_POLICIES, is_removable=False,
    ),
    _AutoTopicCreation("POST", "autoTopicCreation", AUTO_CREATION, _read_auto_topic_creation),
    Policy("POST", "autoSubscriptionCreation", "autoSubscriptionCreationOverride", read_auto_subscription),
    Policy("POST", "persistence", "persistence", read_persistence),
    Policy(
        "POST", "inactiveTopicPolicies", "inactive_topic_policies", read_inactive_topics, missing=_NO_POLICIES
    ),
    Policy("POST", "subscriptionTypesEnabled", "subscription_types_enabled", read_subscription_types, unset=[]),
    Policy(
        "POST", "subscriptionAuthMode", "subscription_auth_mode", _read_subscription_auth_mode,
        unset=SUBSCRIPTION_AUTH_MODES[0], is_removable=False,
    ),
    Policy("POST", "entryFilters", "entryFilters", read_entry_filters),
    PauseOnAckState(
        "POST", "dispatcherPauseOnAckStatePersistent", "dispatcherPauseOnAckStatePersistentEnabled",
        lambda body: as_bool(body, "dispatcherPauseOnAckStatePersistent"),
    ),
    *(
        Number("POST", name, field, at_least_zero(name))
        for name, field in (
            ("maxProducersPerTopic", "max_producers_per_topic"),
            ("maxConsumersPerTopic", "max_consumers_per_topic"),
            ("maxConsumersPerSubscription", "max_consumers_per_subscription"),
            ("maxUnackedMessagesPerConsumer", "max_unacked_messages_per_consumer"),
            ("maxUnackedMessagesPerSubscription", "max_unacked_messages_per_subscription"),
        )
    ),
    Number(
        "POST", "maxSubscriptionsPerTopic", "max_subscriptions_per_topic", at_least_zero("maxSubscriptionsPerTopic"),
        missing=_NO_POLICIES,
    ),
    Number(
        "POST", "maxTopicsPerNamespace", "max_topics_per_namespace", at_least_zero("maxTopicsPerNamespace"),
        missing=_NO_POLICIES, unset=0,
    ),
)  # fmt: skip


_RATES = (
    Rate("POST", "dispatchRate", "topicDispatchRate", read_dispatch_rate),
    Rate("POST", "subscriptionDispatchRate", "subscriptionDispatchRate", read_dispatch_rate),
    # A replicator limit: there are no replicators here, so it is stored without effect.
    ReplicatorRate("POST", "replicatorDispatchRate", "replicatorDispatchRate", read_dispatch_rate),
    Rate("POST", "publishRate", "publishMaxMessageRate", read_publish_rate),
    Rate("POST", "subscribeRate", "clusterSubscribeRate", read_subscribe_rate),
)


def _routes_of(policy: Policy) -> Routes:
    path = f"{NAMESPACE}/{policy.name}"
    return (("GET", path, policy.get), (policy.method, path, policy.set), ("DELETE", path, policy.remove))


ROUTES: Routes = (
    *properties.ROUTES,
    *(route for policy in (*_POLICIES, *_RATES) for route in _routes_of(policy)),
    ("GET", f"{NAMESPACE}/replication", lambda call: as_json(call.policies["replication_clusters"])),
    ("POST", f"{NAMESPACE}/replication", _set_replication),
    ("GET", f"{NAMESPACE}/allowedClusters", lambda call: as_json(call.policies["allowed_clusters"])),
    ("POST", f"{NAMESPACE}/allowedClusters", _set_allowed_clusters),
)
