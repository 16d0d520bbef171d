"""The effective policies of one topic: its own, else its namespace's, else the broker's settings.

Everything that limits a running topic is resolved once, on load and on policy changes, into one frozen record; no JSON
is searched per message. A field is unset if its level does not define it; subscription types also if they are empty.

Source: Pulsar's HierarchyTopicPolicies, and the policies object of its admin REST.
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
"""The two types of backlog quotas: by size of the slowest subscription's backlog, by age of its oldest message."""
HOLD, EXCEPTION, EVICTION = "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
"""The actions above a backlog quota: `config.BACKLOG_POLICIES`."""
RATES_BY_CLUSTER = ("topicDispatchRate", "subscriptionDispatchRate", "publishMaxMessageRate", "clusterSubscribeRate")
"""Namespace fields with one value per cluster."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate limit.

    Attributes:
        messages: 0 is unlimited.
        bytes: 0 is unlimited.
        period_s: the period of both.
        is_relative: whether the publish rate is added.
    """

    messages: int = 0
    bytes: int = 0
    period_s: int = 1
    is_relative: bool = False

    @property
    def is_limit(self) -> bool:
        """Whether there is a limit."""
        return self.messages > 0 or self.bytes > 0


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """Rates that many topics share: those of a resource group, or of the whole broker.

    Attributes:
        group: name of the resource group; empty for the whole broker.
        publish_rate: of all producers of all these topics together.
        dispatch_rate: of all their subscriptions together.
    """

    group: str
    publish_rate: Rate
    dispatch_rate: Rate


@dataclass(frozen=True, slots=True)
class Quota:
    """A backlog quota.

    Attributes:
        limit_bytes: of the slowest subscription's backlog; negative is unlimited.
        limit_s: age of its oldest message; 0 or less is unlimited.
        policy: the action above the limit.
    """

    limit_bytes: int
    limit_s: int
    policy: str


@dataclass(frozen=True, slots=True)
class InactivityPolicy:
    """When an inactive topic is deleted.

    Attributes:
        is_deleted: whether it is deleted at all.
        mode: which topics count as inactive, see `BrokerConfig.inactive_mode`.
        after_s: how long it has to be inactive.
    """

    is_deleted: bool
    mode: str
    after_s: float


@dataclass(frozen=True, slots=True)
class EffectivePolicies:
    """The effective policies of one topic. Numbers of 0 are unlimited.

    Attributes:
        max_producers: connected producers.
        max_consumers: connected consumers.
        max_consumers_per_subscription: connected consumers of one subscription.
        max_subscriptions: subscriptions of the topic.
        max_unacked_per_consumer: unacknowledged messages of a shared consumer.
        max_unacked_per_subscription: unacknowledged messages of all its consumers.
        max_message_bytes: size of one entry.
        subscription_types: allowed subscription types.
        message_ttl_s: age at which messages expire for durable subscriptions.
        subscription_expiration_s: how long a subscription without consumers is kept.
        inactivity: when the topic is deleted as inactive.
        snapshot_age_s: maximum time between two deduplication snapshots.
        retention: of acknowledged messages.
        size_quota: backlog quota by size.
        age_quota: backlog quota by age.
        publish_rate: of all producers together, per second.
        dispatch_rate: of all subscriptions together.
        subscription_rate: of each subscription without its own rate.
        subscription_rates: of single subscriptions, by name.
        subscribe_rate: how often one consumer may subscribe in a period.
        encryption_required: whether producers must encrypt their messages.
        shared_limits: rates that the topic shares with others, if any.
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
    """Return the stored policy of the topic, else of its namespace, or None if unset.

    Args:
        field: its name.
        levels: policies of the topic, and of its namespace.
        cluster: selects the value if the namespace has one per cluster.
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
        namespace: policies of the topic's namespace.
        own: policies of the topic itself.
        group: limits of the namespace's resource group, if it has one.
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
    """Return the limits of a stored resource group; -1 and 0 are unlimited."""

    def rate(kind: str) -> Rate:
        return Rate(max(limits.get(f"{kind}RateInMsgs", 0), 0), max(limits.get(f"{kind}RateInBytes", 0), 0))

    return SharedLimits(name, rate("publish"), rate("dispatch"))


def retention_of(limits: Mapping[str, int] | None, config: BrokerConfig) -> Retention:
    """Return a retention policy, or the broker's default."""
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
    """Return a publish rate, or the broker's default."""
    if rate is None:
        return Rate(config.publish_rate_messages, config.publish_rate_bytes)
    return Rate(max(rate.get("publishThrottlingRateInMsg", 0), 0), max(rate.get("publishThrottlingRateInByte", 0), 0))


def subscribe_rate_of(rate: Mapping[str, Any] | None, config: BrokerConfig) -> Rate:
    """Return a subscribe rate, which counts subscribes as messages."""
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
