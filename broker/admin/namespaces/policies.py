"""The policies of a namespace that this broker obeys, one endpoint each.

Nothing is accepted and then ignored: a namespace is not created with a policy that `refused_policies` names.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from ....web.answers import Refused, as_json, as_text, no_authorization, not_supported, nothing
from ...policies.namespaces import Namespaces
from ...policies.policies import MAX_BUNDLES, Policies, default_policies
from ..bodies import as_bool, as_int, as_object, as_text_list, as_text_map, with_field
from ..call import Call
from ..routing import NAMESPACE, Routes
from ..topics.policies import adjust_deduplication
from .refused_policies import refuse_unsupported

_BOUNDARY = re.compile(r"0x[0-9a-fA-F]{1,8}")


def new_policies(namespaces: Namespaces, tenant: str, wanted: Mapping[str, Any] | None) -> Policies:
    """Return the policies of a namespace to be created, from the body of the request.

    Raises:
        Refused: a field is invalid, or asks for what this broker does not do.
    """
    wanted = {field: value for field, value in (wanted or {}).items() if value is not None}
    bundles = _check_bundles(as_object(wanted.pop("bundles", None), "bundles") or {})
    policies = default_policies(namespaces.cluster_name, bundles)
    if clusters := as_text_list(wanted.pop("replication_clusters", None), "replication_clusters"):
        _check_clusters(namespaces, tenant, clusters)
    if clusters := as_text_list(wanted.pop("allowed_clusters", None), "allowed_clusters"):
        _check_clusters(namespaces, tenant, clusters)
        policies["allowed_clusters"] = clusters
    if limits := wanted.pop("retention_policies", None):
        policies["retention_policies"] = _check_retention(as_object(limits, "retention_policies") or {})
    threshold = as_int(wanted.pop("compaction_threshold", None), "compaction_threshold", bits=64)
    if _check_compaction_threshold(threshold) is not None:
        policies["compaction_threshold"] = threshold
    is_deduplicated = as_bool(wanted.pop("deduplicationEnabled", None), "deduplicationEnabled")
    if is_deduplicated is not None:
        policies["deduplicationEnabled"] = is_deduplicated
    if override := wanted.pop("autoTopicCreationOverride", None):
        policies["autoTopicCreationOverride"] = _check_auto_topic_creation(as_object(override, "auto creation") or {})
    if override := wanted.pop("autoSubscriptionCreationOverride", None):
        policies["autoSubscriptionCreationOverride"] = _check_auto_subscription(as_object(override, "override") or {})
    if properties := as_text_map(wanted.pop("properties", None), "properties"):
        policies["properties"] = properties
    if any((as_object(wanted.pop("auth_policies", None), "auth_policies") or {}).values()):
        raise no_authorization()
    refuse_unsupported(policies, wanted)
    return policies


def _check_bundles(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bundles of a body with their boundaries in order, both ends among them, as Pulsar writes them."""
    count = as_int(wanted.get("numBundles"), "numBundles")
    boundaries = as_text_list(wanted.get("boundaries"), "bundle boundaries")
    if not boundaries:
        return {"numBundles": count}
    if len(boundaries) > MAX_BUNDLES:
        raise Refused(400, f"{len(boundaries)} bundle boundaries are more than {MAX_BUNDLES}")
    for boundary in boundaries:
        if not _BOUNDARY.fullmatch(boundary):
            raise Refused(400, f"the bundle boundary {boundary[:40]!a} is not of the form 0x00000000 to 0xffffffff")
    places = sorted({0, 0xFFFFFFFF, *(int(boundary, 16) for boundary in boundaries)})
    return {"boundaries": [f"0x{place:08x}" for place in places]}


def _check_retention(body: Mapping[str, Any]) -> dict[str, int]:
    minutes = as_int(body.get("retentionTimeInMinutes"), "retentionTimeInMinutes") or 0
    megabytes = as_int(body.get("retentionSizeInMB"), "retentionSizeInMB", bits=64) or 0
    for value, name in ((minutes, "time"), (megabytes, "size")):
        if value < -1:
            raise Refused(400, f"Invalid retention policy: {name} limit must be >= -1")
    if (minutes == 0) != (megabytes == 0):
        raise Refused(
            400,
            "Invalid retention policy: Setting a single time or size limit to 0 is invalid when one of the limits has"
            " a non-zero value. Use the value of -1 instead of 0 to ignore a specific limit. To disable retention both"
            " limits must be set to 0.",
        )
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}


def _check_compaction_threshold(threshold: int | None) -> int | None:
    if threshold is not None and threshold < 0:
        raise Refused(412, "compactionThreshold must be 0 or more")
    return threshold


def _check_auto_topic_creation(body: Mapping[str, Any]) -> dict[str, Any]:
    invalid = "Invalid configuration for autoTopicCreationOverride. the detail is"
    is_allowed = as_bool(body.get("allowAutoTopicCreation"), "allowAutoTopicCreation") or False
    override: dict[str, Any] = {"allowAutoTopicCreation": is_allowed}
    kind = body.get("topicType")
    partitions = as_int(body.get("defaultNumPartitions"), "defaultNumPartitions")
    if not is_allowed and kind is None:
        return override
    if kind not in ("partitioned", "non-partitioned"):
        raise Refused(412, f"{invalid} Unknown topic type [{'null' if kind is None else kind}]")
    override["topicType"] = kind
    if kind == "partitioned":
        if partitions is None:
            raise Refused(412, f"{invalid} [defaultNumPartitions] cannot be null when the type is partitioned.")
        if partitions <= 0:
            raise Refused(412, f"{invalid} [defaultNumPartitions] cannot be less than 1 for partition type.")
        override["defaultNumPartitions"] = partitions
    elif partitions is not None:
        detail = "[defaultNumPartitions] is not allowed to be set when the type is non-partition."
        raise Refused(412, f"{invalid} {detail}")
    return override


