"""Effective policies of a topic: its own, or else its namespace's, or else the broker's settings.

All limits of a topic are resolved into one frozen record when the topic is loaded and when a policy changes, so that no
JSON is searched per message. A field is unset at a level that does not define it; empty subscription types are also
unset.

Source: Pulsar's HierarchyTopicPolicies, and the policies object of its admin REST API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .policies import Policies, Retention

if TYPE_CHECKING:
    from ..config import BrokerConfig

MIB = 1024 * 1024
SIZE, AGE = "destination_storage", "message_age"
"""The two backlog quota types: size of the slowest subscription's backlog, and age of its oldest message."""
HOLD, EXCEPTION, EVICTION = "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
"""Actions when a backlog quota is exceeded, as in `config.BACKLOG_POLICIES`."""
RATES_BY_CLUSTER = ("topicDispatchRate", "subscriptionDispatchRate", "publishMaxMessageRate", "clusterSubscribeRate")
"""Namespace fields that have one value per cluster."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate limit.

    Attributes:
        messages: messages per period; 0 means unlimited.
        bytes: bytes per period; 0 means unlimited.
        period_s: length of the period.
        is_relative: whether the publish rate is added to the limit.
    """

    messages: int = 0
    bytes: int = 0
    period_s: int = 1
    is_relative: bool = False

    @property
    def is_limit(self) -> bool:
        """Whether messages or bytes are limited."""
        return self.messages > 0 or self.bytes > 0


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """Rate limits that many topics share: those of a resource group or of the whole broker.

    Attributes:
        group: resource group name; empty for the whole broker.
        publish_rate: rate of all producers of these topics combined.
        dispatch_rate: rate of all subscriptions of these topics combined.
    """

    group: str
    publish_rate: Rate
    dispatch_rate: Rate


@dataclass(frozen=True, slots=True)
class Quota:
    """A backlog quota.

    Attributes:
        limit_bytes: size of the slowest subscription's backlog; a negative value means unlimited.
        limit_s: age of its oldest message; 0 or less means unlimited.
        policy: action when the limit is exceeded.
    """

    limit_bytes: int
    limit_s: int
    policy: str


@dataclass(frozen=True, slots=True)
class InactivityPolicy:
    """The policy for deleting inactive topics.

    Attributes:
        is_deleted: whether inactive topics are deleted at all.
        mode: which topics count as inactive; see `BrokerConfig.inactive_mode`.
        after_s: how long a topic must be inactive before it is deleted.
    """

    is_deleted: bool
    mode: str
    after_s: float


@dataclass(frozen=True, slots=True)
class EffectivePolicies:
    """The effective policies of a topic. For numbers, 0 means unlimited.

    Attributes:
        max_producers: maximum number of connected producers.
        max_consumers: maximum number of connected consumers.
        max_consumers_per_subscription: maximum number of connected consumers of one subscription.
        max_subscriptions: maximum number of subscriptions.
        max_unacked_per_consumer: maximum number of unacknowledged messages of a shared consumer.
        max_unacked_per_subscription: maximum number of unacknowledged messages of all consumers of a subscription.
        max_message_bytes: maximum size of an entry.
        subscription_types: allowed subscription types.
        message_ttl_s: age at which messages expire for durable subscriptions.
        subscription_expiration_s: how long a subscription without consumers is retained.
        inactivity: policy for deleting the topic when it is inactive.
        snapshot_age_s: maximum time between two deduplication snapshots.
        retention: retention of acknowledged messages.
        size_quota: size-based backlog quota.
        age_quota: age-based backlog quota.
        publish_rate: rate of all producers combined, per second.
        dispatch_rate: rate of all subscriptions combined.
        subscription_rate: rate of each subscription that has no rate of its own.
        subscription_rates: rates of individual subscriptions, by name.
        subscribe_rate: how often a consumer may subscribe in a period.
        encryption_required: whether producers must encrypt their messages.
        shared_limits: rate limits that the topic shares with others, if any.
    """

    max_producers: int
    max_consumers: int
    max_consumers_per_subscription: int
    max_subscriptions: int
    max_unacked_per_consumer: int
    max_unacked_per_subscription: int
    max_message_bytes: int
    subscription_types: tuple[str, ...]
    message_ttl_s: float
    subscription_expiration_s: float
    inactivity: InactivityPolicy
    snapshot_age_s: float
    retention: Retention
    size_quota: Quota
    age_quota: Quota
    publish_rate: Rate
    dispatch_rate: Rate
    subscription_rate: Rate
    subscription_rates: Mapping[str, Rate]
    subscribe_rate: Rate
    encryption_required: bool
    shared_limits: tuple[SharedLimits, ...] = ()


