"""Namespace policies: Pulsar's JSON object, its defaults, and types for the values that the broker uses."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from ..schemas.compatibility import Strategy

Policies = dict[str, Any]
"""The policies object in Pulsar's stored format, without unset fields. Must not be modified once stored."""

DEFAULT_BUNDLES = 4
MAX_BUNDLES = 4096
"""Maximum number of bundles, which limits the size of the record. Bundles only label topic ranges here."""
MAX_PARTITIONS = 10_000
"""Maximum number of partitions of a topic. Each partition has its own files and cursors."""
_TOP = 0xFFFFFFFF


class Retention(NamedTuple):
    """Retention of acknowledged data by time and size; -1 means unlimited. If both are 0, nothing is retained."""

    time_ms: int
    size_bytes: int


class AutoCreation(NamedTuple):
    """Whether topics are created automatically, and with how many partitions (0 for non-partitioned topics)."""

    is_allowed: bool
    partitions: int


class DelayPolicy(NamedTuple):
    """The delayed delivery policy of a topic.

    Attributes:
        is_active: whether delayed delivery is enabled.
        tick_ms: messages that become due within the same tick are delivered together.
        max_delay_ms: maximum delay; messages with a longer delay are rejected. 0 means unlimited.
    """

    is_active: bool
    tick_ms: float
    max_delay_ms: int


OLD_STRATEGIES = {
    "AutoUpdateDisabled": Strategy.ALWAYS_INCOMPATIBLE,
    "Backward": Strategy.BACKWARD,
    "Forward": Strategy.FORWARD,
    "Full": Strategy.FULL,
    "AlwaysCompatible": Strategy.ALWAYS_COMPATIBLE,
    "BackwardTransitive": Strategy.BACKWARD_TRANSITIVE,
    "ForwardTransitive": Strategy.FORWARD_TRANSITIVE,
    "FullTransitive": Strategy.FULL_TRANSITIVE,
}
"""Values of `schemaAutoUpdateCompatibilityStrategy`, which applies if `schemaCompatibilityStrategy` is unset."""


class SchemaPolicy(NamedTuple):
    """The schema policy of a topic.

    Attributes:
        strategy: the required compatibility of a new schema; never UNDEFINED.
        allows_updates: whether producers and consumers may add schemas.
        is_enforced: whether producers without a schema are rejected on topics that have one.
    """

    strategy: Strategy
    allows_updates: bool
    is_enforced: bool


def default_policies(cluster: str, bundles: Mapping[str, Any] | None = None) -> Policies:
    """Return the default policies of a namespace."""
    return {
        "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
        "replication_clusters": [cluster],
        "allowed_clusters": [],
        "bundles": make_bundles(bundles or {}),
        "backlog_quota_map": {},
        "clusterDispatchRate": {},
        "topicDispatchRate": {},
        "subscriptionDispatchRate": {},
        "replicatorDispatchRate": {},
        "clusterSubscribeRate": {},
        "publishMaxMessageRate": {},
        "latency_stats_sample_rate": {},
        "deleted": False,
        "encryption_required": False,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "offload_threshold_in_seconds": -1,
        "schema_compatibility_strategy": "UNDEFINED",
        "schema_validation_enforced": False,
        "subscription_types_enabled": [],
        "properties": {},
        "migrated": False,
    }


def make_bundles(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return a BundlesData object with the given boundaries, or evenly divided into ``numBundles``."""
    boundaries = wanted.get("boundaries")
    if not boundaries:
        count = min(int(wanted.get("numBundles") or 0), MAX_BUNDLES)
        if count <= 0:
            count = DEFAULT_BUNDLES
        width = (_TOP + 1) // count
        boundaries = [f"0x{index * width:08x}" for index in range(count)] + [f"0x{_TOP:08x}"]
    return {"boundaries": list(boundaries), "numBundles": len(boundaries) - 1}


def topic_hash(full_name: str) -> int:
    """Return the hash that assigns a topic to a bundle."""
    return crc32(full_name.encode())


def bundle_of(boundaries: Sequence[str], full_name: str) -> str:
    """Return a topic's bundle (``0xlow_0xhigh``). The last bundle includes its upper boundary."""
    wanted = topic_hash(full_name)
    for low, high in itertools.pairwise(boundaries):
        if wanted < int(high, 16):
            return f"{low}_{high}"
    return f"{boundaries[-2]}_{boundaries[-1]}"
