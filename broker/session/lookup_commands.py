"""Handlers of LOOKUP, PARTITIONED_METADATA, GET_TOPICS_OF_NAMESPACE and of schemas.

All of it is answered from memory, within the turn in which it was asked; only creating a partitioned topic takes time.

Source: Pulsar binary protocol, sections Lookup and topic listing, Schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import google_crc32c

from ...errors import (
    IncompatibleSchema,
    InvalidPattern,
    MetadataError,
    NotAllowed,
    PatternNotSupported,
    ProtocolError,
    TopicNotFound,
)
from ...wire import pulsar_api_pb2 as pb
from ...wire.topic_name import TopicName, parse_topic_name
from ...wire.topic_pattern import compile_pattern

if TYPE_CHECKING:
    from .connection import Connection

MAX_PATTERN_CHARS = 50
"""`subscriptionPatternMaxLength`: longer patterns are left to the client."""

_NAMESPACE = re.compile(r"[-=:.\w]+/[-=:.\w]+", re.ASCII)
_SYSTEM = re.compile(
    r"/__change_events(-partition-\d+)?$|/__transaction_\w+|__transaction_pending_ack$|/transaction_coordinator_\w+"
)


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
    partitions = await connection.broker.namespaces.ensure_partitioned_topic(name, partitions)
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
        # A client that came through a tunnel or a container's port cannot reach a loopback address by itself: it is
        # told to stay on the address that it used.
        proxy_through_service_url=connection.config.is_loopback,
    )
    connection.reply(answer)


def _known_name(connection: Connection, text: str) -> TopicName:
    name = parse_topic_name(text)
    if not connection.broker.namespaces.has_namespace(name.namespace_name):
        raise TopicNotFound("Namespace not found")
    return name


def topics_of_namespace(connection: Connection, command: pb.CommandGetTopicsOfNamespace) -> None:
    """Answer GET_TOPICS_OF_NAMESPACE; an absent namespace has no topics, a malformed name is a violation."""
    if _NAMESPACE.fullmatch(command.namespace) is None:
        raise ProtocolError(f"GET_TOPICS_OF_NAMESPACE of {command.namespace!r}, which is no tenant/namespace")
    connection.reply(list_answer(connection.broker.topic_names(command.namespace), command))


def list_answer(
    names: Iterable[str], command: pb.CommandGetTopicsOfNamespace
) -> pb.CommandGetTopicsOfNamespaceResponse:
    """Return the response to a request about a namespace that has the topics ``names``.

    A pattern that is too long, or that only Java's engine understands, is left to the client, which is told that the
    names are not filtered.

    Raises:
        MetadataError: the pattern is not a regular expression.
    """
    topics = sorted(name for name in names if not _SYSTEM.search(name) and _in_mode(name, command.mode))
    pattern = command.topics_pattern
    matches = _compiled(pattern) if 0 < len(pattern) <= MAX_PATTERN_CHARS else None
    if matches is not None:  # the whole name, but for domain and partition suffix
        topics = [topic for topic in topics if matches(str(parse_topic_name(topic).base).split("://", 1)[1])]
    digest = topics_hash(topics)
    changed = command.topics_hash != digest
    return pb.CommandGetTopicsOfNamespaceResponse(
        request_id=command.request_id,
        topics=topics if changed else (),
        filtered=matches is not None,
        topics_hash=digest,
        changed=changed,
    )


def _in_mode(name: str, mode: int) -> bool:
    if mode == pb.CommandGetTopicsOfNamespace.ALL:
        return True
    return name.startswith("persistent://") == (mode == pb.CommandGetTopicsOfNamespace.PERSISTENT)


def _compiled(pattern: str) -> Callable[[str], bool] | None:
    try:
        return compile_pattern(pattern.split("://", 1)[-1])
    except PatternNotSupported:
        return None
    except InvalidPattern as error:
        raise MetadataError(f"java.util.regex.PatternSyntaxException: {error}") from error


def topics_hash(topics: Iterable[str]) -> str:
    """Return the hash by which a client tells that a list is still the same; ``topics`` are sorted."""
    value = int(google_crc32c.value(",".join(topics).encode()))
    return value.to_bytes(4, "little").hex()


def get_schema(connection: Connection, command: pb.CommandGetSchema) -> None:
    """Answer GET_SCHEMA: topics have no schema yet, which is what Pulsar says of a topic of bytes."""
    if command.HasField("schema_version") and len(command.schema_version) not in (0, 8):
        raise ProtocolError(f"GET_SCHEMA with a version of {len(command.schema_version)} bytes, which has 8")
    if command.HasField("schema_version") and not command.schema_version:
        raise IncompatibleSchema("Empty schema version")
    raise TopicNotFound(f"Topic not found or no-schema {parse_topic_name(command.topic)}")


def get_or_create_schema(connection: Connection, command: pb.CommandGetOrCreateSchema) -> None:
    """Refuse GET_OR_CREATE_SCHEMA by name: what was said to be stored must be there later."""
    raise NotAllowed("schemas other than bytes are not supported by this broker yet; send bytes")
