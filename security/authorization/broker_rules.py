"""Authorization rules of the broker's REST interface: one row for each route.

A row applies only to the route with exactly that path; the router resolves ambiguous paths.
``{domain}``, ``{tenant}``, ``{namespace}``, ``{topic}`` and ``{subscription}`` in the path identify the resource.

Source: Pulsar 4.0, the resources of org.apache.pulsar.broker.admin and PackagesBase; policy names in denials as
recorded from a real broker, or else taken from these sources.
"""

from __future__ import annotations

from .operations import BrokerOperation as Broker
from .operations import ClusterOperation as Cluster
from .operations import NamespaceOperation as Namespace
from .operations import PolicyOperation as Policy
from .operations import TenantOperation as Tenant
from .operations import TopicOperation as Topic
from .rules import (
    BY_THE_HANDLER,
    EVERY_ROLE,
    EVERYBODY,
    SUPER_USER,
    TENANT_ADMIN,
    RestTable,
    Rule,
    Rules,
    Who,
    on_broker,
    on_cluster,
    on_cluster_policy,
    on_namespace,
    on_policy,
    on_tenant,
    on_topic,
)

_NAMESPACE = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPICS = "/admin/v2/{domain}/{tenant}/{namespace}"
_TOPIC = f"{_TOPICS}/{{topic}}"
_SUBSCRIPTION = f"{_TOPIC}/subscription/{{subscription}}"
_SCHEMAS = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_LOOKUP = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"
_CLUSTER = "/admin/v2/clusters/{cluster}"
_BROKERS = "/admin/v2/brokers"
_BUNDLE = f"{_NAMESPACE}/{{bundle}}"
_PACKAGES = "/admin/v3/packages/{type}/{tenant}/{namespace}"
_PUBLISH = "/topics/{domain}/{tenant}/{namespace}/{topic}"

