"""Statistics of a partitioned topic, aggregated from its partitions as in Pulsar."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

Stats = dict[str, Any]

_LAST = frozenset({"backlogQuotaLimitSize", "backlogQuotaLimitTime"})
"""Fields that take the last partition's value."""
_LARGEST = frozenset(
    {
        "oldestBacklogMessageAgeSeconds",
        "lastExpireTimestamp",
        "lastConsumedFlowTimestamp",
        "lastConsumedTimestamp",
        "lastAckedTimestamp",
        "lastMarkDeleteAdvancedTimestamp",
        "firstMessagesSentTimestamp",
        "firstConsumedFlowTimestamp",
        "lastPublishTimeStamp",
        "lastOffloadLedgerId",
        "lastOffloadSuccessTimeStamp",
        "lastOffloadFailureTimeStamp",
    }
)
"""Times and ages that take the maximum."""
_EARLIEST = frozenset({"earliestMsgPublishTimeInBacklogs", "earliestMsgPublishTimeInBacklog", "topicCreationTimeStamp"})
"""Start times that take the earliest non-zero value."""
_MEAN = frozenset({"averageMsgSize", "avgMessagesPerEntry"})
_OLDEST = "oldestBacklogMessageSubscriptionName"
_NOT_AGGREGATED = frozenset({"deduplicationStatus", "ownerBroker", "topicEpoch", _OLDEST})
_NOT_OF_MERGED_CLIENTS = frozenset({"address", "connectedSince", "clientVersion", "metadata"})


def aggregate(partitions: Sequence[Stats]) -> Stats:
    """Return the statistics of a partitioned topic without its ``metadata`` and ``partitions``."""
    merged = _merge(partitions, _NOT_AGGREGATED)
    merged["publishers"] = _by_index([stats["publishers"] for stats in partitions])
    merged["subscriptions"] = _merge_subscriptions([stats["subscriptions"] for stats in partitions])
    merged["replication"] = {}
    oldest = max(partitions, key=lambda stats: stats.get("oldestBacklogMessageAgeSeconds", -1))
    return merged | ({_OLDEST: oldest[_OLDEST]} if _OLDEST in oldest else {})


def _merge_subscriptions(partitions: Iterable[Mapping[str, Stats]]) -> dict[str, Stats]:
    by_name: dict[str, list[Stats]] = {}
    for subscriptions in partitions:
        for name, stats in subscriptions.items():
            by_name.setdefault(name, []).append(stats)
    merged = {name: _merge(all_stats, frozenset({"activeConsumerName"})) for name, all_stats in by_name.items()}
    for name, all_stats in by_name.items():
        merged[name]["consumers"] = _by_index([stats["consumers"] for stats in all_stats])
    return merged


def _by_index(partitions: Sequence[Sequence[Stats]]) -> list[Stats]:
    """Merge the first client of each partition, then the second, and so on."""
    by_index = ([each for each in clients if each is not None] for clients in zip_longest(*partitions))
    return [_merge(clients, _NOT_OF_MERGED_CLIENTS) for clients in by_index]


def _merge(all_stats: Sequence[Stats], leave_out: frozenset[str] = frozenset()) -> Stats:
    merged: Stats = {}
    for field, first in all_stats[0].items():
        if field not in leave_out:
            merged[field] = _merge_field(field, first, [stats[field] for stats in all_stats if field in stats])
    return merged


def _merge_field(field: str, first: Any, values: list[Any]) -> Any:
    if isinstance(first, bool):
        return any(values)
    if not isinstance(first, int | float):
        if isinstance(first, dict) and first and all(isinstance(value, int) for value in first.values()):
            return {key: sum(value.get(key, 0) for value in values) for key in first}
        return first
    if field in _LAST:
        return values[-1]
    if field in _LARGEST:
        return max(values)
    if field in _EARLIEST:
        return min((value for value in values if value > 0), default=0)
    if field in _MEAN:
        return sum(values) / len(values) if isinstance(first, float) else sum(values) // len(values)
    return sum(values)
