"""The types of the rule tables: who may use a route or command, and which resource it affects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ...wire.topic_name import TopicName
from .operations import (
    BrokerOperation,
    ClusterOperation,
    NamespaceOperation,
    Operation,
    PolicyOperation,
    TenantOperation,
    TopicOperation,
)


class Who(Enum):
    """The type of a rule: who is allowed, and on which resource. Each type has its own denial messages.

    `TENANT` to `TOPIC_POLICY` allow tenant administrators; `NAMESPACE`, `COMPONENT`, `PACKAGES` and `TOPIC` also allow
    roles that were granted the required action. Super-users may do everything.
    """

    EVERYBODY = "all clients"
    EVERY_ROLE = "all authenticated clients"
    BY_THE_HANDLER = "decided by the handler, depending on the request body"
    SUPER_USER = "super-users"
    CLUSTER = "super-users, on a cluster"
    CLUSTER_POLICY = "super-users, on a cluster policy"
    BROKER = "super-users, on a broker"
    WORKER = "super-users, on a functions worker"
    TENANTS = "super-users, on all tenants"
    TENANT_ITSELF = "tenant administrators, on the tenant"
    TENANT = "tenant administrators, on its namespaces"
    TENANT_ADMIN = "tenant administrators"
    NAMESPACE_POLICY = "tenant administrators, on a namespace policy"
    TOPIC_POLICY = "tenant administrators, on a topic policy"
    NAMESPACE = "roles with the permission on the namespace"
    COMPONENT = "roles with the functions, sources or sinks permission on the namespace"
    PACKAGES = "roles with the packages permission on the namespace"
    TOPIC = "roles with the permission on the topic or its namespace"


@dataclass(frozen=True, slots=True)
class Rule:
    """The authorization rule of one operation.

    Attributes:
        who: the rule type.
        operation: the operation, or None if only super-users are allowed.
        policy: Pulsar's PolicyName, for operations on policies.
        is_after_existence: report a missing namespace even to unauthorized clients, like Pulsar's REST lookup.
        if_not_persistent: the rule for non-persistent topics, if different.
    """

    who: Who
    operation: Operation | None = None
    policy: str = ""
    is_after_existence: bool = False
    if_not_persistent: Rule | None = None


@dataclass(frozen=True, slots=True)
class Resource:
    """The resource that an operation affects.

    Attributes:
        tenant: tenant name, or empty.
        namespace: ``tenant/namespace``, or empty.
        topic: the topic's full name.
        subscription: a subscription of that topic, or of all topics of the namespace.
        name: name of the cluster or broker, for denial messages.
    """

    tenant: str = ""
    namespace: str = ""
    topic: TopicName | None = None
    subscription: str | None = None
    name: str = ""

    @classmethod
    def of_topic(cls, topic: TopicName, subscription: str | None = None) -> Resource:
        """Return the resource for a topic, and optionally one of its subscriptions."""
        return cls(topic.tenant, topic.namespace_name, topic, subscription)

    @classmethod
    def of_namespace(cls, namespace: str, subscription: str | None = None) -> Resource:
        """Return the resource for ``tenant/namespace``, and optionally a subscription of its topics."""
        return cls(namespace.partition("/")[0], namespace, subscription=subscription)


Rules = tuple[Rule, ...]
"""Rules that must all allow an operation, checked in this order."""
RestTable = Mapping[tuple[str, str], Rules]
"""Rules by method and path of a route."""

EVERYBODY: Rules = (Rule(Who.EVERYBODY),)
EVERY_ROLE: Rules = (Rule(Who.EVERY_ROLE),)
BY_THE_HANDLER: Rules = (Rule(Who.BY_THE_HANDLER),)
SUPER_USER: Rules = (Rule(Who.SUPER_USER),)
WORKER: Rules = (Rule(Who.WORKER),)
TENANT_ADMIN: Rules = (Rule(Who.TENANT_ADMIN),)


def on_cluster(operation: ClusterOperation) -> Rules:
    """Return the rule of an operation on the cluster in the path."""
    return (Rule(Who.CLUSTER, operation),)


def on_cluster_policy(operation: PolicyOperation) -> Rules:
    """Return the rule of an operation on a policy of the cluster in the path."""
    return (Rule(Who.CLUSTER_POLICY, operation),)


def on_broker(operation: BrokerOperation) -> Rules:
    """Return the rule of an operation on the broker that receives the request."""
    return (Rule(Who.BROKER, operation),)


def on_tenant(operation: TenantOperation) -> Rules:
    """Return the rule of an operation on tenants, or on the namespaces of the tenant in the path."""
    if operation in (TenantOperation.LIST_TENANTS, TenantOperation.CREATE_TENANT):
        return (Rule(Who.TENANTS, operation),)
    is_itself = operation.value.endswith("_TENANT")
    return (Rule(Who.TENANT_ITSELF if is_itself else Who.TENANT, operation),)


def on_namespace(operation: NamespaceOperation) -> Rules:
    """Return the rule of an operation on the namespace in the path."""
    return (Rule(Who.NAMESPACE, operation),)


def on_topic(operation: TopicOperation) -> Rules:
    """Return the rule of an operation on the topic, and the subscription, in the path."""
    return (Rule(Who.TOPIC, operation),)


def on_policy(method: str, policy: str, *, of_topic: bool = False) -> Rules:
    """Return the rule of reading (GET) or changing a policy of the namespace or topic in the path."""
    operation = PolicyOperation.READ if method == "GET" else PolicyOperation.WRITE
    return (Rule(Who.TOPIC_POLICY if of_topic else Who.NAMESPACE_POLICY, operation, policy),)
