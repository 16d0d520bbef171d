"""Endpoints for topic policies, which apply to all partitions of a topic.

Unsupported policies read as unset and cannot be set. To support another policy, add a line to `_POLICIES` and a field
to `broker/policies/effective.py`, and remove the policy from `_REFUSED`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....web.answers import Refused, not_supported, nothing, refusing
from ....wire.topic_name import TopicName
from ...schemas.compatibility import Strategy
from ..bodies import as_bool, as_int, as_object
from ..call import Call
from ..policy_bodies import (
    at_least_zero,
    read_auto_subscription,
    read_dispatch_rate,
    read_entry_filters,
    read_inactive_topics,
    read_persistence,
    read_publish_rate,
    read_retention,
    read_subscribe_rate,
    read_subscription_types,
)
from ..routing import TOPIC, Handler, Routes, of_existing
from . import topic_quotas
from .applied_policies import (
    applied_delayed_delivery,
    applied_dispatch_rate,
    applied_inactivity,
    applied_persistence,
    applied_replicator_rate,
    applied_retention,
    applied_subscribe_rate,
    first_set,
    rate_of_namespace,
)
from .lookup import find, is_known, not_found
from .policy import MaxMessageSize, MessageTtl, PauseOnAckState, Policy, Replication, Retention, topic_of

_REFUSED = (
    "offloadPolicies",
    "shadowTopics",
)
MAX_TICK_MS = 3_600_000


async def adjust_deduplication(call: Call, concerns: Callable[[TopicName], bool]) -> None:
    """Apply a deduplication change to loaded topics immediately.

    Raises:
        PersistenceError: the disk failed; the change will be retried.
    """
    topics = [topic for topic in call.broker.topics.values() if concerns(topic.name)]
    await call.broker.adjust_deduplication(topics)
    for topic in topics:
        topic.deduplication.check()


async def _adjust_deduplication(call: Call, name: TopicName) -> None:
    await adjust_deduplication(call, lambda other: other.base == name.base)


def as_strategy(body: Any) -> str | None:
    """Return the schema strategy in a request body, or None for an empty body.

    Raises:
        Refused: the strategy is unknown. Pulsar treats it as empty instead and unsets the policy.
    """
    if body is not None and (not isinstance(body, str) or body not in Strategy.__members__):
        raise Refused(400, f"invalid schema strategy {body!a:.80}: expected one of {', '.join(Strategy.__members__)}")
    return body or None


def as_enforced(body: Any) -> bool:
    """Return the boolean in a request body.

    Raises:
        Refused: the body is neither true nor false.
    """
    is_on = as_bool(body, "true or false")
    if is_on is None:
        raise Refused(400, "The request entity cannot be empty.")
    return is_on


def check_delayed_delivery(body: Any) -> dict[str, Any] | None:
    """Return a delayed delivery policy in its stored form, or None for an empty body.

    Raises:
        Refused: a field is not a number or out of range.
    """
    policy = as_object(body, "delayedDelivery")
    if policy is None:
        return None
    tick_ms = policy.get("tickTime", 1000)
    if isinstance(tick_ms, bool) or not isinstance(tick_ms, int | float) or not 0 < tick_ms <= MAX_TICK_MS:
        raise Refused(412, f"tickTime must be above 0 and at most {MAX_TICK_MS} milliseconds")
    longest_ms = as_int(policy.get("maxDeliveryDelayInMillis"), "maxDeliveryDelayInMillis", bits=64) or 0
    if longest_ms < 0:
        raise Refused(412, "maxDeliveryDelayInMillis must be 0 or more")
    is_active = as_bool(policy.get("active"), "active") or False
    return {"tickTime": tick_ms, "active": is_active, "maxDeliveryDelayInMillis": longest_ms}


def _threshold(body: Any) -> int | None:
    threshold = as_int(body, "compactionThreshold", bits=64)
    if threshold is not None and threshold < 0:
        raise Refused(412, "Invalid value for compactionThreshold")
    return threshold


def _limit(name: str, field: str, attribute: str, refusal: str = "") -> Policy:
    """Return a numeric policy that is also a field of `EffectivePolicies`."""
    read = at_least_zero(name, refusal)
    return Policy(name, field, read, lambda call, topic: getattr(call.namespaces.effective(topic), attribute))


def _quiet_limit(name: str, field: str, refusal: str = "") -> Policy:
    """Return a numeric policy that Pulsar shows at topic and namespace level, but not at broker level."""
    return Policy(name, field, at_least_zero(name, refusal), first_set(field))


_POLICIES = (
    Retention("retention", "retention_policies", read_retention, applied_retention),
    MessageTtl(
        "messageTTL", "message_ttl_in_seconds", at_least_zero("messageTTL", "Invalid value for message TTL"),
        lambda call, name: int(call.namespaces.effective(name).message_ttl_s),
    ),
    Policy("persistence", "persistence", read_persistence, applied_persistence),
    Policy("inactiveTopicPolicies", "inactive_topic_policies", read_inactive_topics, applied_inactivity),
    Policy(
        "autoSubscriptionCreation", "autoSubscriptionCreationOverride", read_auto_subscription,
        lambda call, name: {"allowAutoSubscriptionCreation": call.namespaces.auto_subscription_creation(name)},
    ),
    Policy(
        "subscriptionTypesEnabled", "subscription_types_enabled", read_subscription_types,
        lambda call, name: call.namespaces.policies(name.namespace_name).get("subscription_types_enabled") or None,
    ),
    Policy(
        "dispatchRate", "topicDispatchRate", read_dispatch_rate,
        applied_dispatch_rate("topicDispatchRate", "dispatch_rate"),
    ),
    Policy(
        "subscriptionDispatchRate", "subscriptionDispatchRate", read_dispatch_rate,
        applied_dispatch_rate("subscriptionDispatchRate", "subscription_rate"),
    ),
    # A replicator limit: there are no replicators here, so it is stored without effect.
    Policy("replicatorDispatchRate", "replicatorDispatchRate", read_dispatch_rate, applied_replicator_rate),
    Policy("publishRate", "publishMaxMessageRate", read_publish_rate, rate_of_namespace("publishMaxMessageRate")),
    Policy("subscribeRate", "clusterSubscribeRate", read_subscribe_rate, applied_subscribe_rate),
    PauseOnAckState(
        "dispatcherPauseOnAckStatePersistent", "dispatcherPauseOnAckStatePersistentEnabled", lambda body: body,
        lambda call, name: False, unset=False,
    ),
    Policy("entryFilters", "entryFilters", read_entry_filters, lambda call, name: {"entryFilterNames": ""}),
    Policy(
        "deduplicationSnapshotInterval", "deduplicationSnapshotIntervalSeconds",
        at_least_zero("interval"), first_set("deduplicationSnapshotIntervalSeconds"),
    ),
    _limit("maxProducers", "max_producers_per_topic", "max_producers"),
    _limit("maxConsumers", "max_consumers_per_topic", "max_consumers"),
    _limit(
        "maxUnackedMessagesOnConsumer",
        "max_unacked_messages_per_consumer",
        "max_unacked_per_consumer",
        "maxUnackedNum must be 0 or more",
    ),
    _limit(
        "maxUnackedMessagesOnSubscription",
        "max_unacked_messages_per_subscription",
        "max_unacked_per_subscription",
        "maxUnackedNum must be 0 or more",
    ),
    _quiet_limit(
        "maxConsumersPerSubscription",
        "max_consumers_per_subscription",
        "Invalid value for maxConsumersPerSubscription",
    ),
    _quiet_limit("maxSubscriptionsPerTopic", "max_subscriptions_per_topic"),
    MaxMessageSize("maxMessageSize", "maxMessageSize", lambda body: body, lambda call, name: None),
    Replication(
        "replication", "replication_clusters", lambda body: body,
        lambda call, name: call.namespaces.policies(name.namespace_name)["replication_clusters"],
    ),
    Policy(
        "deduplicationEnabled",
        "deduplicationEnabled",
        lambda body: as_bool(body, "deduplicationEnabled"),
        lambda call, name: call.namespaces.deduplication(name),
        _adjust_deduplication,
    ),
    Policy(
        "compactionThreshold",
        "compaction_threshold",
        _threshold,
        lambda call, name: call.namespaces.compaction_threshold(name),
    ),
    Policy("delayedDelivery", "delayed_delivery_policies", check_delayed_delivery, applied_delayed_delivery),
    Policy(
        "schemaCompatibilityStrategy", "schema_compatibility_strategy", as_strategy,
        lambda call, name: call.namespaces.schema_policy(name).strategy.value, method="PUT",
    ),
    Policy(
        "schemaValidationEnforced", "schema_validation_enforced", as_enforced,
        lambda call, name: call.namespaces.schema_policy(name).is_enforced, unset=False, is_removable=False,
    ),
)  # fmt: skip


async def _find(call: Call) -> None:
    """Raise unless the topic in the path exists and is persistent; non-persistent topics have no policies."""
    if not call.topic.is_persistent:
        raise not_found(call.topic)
    await find(call)


async def _remove_all(call: Call) -> None:
    if call.topic.partition < 0 and not is_known(call, call.require_topic_namespace()):
        return  # no policy is set: the topic may have been deleted
    name = topic_of(call)
    await call.namespaces.change_topic_policies(name, lambda _: {})
    for policy in _POLICIES:
        if policy.changed is not None:
            await policy.changed(call, name)


def _routes_of(policy: Policy) -> Routes:
    path = f"{TOPIC}/{policy.name}"
    routes = (("GET", path, policy.get), (policy.method, path, policy.set))
    return (*routes, ("DELETE", path, policy.remove)) if policy.is_removable else routes


def _refuse(name: str) -> Handler:
    remedy = "leave it unset, or set the namespace policy if there is one"
    return of_existing(_find, refusing(not_supported(f"topic policy {name}", remedy)))


_DONE = of_existing(_find, lambda _: None)
_NOT_SET = of_existing(_find, lambda _: nothing())
ROUTES: Routes = (
    *topic_quotas.ROUTES,
    *(route for policy in _POLICIES for route in _routes_of(policy)),
    ("DELETE", f"{TOPIC}/policies", _remove_all),
    *(("GET", f"{TOPIC}/{name}", _NOT_SET) for name in _REFUSED),
    *(("POST", f"{TOPIC}/{name}", _refuse(name)) for name in _REFUSED),
    *(("PUT", f"{TOPIC}/{name}", _refuse(name)) for name in ("shadowTopics",)),
    *(("DELETE", f"{TOPIC}/{name}", _DONE) for name in _REFUSED),
)
