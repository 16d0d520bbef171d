"""The policies of a namespace: Pulsar's JSON object, its defaults, and the types of the values that the broker uses."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

from ..schemas.compatibility import Strategy

Policies = dict[str, Any]
"""The object as Pulsar stores and returns it; unset fields are absent. Treated as immutable once stored."""

DEFAULT_BUNDLES = 4
MAX_BUNDLES = 4096
"""Bundles only label ranges of topics here, so this only bounds the record."""
MAX_PARTITIONS = 10_000
"""Partitions of one topic; each partition is a topic with its own files and cursors."""
_TOP = 0xFFFFFFFF


class Retention(NamedTuple):
    """How long and how much acknowledged data is kept; -1 is unlimited, 0 and 0 keeps nothing."""

    time_ms: int
    size_bytes: int


class AutoCreation(NamedTuple):
    """Whether topics are created on first use, and with how many partitions (0: not partitioned)."""

    is_allowed: bool
    partitions: int


class DelayPolicy(NamedTuple):
    """The delayed-delivery policy of a topic.

    Attributes:
        is_active: whether messages are delayed.
        tick_ms: messages that become due within one tick are delivered together.
        max_delay_ms: messages with a longer delay are refused; 0 is unlimited.
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
"""Values of `schemaAutoUpdateCompatibilityStrategy`, used if `schemaCompatibilityStrategy` is not set."""


class SchemaPolicy(NamedTuple):
    """The schema policy of a topic.

    Attributes:
        strategy: the required compatibility of a new schema; never UNDEFINED.
        allows_updates: whether producers and consumers may add schemas.
        is_enforced: whether producers without a schema are refused on topics with one.
    """

    strategy: Strategy
    allows_updates: bool
    is_enforced: bool


def default_policies(cluster: str, bundles: Mapping[str, Any] | None = None) -> Policies:
    """Return the policies of a namespace that was created without any."""
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
    """Return a BundlesData object: the given boundaries, or an even division by ``numBundles``."""
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
    """Return the bundle (``0xlow_0xhigh``) of a topic; the last one includes its upper boundary."""
    wanted = topic_hash(full_name)
    for low, high in itertools.pairwise(boundaries):
        if wanted < int(high, 16):
            return f"{low}_{high}"
    return f"{boundaries[-2]}_{boundaries[-1]}"
