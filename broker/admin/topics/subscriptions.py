"""``T/subscription/…``: subscriptions and their positions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from starlette.responses import Response

from ....web.answers import Refused, as_json, not_supported
from ....wire.position import Position
from ...storage.cursors.names import is_internal
from .. import bodies
from ..call import Call
from ..routing import TOPIC, Routes
from .lookup import find_subscription, is_known, load_all, load_single, persistent
from .stats import is_excluded, is_latest, nth_unacknowledged, position_of, read_entry

if TYPE_CHECKING:
    from ...topics.subscription import Subscription
    from ...topics.topic import Topic

_S = f"{TOPIC}/subscription/{{subscription}}"
_NOT_STORED = "Expire messages on a non-persistent topic is not allowed"
ANALYZED_PER_TURN = 100
MAX_ANALYZED_ENTRIES = 10_000
"""`subscriptionBacklogScanMaxEntries`: limit of a backlog analysis, which reports reaching it."""


async def _list(call: Call) -> Response:
    topics = await load_all(call, call.topic)
    return as_json(sorted({name for topic in topics for name in topic.subscriptions}))


async def _create(call: Call) -> None:
    raw = bodies.parse(await call.body())
    body = bodies.as_object(None if isinstance(raw, str) else raw, "message id")  # Pulsar treats a string as latest
    name = call.require_topic_namespace()
    if not name.is_persistent:
        raise Refused(400, "Create subscription on non-persistent topic can only be done through client")
    if call.flag("replicated"):
        raise not_supported("a replicated subscription", "omit replicated=true")
    properties = bodies.as_text_map((body or {}).get("properties"), "subscription properties")
    subscription, position = call.new_subscription, _initial(body)
    if not is_known(call, name):
        if not call.namespaces.auto_topic_creation(name).is_allowed:
            raise Refused(412, "Topic does not exist and cannot be auto-created")
        await call.broker.topic(call.new_topic, create=True)
    topics = await load_all(call, name)
    if any(subscription in topic.subscriptions for topic in topics):
        raise Refused(409, "Subscription already exists for topic")
    for topic in topics:
        await topic.create_subscription(subscription, position, properties)


async def _delete(call: Call) -> None:
    name = call.own_subscription
    found = await _find_all(call, name)
    force = call.flag("force")
    if not force and any(subscription.consumers for _, subscription in found):
        raise Refused(412, "Subscription has active connected consumers")
    for topic, _ in found:
        await topic.delete_subscription(name, force=force)


async def _skip_all(call: Call) -> None:
    persistent(call)
    for _, subscription in await _find_all(call, call.own_subscription):
        await subscription.skip_all()


async def _skip(call: Call) -> None:
    count = call.number("count")
    persistent(call)
    topic = await load_single(call, "Skip messages on a partitioned topic is not allowed")
    subscription = find_subscription(topic, call.own_subscription)
    if count > 0:
        await subscription.skip(count)


async def _expire(call: Call) -> None:
    age_s = call.number("seconds")
    persistent(call, 405, _NOT_STORED)
    await _expire_each(await _find_all(call, call.own_subscription), age_s)


async def _expire_in_all(call: Call) -> None:
    age_s = call.number("seconds")
    topics = await load_all(call, persistent(call, 405, _NOT_STORED))
    chosen = [(topic, each) for topic in topics for each in topic.subscriptions.values() if not is_internal(each.name)]
    await _expire_each(chosen, age_s)


async def _expire_each(chosen: Sequence[tuple[Topic, Subscription]], age_s: int) -> None:
    """Expire messages on every subscription, then raise if one of them had no backlog."""
    caught_up = [(topic, each) for topic, each in chosen if not each.cursor.backlog_entries]
    if age_s > 0:  # an age of 0 means no limit
        for _, subscription in chosen:
            if subscription.cursor.backlog_entries:
                await subscription.expire(age_s)
    for topic, subscription in caught_up[:1]:
        raise Refused(
            409,
            f"Expire message by timestamp not issued on topic {topic.name} for subscription {subscription.name} due to"
            " ongoing message expiration not finished or subscription almost catch  up. If it's performed on a"
            " partitioned topic operation might succeeded on other partitions, please check stats of individual"
            " partition.",
        )


async def _expire_to(call: Call) -> None:
    reason = "Expire message at position is not supported for partitioned-topic"
    _, subscription, body = await _with_message_id(call, reason)
    target = position_of(body)
    if is_excluded(body):
        target = Position(target.ledger_id, target.entry_id - 1)
    await subscription.expire_up_to(target)


async def _reset_to_time(call: Call) -> None:
    time_ms = call.number("timestamp")
    for _, subscription in await _find_all(call, call.own_subscription):
        await subscription.reset_to_time(time_ms)


async def _reset_to_id(call: Call) -> None:
    reason = "Reset-cursor at position is not allowed for partitioned-topic"
    topic, subscription, body = await _with_message_id(call, reason)
    target = position_of(body)
    if (bodies.as_int(body.get("batchIndex"), "batchIndex") or -1) > 0:
        raise not_supported("resetting into a batch (batchIndex)", "omit batchIndex")
    if is_latest(target):
        target = topic.log.next_position(topic.log.last_confirmed)
    elif is_excluded(body):
        target = topic.log.next_position(target)
    await subscription.seek(target)


async def _with_message_id(call: Call, reason: str) -> tuple[Topic, Subscription, dict[str, Any]]:
    """Return the topic and subscription in the path and the message id in the body; reject a partitioned topic."""
    body = bodies.as_object(await call.json(), "message id")
    persistent(call)
    topic = await load_single(call, reason)
    subscription = find_subscription(topic, call.own_subscription)
    if body is None:
        raise Refused(400, "messageId is null")
    return topic, subscription, body


async def _set_properties(call: Call) -> None:
    wanted = bodies.as_text_map(await call.json(), "properties") or {}  # null removes all of them, as in Pulsar
    for _, subscription in await _find_all(call, call.own_subscription):
        await subscription.set_properties(wanted)


async def _get_properties(call: Call) -> Response:
    return as_json(await _properties(call))


async def _properties(call: Call) -> dict[str, str]:
    """Return a subscription's properties, merged from all partitions."""
    merged: dict[str, str] = {}
    for _, found in await _find_all(call, call.subscription):
        merged |= found.cursor.properties
    return merged