def _check_auto_subscription(body: Mapping[str, Any]) -> dict[str, Any]:
    is_allowed = as_bool(body.get("allowAutoSubscriptionCreation"), "allowAutoSubscriptionCreation") or False
    return {"allowAutoSubscriptionCreation": is_allowed}


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
    return nothing()  # only our own cluster is left, and that is what the policy always says


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
            raise not_supported(f"replication to cluster {cluster}", f"name only {namespaces.cluster_name}")


async def _add_properties(call: Call) -> None:
    added = as_text_map(await call.json(), "properties") or {}
    await _change_properties(call, lambda held: held | added)


async def _set_property(call: Call) -> None:
    one = {call.text("key"): call.text("value")}
    await _change_properties(call, lambda held: held | one)


async def _remove_property(call: Call) -> Response:
    key = call.text("key")
    answer = _property(call)
    await _change_properties(call, lambda held: with_field(held, key, None))
    return answer


def _property(call: Call) -> Response:
    value = call.policies["properties"].get(call.text("key"))
    return nothing() if value is None else as_text(value)


async def _change_properties(call: Call, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    namespace = call.require_namespace()
    await call.namespaces.change_policies(namespace, lambda p: p | {"properties": change(p["properties"])})


@dataclass(frozen=True, slots=True)
class _Policy:
    """A policy that is read, set and removed as a whole.

    Attributes:
        method: of HTTP, that sets it.
        name: last part of its path.
        field: name in the namespace's policies.
        read: returns what a body says, None where it says nothing; before the namespace is looked for.
        check: returns the value to store, or refuses it.
        changed: makes loaded topics obey; without it they read the policy each time.
        missing: reason of the refusal to set it where there is no such namespace.
    """

    method: str
    name: str
    field: str
    read: Callable[[Any], Any]
    check: Callable[[Any], Any]
    changed: Callable[[Call, str], Awaitable[None]] | None = None
    missing: str = "Namespace does not exist"

    def get(self, call: Call) -> Response:
        """Answer with the policy."""
        value = call.policies.get(self.field)
        return nothing() if value is None else as_json(value)

    async def set(self, call: Call) -> None:
        """Set the policy."""
        wanted = self.read(await call.json())
        namespace = call.require_namespace(self.missing)
        await self._change(call, namespace, None if wanted is None else self.check(wanted))

    async def remove(self, call: Call) -> None:
        """Remove the policy."""
        await self._change(call, call.require_namespace(), None)

    async def _change(self, call: Call, namespace: str, value: Any) -> None:
        await call.namespaces.change_policies(namespace, lambda policies: with_field(policies, self.field, value))
        if self.changed is not None:
            await self.changed(call, namespace)


def _read_deduplication(body: Any) -> bool:
    is_on = as_bool(body, "deduplication")
    if is_on is None:
        raise Refused(400, "The request entity cannot be empty.")
    return is_on


async def _adjust_deduplication(call: Call, namespace: str) -> None:
    await adjust_deduplication(call, lambda topic: topic.namespace_name == namespace)


_POLICIES = (
    _Policy(
        "POST", "retention", "retention_policies",
        lambda body: as_object(body, "retention"), _check_retention, missing="Namespace policies does not exist",
    ),
    _Policy(
        "PUT", "compactionThreshold", "compaction_threshold",
        lambda body: as_int(body, "compactionThreshold", bits=64), _check_compaction_threshold,
    ),
    _Policy(
        "POST", "deduplication", "deduplicationEnabled", _read_deduplication, bool, changed=_adjust_deduplication,
    ),
    _Policy(
        "POST", "autoTopicCreation", "autoTopicCreationOverride",
        lambda body: as_object(body, "automatic creation of topics"), _check_auto_topic_creation,
    ),
    _Policy(
        "POST", "autoSubscriptionCreation", "autoSubscriptionCreationOverride",
        lambda body: as_object(body, "automatic creation of subscriptions"), _check_auto_subscription,
    ),
)  # fmt: skip


def _routes_of(policy: _Policy) -> Routes:
    path = f"{NAMESPACE}/{policy.name}"
    return (("GET", path, policy.get), (policy.method, path, policy.set), ("DELETE", path, policy.remove))


ROUTES: Routes = (
    *(route for policy in _POLICIES for route in _routes_of(policy)),
    ("GET", f"{NAMESPACE}/replication", lambda call: as_json(call.policies["replication_clusters"])),
    ("POST", f"{NAMESPACE}/replication", _set_replication),
    ("GET", f"{NAMESPACE}/allowedClusters", lambda call: as_json(call.policies["allowed_clusters"])),
    ("POST", f"{NAMESPACE}/allowedClusters", _set_allowed_clusters),
    ("GET", f"{NAMESPACE}/properties", lambda call: as_json(call.policies["properties"])),
    ("PUT", f"{NAMESPACE}/properties", _add_properties),
    ("DELETE", f"{NAMESPACE}/properties", lambda call: _change_properties(call, lambda _: {})),
    ("GET", f"{NAMESPACE}/property/{{key}}", _property),
    ("PUT", f"{NAMESPACE}/property/{{key}}/{{value}}", _set_property),
    ("DELETE", f"{NAMESPACE}/property/{{key}}", _remove_property),
)
