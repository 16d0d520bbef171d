"""Lookup of the topics of a request by path, namespace or bundle, with Pulsar's error messages."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....errors import TopicNotFound
from ....web.answers import Refused
from ....wire.topic_name import DOMAINS, TopicName, parse_topic_name
from ...policies.policies import bundle_of
from ..call import Call

if TYPE_CHECKING:
    from ...policies.namespaces import Namespaces
    from ...topics.subscription import Subscription
    from ...topics.topic import Topic

_BUNDLE = re.compile(r"0x[0-9a-f]{8}_0x[0-9a-f]{8}")


def not_found(name: TopicName) -> Refused:
    """Return the error for a missing topic."""
    return Refused(404, f"Topic {name} not found")


def is_known(call: Call, name: TopicName) -> bool:
    """Return whether a topic with that name exists, partitioned or not."""
    return bool(call.namespaces.partitions(name)) or call.broker.has_topic(name)


async def find(call: Call) -> None:
    """Raise unless the topic in the path exists, partitioned or not. Creates a missing partition.

    Raises:
        Refused: 404 if it does not exist.
    """
    if not is_known(call, call.topic):
        await load(call, call.topic)  # raises the error


def persistent(call: Call, status: int = 406, reason: str = "Need to provide a persistent topic name") -> TopicName:
    """Return the topic in the path for a request that requires a persistent topic."""
    if not call.topic.is_persistent:
        raise Refused(status, reason)
    return call.topic


def require_known(call: Call) -> TopicName:
    """Return the topic in the path, partitioned or not, if it exists.

    Raises:
        Refused: 404, or 406 if the topic is not persistent.
    """
    name = persistent(call)
    if not is_known(call, name):
        raise not_found(name)
    return name


async def load(call: Call, name: TopicName) -> Topic:
    """Return a non-partitioned topic or a partition, loading it if needed. Creates a missing partition.

    Raises:
        Refused: 404 if it does not exist.
    """
    if not call.namespaces.has_namespace(name.namespace_name):
        raise Refused(404, "Namespace not found")
    partitions = call.namespaces.partitions(name.base) if name.partition >= 0 else 0
    if partitions and name.partition >= partitions:
        raise Refused(404, "Topic partitions were not yet created")
    if call.namespaces.partitions(name):
        raise not_found(name)
    try:
        return await call.broker.topic(name, create=partitions > 0)
    except TopicNotFound as error:
        raise not_found(name) from error


async def load_single(call: Call, reason: str) -> Topic:
    """Return the topic in the path like `load`, but raise a 405 if it is partitioned."""
    if call.namespaces.partitions(call.topic):
        raise Refused(405, reason)
    return await load(call, call.topic)


async def load_all(call: Call, name: TopicName) -> list[Topic]:
    """Return all partitions of a partitioned topic, or the topic itself if it is not partitioned."""
    partitions = range(call.namespaces.partitions(name))
    return [await load(call, name.partition_name(index)) for index in partitions] or [await load(call, name)]


def refuse_too_many(namespaces: Namespaces, partitions: int) -> None:
    """Raise if the number of partitions exceeds the maximum."""
    most = namespaces.max_partitions
    if partitions > most:
        raise Refused(406, f"Number of partitions should be less than or equal to {most}")


def connections(call: Call, name: TopicName) -> int:
    """Return the number of producers and consumers of a topic or partition."""
    topic = call.broker.topics.get(str(name))
    if topic is None:
        return 0
    return len(topic.producers) + sum(len(subscription.consumers) for subscription in topic.subscriptions.values())


def find_subscription(topic: Topic, subscription: str) -> Subscription:
    """Return a subscription of a topic by name.

    Raises:
        Refused: 404 if it does not exist.
    """
    found = topic.subscriptions.get(subscription)
    if found is None:
        raise Refused(404, f"Subscription {subscription} not found for topic {topic.name}")
    return found


def is_system_topic(topic: TopicName) -> bool:
    """Return whether a topic is a Pulsar system topic, which lists omit."""
    return topic.local.startswith("__")


def topics_of(call: Call, namespace: str, domains: Sequence[str], include_system: bool) -> list[TopicName]:
    """Return the topics of a namespace, with each partition listed; non-persistent topics only if loaded."""
    names = [*call.broker.topic_names(namespace), *call.broker.non_persistent_names(namespace)]
    topics = map(parse_topic_name, names)
    return [topic for topic in topics if topic.domain in domains and (include_system or not is_system_topic(topic))]


def boundaries(call: Call, namespace: str) -> list[str]:
    """Return the bundle boundaries of a namespace."""
    found: list[str] = call.namespaces.policies(namespace)["bundles"]["boundaries"]
    return found


def topics_in_bundle(call: Call, namespace: str, bundle: str) -> list[TopicName]:
    """Return the topics of a namespace that are in a bundle, after validating it with `check_bundle`."""
    check_bundle(call, namespace, bundle)
    topics = topics_of(call, namespace, DOMAINS, include_system=False)
    limits = boundaries(call, namespace)
    return [topic for topic in topics if bundle_of(limits, str(topic)) == bundle]


def check_bundle(call: Call, namespace: str, bundle: str) -> str:
    """Return ``bundle`` if it belongs to the namespace; raise Pulsar's error otherwise."""
    if not _BUNDLE.fullmatch(bundle):
        raise Refused(412, f"Invalid bundle range: {bundle}")
    low, high = bundle.split("_")
    upper = dict(itertools.pairwise(boundaries(call, namespace))).get(low)
    if upper is None:
        raise Refused(412, f"Invalid lower boundary for bundle {namespace}/{bundle}")
    if upper != high:
        expected = f"Expected upper boundary of {namespace}/{low}_{upper}"
        raise Refused(412, f"Invalid upper boundary for bundle {namespace}/{bundle}. {expected}")
    return bundle