_CLUSTERS: dict[str, dict[str, Rules]] = {
    "/admin/v2/clusters": {"GET": EVERY_ROLE},
    _CLUSTER: {
        "GET": on_cluster(Cluster.GET_CLUSTER),
        "PUT": on_cluster(Cluster.CREATE_CLUSTER),
        "POST": on_cluster(Cluster.UPDATE_CLUSTER),
        "DELETE": on_cluster(Cluster.DELETE_CLUSTER),
    },
    f"{_CLUSTER}/peers": {
        "GET": on_cluster(Cluster.GET_PEER_CLUSTER),
        "POST": on_cluster(Cluster.UPDATE_PEER_CLUSTER),
    },
    f"{_CLUSTER}/failureDomains": {"GET": on_cluster(Cluster.GET_FAILURE_DOMAIN)},
    f"{_CLUSTER}/failureDomains/{{domain_name}}": {
        "GET": on_cluster(Cluster.GET_FAILURE_DOMAIN),
        "POST": on_cluster(Cluster.UPDATE_FAILURE_DOMAIN),
        "DELETE": on_cluster(Cluster.DELETE_FAILURE_DOMAIN),
    },
    f"{_CLUSTER}/namespaceIsolationPolicies": {"GET": on_cluster_policy(Policy.READ)},
    f"{_CLUSTER}/namespaceIsolationPolicies/brokers": {"GET": on_cluster_policy(Policy.READ)},
    f"{_CLUSTER}/namespaceIsolationPolicies/brokers/{{broker}}": {"GET": on_cluster_policy(Policy.READ)},
    f"{_CLUSTER}/namespaceIsolationPolicies/{{policy}}": {
        "GET": on_cluster_policy(Policy.READ),
        "POST": on_cluster_policy(Policy.WRITE),
        "DELETE": on_cluster_policy(Policy.WRITE),
    },
    f"{_CLUSTER}/migrate": {"GET": on_cluster_policy(Policy.READ), "POST": on_cluster_policy(Policy.WRITE)},
}
_OF_BROKERS: dict[str, dict[str, Rules]] = {
    _BROKERS: {"GET": on_broker(Broker.LIST_BROKERS)},
    f"{_BROKERS}/leaderBroker": {"GET": on_broker(Broker.GET_LEADER_BROKER)},
    f"{_BROKERS}/version": {"GET": EVERY_ROLE},
    f"{_BROKERS}/ready": {"GET": EVERY_ROLE},
    f"{_BROKERS}/health": {"GET": on_broker(Broker.HEALTH_CHECK)},
    f"{_BROKERS}/internal-configuration": {"GET": on_broker(Broker.GET_INTERNAL_CONFIGURATION_DATA)},
    f"{_BROKERS}/configuration": {"GET": on_broker(Broker.LIST_DYNAMIC_CONFIGURATIONS)},
    f"{_BROKERS}/configuration/values": {"GET": on_broker(Broker.LIST_DYNAMIC_CONFIGURATIONS)},
    f"{_BROKERS}/configuration/runtime": {"GET": on_broker(Broker.LIST_RUNTIME_CONFIGURATIONS)},
    f"{_BROKERS}/configuration/{{name}}/{{value}}": {"POST": on_broker(Broker.UPDATE_DYNAMIC_CONFIGURATION)},
    f"{_BROKERS}/configuration/{{name}}": {"DELETE": on_broker(Broker.DELETE_DYNAMIC_CONFIGURATION)},
    f"{_BROKERS}/backlog-quota-check": {"GET": on_broker(Broker.CHECK_BACKLOG_QUOTA)},
    f"{_BROKERS}/shutdown": {"POST": on_broker(Broker.SHUTDOWN)},
    f"{_BROKERS}/{{cluster}}": {"GET": on_broker(Broker.LIST_BROKERS)},
    f"{_BROKERS}/{{cluster}}/{{broker}}/ownedNamespaces": {"GET": on_broker(Broker.LIST_OWNED_NAMESPACES)},
    "/metrics": {"GET": EVERYBODY},
    "/openapi.json": {"GET": EVERY_ROLE},
    "/docs": {"GET": EVERY_ROLE},
    "/redoc": {"GET": EVERY_ROLE},
}
_FOR_SUPER_USERS: dict[str, tuple[str, ...]] = {
    "/admin/v2/bookies/all": ("GET",),
    "/admin/v2/bookies/racks-info": ("GET",),
    "/admin/v2/bookies/racks-info/{bookie}": ("GET", "POST", "DELETE"),
    "/admin/v2/broker-stats/allocator-stats/{allocator}": ("GET",),
    "/admin/v2/broker-stats/bookieops": ("GET",),
    "/admin/v2/broker-stats/broker-resource-availability/{tenant}/{namespace}": ("GET",),
    "/admin/v2/broker-stats/mbeans": ("GET",),
    "/admin/v2/broker-stats/metrics": ("GET",),
    "/admin/v2/broker-stats/topics": ("GET",),
    "/admin/v2/broker-stats/load-report": ("GET",),
    "/admin/v2/resourcegroups": ("GET",),
    "/admin/v2/resourcegroups/{group}": ("GET", "PUT", "DELETE"),
    "/admin/v2/resource-quotas": ("GET", "POST"),
    "/admin/v2/resource-quotas/{tenant}/{namespace}/{bundle}": ("GET", "POST", "DELETE"),
    "/admin/v3/transactions/{what:path}": ("GET", "POST"),
    f"{_NAMESPACE}/unload": ("PUT",),
    f"{_BUNDLE}/unload": ("PUT",),
    f"{_BUNDLE}/split": ("PUT",),
    f"{_NAMESPACE}/persistence/bookieAffinity": ("GET", "POST", "DELETE"),
    f"{_NAMESPACE}/migration": ("POST",),
}
_OF_TENANTS: dict[str, dict[str, Rules]] = {
    "/admin/v2/tenants": {"GET": on_tenant(Tenant.LIST_TENANTS)},
    "/admin/v2/tenants/{tenant}": {
        "GET": on_tenant(Tenant.GET_TENANT),
        "PUT": on_tenant(Tenant.CREATE_TENANT),
        "POST": on_tenant(Tenant.UPDATE_TENANT),
        "DELETE": on_tenant(Tenant.DELETE_TENANT),
    },
    "/admin/v2/namespaces/{tenant}": {"GET": on_tenant(Tenant.LIST_NAMESPACES)},
    "/admin/v2/namespaces/{cluster}/antiAffinity/{group}": {"GET": TENANT_ADMIN},
    "/admin/namespaces/{cluster}/antiAffinity/{group}": {"GET": TENANT_ADMIN},
    "/admin/v2/namespaces/grantPermissionsOnTopics": {"POST": BY_THE_HANDLER},
    "/admin/v2/namespaces/revokePermissionsOnTopics": {"POST": BY_THE_HANDLER},
}
_OF_NAMESPACES: dict[str, dict[str, Rules]] = {
    _NAMESPACE: {
        "GET": on_policy("GET", "ALL"),
        "PUT": on_tenant(Tenant.CREATE_NAMESPACE),
        "DELETE": on_tenant(Tenant.DELETE_NAMESPACE),
    },
    f"{_NAMESPACE}/topics": {"GET": on_namespace(Namespace.GET_TOPICS)},
    f"{_NAMESPACE}/bundles": {"GET": on_namespace(Namespace.GET_BUNDLE)},
    f"{_NAMESPACE}/clearBacklog": {"POST": on_namespace(Namespace.CLEAR_BACKLOG)},
    f"{_NAMESPACE}/clearBacklog/{{subscription}}": {"POST": on_namespace(Namespace.CLEAR_BACKLOG)},
    f"{_NAMESPACE}/unsubscribe/{{subscription}}": {"POST": on_namespace(Namespace.UNSUBSCRIBE)},
    f"{_BUNDLE}/topicHashPositions": {"GET": on_policy("GET", "PERSISTENCE")},
    f"{_BUNDLE}/clearBacklog": {"POST": on_namespace(Namespace.CLEAR_BACKLOG)},
    f"{_BUNDLE}/clearBacklog/{{subscription}}": {"POST": on_namespace(Namespace.CLEAR_BACKLOG)},
    f"{_BUNDLE}/unsubscribe/{{subscription}}": {"POST": on_namespace(Namespace.UNSUBSCRIBE)},
    _BUNDLE: {"DELETE": on_namespace(Namespace.DELETE_BUNDLE)},
    f"{_NAMESPACE}/permissions": {"GET": on_namespace(Namespace.GET_PERMISSION)},
    f"{_NAMESPACE}/permissions/{{role}}": {
        "POST": on_namespace(Namespace.GRANT_PERMISSION),
        "DELETE": on_namespace(Namespace.REVOKE_PERMISSION),
    },
    f"{_NAMESPACE}/permissions/subscription": {"GET": on_namespace(Namespace.GET_PERMISSION)},
    f"{_NAMESPACE}/permissions/subscription/{{subscription}}": {"POST": on_namespace(Namespace.GRANT_PERMISSION)},
    f"{_NAMESPACE}/permissions/{{subscription}}/{{role}}": {"DELETE": on_namespace(Namespace.REVOKE_PERMISSION)},
    f"{_NAMESPACE}/properties": dict.fromkeys(("GET", "PUT", "DELETE"), TENANT_ADMIN),
    f"{_NAMESPACE}/property/{{key}}": dict.fromkeys(("GET", "DELETE"), TENANT_ADMIN),
    f"{_NAMESPACE}/property/{{key}}/{{value}}": {"PUT": TENANT_ADMIN},
    f"{_NAMESPACE}/resourcegroup/{{group}}": {"POST": on_policy("POST", "RESOURCEGROUP")},
}
_NAMESPACE_POLICIES = {
    "allowedClusters": "ALLOWED_CLUSTERS",
    "antiAffinity": "ANTI_AFFINITY",
    "autoSubscriptionCreation": "AUTO_SUBSCRIPTION_CREATION",
    "autoTopicCreation": "AUTO_TOPIC_CREATION",
    "backlogQuota": "BACKLOG",
    "backlogQuotaMap": "BACKLOG",
    "compactionThreshold": "COMPACTION",
    "deduplication": "DEDUPLICATION",
    "deduplicationSnapshotInterval": "DEDUPLICATION_SNAPSHOT",
    "delayedDelivery": "DELAYED_DELIVERY",
    "dispatchRate": "RATE",
    "dispatcherPauseOnAckStatePersistent": "DISPATCHER_PAUSE_ON_ACK_STATE_PERSISTENT",
    "encryptionRequired": "ENCRYPTION",
    "entryFilters": "ENTRY_FILTERS",
    "inactiveTopicPolicies": "INACTIVE_TOPIC",
    "isAllowAutoUpdateSchema": "SCHEMA_COMPATIBILITY_STRATEGY",
    "maxConsumersPerSubscription": "MAX_CONSUMERS",
    "maxConsumersPerTopic": "MAX_CONSUMERS",
    "maxProducersPerTopic": "MAX_PRODUCERS",
    "maxSubscriptionsPerTopic": "MAX_SUBSCRIPTIONS",
    "maxTopicsPerNamespace": "MAX_TOPICS",
    "maxUnackedMessagesPerConsumer": "MAX_UNACKED",
    "maxUnackedMessagesPerSubscription": "MAX_UNACKED",
    "messageTTL": "TTL",
    "offloadDeletionLagMs": "OFFLOAD",
    "offloadPolicies": "OFFLOAD",
    "offloadThreshold": "OFFLOAD",
    "offloadThresholdInSeconds": "OFFLOAD",
    "persistence": "PERSISTENCE",
    "publishRate": "RATE",
    "removeOffloadPolicies": "OFFLOAD",
    "replication": "REPLICATION",
    "replicatorDispatchRate": "REPLICATION_RATE",
    "resourcegroup": "RESOURCEGROUP",
    "retention": "RETENTION",
    "scanOffloadedLedgers": "OFFLOAD",
    "schemaAutoUpdateCompatibilityStrategy": "SCHEMA_COMPATIBILITY_STRATEGY",
    "schemaCompatibilityStrategy": "SCHEMA_COMPATIBILITY_STRATEGY",
    "schemaValidationEnforced": "SCHEMA_COMPATIBILITY_STRATEGY",
    "subscribeRate": "RATE",
    "subscriptionAuthMode": "SUBSCRIPTION_AUTH_MODE",
    "subscriptionDispatchRate": "RATE",
    "subscriptionExpirationTime": "SUBSCRIPTION_EXPIRATION_TIME",
    "subscriptionTypesEnabled": "SUBSCRIPTION_AUTH_MODE",
}
_TOPIC_POLICIES = {
    "autoSubscriptionCreation": "AUTO_SUBSCRIPTION_CREATION",
    "backlogQuota": "BACKLOG",
    "backlogQuotaMap": "BACKLOG",
    "compactionThreshold": "COMPACTION",
    "deduplicationEnabled": "DEDUPLICATION",
    "deduplicationSnapshotInterval": "DEDUPLICATION_SNAPSHOT",
    "delayedDelivery": "DELAYED_DELIVERY",
    "dispatchRate": "RATE",
    "dispatcherPauseOnAckStatePersistent": "DISPATCHER_PAUSE_ON_ACK_STATE_PERSISTENT",
    "entryFilters": "ENTRY_FILTERS",
    "inactiveTopicPolicies": "INACTIVE_TOPIC",
    "maxConsumers": "MAX_CONSUMERS",
    "maxConsumersPerSubscription": "MAX_CONSUMERS",
    "maxMessageSize": "MAX_MESSAGE_SIZE",
    "maxProducers": "MAX_PRODUCERS",
    "maxSubscriptionsPerTopic": "MAX_SUBSCRIPTIONS",
    "maxUnackedMessagesOnConsumer": "MAX_UNACKED",
    "maxUnackedMessagesOnSubscription": "MAX_UNACKED",
    "messageTTL": "TTL",
    "offloadPolicies": "OFFLOAD",
    "persistence": "PERSISTENCE",
    "policies": "ALL",
    "publishRate": "RATE",
    "replication": "REPLICATION",
    "replicatorDispatchRate": "REPLICATION_RATE",
    "retention": "RETENTION",
    "schemaCompatibilityStrategy": "SCHEMA_COMPATIBILITY_STRATEGY",
    "schemaValidationEnforced": "SCHEMA_COMPATIBILITY_STRATEGY",
    "shadowTopics": "SHADOW_TOPIC",
    "subscribeRate": "RATE",
    "subscriptionDispatchRate": "RATE",
    "subscriptionTypesEnabled": "SUBSCRIPTION_AUTH_MODE",
    "{subscription}/dispatchRate": "RATE",
}
_CREATION = Rule(Who.NAMESPACE, Namespace.CREATE_TOPIC)
_OF_TOPICS: dict[str, dict[str, Rules]] = {
    _TOPICS: {"GET": on_namespace(Namespace.GET_TOPICS)},
    f"{_TOPICS}/partitioned": {"GET": on_namespace(Namespace.GET_TOPICS)},
    "/admin/v2/non-persistent/{tenant}/{namespace}/{bundle}": {"GET": on_namespace(Namespace.GET_BUNDLE)},
    _TOPIC: {"PUT": on_namespace(Namespace.CREATE_TOPIC), "DELETE": on_namespace(Namespace.DELETE_TOPIC)},
    f"{_TOPIC}/partitions": {
        "GET": on_topic(Topic.LOOKUP),
        "PUT": (Rule(Who.TOPIC_POLICY, Policy.WRITE, "PARTITION", if_not_persistent=_CREATION),),
        "POST": on_policy("POST", "PARTITION", of_topic=True),
        "DELETE": on_namespace(Namespace.DELETE_TOPIC),
    },
    f"{_TOPIC}/createMissedPartitions": {"POST": on_namespace(Namespace.CREATE_TOPIC)},
    f"{_TOPIC}/partitioned-stats": {"GET": on_topic(Topic.GET_STATS)},
    f"{_TOPIC}/partitioned-internalStats": {"GET": on_topic(Topic.GET_STATS)},
    f"{_TOPIC}/unload": {"PUT": on_topic(Topic.UNLOAD)},
    f"{_TOPIC}/properties": {
        "GET": on_topic(Topic.GET_METADATA),
        "PUT": on_topic(Topic.UPDATE_METADATA),
        "DELETE": on_topic(Topic.DELETE_METADATA),
    },
    f"{_TOPIC}/stats": {"GET": on_topic(Topic.GET_STATS)},
    f"{_TOPIC}/internalStats": {"GET": on_topic(Topic.GET_STATS)},
    f"{_TOPIC}/internal-info": {"GET": on_topic(Topic.GET_STATS)},
    f"{_TOPIC}/lastMessageId": {"GET": on_topic(Topic.PEEK_MESSAGES)},
    f"{_TOPIC}/backlog": {"GET": TENANT_ADMIN},
    f"{_TOPIC}/terminate": {"POST": on_topic(Topic.TERMINATE)},
    f"{_TOPIC}/terminate/partitions": {"POST": on_topic(Topic.TERMINATE)},
    f"{_TOPIC}/trim": {"POST": on_topic(Topic.TRIM_TOPIC)},
    f"{_TOPIC}/truncate": {"DELETE": (*on_topic(Topic.LOOKUP), *TENANT_ADMIN)},
    f"{_TOPIC}/backlogSize": {"PUT": on_topic(Topic.GET_BACKLOG_SIZE)},
    f"{_TOPIC}/compaction": dict.fromkeys(("GET", "PUT"), on_topic(Topic.COMPACT)),
    f"{_TOPIC}/offload": dict.fromkeys(("GET", "PUT"), on_topic(Topic.OFFLOAD)),
    f"{_TOPIC}/permissions": {"GET": TENANT_ADMIN},
    f"{_TOPIC}/permissions/{{role}}": dict.fromkeys(("POST", "DELETE"), TENANT_ADMIN),
    f"{_TOPIC}/examinemessage": {"GET": on_topic(Topic.PEEK_MESSAGES)},
    f"{_TOPIC}/ledger/{{ledger}}/entry/{{entry}}": {"GET": on_topic(Topic.PEEK_MESSAGES)},
    f"{_TOPIC}/messageid/{{timestamp}}": {"GET": on_topic(Topic.PEEK_MESSAGES)},
    f"{_TOPIC}/subscriptions": {"GET": on_topic(Topic.GET_SUBSCRIPTIONS)},
    f"{_TOPIC}/all_subscription/expireMessages/{{seconds}}": {"POST": on_topic(Topic.EXPIRE_MESSAGES)},
    _SUBSCRIPTION: {"PUT": on_topic(Topic.SUBSCRIBE), "DELETE": on_topic(Topic.UNSUBSCRIBE)},
    f"{_SUBSCRIPTION}/skip_all": {"POST": on_topic(Topic.SKIP)},
    f"{_SUBSCRIPTION}/skip/{{count}}": {"POST": on_topic(Topic.SKIP)},
    f"{_SUBSCRIPTION}/expireMessages/{{seconds}}": {"POST": on_topic(Topic.EXPIRE_MESSAGES)},
    f"{_SUBSCRIPTION}/expireMessages": {"POST": on_topic(Topic.EXPIRE_MESSAGES)},
    f"{_SUBSCRIPTION}/resetcursor/{{timestamp}}": {"POST": on_topic(Topic.RESET_CURSOR)},
    f"{_SUBSCRIPTION}/resetcursor": {"POST": on_topic(Topic.RESET_CURSOR)},
    f"{_SUBSCRIPTION}/properties": dict.fromkeys(("GET", "PUT"), on_topic(Topic.CONSUME)),
    f"{_SUBSCRIPTION}/replicatedSubscriptionStatus": {
        "GET": on_topic(Topic.GET_REPLICATED_SUBSCRIPTION_STATUS),
        "POST": on_topic(Topic.SET_REPLICATED_SUBSCRIPTION_STATUS),
    },
    f"{_SUBSCRIPTION}/analyzeBacklog": {"POST": on_topic(Topic.CONSUME)},
    f"{_SUBSCRIPTION}/position/{{place}}": {"GET": on_topic(Topic.PEEK_MESSAGES)},
    _LOOKUP: {"GET": (Rule(Who.TOPIC, Topic.LOOKUP, is_after_existence=True),)},
    f"{_LOOKUP}/bundle": {"GET": on_namespace(Namespace.GET_BUNDLE)},
    _PUBLISH: {"POST": on_topic(Topic.PRODUCE)},
    f"{_PUBLISH}/partitions/{{partition}}": {"POST": on_topic(Topic.PRODUCE)},
}
_OF_SCHEMAS: dict[str, dict[str, Rules]] = {
    f"{_SCHEMAS}/schema": {
        "GET": on_topic(Topic.GET_METADATA),
        "POST": on_topic(Topic.PRODUCE),
        "DELETE": TENANT_ADMIN,
    },
    f"{_SCHEMAS}/schema/": {"GET": on_topic(Topic.GET_METADATA)},
    f"{_SCHEMAS}/schema/{{version}}": {"GET": on_topic(Topic.GET_METADATA)},
    f"{_SCHEMAS}/schemas": {"GET": on_topic(Topic.GET_METADATA)},
    f"{_SCHEMAS}/metadata": {"GET": on_topic(Topic.GET_METADATA)},
    f"{_SCHEMAS}/compatibility": {"POST": TENANT_ADMIN},
    f"{_SCHEMAS}/version": {"POST": on_topic(Topic.GET_METADATA)},
}
_OF_PACKAGES: Rules = (Rule(Who.PACKAGES, Namespace.PACKAGES),)
_METHODS = ("GET", "PUT", "POST", "DELETE")


