"""``/admin/v2/persistent/…``: topics. Other modules handle their partitions, subscriptions and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from ....tasks import Slices
from ....web.answers import Refused, as_json, in_parts, not_supported, nothing, refusing
from ....wire.position import Position
from ....wire.topic_name import TopicName
from .. import bodies
from ..call import Call
from ..routing import TOPIC, TOPICS, Routes, of_existing
from .lookup import (
    connections,
    find,
    is_known,
    load,
    load_all,
    load_single,
    not_found,
    persistent,
    require_known,
    topics_in_bundle,
    topics_of,
)
from .stats import as_message_id, bytes_after, encoded_stats, internal_info, last_message, position_of, shown_stats

if TYPE_CHECKING:
    from ...topics.topic import Topic

_PENDING_ACKS = "__transaction_pending_ack"


def _list(call: Call) -> Response:
    namespace = call.require_namespace()
    domain = call.raw("domain")
    bundle = call.request.query_params.get("bundle")
    if bundle is None:
        topics = topics_of(call, namespace, (domain,), call.flag("includeSystemTopic"))
    else:
        topics = [topic for topic in topics_in_bundle(call, namespace, bundle) if topic.domain == domain]
    return as_json([str(topic) for topic in topics])


def _list_bundle(call: Call) -> Response:
    namespace = call.require_namespace()
    topics = topics_in_bundle(call, namespace, call.text("bundle"))
    return as_json([str(topic) for topic in topics if not topic.is_persistent])


async def _create(call: Call) -> None:
    properties = bodies.as_text_map(await call.json(), "properties") or {}
    name = call.require_topic_namespace(is_new=True)
    if name.local.endswith(_PENDING_ACKS):
        raise Refused(400, "Cannot create topic in system topic format!")
    if name.partition >= 0:
        _check_partition(call, name)
    if is_known(call, name):
        raise Refused(409, "This topic already exists")
    await call.broker.create_topic(name, properties)


async def _delete(call: Call) -> None:
    name = call.topic
    if call.namespaces.partitions(name):
        remedy = "instead of calling delete topic, please call delete-partitioned-topic."
        raise Refused(409, f"{name} is a partitioned topic, {remedy}")
    if not call.broker.has_topic(name):
        if not name.is_persistent:
            return
        raise not_found(name)
    force = call.flag("force")
    if not force and (count := connections(call, name)):
        raise Refused(412, f"Topic has {count} connected producers/consumers")
    # Subscriptions without consumers do not prevent deletion.
    await call.broker.delete_topic(name, force, with_subscriptions=True)


async def _unload(call: Call) -> None:
    name = call.require_topic_namespace()
    for topic in await load_all(call, name):
        await call.broker.unload_topic(topic.name)


async def _set_properties(call: Call) -> None:
    added = bodies.as_text_map(await call.json(), "properties") or {}
    name = require_known(call)
    if added:
        await call.namespaces.set_properties(name, call.namespaces.properties(name) | added)


async def _remove_property(call: Call) -> None:
    name = require_known(call)
    properties = call.namespaces.properties(name)
    if properties.pop(call.request.query_params.get("key", ""), None) is not None:
        await call.namespaces.set_properties(name, properties)


async def _stats(call: Call) -> Response:
    slices = Slices()
    stats = await shown_stats(call, await load(call, call.topic), slices)
    return in_parts(await encoded_stats(stats, slices), "application/json")


async def _internal_stats(call: Call) -> Response:
    return as_json((await load(call, call.topic)).internal_stats())


async def _internal_info(call: Call) -> Response:
    name = persistent(call)
    topics = await load_all(call, name)
    if not call.namespaces.partitions(name):
        return as_json(internal_info(topics[0]))
    return as_json({"version": 0, "partitions": {str(topic.name): internal_info(topic) for topic in topics}})


async def _last_message_id(call: Call) -> Response:
    name = persistent(call, 405, "GetLastMessageId on a non-persistent topic is not allowed")
    return as_json(as_message_id(await last_message(await load(call, name)), name.partition))


async def _terminate(call: Call) -> Response:
    persistent(call)
    topic = await load_single(call, "Termination of a partitioned topic is not allowed")
    return as_json(await _terminated_at(topic))


async def _terminate_partitions(call: Call) -> Response:
    if not call.namespaces.partitions(call.topic):
        remedy = "is not allowed using partitioned-terminate, please use terminate commands"
        raise Refused(405, f"Termination of a non-partitioned topic {remedy}")
    topics = await load_all(call, call.topic)
    return as_json({str(index): await _terminated_at(topic) for index, topic in enumerate(topics)})


async def _terminated_at(topic: Topic) -> dict[str, Any]:
    last = await topic.terminate()
    return as_message_id(Position(last.ledger_id, last.entry_id))


async def _trim(call: Call) -> Response:
    name = persistent(call)
    limits = call.namespaces.effective(name).retention
    for topic in await load_all(call, name):
        await topic.log.trim(limits.time_ms, limits.size_bytes)
    return nothing()


async def _truncate(call: Call) -> None:
    for topic in await load_all(call, persistent(call, 412, "unsupport truncate")):
        for subscription in tuple(topic.subscriptions.values()):
            await subscription.truncate()
        topic.log.close_ledger()  # trimming only frees closed ledgers
        await topic.log.trim(0, 0)


async def _backlog_size(call: Call) -> Response:
    body = bodies.as_object(await call.json(), "message id")
    persistent(call)
    topic = await load_single(call, "calculate backlog size is not allowed for partitioned-topic")
    if body is None:
        raise Refused(400, "messageId is null")
    return as_json(bytes_after(topic, position_of(body)))


async def _compaction_status(call: Call) -> Response:
    compaction = (await load(call, call.topic)).compaction
    return as_json({"status": compaction.status, "lastError": compaction.last_error})


async def _compact(call: Call) -> None:
    name = persistent(call)
    topics = await load_all(call, name)
    if any(topic.compaction.is_running for topic in topics):
        raise Refused(409, f"Compaction already in progress on {name}")
    for topic in topics:
        topic.begin_compaction()


async def _offload_status(call: Call) -> Response:
    await load(call, call.topic)
    return as_json({"status": "NOT_RUN", "lastError": "", "firstUnoffloadedMessage": as_message_id(Position(-1, -1))})


def _check_partition(call: Call, name: TopicName) -> None:
    """Reject a name that has the form of a partition but is not one of its partitioned topic."""
    base, partitions = name.base, call.namespaces.partitions(name.base)
    cannot = f'Can\'t create topic {name.local} with "-partition-" followed by'
    if not partitions:
        raise Refused(412, f"{cannot} numeric value if there isn't a partitioned topic {base.local} created.")
    if name.partition >= partitions:
        smaller = "a number smaller than number of partition of partitioned topic"
        raise Refused(412, f"{cannot} {smaller} {base.local}")


_NO_OFFLOADING = not_supported("offloading", "messages remain in the data directory")
ROUTES: Routes = (
    ("GET", TOPICS, _list),
    ("GET", "/admin/v2/non-persistent/{tenant}/{namespace}/{bundle}", _list_bundle),
    ("PUT", TOPIC, _create),
    ("DELETE", TOPIC, _delete),
    ("PUT", f"{TOPIC}/unload", _unload),
    ("GET", f"{TOPIC}/properties", lambda call: as_json(call.namespaces.properties(require_known(call)))),
    ("PUT", f"{TOPIC}/properties", _set_properties),
    ("DELETE", f"{TOPIC}/properties", _remove_property),
    ("GET", f"{TOPIC}/stats", _stats),
    ("GET", f"{TOPIC}/internalStats", _internal_stats),
    ("GET", f"{TOPIC}/internal-info", _internal_info),
    ("GET", f"{TOPIC}/lastMessageId", _last_message_id),
    ("POST", f"{TOPIC}/terminate", _terminate),
    ("POST", f"{TOPIC}/terminate/partitions", _terminate_partitions),
    ("POST", f"{TOPIC}/trim", _trim),
    ("DELETE", f"{TOPIC}/truncate", _truncate),
    ("PUT", f"{TOPIC}/backlogSize", _backlog_size),
    ("GET", f"{TOPIC}/compaction", _compaction_status),
    ("PUT", f"{TOPIC}/compaction", _compact),
    ("GET", f"{TOPIC}/offload", _offload_status),
    ("PUT", f"{TOPIC}/offload", of_existing(find, refusing(_NO_OFFLOADING))),
)
