"""All commands of Pulsar 4.0's ``pulsar-admin``, by group; unsupported ones are rejected by name.

Source: the classes `Cmd…` of Pulsar's own tool.
"""

from __future__ import annotations

GROUPS = (
    "bookies", "broker-stats", "brokers", "clusters", "documents", "functions", "functions-worker", "namespaces",
    "non-persistent", "ns-isolation-policy", "persistent", "properties", "proxy-stats", "resource-quotas",
    "resourcegroups", "schemas", "sink", "sinks", "source", "sources", "tenants", "topicPolicies", "topics",
    "transactions",
)  # fmt: skip


def _policies(*words: str) -> tuple[str, ...]:
    return tuple(f"{verb}-{word}" for word in words for verb in ("get", "set", "remove"))


_BOTH = _policies(
    "auto-subscription-creation", "compaction-threshold", "deduplication", "deduplication-snapshot-interval",
    "delayed-delivery", "dispatch-rate", "dispatcher-pause-on-ack-state-persistent", "inactive-topic-policies",
    "max-consumers-per-subscription", "max-unacked-messages-per-consumer", "max-unacked-messages-per-subscription",
    "message-ttl", "offload-policies", "persistence", "publish-rate", "replicator-dispatch-rate", "retention",
    "subscribe-rate", "subscription-dispatch-rate", "subscription-types-enabled",
)  # fmt: skip
"""Policies of both namespaces and topics."""
_CONNECTOR = (
    "create", "delete", "get", "list", "localrun", "reload", "restart", "start", "status", "stop", "update",
)  # fmt: skip

COMMANDS: dict[str, tuple[str, ...]] = {
    "brokers": (
        "backlog-quota-check", "delete-dynamic-config", "get-all-dynamic-config", "get-internal-config",
        "get-runtime-config", "healthcheck", "leader-broker", "list", "list-dynamic-config", "namespaces", "shutdown",
        "update-dynamic-config", "version",
    ),
    "clusters": (
        "create", "create-failure-domain", "delete", "delete-failure-domain", "get", "get-cluster-migration",
        "get-failure-domain", "get-peer-clusters", "list", "list-failure-domains", "update",
        "update-cluster-migration", "update-failure-domain", "update-peer-clusters",
    ),
    "functions": (
        "available-functions", "create", "delete", "download", "get", "list", "localrun", "putstate", "querystate",
        "reload", "restart", "start", "stats", "status", "stop", "trigger", "update", "upload",
    ),
    "functions-worker": (
        "function-stats", "get-cluster", "get-cluster-leader", "get-function-assignments", "monitoring-metrics",
        "rebalance", "drain", "get-drain-status",
    ),
    "namespaces": (
        *_BOTH,
        *_policies(
            "auto-topic-creation", "entry-filters", "max-consumers-per-topic", "max-producers-per-topic",
            "max-subscriptions-per-topic", "max-topics-per-namespace", "resource-group",
            "subscription-expiration-time",
        ),
        "bundles", "clear-backlog", "clear-offload-deletion-lag", "clear-properties", "create", "delete",
        "delete-anti-affinity-group", "delete-bookie-affinity-group", "destinations", "get-allowed-clusters",
        "get-anti-affinity-group", "get-anti-affinity-namespaces", "get-backlog-quotas", "get-bookie-affinity-group",
        "get-clusters", "get-encryption-required", "get-is-allow-auto-update-schema", "get-offload-deletion-lag",
        "get-offload-threshold", "get-properties", "get-property", "get-schema-autoupdate-strategy",
        "get-schema-compatibility-strategy", "get-schema-validation-enforce", "get-subscription-auth-mode",
        "get-subscription-permission", "grant-permission", "grant-subscription-permission", "list", "list-cluster",
        "permissions", "policies", "remove-backlog-quota", "remove-property", "revoke-permission",
        "revoke-subscription-permission", "set-allowed-clusters", "set-anti-affinity-group", "set-backlog-quota",
        "set-bookie-affinity-group", "set-clusters", "set-encryption-required", "set-is-allow-auto-update-schema",
        "set-offload-deletion-lag", "set-offload-threshold", "set-properties", "set-property",
        "set-schema-autoupdate-strategy", "set-schema-compatibility-strategy", "set-schema-validation-enforce",
        "set-subscription-auth-mode", "split-bundle", "subscription-permission", "topics", "unload", "unsubscribe",
        "update-migration-state",
    ),
    "sinks": (*_CONNECTOR, "available-sinks"),
    "sources": (*_CONNECTOR, "available-sources"),
    "tenants": ("create", "delete", "get", "list", "update"),
    "topicPolicies": (
        *_BOTH,
        *_policies(
            "entry-filters-per-topic", "max-consumers", "max-message-size", "max-producers",
            "max-subscriptions-per-topic", "replication-clusters", "schema-compatibility-strategy",
        ),
        "delete", "get-backlog-quota", "remove-backlog-quota", "set-backlog-quota",
    ),
    "topics": (
        *(name for name in _BOTH if not name.endswith(("auto-subscription-creation", "state-persistent"))),
        *_policies(
            "max-consumers", "max-message-size", "max-producers", "max-subscriptions", "maxProducers",
            "max-unacked-messages-on-consumer", "max-unacked-messages-on-subscription", "replication-clusters",
            "shadow-topics",
        ),
        "analyze-backlog", "bundle-range", "clear-backlog", "compact", "compaction-status", "create",
        "create-missed-partitions", "create-partitioned-topic", "create-shadow-topic", "create-subscription",
        "delete", "delete-partitioned-topic", "disable-deduplication", "enable-deduplication", "examine-messages",
        "expire-messages", "expire-messages-all-subscriptions", "get-backlog-quotas", "get-backlog-size",
        "get-deduplication-enabled", "get-message-by-id", "get-message-id", "get-partitioned-topic-metadata",
        "get-properties", "get-replicated-subscription-status", "get-schema-validation-enforce", "get-shadow-source",
        "get-subscription-properties", "grant-permission", "info-internal", "last-message-id", "list",
        "list-partitioned-topics", "lookup", "offload", "offload-status", "partitioned-lookup", "partitioned-stats",
        "partitioned-stats-internal", "partitioned-terminate", "peek-messages", "permissions", "remove-backlog-quota",
        "remove-properties", "reset-cursor", "revoke-permission", "set-backlog-quota",
        "set-replicated-subscription-status", "set-schema-validation-enforce", "skip", "stats", "stats-internal",
        "subscriptions", "terminate", "trim-topic", "truncate", "unload", "unsubscribe", "update-partitioned-topic",
        "update-properties", "update-subscription-properties",
    ),
}  # fmt: skip
"""Commands by group, except entirely unsupported groups."""