def package_rules(name: str) -> dict[tuple[str, str], Rules]:
    """Return the rules of packages, whose routes call the third part of a package name ``name``."""
    one = f"{_PACKAGES}/{{{name}}}/{{version}}"
    return {
        ("GET", _PACKAGES): _OF_PACKAGES,
        ("GET", f"{_PACKAGES}/{{{name}}}"): _OF_PACKAGES,
        **{(method, one): _OF_PACKAGES for method in ("GET", "POST", "DELETE")},
        **{(method, f"{one}/metadata"): _OF_PACKAGES for method in ("GET", "PUT")},
    }


BROKER_RULES: RestTable = {
    **{
        (method, path): rules
        for table in (_CLUSTERS, _OF_BROKERS, _OF_TENANTS, _OF_NAMESPACES, _OF_TOPICS, _OF_SCHEMAS)
        for path, by_method in table.items()
        for method, rules in by_method.items()
    },
    **{(method, path): SUPER_USER for path, methods in _FOR_SUPER_USERS.items() for method in methods},
    **{
        (method, f"{_NAMESPACE}/{name}"): on_policy(method, policy)
        for name, policy in _NAMESPACE_POLICIES.items()
        for method in _METHODS
    },
    **{
        (method, f"{_TOPIC}/{name}"): on_policy(method, policy, of_topic=True)
        for name, policy in _TOPIC_POLICIES.items()
        for method in _METHODS
    },
    **package_rules("package"),
}
"""The rules of the broker's routes. Policies have a row for every method, even without such a route."""
