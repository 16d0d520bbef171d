"""Parsing of policies in request bodies: lenient, with Pulsar's error messages and its complete stored form.

Each reader receives the JSON value of a body and returns the value to store, or None for an empty body, which unsets
the policy. Namespaces and topics share the readers.

Source: the classes in Pulsar 4.0's `org.apache.pulsar.common.policies.data`, and its recorded responses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...web.answers import Refused, not_supported
from ..config import BACKLOG_POLICIES, INACTIVE_MODES, SUBSCRIPTION_TYPES
from .bodies import as_bool, as_int, as_object, as_text_list

Reader = Callable[[Any], Any]
_MOST_BOOKIES = 5


def at_least_zero(name: str, refusal: str = "", bits: int = 32) -> Reader:
    """Return a reader for a non-negative number.

    Args:
        name: policy name.
        refusal: error message for a negative number; by default ``<name> must be 0 or more``.
        bits: integer width.
    """

    def read(body: Any) -> int | None:
        number = as_int(body, name, bits)
        if number is not None and number < 0:
            raise Refused(412, refusal or f"{name} must be 0 or more")
        return number

    return read


def read_retention(body: Any) -> dict[str, int] | None:
    """Return a retention policy."""
    policy = as_object(body, "retention")
    if policy is None:
        return None
    minutes = as_int(policy.get("retentionTimeInMinutes"), "retentionTimeInMinutes") or 0
    megabytes = as_int(policy.get("retentionSizeInMB"), "retentionSizeInMB", bits=64) or 0
    for value, name in ((minutes, "time"), (megabytes, "size")):
        if value < -1:
            raise Refused(400, f"Invalid retention policy: {name} limit must be >= -1")
    if (minutes == 0) != (megabytes == 0):
        raise Refused(
            400,
            "Invalid retention policy: Setting a single time or size limit to 0 is invalid when one of the limits has"
            " a non-zero value. Use the value of -1 instead of 0 to ignore a specific limit. To disable retention both"
            " limits must be set to 0.",
        )
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}


def read_inactive_topics(body: Any) -> dict[str, Any] | None:
    """Return the deletion policy for inactive topics."""
    policy = as_object(body, "inactiveTopicPolicies")
    if policy is None:
        return None
    mode = policy.get("inactiveTopicDeleteMode")
    if mode not in (None, *INACTIVE_MODES):
        raise Refused(400, f"invalid inactiveTopicDeleteMode {mode!r}: expected {' or '.join(INACTIVE_MODES)}")
    after_s = as_int(policy.get("maxInactiveDurationSeconds"), "maxInactiveDurationSeconds") or 0
    if after_s < 0:
        raise Refused(412, "maxInactiveDurationSeconds must be 0 or more")
    is_deleted = as_bool(policy.get("deleteWhileInactive"), "deleteWhileInactive") or False
    return {
        "inactiveTopicDeleteMode": mode or INACTIVE_MODES[0],
        "maxInactiveDurationSeconds": after_s,
        "deleteWhileInactive": is_deleted,
    }


def read_subscription_types(body: Any) -> list[str] | None:
    """Return the enabled subscription types, sorted."""
    kinds = as_text_list(body, "subscriptionTypesEnabled")
    if kinds is None:
        return None
    for kind in kinds:
        if kind not in SUBSCRIPTION_TYPES:
            raise Refused(400, f"invalid subscription type {kind!r}: expected one of {', '.join(SUBSCRIPTION_TYPES)}")
    return sorted(set(kinds))


def read_auto_subscription(body: Any) -> dict[str, Any] | None:
    """Return the automatic subscription creation policy."""
    override = as_object(body, "automatic creation of subscriptions")
    if override is None:
        return None
    is_allowed = as_bool(override.get("allowAutoSubscriptionCreation"), "allowAutoSubscriptionCreation") or False
    return {"allowAutoSubscriptionCreation": is_allowed}


def read_persistence(body: Any) -> dict[str, Any] | None:
    """Return the persistence policy. Its replica counts must be 1; its acknowledgement write rate is not restricted.

    Pulsar limits acknowledgement writes to that rate. This broker writes all of them to the journal, so none is lost.
    """
    policy = as_object(body, "persistence")
    if policy is None:
        raise Refused(400, "persistence policies should not be null")
    names = "bookkeeperEnsemble", "bookkeeperWriteQuorum", "bookkeeperAckQuorum"
    given = [as_int(policy.get(name), name) for name in names]
    ensemble, writes, acks = (2 if number is None else number for number in given)
    if not 0 < ensemble <= _MOST_BOOKIES:
        raise Refused(400, f"Bookkeeper-Ensemble must be <= {_MOST_BOOKIES} and > 0.")
    if not ensemble >= writes >= acks > 0:
        raise Refused(400, f"Bookkeeper Ensemble ({ensemble}) >= WriteQuorum ({writes}) >= AckQuorum ({acks})")
    rate = policy.get("managedLedgerMaxMarkDeleteRate") or 0.0
    if isinstance(rate, bool) or not isinstance(rate, int | float):
        raise Refused(400, f"invalid managedLedgerMaxMarkDeleteRate {str(rate)[:40]!a}: expected a number")
    if rate < 0:
        raise Refused(412, "managedLedgerMaxMarkDeleteRate must be 0 or more")
    if (ensemble, writes, acks) != (1, 1, 1):
        raise not_supported(
            f"persistence with {ensemble} bookies, {writes} writes and {acks} acknowledgements", "set each to 1"
        )
    return dict(zip(names, (1, 1, 1), strict=True)) | {"managedLedgerMaxMarkDeleteRate": rate}


def read_dispatch_rate(body: Any) -> dict[str, Any] | None:
    """Return a dispatch rate."""
    rate = as_object(body, "dispatch rate")
    if rate is None:
        return None
    return {
        "dispatchThrottlingRateInMsg": as_int(rate.get("dispatchThrottlingRateInMsg"), "rate in messages") or 0,
        "dispatchThrottlingRateInByte": as_int(rate.get("dispatchThrottlingRateInByte"), "rate in bytes", 64) or 0,
        "relativeToPublishRate": as_bool(rate.get("relativeToPublishRate"), "relativeToPublishRate") or False,
        "ratePeriodInSecond": as_int(rate.get("ratePeriodInSecond"), "ratePeriodInSecond") or 0,
    }


def read_publish_rate(body: Any) -> dict[str, Any] | None:
    """Return a publish rate."""
    rate = as_object(body, "publish rate")
    if rate is None:
        return None
    messages = as_int(rate.get("publishThrottlingRateInMsg"), "publishThrottlingRateInMsg")
    bytes_ = as_int(rate.get("publishThrottlingRateInByte"), "publishThrottlingRateInByte", bits=64)
    return {
        "publishThrottlingRateInMsg": -1 if messages is None else messages,
        "publishThrottlingRateInByte": -1 if bytes_ is None else bytes_,
    }


def read_subscribe_rate(body: Any) -> dict[str, Any] | None:
    """Return a subscribe rate."""
    rate = as_object(body, "subscribe rate")
    if rate is None:
        return None
    times = as_int(rate.get("subscribeThrottlingRatePerConsumer"), "subscribeThrottlingRatePerConsumer")
    period_s = as_int(rate.get("ratePeriodInSecond"), "ratePeriodInSecond")
    return {
        "subscribeThrottlingRatePerConsumer": -1 if times is None else times,
        "ratePeriodInSecond": 30 if period_s is None else period_s,
    }


def read_backlog_quota(body: Any, namespace: str) -> dict[str, Any] | None:
    """Return a backlog quota; ``limit`` is the old name of ``limitSize``."""
    quota = as_object(body, "backlog quota")
    if quota is None:
        return None
    size = as_int(quota.get("limitSize"), "limitSize", bits=64)
    if size is None:
        size = as_int(quota.get("limit"), "limit", bits=64) or 0
    age_s = as_int(quota.get("limitTime"), "limitTime") or 0
    policy = quota.get("policy")
    if policy not in BACKLOG_POLICIES:
        raise Refused(
            400,
            f"Set namespace[{namespace}] backlog quota failed because the data validation failed."
            " the attribute policy cannot be null",
        )
    return {"limit": size, "limitSize": size, "limitTime": age_s, "policy": policy}


def check_quota_fits(
    quota: Mapping[str, Any] | None, retention: Mapping[str, int] | None, refusal: str, mib: int = 1024 * 1024
) -> None:
    """Reject a backlog quota if the retention policy would delete messages that still count towards it.

    Args:
        quota: size-based quota, or None.
        retention: retention policy, or None.
        refusal: error message.
        mib: bytes per unit of retention size.
    """
    if quota is None or retention is None:
        return
    minutes, megabytes = retention["retentionTimeInMinutes"], retention["retentionSizeInMB"]
    if minutes <= 0 or megabytes <= 0:
        return
    if quota["limitSize"] >= megabytes * mib or quota["limitTime"] >= minutes * 60:
        raise Refused(412, refusal)


def read_entry_filters(body: Any) -> None:
    """Reject entry filters. They are Java classes; like a Pulsar without custom filters, this broker has none."""
    filters = as_object(body, "entry filters")
    if filters is None:
        return
    names = filters.get("entryFilterNames")
    if not names or not isinstance(names, str):
        raise Refused(400, "entryFilterNames can't be empty. To remove entry filters use the remove method.")
    raise Refused(400, f"Entry filter '{names.split(',')[0].strip()}' not found")
