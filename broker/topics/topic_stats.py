"""Topic statistics for `topics stats` and `topics stats-internal`, with Pulsar's keys.

Counters start at 0 when a topic is loaded. Rates are averages over the last statistics period.

Source: broker admin reference, sections Topic stats and Internal stats.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from ...wire.position import Position
from ...wire.pulsar_api_pb2 import ProducerAccessMode
from ..dispatch.key_order import Draining
from ..dispatch.key_shared import KeySharedDispatcher
from ..storage.compacted_view import COMPACTION_CURSOR
from ..times import iso_time
from .deduplication import DEDUPLICATION_CURSOR
from .subscription import kind_name

if TYPE_CHECKING:
    from ..storage.port import View
    from .consumer import Consumer
    from .producer import Producer
    from .subscription import Subscription
    from .topic import Topic

Json = dict[str, Any]


def topic_stats(
    topic: Topic,
    *,
    with_publishers: bool = True,
    with_consumers: bool = True,
    with_backlog_bytes: bool = True,
    subscriptions: Json | None = None,
    publishers: list[Json] | None = None,
) -> Json:
    """Return the statistics of a topic.

    Args:
        topic: a loaded topic.
        with_publishers: whether to list producers.
        with_consumers: whether to list the consumers of each subscription.
        with_backlog_bytes: whether to estimate the size of each backlog.
        subscriptions: statistics of the subscriptions by name, if already collected.
        publishers: statistics of the producers, if already collected.
    """
    messages_in, bytes_in, messages_out, bytes_out = topic.meter.rates
    if subscriptions is None:
        subscriptions = {
            printable(name): subscription_stats(
                subscription, with_consumers=with_consumers, with_backlog_bytes=with_backlog_bytes
            )
            for name, subscription in sorted(topic.subscriptions.items())
        }
    if publishers is None:
        publishers = [publisher_stats(producer) for _, producer in sorted(topic.producers.items()) if with_publishers]
    stats: Json = {
        "msgRateIn": messages_in,
        "msgThroughputIn": bytes_in,
        "msgRateOut": messages_out,
        "msgThroughputOut": bytes_out,
        "bytesInCounter": topic.producers.bytes_in,
        "msgInCounter": topic.producers.messages_in,
        "systemTopicBytesInCounter": 0,
        "bytesOutCounter": topic.bytes_out,
        "msgOutCounter": topic.messages_out,
        "bytesOutInternalCounter": 0,
        "averageMsgSize": bytes_in / messages_in if messages_in else 0.0,
        "msgChunkPublished": any(producer.has_chunks for producer in topic.producers.values()),
        "storageSize": topic.log.total_bytes,
        "backlogSize": max(
            (about_backlog_bytes(subscription) for subscription in topic.subscriptions.values()), default=0
        ),
        "backlogQuotaLimitSize": topic.policies.size_quota.limit_bytes,
        "backlogQuotaLimitTime": topic.policies.age_quota.limit_s,
        **_oldest_message(topic),
        "publishRateLimitedTimes": 0 if topic.gate is None or topic.gate.limit is None else topic.gate.limit.stops,
        "earliestMsgPublishTimeInBacklogs": 0,
        "offloadedStorageSize": 0,
        "lastOffloadLedgerId": 0,
        "lastOffloadSuccessTimeStamp": 0,
        "lastOffloadFailureTimeStamp": 0,
        "ongoingTxnCount": 0,
        "abortedTxnCount": 0,
        "committedTxnCount": 0,
        "publishers": publishers,
        "waitingPublishers": len(topic.producers.waiting),
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": topic.deduplication.status.value,
        "nonContiguousDeletedMessagesRanges": sum(
            each["nonContiguousDeletedMessagesRanges"] for each in subscriptions.values()
        ),
        "nonContiguousDeletedMessagesRangesSerializedSize": 0,
        "delayedMessageIndexSizeInBytes": sum(
            each["delayedMessageIndexSizeInBytes"] for each in subscriptions.values()
        ),
        "compaction": {
            "lastCompactionRemovedEventCount": topic.compaction.last.removed,
            "lastCompactionSucceedTimestamp": topic.compaction.succeeded_ms,
            "lastCompactionFailedTimestamp": topic.compaction.failed_ms,
            "lastCompactionDurationTimeInMills": topic.compaction.duration_ms,
        },
        "ownerBroker": topic.broker.broker_id,
    }
    if topic.producers.epoch is not None:
        stats["topicEpoch"] = topic.producers.epoch
    return stats


def _oldest_message(topic: Topic) -> Json:
    """Return the age of the oldest message in all backlogs, or -1, and the name of its subscription."""
    oldest = topic.oldest_message
    if oldest is None:
        return {"oldestBacklogMessageAgeSeconds": -1}
    return {
        "oldestBacklogMessageAgeSeconds": oldest.age_s(topic.broker.now_ms()),
        "oldestBacklogMessageSubscriptionName": printable(oldest.subscription),
    }


def publisher_stats(producer: Producer) -> Json:
    """Return the statistics of a producer."""
    messages, bytes_ = producer.meter.rates
    return {
        "accessMode": ProducerAccessMode.Name(producer.access_mode),
        "msgRateIn": messages,
        "msgThroughputIn": bytes_,
        "averageMsgSize": bytes_ / messages if messages else 0.0,
        "chunkedMessageRate": 0.0,
        "producerId": producer.id,
        "supportsPartialProducer": False,
        "producerName": printable(producer.name),
        "address": producer.connection.address,
        "connectedSince": producer.connected_since,
        "clientVersion": printable(producer.connection.client_version or ""),
        "metadata": _printable_map(producer.metadata),
    }


def subscription_stats(
    subscription: Subscription, *, with_consumers: bool = True, with_backlog_bytes: bool = True
) -> Json:
    """Return the statistics of a subscription."""
    messages, bytes_, redelivered, acked = subscription.meter.rates
    messages_out, bytes_out, _, _ = subscription.counters
    backlog = subscription.cursor.backlog_entries
    consumers = list(subscription.consumers)
    active = subscription.active_consumer
    return {
        "msgRateOut": messages,
        "msgThroughputOut": bytes_,
        "bytesOutCounter": bytes_out,
        "msgOutCounter": messages_out,
        "msgRateRedeliver": redelivered,
        "messageAckRate": acked,
        "chunkedMessageRate": 0,
        "msgBacklog": backlog,
        "backlogSize": about_backlog_bytes(subscription) if with_backlog_bytes else -1,
        "earliestMsgPublishTimeInBacklog": 0,
        "msgBacklogNoDelayed": backlog - subscription.delayed_entries,
        "blockedSubscriptionOnUnackedMsgs": subscription.is_blocked,
        "msgDelayed": subscription.delayed_entries,
        "msgInReplay": subscription.replay_entries,
        "unackedMessages": sum(consumer.unacked_messages for consumer in consumers),
        "type": kind_name(subscription.kind),
        **({} if active is None else {"activeConsumerName": printable(active.name)}),
        "msgRateExpired": 0.0,
        "totalMsgExpired": subscription.expired_messages,
        "lastExpireTimestamp": subscription.last_expired_ms,
        "lastConsumedFlowTimestamp": max((c.last_flow_ms for c in consumers), default=subscription.last_flow_ms),
        "lastConsumedTimestamp": max((c.last_sent_ms for c in consumers), default=subscription.last_consumed_ms),
        "lastAckedTimestamp": subscription.last_acked_ms,
        "lastMarkDeleteAdvancedTimestamp": subscription.last_mark_moved_ms,
        "consumers": _consumers(subscription) if with_consumers else [],
        "isDurable": subscription.is_durable,
        "isReplicated": subscription.is_replicated,
        **_key_shared(subscription),
        "consumersAfterMarkDeletePosition": {},
        "nonContiguousDeletedMessagesRanges": subscription.cursor.acknowledged_range_count,
        "nonContiguousDeletedMessagesRangesSerializedSize": 0,
        "delayedMessageIndexSizeInBytes": 0 if subscription.delays is None else subscription.delays.size_bytes,
        "subscriptionProperties": _printable_map(subscription.cursor.properties),
        "filterProcessedMsgCount": 0,
        "filterAcceptedMsgCount": 0,
        "filterRejectedMsgCount": 0,
        "filterRescheduledMsgCount": 0,
        **subscription.throttled,
        "durable": subscription.is_durable,
        "replicated": subscription.is_replicated,
    }


def _consumers(subscription: Subscription) -> list[Json]:
    """Return the statistics of the consumers, including their keys for Key_Shared."""
    dispatcher = subscription.dispatcher
    if not isinstance(dispatcher, KeySharedDispatcher):
        return [consumer_stats(consumer) for consumer in subscription.consumers]
    ranges, draining, cleared = dispatcher.ranges, dispatcher.draining, dispatcher.cleared
    return [
        consumer_stats(consumer)
        | _draining(draining.get(consumer, []), cleared.get(consumer, 0))
        | {
            "drainingHashes": [
                {"hash": each.slot, "unackMsgs": each.unacked_entries, "blockedAttempts": each.waiting_entries}
                for each in draining.get(consumer, [])
            ],
            "keyHashRangeArrays": [list(each) for each in ranges.get(consumer, [])],
        }
        for consumer in subscription.consumers
    ]


def _draining(slots: Iterable[Draining], cleared: int) -> Json:
    counts = [each.unacked_entries for each in slots]
    return {
        "drainingHashesCount": len(counts),
        "drainingHashesClearedTotal": cleared,
        "drainingHashesUnackedMessages": sum(counts),
    }


def _key_shared(subscription: Subscription) -> Json:
    """Return the Key_Shared statistics of a subscription, with zeros for other types."""
    dispatcher = subscription.dispatcher
    if not isinstance(dispatcher, KeySharedDispatcher):
        return {"allowOutOfOrderDelivery": False, **_draining((), 0)}
    slots = (each for of_one in dispatcher.draining.values() for each in of_one)
    return {
        "allowOutOfOrderDelivery": dispatcher.policy.allows_out_of_order,
        "keySharedMode": dispatcher.policy.mode_name,
        **_draining(slots, sum(dispatcher.cleared.values())),
    }


def consumer_stats(consumer: Consumer) -> Json:
    """Return the statistics of a consumer."""
    messages, bytes_, redelivered, acked = consumer.meter.rates
    return {
        "msgRateOut": messages,
        "msgThroughputOut": bytes_,
        "bytesOutCounter": consumer.bytes_out,
        "msgOutCounter": consumer.messages_out,
        "msgRateRedeliver": redelivered,
        "messageAckRate": acked,
        "chunkedMessageRate": 0.0,
        "consumerName": printable(consumer.name),
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.unacked_messages,
        "avgMessagesPerEntry": round(consumer.messages_out / consumer.entries_out) if consumer.entries_out else 0,
        "blockedConsumerOnUnackedMsgs": consumer.is_blocked,
        "drainingHashesCount": 0,
        "drainingHashesClearedTotal": 0,
        "drainingHashesUnackedMessages": 0,
        "address": consumer.connection.address,
        "connectedSince": consumer.connected_since,
        "clientVersion": printable(consumer.connection.client_version or ""),
        "lastAckedTimestamp": consumer.last_acked_ms,
        "lastConsumedTimestamp": consumer.last_sent_ms,
        "lastConsumedFlowTimestamp": consumer.last_flow_ms,
        "metadata": _printable_map(consumer.metadata),
        "lastAckedTime": iso_time(consumer.last_acked_ms),
        "lastConsumedTime": iso_time(consumer.last_sent_ms),
    }


def printable(text: str) -> str:
    """Escape characters that are invalid in JSON, so that statistics can always be encoded."""
    return text.encode("utf-8", "backslashreplace").decode()


def _printable_map(texts: Mapping[str, str]) -> Json:
    return {printable(key): printable(value) for key, value in texts.items()}


def about_backlog_bytes(subscription: Subscription) -> int:
    """Return the estimated backlog size of a subscription, in bytes; see `Log.bytes_behind` for the exact size."""
    log = subscription.topic.log
    return log.about_bytes_behind(subscription.cursor.mark_delete) if subscription.cursor.backlog_entries else 0


def internal_stats(topic: Topic) -> Json:
    """Return the state of a topic's log and its cursors."""
    log = topic.log
    ledgers = log.ledgers()
    current = ledgers[-1] if ledgers and ledgers[-1].is_open else None
    closed = [_ledger(each.id, each.entries, each.bytes) for each in ledgers if each is not current]
    shown = closed if current is None else [*closed, _ledger(current.id, 0, 0)]
    return {
        "entriesAddedCounter": topic.entries_in,
        "numberOfEntries": log.entry_count,
        "totalSize": log.total_bytes,
        "currentLedgerEntries": current.entries if current else 0,
        "currentLedgerSize": current.bytes if current else 0,
        "lastLedgerCreatedTimestamp": iso_time(ledgers[-1].created_ms if ledgers else 0),
        "waitingCursorsCount": sum(1 for each in topic.subscriptions.values() if _is_waiting(each)),
        "pendingAddEntriesCount": sum(producer.pending_entries for producer in topic.producers.values()),
        "lastConfirmedEntry": text_of(log.last_confirmed),
        "state": "Terminated" if log.is_terminated else "LedgerOpened",
        "ledgers": shown or [_ledger(max(log.last_confirmed.ledger_id, 0), 0, 0)],
        # Unlike elsewhere, subscription names are URL-encoded here.
        "cursors": {
            quote_plus(printable(name)): cursor_stats(each) for name, each in sorted(topic.subscriptions.items())
        }
        | hidden_cursors(topic),
        "schemaLedgers": [],
        "compactedLedger": _compacted_ledger(log.view),
    }


