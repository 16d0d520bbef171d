"""A topic's statistics, entries, message ids and ledgers in Pulsar's JSON formats."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....tasks import Slices
from ....web.answers import encode
from ....wire.message_id import LATEST, MessageId
from ....wire.payload import open_payload
from ....wire.position import Position
from ...topics.nonpersistent import NonPersistentTopic
from ...topics.topic_stats import printable, publisher_stats, subscription_stats
from ..bodies import as_bool, as_int
from ..call import Call

if TYPE_CHECKING:
    from ...storage.entry import LedgerInfo, StoredEntry
    from ...topics.subscription import Subscription
    from ...topics.topic import Topic

_ONE_ENTRY_BYTES = 1
ENTRIES_PER_TURN = 1000
"""Entries to visit before yielding to the event loop."""


async def sliced_stats(
    topic: Topic,
    slices: Slices,
    *,
    with_publishers: bool = True,
    with_consumers: bool = True,
    with_backlog_bytes: bool = True,
) -> dict[str, Any]:
    """Return the same statistics as `Topic.stats`, computed in slices, as a topic may have thousands of clients."""
    if isinstance(topic, NonPersistentTopic):
        return topic.stats(
            with_publishers=with_publishers, with_consumers=with_consumers, with_backlog_bytes=with_backlog_bytes
        )
    subscriptions, publishers = {}, []
    for name, subscription in sorted(topic.subscriptions.items()):
        subscriptions[printable(name)] = subscription_stats(
            subscription, with_consumers=with_consumers, with_backlog_bytes=with_backlog_bytes
        )
        await slices.pause()
    for _, producer in sorted(topic.producers.items()) if with_publishers else ():
        publishers.append(publisher_stats(producer))
        await slices.pause()
    return topic.stats(subscriptions=subscriptions, publishers=publishers)


async def encoded_stats(stats: Mapping[str, Any], slices: Slices) -> list[bytes]:
    """Return a topic's statistics as chunks of JSON, with their lists encoded in slices."""
    parts: list[bytes] = []
    for name, value in stats.items():
        parts += (b"," if parts else b"{", encode(name), b":")
        if name == "publishers":
            parts.append(b"[")
            for number, publisher in enumerate(value):
                parts.append(b"," + encode(publisher) if number else encode(publisher))
                await slices.pause()
            parts.append(b"]")
        elif name == "subscriptions":
            parts.append(b"{")
            for number, (key, subscription) in enumerate(value.items()):
                parts += (b"," if number else b"", encode(key), b":", encode(subscription))
                await slices.pause()
            parts.append(b"}")
        else:
            parts.append(encode(value))
    return [*parts, b"}"]


async def shown_stats(call: Call, topic: Topic, slices: Slices) -> dict[str, Any]:
    """Return a topic's statistics, with the parts selected by the query."""
    stats = await sliced_stats(
        topic,
        slices,
        with_publishers=not call.flag("excludePublishers"),
        with_consumers=not call.flag("excludeConsumers"),
        with_backlog_bytes=call.flag("subscriptionBacklogSize", default=True),
    )
    if topic.name.is_persistent and call.flag("subscriptionBacklogSize", default=True):
        await _measure_backlogs(topic, stats)
    if not call.flag("getEarliestTimeInBacklog"):
        return stats
    earliest = 0
    for name, shown in stats["subscriptions"].items():
        if name in topic.subscriptions:
            time_ms = await _earliest_publish_time_ms(topic, topic.subscriptions[name])
            shown["earliestMsgPublishTimeInBacklog"] = time_ms
            earliest = min(earliest, time_ms) if earliest and time_ms else earliest or time_ms
    stats["earliestMsgPublishTimeInBacklogs"] = earliest
    return stats


async def _measure_backlogs(topic: Topic, stats: dict[str, Any]) -> None:
    """Replace the estimated backlog sizes with exact ones."""
    measured: dict[Position, int] = {}
    for name, shown in stats["subscriptions"].items():
        subscription = topic.subscriptions.get(name)
        if subscription is None or not shown["backlogSize"]:
            continue
        mark = subscription.cursor.mark_delete
        if mark not in measured:
            measured[mark] = await topic.log.bytes_behind(mark)
        shown["backlogSize"] = measured[mark]
    stats["backlogSize"] = max((each["backlogSize"] for each in stats["subscriptions"].values()), default=0)


async def read_entry(topic: Topic, position: Position) -> StoredEntry | None:
    """Return the entry at or after a position, from memory or disk, or None past the end."""
    entries = topic.log.read(position, 1, _ONE_ENTRY_BYTES)
    if entries is None:
        entries = await topic.log.load(position, 1, _ONE_ENTRY_BYTES)
    return entries[0] if entries else None


