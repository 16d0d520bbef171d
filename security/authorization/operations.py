"""Grantable actions, and the operations that require them, with Pulsar's names.

Source: Pulsar 4.0, AuthAction and the enums of org.apache.pulsar.common.policies.data; PulsarAuthorizationProvider.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Action(Enum):
    """An action that can be granted to a role."""

    PRODUCE = "produce"
    CONSUME = "consume"
    FUNCTIONS = "functions"
    SOURCES = "sources"
    SINKS = "sinks"
    PACKAGES = "packages"


ACTIONS = tuple(action.value for action in Action)
"""Names of all actions, as used in grants."""


class TenantOperation(Enum):
    """Operations on tenants and their namespaces."""

    LIST_TENANTS = "LIST_TENANTS"
    CREATE_TENANT = "CREATE_TENANT"
    GET_TENANT = "GET_TENANT"
    UPDATE_TENANT = "UPDATE_TENANT"
    DELETE_TENANT = "DELETE_TENANT"
    LIST_NAMESPACES = "LIST_NAMESPACES"
    CREATE_NAMESPACE = "CREATE_NAMESPACE"
    DELETE_NAMESPACE = "DELETE_NAMESPACE"


class ClusterOperation(Enum):
    """Operations on clusters."""

    GET_CLUSTER = "GET_CLUSTER"
    CREATE_CLUSTER = "CREATE_CLUSTER"
    UPDATE_CLUSTER = "UPDATE_CLUSTER"
    DELETE_CLUSTER = "DELETE_CLUSTER"
    GET_PEER_CLUSTER = "GET_PEER_CLUSTER"
    UPDATE_PEER_CLUSTER = "UPDATE_PEER_CLUSTER"
    GET_FAILURE_DOMAIN = "GET_FAILURE_DOMAIN"
    UPDATE_FAILURE_DOMAIN = "UPDATE_FAILURE_DOMAIN"
    DELETE_FAILURE_DOMAIN = "DELETE_FAILURE_DOMAIN"


class BrokerOperation(Enum):
    """Operations on brokers."""

    LIST_BROKERS = "LIST_BROKERS"
    GET_LEADER_BROKER = "GET_LEADER_BROKER"
    LIST_OWNED_NAMESPACES = "LIST_OWNED_NAMESPACES"
    LIST_DYNAMIC_CONFIGURATIONS = "LIST_DYNAMIC_CONFIGURATIONS"
    UPDATE_DYNAMIC_CONFIGURATION = "UPDATE_DYNAMIC_CONFIGURATION"
    DELETE_DYNAMIC_CONFIGURATION = "DELETE_DYNAMIC_CONFIGURATION"
    LIST_RUNTIME_CONFIGURATIONS = "LIST_RUNTIME_CONFIGURATIONS"
    GET_INTERNAL_CONFIGURATION_DATA = "GET_INTERNAL_CONFIGURATION_DATA"
    CHECK_BACKLOG_QUOTA = "CHECK_BACKLOG_QUOTA"
    HEALTH_CHECK = "HEALTH_CHECK"
    SHUTDOWN = "SHUTDOWN"


class PolicyOperation(Enum):
    """Operations on a policy."""

    READ = "READ"
    WRITE = "WRITE"


class NamespaceOperation(Enum):
    """Operations on namespaces."""

    CREATE_TOPIC = "CREATE_TOPIC"
    GET_TOPIC = "GET_TOPIC"
    GET_TOPICS = "GET_TOPICS"
    DELETE_TOPIC = "DELETE_TOPIC"
    GET_BUNDLE = "GET_BUNDLE"
    DELETE_BUNDLE = "DELETE_BUNDLE"
    CLEAR_BACKLOG = "CLEAR_BACKLOG"
    UNSUBSCRIBE = "UNSUBSCRIBE"
    GRANT_PERMISSION = "GRANT_PERMISSION"
    GET_PERMISSION = "GET_PERMISSION"
    REVOKE_PERMISSION = "REVOKE_PERMISSION"
    PACKAGES = "PACKAGES"
    FUNCTIONS = "FUNCTIONS"
    SOURCES = "SOURCES"
    SINKS = "SINKS"


class TopicOperation(Enum):
    """Operations on topics."""

    LOOKUP = "LOOKUP"
    PRODUCE = "PRODUCE"
    CONSUME = "CONSUME"
    COMPACT = "COMPACT"
    EXPIRE_MESSAGES = "EXPIRE_MESSAGES"
    OFFLOAD = "OFFLOAD"
    PEEK_MESSAGES = "PEEK_MESSAGES"
    RESET_CURSOR = "RESET_CURSOR"
    SKIP = "SKIP"
    TERMINATE = "TERMINATE"
    UNLOAD = "UNLOAD"
    SUBSCRIBE = "SUBSCRIBE"
    GET_SUBSCRIPTIONS = "GET_SUBSCRIPTIONS"
    UNSUBSCRIBE = "UNSUBSCRIBE"
    GET_STATS = "GET_STATS"
    GET_METADATA = "GET_METADATA"
    GET_BACKLOG_SIZE = "GET_BACKLOG_SIZE"
    SET_REPLICATED_SUBSCRIPTION_STATUS = "SET_REPLICATED_SUBSCRIPTION_STATUS"
    GET_REPLICATED_SUBSCRIPTION_STATUS = "GET_REPLICATED_SUBSCRIPTION_STATUS"
    UPDATE_METADATA = "UPDATE_METADATA"
    DELETE_METADATA = "DELETE_METADATA"
    TRIM_TOPIC = "TRIM_TOPIC"


Operation = TenantOperation | ClusterOperation | BrokerOperation | PolicyOperation | NamespaceOperation | TopicOperation

_LOOKED_UP = frozenset((Action.PRODUCE, Action.CONSUME))
_CONSUMED = frozenset((Action.CONSUME,))
_PRODUCED = frozenset((Action.PRODUCE,))

NEEDED_ON_NAMESPACE: Mapping[Operation, frozenset[Action]] = {
    NamespaceOperation.GET_TOPIC: _LOOKED_UP,
    NamespaceOperation.GET_TOPICS: _LOOKED_UP,
    NamespaceOperation.GET_BUNDLE: _LOOKED_UP,
    NamespaceOperation.CLEAR_BACKLOG: _CONSUMED,
    NamespaceOperation.UNSUBSCRIBE: _CONSUMED,
    NamespaceOperation.PACKAGES: frozenset((Action.PACKAGES,)),
    NamespaceOperation.FUNCTIONS: frozenset((Action.FUNCTIONS,)),
    NamespaceOperation.SOURCES: frozenset((Action.SOURCES,)),
    NamespaceOperation.SINKS: frozenset((Action.SINKS,)),
}
"""Actions by operation, any of which, granted on the namespace, suffices. Others are for tenant administrators only."""

NEEDED_ON_TOPIC: Mapping[Operation, frozenset[Action]] = {
    TopicOperation.LOOKUP: _LOOKED_UP,
    TopicOperation.GET_STATS: _LOOKED_UP,
    TopicOperation.GET_METADATA: _LOOKED_UP,
    TopicOperation.PRODUCE: _PRODUCED,
    TopicOperation.CONSUME: _CONSUMED,
    TopicOperation.SUBSCRIBE: _CONSUMED,
    TopicOperation.UNSUBSCRIBE: _CONSUMED,
    TopicOperation.GET_SUBSCRIPTIONS: _CONSUMED,
    TopicOperation.SKIP: _CONSUMED,
    TopicOperation.EXPIRE_MESSAGES: _CONSUMED,
    TopicOperation.PEEK_MESSAGES: _CONSUMED,
    TopicOperation.RESET_CURSOR: _CONSUMED,
    TopicOperation.GET_BACKLOG_SIZE: _CONSUMED,
    TopicOperation.SET_REPLICATED_SUBSCRIPTION_STATUS: _CONSUMED,
    TopicOperation.GET_REPLICATED_SUBSCRIPTION_STATUS: _CONSUMED,
}
"""Actions by operation; any one of them, granted on the namespace or topic, suffices."""