def _ledger(ledger_id: int, entries: int, size: int) -> Json:
    return {"ledgerId": ledger_id, "entries": entries, "size": size, "offloaded": False, "underReplicated": False}


def _compacted_ledger(view: View | None) -> Json:
    if view is None:
        return _ledger(-1, -1, -1)
    return _ledger(view.ledger_id, view.log.entry_count, view.log.total_bytes)


def _is_waiting(subscription: Subscription) -> bool:
    """Return whether the subscription waits for new entries: all have been dispatched, and permits remain."""
    has_given_all = subscription.read_position > subscription.topic.log.last_confirmed
    return has_given_all and not subscription.replay_entries and any(c.permits > 0 for c in subscription.consumers)


def cursor_stats(subscription: Subscription) -> Json:
    """Return the state of a subscription's cursor."""
    cursor = subscription.cursor
    ranges = cursor.acknowledged_ranges()
    is_waiting = _is_waiting(subscription)
    read = subscription.read_position
    before = Position(read[0], read[1] - 1)
    return _cursor(cursor.mark_delete, read, subscription.created_ms, _cursor_properties(subscription)) | {
        "waitingReadOp": is_waiting,
        "messagesConsumedCounter": subscription.counters[3],
        "individuallyDeletedMessages": ranges_text(ranges),
        "active": bool(subscription.consumers),
        # As in Pulsar, the count extends from the mark-delete position to the read position, inclusive.
        "numberOfEntriesSinceFirstNotAckedMessage": subscription.topic.log.entries_between(cursor.mark_delete, before)
        + 1,
        "totalNonContiguousDeletedMessagesRange": len(ranges),
        "subscriptionHavePendingRead": is_waiting,
    }


