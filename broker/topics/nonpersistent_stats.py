"""Statistics of non-persistent topics for `topics stats` and `topics stats-internal`, with Pulsar's keys.

Source: broker admin reference, section Non-persistent differences; responses of Apache Pulsar 4.0.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .topic_stats import printable, topic_stats

if TYPE_CHECKING:
    from .nonpersistent import NonPersistentTopic

_STORED_ONLY = ("deduplicationStatus", "topicEpoch")
_OF_SUBSCRIPTIONS = ("activeConsumerName",)
_CURSOR = {
    "waitingReadOp": False, "pendingReadOps": 0, "messagesConsumedCounter": 0, "cursorLedger": 0,
    "cursorLedgerLastEntry": 0, "active": False, "numberOfEntriesSinceFirstNotAckedMessage": 0,
    "totalNonContiguousDeletedMessagesRange": 0, "subscriptionHavePendingRead": False,
    "subscriptionHavePendingReplayRead": False,
}  # fmt: skip


def nonpersistent_stats(topic: NonPersistentTopic, **options: Any) -> dict[str, Any]:
    """Return the statistics of a topic; ``options`` are passed to `topic_stats`.

    Drop rates are averages over the last statistics period, in messages per second.
    """
    stats = topic_stats(topic, **options)
    for key in _STORED_ONLY:
        stats.pop(key, None)
    stats |= {"backlogQuotaLimitSize": 0, "backlogQuotaLimitTime": 0, "oldestBacklogMessageAgeSeconds": 0}
    stats["msgDropRate"] = topic.drop_meter.rates[0]
    for publisher in stats["publishers"]:
        publisher["msgDropRate"] = 0.0  # see `nonpersistent`
    for subscription in topic.direct_subscriptions():
        shown = stats["subscriptions"][printable(subscription.name)]
        shown["msgDropRate"] = subscription.drop_meter.rates[0]
        for key in _OF_SUBSCRIPTIONS:
            shown.pop(key, None)
    return stats


def nonpersistent_internal_stats(topic: NonPersistentTopic) -> dict[str, Any]:
    """Return the counters of a topic; all counters of stored data are 0."""
    return {
        "entriesAddedCounter": topic.entries_in,
        "numberOfEntries": 0,
        "totalSize": 0,
        "currentLedgerEntries": 0,
        "currentLedgerSize": 0,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "cursors": {printable(name): dict(_CURSOR) for name in sorted(topic.subscriptions)},
    }
