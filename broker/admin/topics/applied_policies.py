"""Effective topic policies, set at any level, each in its own format.

Topic policy endpoints return them for ``?applied=true``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....wire.topic_name import TopicName
from ...policies.effective import Rate
from ..call import Call

MIB = 1024 * 1024


def applied_delayed_delivery(call: Call, name: TopicName) -> dict[str, Any]:
    """Return the delayed delivery policy."""
    policy = call.namespaces.delayed_delivery(name)
    return {
        "tickTime": policy.tick_ms,
        "active": policy.is_active,
        "maxDeliveryDelayInMillis": policy.max_delay_ms,
    }


def first_set(field: str) -> Callable[[Call, TopicName], Any]:
    """Return a reader for a policy of the topic's namespace."""
    return lambda call, name: call.namespaces.policies(name.namespace_name).get(field)


def applied_retention(call: Call, name: TopicName) -> dict[str, int]:
    """Return the retention policy."""
    time_ms, size = call.namespaces.effective(name).retention
    return {
        "retentionTimeInMinutes": -1 if time_ms < 0 else time_ms // 60_000,
        "retentionSizeInMB": -1 if size < 0 else size // MIB,
    }


def applied_inactivity(call: Call, name: TopicName) -> dict[str, Any]:
    """Return the policy for deleting the topic when it is inactive."""
    policy = call.namespaces.effective(name).inactivity
    return {
        "inactiveTopicDeleteMode": policy.mode,
        "maxInactiveDurationSeconds": int(policy.after_s),
        "deleteWhileInactive": policy.is_deleted,
    }


def applied_persistence(call: Call, name: TopicName) -> Any:
    """Return the persistence policy."""
    found = call.namespaces.policies(name.namespace_name).get("persistence")
    return found or {
        "bookkeeperEnsemble": 1,
        "bookkeeperWriteQuorum": 1,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 1.0,
    }


def shown_rate(rate: Rate) -> dict[str, Any]:
    """Return a rate in Pulsar's format."""
    return {
        "dispatchThrottlingRateInMsg": rate.messages,
        "dispatchThrottlingRateInByte": rate.bytes,
        "relativeToPublishRate": rate.is_relative,
        "ratePeriodInSecond": rate.period_s,
    }


def rate_of_namespace(field: str) -> Callable[[Call, TopicName], Any]:
    """Return a reader for a rate of the topic's namespace."""

    def read(call: Call, name: TopicName) -> Any:
        rates = call.namespaces.policies(name.namespace_name).get(field) or {}
        return rates.get(call.namespaces.cluster_name)

    return read


def applied_replicator_rate(call: Call, name: TopicName) -> Any:
    """Return the namespace's replicator dispatch rate, or an unlimited rate if it is not set."""
    return rate_of_namespace("replicatorDispatchRate")(call, name) or shown_rate(Rate())


def applied_dispatch_rate(field: str, attribute: str) -> Callable[[Call, TopicName], Any]:
    """Return a reader for a dispatch rate of the namespace, or of the broker if the namespace has none."""
    of_namespace = rate_of_namespace(field)
    return lambda call, name: (
        of_namespace(call, name) or shown_rate(getattr(call.namespaces.effective(name), attribute))
    )


def applied_subscribe_rate(call: Call, name: TopicName) -> Any:
    """Return the rate at which a consumer may subscribe."""
    rate = call.namespaces.effective(name).subscribe_rate
    return {"subscribeThrottlingRatePerConsumer": rate.messages, "ratePeriodInSecond": rate.period_s}