def hidden_cursors(topic: Topic) -> Json:
    """Return the state of the deduplication cursor, if it exists; it is not listed as a subscription."""
    log = topic.log
    cursor = log.cursors.get(DEDUPLICATION_CURSOR)
    if cursor is None:
        return {}
    numbers = {printable(name): last for name, last in sorted(cursor.numbers.items())}
    return {DEDUPLICATION_CURSOR: _cursor(cursor.mark_delete, log.next_position(cursor.mark_delete), 0, numbers)}


def _cursor(mark_delete: Position, read: Position, created_ms: int, properties: Json) -> Json:
    """Return the state of a cursor without consumers, and without acknowledgements beyond the mark-delete position."""
    return {
        "markDeletePosition": text_of(mark_delete),
        "readPosition": text_of(read),
        "waitingReadOp": False,
        "pendingReadOps": 0,
        "messagesConsumedCounter": 0,
        "cursorLedger": -1,
        "cursorLedgerLastEntry": -1,
        "individuallyDeletedMessages": "[]",
        "lastLedgerSwitchTimestamp": iso_time(created_ms),
        "state": "Open",
        "active": False,
        "numberOfEntriesSinceFirstNotAckedMessage": 1,
        "totalNonContiguousDeletedMessagesRange": 0,
        "subscriptionHavePendingRead": False,
        "subscriptionHavePendingReplayRead": False,
        "properties": properties,
    }


def _cursor_properties(subscription: Subscription) -> Json:
    view = subscription.topic.log.view
    if view is None or subscription.name != COMPACTION_CURSOR:
        return {}
    return {"CompactedTopicLedger": view.ledger_id}


def ranges_text(ranges: list[tuple[Position, Position]]) -> str:
    """Return ranges in Pulsar's format: excluding the lower and including the upper bound."""
    parts = (f"({first[0]}:{first[1] - 1}..{last[0]}:{last[1]}]" for first, last in ranges)
    return f"[{','.join(parts)}]"


def text_of(position: Position) -> str:
    """Return a position as ``ledger:entry``."""
    return f"{position[0]}:{position[1]}"