def first_set(field: str, levels: tuple[Policies, Policies], cluster: str = "") -> Any:
    """Return the stored policy of the topic, or else of its namespace, or None if neither is set.

    Args:
        field: field name of the policy.
        levels: policies of the topic and of its namespace.
        cluster: cluster whose value is selected if the namespace has one per cluster.
    """
    own, namespace = levels
    if (value := own.get(field)) is not None:
        return value
    value = namespace.get(field)
    return (value or {}).get(cluster) if field in RATES_BY_CLUSTER else value


def resolve(
    config: BrokerConfig, namespace: Policies, own: Policies, group: SharedLimits | None = None
) -> EffectivePolicies:
    """Return the effective policies of a topic.

    Args:
        config: the broker's settings.
        namespace: the namespace's policies.
        own: the topic's policies.
        group: limits of the namespace's resource group, if any.
    """

    def get(field: str) -> Any:
        return first_set(field, (own, namespace), config.cluster)

    def number(field: str, default: float) -> Any:
        value = get(field)
        return default if value is None else value

    sizes = config.max_message_bytes
    limit_bytes = own.get("maxMessageSize")
    kinds = own.get("subscription_types_enabled") or namespace.get("subscription_types_enabled")
    minutes = namespace.get("subscription_expiration_time_minutes")
    return EffectivePolicies(
        max_producers=number("max_producers_per_topic", config.max_producers_per_topic),
        max_consumers=number("max_consumers_per_topic", config.max_consumers_per_topic),
        max_consumers_per_subscription=number("max_consumers_per_subscription", config.max_consumers_per_subscription),
        max_subscriptions=number("max_subscriptions_per_topic", config.max_subscriptions_per_topic),
        max_unacked_per_consumer=number("max_unacked_messages_per_consumer", config.max_unacked_per_consumer),
        max_unacked_per_subscription=number(
            "max_unacked_messages_per_subscription", config.max_unacked_per_subscription
        ),
        max_message_bytes=sizes if not limit_bytes else min(limit_bytes, sizes),
        subscription_types=tuple(kinds or config.subscription_types),
        message_ttl_s=number("message_ttl_in_seconds", config.message_ttl_s),
        subscription_expiration_s=config.subscription_expiration_s if minutes is None else minutes * 60.0,
        inactivity=_inactivity(get("inactive_topic_policies"), config),
        snapshot_age_s=number("deduplicationSnapshotIntervalSeconds", config.deduplication_snapshot_age_s),
        retention=retention_of(get("retention_policies"), config),
        size_quota=_quota(SIZE, own, namespace, config),
        age_quota=_quota(AGE, own, namespace, config),
        publish_rate=publish_rate_of(get("publishMaxMessageRate"), config),
        dispatch_rate=dispatch_rate_of(
            get("topicDispatchRate"), (config.topic_dispatch_messages, config.topic_dispatch_bytes)
        ),
        subscription_rate=dispatch_rate_of(
            get("subscriptionDispatchRate"), (config.subscription_dispatch_messages, config.subscription_dispatch_bytes)
        ),
        subscription_rates={
            name: dispatch_rate_of(rate, (0, 0)) for name, rate in (own.get("subscriptionRates") or {}).items()
        },
        subscribe_rate=subscribe_rate_of(get("clusterSubscribeRate"), config),
        encryption_required=bool(config.encryption_required or namespace.get("encryption_required")),
        shared_limits=tuple(
            limits
            for limits in (_broker_limits(config), group)
            if limits is not None and (limits.publish_rate.is_limit or limits.dispatch_rate.is_limit)
        ),
    )


