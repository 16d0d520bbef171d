"""What is in force for a topic, wherever it is set, in the words of each policy; also how a topic obeys a change.

Topics show it with ``?applied=true``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....wire.topic_name import TopicName
from ...policies.effective import Rate
from ..call import Call

MIB = 1024 * 1024


def applied_delayed_delivery(call: Call, name: TopicName) -> dict[str, Any]:
    """Return the policy of delayed delivery."""
    policy = call.namespaces.delayed_delivery(name)
    return {
        "tickTime": policy.tick_ms,
        "active": policy.is_active,
        "maxDeliveryDelayInMillis": policy.max_delay_ms,
    }


def first_set(field: str) -> Callable[[Call, TopicName], Any]:
    """Return the reader of what is set for the namespace of a topic."""
    return lambda call, name: call.namespaces.policies(name.namespace_name).get(field)


def applied_retention(call: Call, name: TopicName) -> dict[str, int]:
    """Return how long acknowledged messages stay."""
    time_ms, size = call.namespaces.effective(name).retention
    return {
        "retentionTimeInMinutes": -1 if time_ms < 0 else time_ms // 60_000,
        "retentionSizeInMB": -1 if size < 0 else size // MIB,
    }


def applied_inactivity(call: Call, name: TopicName) -> dict[str, Any]:
    """Return when the topic is deleted."""
    policy = call.namespaces.effective(name).inactivity
    return {
        "inactiveTopicDeleteMode": policy.mode,
        "maxInactiveDurationSeconds": int(policy.after_s),
        "deleteWhileInactive": policy.is_deleted,
    }


def applied_persistence(call: Call, name: TopicName) -> Any:
    """Return how often entries are kept."""
    found = call.namespaces.policies(name.namespace_name).get("persistence")
    return found or {
        "bookkeeperEnsemble": 1,
        "bookkeeperWriteQuorum": 1,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 1.0,
    }


def shown_rate(rate: Rate) -> dict[str, Any]:
    """Return a rate as Pulsar shows it."""
    return {
        "dispatchThrottlingRateInMsg": rate.messages,
        "dispatchThrottlingRateInByte": rate.bytes,
        "relativeToPublishRate": rate.is_relative,
        "ratePeriodInSecond": rate.period_s,
    }


def rate_of_namespace(field: str) -> Callable[[Call, TopicName], Any]:
    """Return the reader of a rate that is set for the namespace of a topic."""

    def read(call: Call, name: TopicName) -> Any:
        rates = call.namespaces.policies(name.namespace_name).get(field) or {}
        return rates.get(call.namespaces.cluster_name)

    return read


def applied_replicator_rate(call: Call, name: TopicName) -> Any:
    """Return the dispatch rate of replicators as it is set for the namespace, else no limit."""
    return rate_of_namespace("replicatorDispatchRate")(call, name) or shown_rate(Rate())


def applied_dispatch_rate(field: str, attribute: str) -> Callable[[Call, TopicName], Any]:
    """Return the reader of a dispatch rate as it is set for the namespace, else for the broker."""
    of_namespace = rate_of_namespace(field)
    return lambda call, name: (
        of_namespace(call, name) or shown_rate(getattr(call.namespaces.effective(name), attribute))
    )


def applied_subscribe_rate(call: Call, name: TopicName) -> Any:
    """Return how often a consumer may subscribe."""
    rate = call.namespaces.effective(name).subscribe_rate
    return {"subscribeThrottlingRatePerConsumer": rate.messages, "ratePeriodInSecond": rate.period_s}
