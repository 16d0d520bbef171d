"""Partitioned topics: ``T/partitions``, listing, and aggregated statistics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.responses import Response

from ....errors import TopicNotFound
from ....tasks import Slices
from ....web.answers import Refused, as_json
from ....wire.topic_name import TopicName
from ...storage.cursors.names import is_internal
from .. import bodies
from ..call import Call
from ..routing import TOPIC, TOPICS, Routes
from .lookup import connections, is_known, load, load_all, not_found, refuse_too_many
from .partitioned_stats import aggregate
from .stats import shown_stats

if TYPE_CHECKING:
    from ...topics.topic import Topic

_WITH_PROPERTIES = "application/vnd.partitioned-topic-metadata+json"


def _list(call: Call) -> Response:
    namespace = call.require_namespace()
    return as_json([str(name) for name in call.namespaces.partitioned_topics(namespace, call.raw("domain"))])


async def _get(call: Call) -> Response:
    may_create = call.flag("checkAllowAutoCreation")
    name = call.new_topic if may_create else call.topic
    if may_create:
        call.require_topic_namespace()
    partitions = call.namespaces.partitions(name)
    if not partitions and not call.broker.has_topic(name):
        creation = call.namespaces.auto_topic_creation(name)
        if not may_create or not creation.is_allowed:
            raise not_found(name)
        if creation.partitions and name.partition < 0:
            refuse_too_many(call.namespaces, creation.partitions)
            await call.namespaces.create_partitioned_topic(name, creation.partitions)
            partitions = creation.partitions
    answer: dict[str, object] = {"partitions": partitions, "deleted": False}
    if partitions and (properties := call.namespaces.properties(name)):
        answer["properties"] = properties
    return as_json(answer)


async def _create(call: Call) -> None:
    partitions, properties = await _read(call)
    name = call.new_topic
    if name.partition >= 0:
        raise Refused(412, "Partitioned Topic Name should not contain '-partition-'")
    call.require_topic_namespace()
    if partitions <= 0:
        raise Refused(406, "Number of partitions should be more than 0")
    refuse_too_many(call.namespaces, partitions)
    if is_known(call, name):
        raise Refused(409, "This topic already exists")
    _refuse_conflicts(call, name, range(partitions))
    call.broker.check_room(name, partitions)
    await call.namespaces.create_partitioned_topic(name, partitions, properties)
    await _create_missing(call, name)


async def _update(call: Call) -> None:
    name = call.topic
    body = await call.body(("application/json", "text/plain", _WITH_PROPERTIES))
    if not body.strip():
        raise Refused(400, "The request entity cannot be empty.")
    partitions = bodies.as_int(bodies.parse(body), "number of partitions") or 0
    present = call.namespaces.partitions(name)
    if not present:
        raise Refused(409, f"Topic {name} is not the partitioned topic.")
    if partitions < present:
        raise Refused(422, f"Desired partitions {partitions} can't be less than the current partitions {present}.")
    refuse_too_many(call.namespaces, partitions)
    _refuse_conflicts(call, name, range(present, partitions))
    await call.namespaces.update_partitions(name, partitions)
    await _create_missing(call, name)
    first = await load(call, name.partition_name(0))
    for subscription in tuple(first.subscriptions.values()):
        if subscription.is_durable and not is_internal(subscription.name):
            for index in range(present, partitions):
                topic = await load(call, name.partition_name(index))
                if subscription.name not in topic.subscriptions:
                    await topic.create_subscription(subscription.name, "earliest")


async def _create_missed(call: Call) -> None:
    name = call.topic
    if not call.namespaces.partitions(name):
        raise Refused(404, f"Topic {name} does not exist")
    await _create_missing(call, name)


async def _delete(call: Call) -> None:
    name = call.topic
    partitions = call.namespaces.partitions(name)
    if not partitions:
        if call.broker.has_topic(name):
            remedy = "is a non-partitioned topic. Instead of calling delete-partitioned-topic please call delete."
            raise Refused(409, f"{name} {remedy}")
        raise Refused(404, f"Topic {name} not found.")
    force = call.flag("force")
    present = [name.partition_name(index) for index in range(partitions)]
    present = [partition for partition in present if call.broker.has_topic(partition)]
    if not force and any(connections(call, partition) for partition in present):
        raise Refused(412, "Topic has active producers/subscriptions")
    # The record is deleted last: otherwise a crash would leave partitions without a partitioned topic.
    for partition in present:
        try:
            await call.broker.delete_topic(partition, force, with_subscriptions=True)
        except TopicNotFound:
            continue  # deleted by another request meanwhile
    await call.broker.forget_schemas(name)
    await call.namespaces.delete_partitioned_topic(name)


async def _stats(call: Call) -> Response:
    topics = await _load_partitions(call)
    slices = Slices()
    per_partition = {str(topic.name): await shown_stats(call, topic, slices) for topic in topics}
    answer = aggregate(list(per_partition.values()))
    answer["metadata"] = {"partitions": len(topics), "deleted": False}
    answer["partitions"] = per_partition if call.flag("perPartition", default=True) else {}
    return as_json(answer)


async def _internal_stats(call: Call) -> Response:
    topics = await _load_partitions(call)
    per_partition = {str(topic.name): topic.internal_stats() for topic in topics}
    return as_json({"metadata": {"partitions": len(topics), "deleted": False}, "partitions": per_partition})


async def _load_partitions(call: Call) -> list[Topic]:
    name = call.require_topic_namespace()
    if not call.namespaces.partitions(name):
        if not name.is_persistent:
            raise Refused(404, f"Partitioned topic not found {name}")
        raise Refused(404, f"Partitioned Topic {name} not found")
    return await load_all(call, name)


async def _read(call: Call) -> tuple[int, dict[str, str]]:
    """Return the partition count and the properties in a create request."""
    body = await call.body(("application/json", "text/plain", _WITH_PROPERTIES))
    value = bodies.parse(body)
    if isinstance(value, dict) and call.request.headers.get("content-type", "").startswith(_WITH_PROPERTIES):
        properties = bodies.as_text_map(value.get("properties"), "properties")
        return bodies.as_int(value.get("partitions"), "partitions") or 0, properties or {}
    return bodies.as_int(value, "number of partitions") or 0, {}


def _refuse_conflicts(call: Call, name: TopicName, indexes: range) -> None:
    """Raise if a non-partitioned topic already has the name of a new partition."""
    for index in indexes:
        if call.broker.has_topic(partition := name.partition_name(index)):
            raise Refused(412, f"Topic {partition} exists and is not a partition: delete it first")


async def _create_missing(call: Call, name: TopicName) -> None:
    partitions = [name.partition_name(index) for index in range(call.namespaces.partitions(name))]
    await asyncio.gather(*(call.broker.create_topic(each) for each in partitions if not call.broker.has_topic(each)))


ROUTES: Routes = (
    ("GET", f"{TOPICS}/partitioned", _list),
    ("GET", f"{TOPIC}/partitions", _get),
    ("PUT", f"{TOPIC}/partitions", _create),
    ("POST", f"{TOPIC}/partitions", _update),
    ("DELETE", f"{TOPIC}/partitions", _delete),
    ("POST", f"{TOPIC}/createMissedPartitions", _create_missed),
    ("GET", f"{TOPIC}/partitioned-stats", _stats),
    ("GET", f"{TOPIC}/partitioned-internalStats", _internal_stats),
)
