"""Handlers of LOOKUP, PARTITIONED_METADATA and GET_TOPICS_OF_NAMESPACE.

All of it is answered from memory, within the turn in which it was asked; only creating a partitioned topic takes time.

Source: Pulsar binary protocol, sections Lookup and topic listing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...errors import (
    InvalidPattern,
    MetadataError,
    PatternNotSupported,
    ProtocolError,
    TopicNotFound,
)
from ...wire import pulsar_api_pb2 as pb
from ...wire.topic_name import TopicName, parse_topic_name
from ..topics.topic_list import MAX_PATTERN_CHARS, is_system, topic_filter, topics_hash
from .authorization import audit_created
from .topic_watches import NAMESPACE

if TYPE_CHECKING:
    from .connection import Connection


def partitioned_metadata(connection: Connection, command: pb.CommandPartitionedTopicMetadata) -> None:
    """Answer PARTITIONED_METADATA."""
    name = _known_name(connection, command.topic)
    partitions = connection.broker.namespaces.partitions(name)
    if partitions == 0 and not connection.broker.has_topic(name):
        creation = connection.broker.namespaces.auto_topic_creation(name)
        if not command.metadata_auto_creation_enabled or not creation.is_allowed:
            raise TopicNotFound("")
        if creation.partitions > 0 and name.partition < 0:
            request_id = command.request_id
            connection.start(request_id, _create_partitioned(connection, request_id, name, creation.partitions))
            return
    _tell_partitions(connection, command.request_id, partitions)


async def _create_partitioned(connection: Connection, request_id: int, name: TopicName, partitions: int) -> None:
    connection.broker.check_room(name, partitions)
    partitions = await connection.broker.namespaces.ensure_partitioned_topic(name, partitions)
    audit_created(connection, name)
    _tell_partitions(connection, request_id, partitions)


def _tell_partitions(connection: Connection, request_id: int, partitions: int) -> None:
    connection.reply(
        pb.CommandPartitionedTopicMetadataResponse(request_id=request_id, partitions=partitions, response="Success")
    )


def lookup(connection: Connection, command: pb.CommandLookupTopic) -> None:
    """Answer LOOKUP: this broker owns every topic of a namespace that exists."""
    _known_name(connection, command.topic)
    answer = pb.CommandLookupTopicResponse(
        brokerServiceUrl=connection.broker.broker_url,
        response="Connect",
        request_id=command.request_id,
        authoritative=True,
        # A client that came through a tunnel or a container's port cannot reach a loopback address by itself, and
        # 0.0.0.0 is no address at all: it is told to stay on the one that it used.
        proxy_through_service_url=connection.config.is_local_address,
    )
    if connection.broker.broker_tls_url:
        answer.brokerServiceUrlTls = connection.broker.broker_tls_url
    connection.reply(answer)


def _known_name(connection: Connection, text: str) -> TopicName:
    name = parse_topic_name(text)
    if not connection.broker.namespaces.has_namespace(name.namespace_name):
        raise TopicNotFound("Namespace not found")
    return name


def topics_of_namespace(connection: Connection, command: pb.CommandGetTopicsOfNamespace) -> None:
    """Answer GET_TOPICS_OF_NAMESPACE; an absent namespace has no topics, a malformed name is a violation."""
    if NAMESPACE.fullmatch(command.namespace) is None:
        raise ProtocolError(f"GET_TOPICS_OF_NAMESPACE of {command.namespace!r}, which is no tenant/namespace")
    broker = connection.broker
    names = [*broker.topic_names(command.namespace), *broker.non_persistent_names(command.namespace)]
    connection.reply(list_answer(names, command))


def list_answer(
    names: Iterable[str], command: pb.CommandGetTopicsOfNamespace
) -> pb.CommandGetTopicsOfNamespaceResponse:
    """Return the response to a request about a namespace that has the topics ``names``.

    A pattern that is too long, or that only Java's engine understands, is left to the client, which is told that the
    names are not filtered.

    Raises:
        MetadataError: the pattern is not a regular expression.
    """
    shown = (name for name in names if not is_system(name) and _in_mode(name, command.mode))
    topics = sorted(shown, key=lambda name: (name.startswith("non-"), name))  # in the order of Pulsar
    pattern = command.topics_pattern
    takes = _filter(pattern) if 0 < len(pattern) <= MAX_PATTERN_CHARS else None
    if takes is not None:
        topics = [topic for topic in topics if takes(topic)]
    digest = topics_hash(sorted(topics))
    changed = command.topics_hash != digest
    return pb.CommandGetTopicsOfNamespaceResponse(
        request_id=command.request_id,
        topics=topics if changed else (),
        filtered=takes is not None,
        topics_hash=digest,
        changed=changed,
    )


def _in_mode(name: str, mode: int) -> bool:
    if mode == pb.CommandGetTopicsOfNamespace.ALL:
        return True
    return name.startswith("persistent://") == (mode == pb.CommandGetTopicsOfNamespace.PERSISTENT)


def _filter(pattern: str) -> Callable[[str], bool] | None:
    try:
        return topic_filter(pattern)
    except PatternNotSupported:
        return None
    except InvalidPattern as error:
        raise MetadataError(f"java.util.regex.PatternSyntaxException: {error}") from error