async def last_message(topic: Topic) -> Position | MessageId:
    """Return the id of the last message, including its batch index if it is in a batch."""
    last = topic.log.last_confirmed
    entry = await read_entry(topic, last) if last.entry_id >= 0 else None
    if entry is None or entry.position != last:  # empty, or trimmed by retention
        return last
    metadata, _ = open_payload(entry.payload)
    if not metadata.HasField("num_messages_in_batch"):
        return last
    return MessageId(last.ledger_id, last.entry_id, batch_index=metadata.num_messages_in_batch - 1)


def as_message_id(place: Position | MessageId, partition: int = -1) -> dict[str, Any]:
    """Return a message id in one of Pulsar's two JSON forms: for an entry, or for a message in a batch.

    Args:
        place: position of the entry or message.
        partition: partition index, or -1 for a topic that is not a partition.
    """
    answer: dict[str, Any] = {"ledgerId": place.ledger_id, "entryId": place.entry_id, "partitionIndex": partition}
    if isinstance(place, MessageId) and place.batch_index >= 0:
        inside = {"batchIndex": place.batch_index, "batchSize": 0}
        return answer | inside | {"outstandingAcksInSameBatch": 0, "originalBatchSize": 0}
    return answer | {"batchSize": 0, "batchIndex": -1}


def position_of(body: Mapping[str, Any]) -> Position:
    """Return the position of a JSON message id; missing numbers are 0, as in Java."""
    return Position(
        as_int(body.get("ledgerId"), "ledgerId", bits=64) or 0, as_int(body.get("entryId"), "entryId", bits=64) or 0
    )


def is_latest(position: Position) -> bool:
    """Return whether a position denotes the end of a topic."""
    return position == LATEST[:2]


def is_excluded(body: Mapping[str, Any]) -> bool:
    """Return whether a cursor reset excludes the message itself."""
    return as_bool(body.get("excluded"), "excluded") or False


async def nth_unacknowledged(topic: Topic, subscription: Subscription, count: int) -> Position | None:
    """Return the position of the ``count``-th unacknowledged entry of a subscription (from 1), or None."""
    cursor = subscription.cursor
    if count > cursor.backlog_entries:
        return None
    position = cursor.mark_delete
    for number in range(count):
        if number % ENTRIES_PER_TURN == ENTRIES_PER_TURN - 1:
            await asyncio.sleep(0)  # long walks must not block the loop
        position = cursor.next_unacknowledged(position)
        if position > topic.log.last_confirmed:
            return None
    return position


def internal_info(topic: Topic) -> dict[str, Any]:
    """Return the metadata that Pulsar stores for a managed ledger."""
    ledgers = topic.log.ledgers()
    created = iso(min((ledger.created_ms for ledger in ledgers), default=0))
    changed = iso(max((ledger.created_ms for ledger in ledgers), default=0))
    info: dict[str, Any] = {
        "version": len(ledgers),
        "creationDate": created,
        "modificationDate": changed,
        "ledgers": [_ledger_info(ledger) for ledger in ledgers],
    }
    if topic.log.is_terminated:
        last = topic.log.last_confirmed
        info["terminatedPosition"] = {"ledgerId": last.ledger_id, "entryId": last.entry_id}
    info["cursors"] = {
        name: {
            "version": 0,
            "creationDate": created,
            "modificationDate": changed,
            "cursorsLedgerId": -1,  # cursors are stored in the journal, not in ledgers
            "markDelete": {"ledgerId": cursor.mark_delete.ledger_id, "entryId": cursor.mark_delete.entry_id},
        }
        for name, cursor in topic.log.cursors.items()
    }
    return info


def bytes_after(topic: Topic, position: Position) -> int:
    """Estimate the number of bytes after a position. Within its ledger, they are proportional to the entries."""
    size = 0
    for ledger in topic.log.ledgers():
        if ledger.id > position.ledger_id:
            size += ledger.bytes
        elif ledger.id == position.ledger_id and ledger.entries:
            behind = max(0, ledger.entries - 1 - position.entry_id)
            size += ledger.bytes * behind // ledger.entries
    return size


async def _earliest_publish_time_ms(topic: Topic, subscription: Subscription) -> int:
    position = await nth_unacknowledged(topic, subscription, 1)
    entry = None if position is None else await read_entry(topic, position)
    if entry is None:
        return 0
    metadata, _ = open_payload(entry.payload)
    return metadata.publish_time


def _ledger_info(ledger: LedgerInfo) -> dict[str, Any]:
    sizes = {} if ledger.is_open else {"entries": ledger.entries, "size": ledger.bytes}
    return {
        "ledgerId": ledger.id,
        **sizes,
        "timestamp": 0 if ledger.is_open else ledger.created_ms,
        "isOffloaded": False,
    }


def iso(time_ms: int) -> str:
    """Return a time in ISO format, with milliseconds and UTC offset."""
    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).isoformat(timespec="milliseconds")