def _broker_limits(config: BrokerConfig) -> SharedLimits:
    return SharedLimits(
        "",
        Rate(config.broker_publish_messages, config.broker_publish_bytes),
        Rate(config.broker_dispatch_messages, config.broker_dispatch_bytes),
    )


def group_limits(name: str, limits: Mapping[str, int]) -> SharedLimits:
    """Return the limits of a stored resource group; -1 and 0 mean unlimited."""

    def rate(kind: str) -> Rate:
        return Rate(max(limits.get(f"{kind}RateInMsgs", 0), 0), max(limits.get(f"{kind}RateInBytes", 0), 0))

    return SharedLimits(name, rate("publish"), rate("dispatch"))


def retention_of(limits: Mapping[str, int] | None, config: BrokerConfig) -> Retention:
    """Return a retention policy, or the broker's default if unset."""
    if limits:
        minutes, megabytes = limits.get("retentionTimeInMinutes", 0), limits.get("retentionSizeInMB", 0)
    else:
        minutes, megabytes = config.retention_minutes, config.retention_mb
    return Retention(-1 if minutes < 0 else minutes * 60_000, -1 if megabytes < 0 else megabytes * MIB)


def dispatch_rate_of(rate: Mapping[str, Any] | None, default: tuple[int, int]) -> Rate:
    """Return a dispatch rate; ``default`` is the broker's, in messages and bytes per second."""
    if rate is None:
        return Rate(max(default[0], 0), max(default[1], 0))
    return Rate(
        max(rate.get("dispatchThrottlingRateInMsg", 0), 0),
        max(rate.get("dispatchThrottlingRateInByte", 0), 0),
        max(rate.get("ratePeriodInSecond", 1), 1),
        bool(rate.get("relativeToPublishRate")),
    )


def publish_rate_of(rate: Mapping[str, Any] | None, config: BrokerConfig) -> Rate:
    """Return a publish rate, or the broker's default if unset."""
    if rate is None:
        return Rate(config.publish_rate_messages, config.publish_rate_bytes)
    return Rate(max(rate.get("publishThrottlingRateInMsg", 0), 0), max(rate.get("publishThrottlingRateInByte", 0), 0))


def subscribe_rate_of(rate: Mapping[str, Any] | None, config: BrokerConfig) -> Rate:
    """Return a subscribe rate, with subscribe requests counted as messages."""
    if rate is None:
        return Rate(config.subscribe_rate, 0, config.subscribe_period_s)
    return Rate(max(rate.get("subscribeThrottlingRatePerConsumer", 0), 0), 0, max(rate.get("ratePeriodInSecond", 1), 1))


def _inactivity(policy: Mapping[str, Any] | None, config: BrokerConfig) -> InactivityPolicy:
    if policy is None:
        after_s = config.inactive_after_s or config.inactive_check_s
        return InactivityPolicy(config.delete_inactive_topics, config.inactive_mode, after_s)
    mode = policy.get("inactiveTopicDeleteMode") or config.inactive_mode
    return InactivityPolicy(bool(policy.get("deleteWhileInactive")), mode, policy.get("maxInactiveDurationSeconds", 0))


def _quota(kind: str, own: Policies, namespace: Policies, config: BrokerConfig) -> Quota:
    for policies in (own, namespace):
        if (quota := (policies.get("backlog_quota_map") or {}).get(kind)) is not None:
            size = quota.get("limitSize", quota.get("limit", -1))  # the latter was stored by older versions of Pulsar
            return Quota(size, quota.get("limitTime", -1), quota.get("policy", config.backlog_policy))
    return Quota(config.backlog_limit_bytes, config.backlog_limit_s, config.backlog_policy)