async def _replicated(call: Call) -> Response:
    found = await _find_all(call, call.subscription)
    return as_json({str(topic.name): subscription.is_replicated for topic, subscription in found})


async def _set_replicated(call: Call) -> None:
    wanted = bodies.as_bool(await call.json(), "replicated")
    found = await _find_all(call, call.subscription)
    if wanted and not all(subscription.is_replicated for _, subscription in found):
        raise not_supported("a replicated subscription", "send false")
    for _, subscription in found:
        await subscription.set_replicated(bool(wanted))


async def _analyze(call: Call) -> Response:
    remedy = "please try do it on specific topic partition"
    topic = await load_single(call, f"Analyze backlog on a partitioned topic is not allowed, {remedy}")
    subscription = find_subscription(topic, call.subscription)
    entries = messages = 0
    first = last = None
    position = await nth_unacknowledged(topic, subscription, 1)
    while position is not None and entries < MAX_ANALYZED_ENTRIES:
        entry = await read_entry(topic, position)
        if entry is None:
            break
        entries, messages = entries + 1, messages + entry.messages
        if entries % ANALYZED_PER_TURN == 0:
            await asyncio.sleep(0)  # entries in memory are read without an await
        first, last = first or entry.position, entry.position
        following = subscription.cursor.next_unacknowledged(position)
        position = following if following <= topic.log.last_confirmed else None
    answer: dict[str, object] = {"entries": entries, "messages": messages}
    for unit, count in (("Entries", entries), ("Messages", messages)):
        answer |= {f"filterRejected{unit}": 0, f"filterAccepted{unit}": count, f"filterRescheduled{unit}": 0}
    answer["aborted"] = position is not None and entries >= MAX_ANALYZED_ENTRIES
    for field, place in (("firstMessageId", first), ("lastMessageId", last)):
        if place is not None:
            answer[field] = f"{place.ledger_id}:{place.entry_id}"
    return as_json(answer)


async def _find_all(call: Call, subscription: str) -> list[tuple[Topic, Subscription]]:
    """Return the subscription on each topic or partition in the path that has it; raise if none does."""
    topics = await load_all(call, call.topic)
    having = [(topic, topic.subscriptions[subscription]) for topic in topics if subscription in topic.subscriptions]
    if not having:
        raise Refused(404, f"Subscription {subscription} not found for topic {topics[0].name}")
    return having


def _initial(body: dict[str, object] | None) -> Literal["earliest", "latest"] | Position:
    if body is None or is_latest(position_of(body)):
        return "latest"
    position = position_of(body)
    return "earliest" if position == (-1, -1) else position


ROUTES: Routes = (
    ("GET", f"{TOPIC}/subscriptions", _list),
    ("PUT", _S, _create),
    ("DELETE", _S, _delete),
    ("POST", f"{_S}/skip_all", _skip_all),
    ("POST", f"{_S}/skip/{{count}}", _skip),
    ("POST", f"{_S}/expireMessages/{{seconds}}", _expire),
    ("POST", f"{_S}/expireMessages", _expire_to),
    ("POST", f"{TOPIC}/all_subscription/expireMessages/{{seconds}}", _expire_in_all),
    ("POST", f"{_S}/resetcursor/{{timestamp}}", _reset_to_time),
    ("POST", f"{_S}/resetcursor", _reset_to_id),
    ("GET", f"{_S}/properties", _get_properties),
    ("PUT", f"{_S}/properties", _set_properties),
    ("GET", f"{_S}/replicatedSubscriptionStatus", _replicated),
    ("POST", f"{_S}/replicatedSubscriptionStatus", _set_replicated),
    ("POST", f"{_S}/analyzeBacklog", _analyze),
)
