"""Handlers for LOOKUP, PARTITIONED_METADATA and GET_TOPICS_OF_NAMESPACE.

All respond immediately from memory, except when a partitioned topic must be created.

Source: Pulsar binary protocol, sections Lookup and topic listing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import (
    InvalidPattern,
    MetadataError,
    NotAllowed,
    PatternNotSupported,
    ProtocolError,
    TooManyRequests,
    TopicNotFound,
)
from ...wire import pulsar_api_pb2 as pb
from ...wire.topic_name import TopicName, parse_topic_name
from ..topics.topic_list import MAX_PATTERN_CHARS, topic_filter
from .authorization import audit_created
from .topic_watches import NAMESPACE

if TYPE_CHECKING:
    from ..topics.topic_index import TopicIndex
    from .connection import Connection


def partitioned_metadata(connection: Connection, command: pb.CommandPartitionedTopicMetadata) -> None:
    """Handle PARTITIONED_METADATA."""
    name = _known_name(connection, command.topic)
    partitions = connection.broker.namespaces.partitions(name)
    if partitions == 0 and not connection.broker.has_topic(name):
        creation = connection.broker.namespaces.auto_topic_creation(name)
        if not command.metadata_auto_creation_enabled or not creation.is_allowed:
            raise TopicNotFound("")
        if creation.partitions > 0 and name.partition < 0:
            request_id = command.request_id
            if connection.broker.lookups_waiting >= connection.broker.config.max_lookups:
                raise TooManyRequests("Failed due to too many pending lookup requests")
            work = connection.start(request_id, _create_partitioned(connection, request_id, name, creation.partitions))
            connection.broker.lookups_waiting += 1  # counted now, because the started task runs in a later iteration
            work.add_done_callback(lambda _: _lookup_ended(connection))
            return
    _tell_partitions(connection, command.request_id, partitions)


async def _create_partitioned(connection: Connection, request_id: int, name: TopicName, partitions: int) -> None:
    broker = connection.broker
    broker.check_room(name, partitions)
    if partitions > broker.namespaces.max_partitions:
        most = broker.namespaces.max_partitions
        raise NotAllowed(f"Number of partitions should be less than or equal to {most}")
    partitions = await broker.namespaces.ensure_partitioned_topic(name, partitions)
    audit_created(connection, name)
    _tell_partitions(connection, request_id, partitions)


def _lookup_ended(connection: Connection) -> None:
    connection.broker.lookups_waiting -= 1


def _tell_partitions(connection: Connection, request_id: int, partitions: int) -> None:
    connection.reply(
        pb.CommandPartitionedTopicMetadataResponse(request_id=request_id, partitions=partitions, response="Success")
    )


def lookup(connection: Connection, command: pb.CommandLookupTopic) -> None:
    """Handle LOOKUP. This broker owns every topic of an existing namespace."""
    _known_name(connection, command.topic)
    listener = command.advertised_listener_name.strip() or connection.listener
    url, tls_url = connection.broker.lookup_urls(listener)
    answer = pb.CommandLookupTopicResponse(
        brokerServiceUrl=url or None,
        response="Connect",
        request_id=command.request_id,
        authoritative=True,
        brokerServiceUrlTls=tls_url or None,
        # A client behind a tunnel or a container's port cannot reach a loopback address, and 0.0.0.0 is not an address
        # of the broker: the client keeps using the address that it connected to.
        proxy_through_service_url=not listener and connection.config.is_local_address,
    )
    connection.reply(answer)


def _known_name(connection: Connection, text: str) -> TopicName:
    name = parse_topic_name(text)
    if not connection.broker.namespaces.has_namespace(name.namespace_name):
        raise TopicNotFound("Namespace not found")
    return name


def topics_of_namespace(connection: Connection, command: pb.CommandGetTopicsOfNamespace) -> None:
    """Handle GET_TOPICS_OF_NAMESPACE. A missing namespace has no topics; a malformed name is a protocol error."""
    if NAMESPACE.fullmatch(command.namespace) is None:
        raise ProtocolError(f"GET_TOPICS_OF_NAMESPACE with namespace {command.namespace!r}: expected tenant/namespace")
    connection.reply(list_answer(connection.broker.topic_index, command))


def list_answer(index: TopicIndex, command: pb.CommandGetTopicsOfNamespace) -> pb.CommandGetTopicsOfNamespaceResponse:
    """Return the response to a request for the topics of a namespace.

    A pattern that is too long or that only Java's engine supports is left to the client: the response states that the
    names are not filtered.

    Raises:
        MetadataError: the pattern is not a valid regular expression.
    """
    pattern, mode = command.topics_pattern, command.mode
    matches = _filter(pattern) if 0 < len(pattern) <= MAX_PATTERN_CHARS else None
    prefix = _PREFIXES[mode]
    key = (mode, pattern if matches is not None else "")
    listed = index.list_of(
        command.namespace, key, lambda name: name.startswith(prefix) and (matches is None or matches(name))
    )
    changed = command.topics_hash != listed.digest
    return pb.CommandGetTopicsOfNamespaceResponse(
        request_id=command.request_id,
        topics=_in_pulsar_order(listed.names) if changed else (),
        filtered=matches is not None,
        topics_hash=listed.digest,
        changed=changed,
    )


_PREFIXES = {
    pb.CommandGetTopicsOfNamespace.PERSISTENT: "persistent://",
    pb.CommandGetTopicsOfNamespace.NON_PERSISTENT: "non-persistent://",
    pb.CommandGetTopicsOfNamespace.ALL: "",
}


def _in_pulsar_order(names: list[str]) -> list[str]:
    """Return sorted names with persistent topics first."""
    first = bisect_left(names, "persistent://")
    return names if first in (0, len(names)) else names[first:] + names[:first]


def _filter(pattern: str) -> Callable[[str], bool] | None:
    try:
        return topic_filter(pattern)
    except PatternNotSupported:
        return None
    except InvalidPattern as error:
        raise MetadataError(f"java.util.regex.PatternSyntaxException: {error}") from error
