"""Request bodies of ``set-…`` commands: policy flags converted to the JSON of Pulsar's classes."""

from __future__ import annotations

from typing import Any

from ..failure import Failure
from .policies import on_or_off, parse_bytes, whole_megabytes
from .subscriptions import parse_duration


def number(value: int) -> int:
    """Return a number as JSON."""
    return value


def word(value: str) -> str:
    """Return a word as JSON."""
    return value


def seconds(text: str) -> int:
    """Parse a duration, and return seconds; -1 means unlimited."""
    return -1 if text == "-1" else parse_duration(text)


def dispatch_rate(msg: int, byte: int, period: int, relative: bool) -> dict[str, Any]:
    """Return a dispatch rate as JSON."""
    return {
        "dispatchThrottlingRateInMsg": msg,
        "dispatchThrottlingRateInByte": byte,
        "ratePeriodInSecond": period,
        "relativeToPublishRate": relative,
    }


def retention(time: str, size: str) -> dict[str, int]:
    """Return a retention policy as JSON.

    Raises:
        click.BadParameter: the size is not in whole megabytes. Rounded down, it could become 0, which retains nothing.
    """
    return {
        "retentionTimeInMinutes": -1 if time == "-1" else -(-parse_duration(time) // 60),
        "retentionSizeInMB": whole_megabytes(size),
    }


def quota(limit: str | None, limit_time: str | None, policy: str) -> dict[str, Any]:
    """Return a backlog quota as JSON."""
    return {
        "limitSize": -1 if limit is None else parse_bytes(limit, smallest=-1),
        "limitTime": -1 if limit_time is None else seconds(limit_time),
        "policy": policy,
    }


def persistence(ensemble: int, writes: int, acks: int, rate: float) -> dict[str, Any]:
    """Return a persistence policy as JSON."""
    return {
        "bookkeeperEnsemble": ensemble,
        "bookkeeperWriteQuorum": writes,
        "bookkeeperAckQuorum": acks,
        "managedLedgerMaxMarkDeleteRate": rate,
    }


def inactive(enable: bool, disable: bool, duration: str, mode: str) -> dict[str, Any]:
    """Return an inactive topic policy as JSON."""
    return {
        "inactiveTopicDeleteMode": mode,
        "maxInactiveDurationSeconds": parse_duration(duration),
        "deleteWhileInactive": on_or_off(enable, disable),
    }


def delayed(enable: bool, disable: bool, time: str, longest: str) -> dict[str, Any]:
    """Return a delayed delivery policy as JSON."""
    return {
        "active": on_or_off(enable, disable),
        "tickTime": parse_duration(time) * 1000,
        "maxDeliveryDelayInMillis": parse_duration(longest) * 1000,
    }


def auto_topics(enable: bool, disable: bool, kind: str, partitions: int | None) -> dict[str, Any]:
    """Return an automatic topic creation policy as JSON."""
    body: dict[str, Any] = {"allowAutoTopicCreation": on_or_off(enable, disable)}
    if body["allowAutoTopicCreation"]:
        body["topicType"] = kind
        if kind == "partitioned":
            body["defaultNumPartitions"] = 1 if partitions is None else partitions
        elif partitions is not None:
            raise Failure("--num-partitions requires --type partitioned")
    return body
