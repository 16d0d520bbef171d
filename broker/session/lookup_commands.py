"""Handlers of LOOKUP, PARTITIONED_METADATA, GET_TOPICS_OF_NAMESPACE and of schemas.

All of it is answered from memory, within the turn in which it was asked; only creating a partitioned topic takes time.

Source: Pulsar binary protocol, sections Lookup and topic listing, Schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import BrokerError, InvalidTopicName, ProtocolError, TopicNotFound
from ...wire import replies
from ...wire.pulsar_api_pb2 import (
    CommandGetOrCreateSchema,
    CommandGetSchema,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandPartitionedTopicMetadata,
    ServerError,
)
from ...wire.topic_name import TopicName, parse_topic_name
from .topic_list import is_namespace_name, list_answer

if TYPE_CHECKING:
    from .connection import Connection


def partitioned_metadata(connection: Connection, command: CommandPartitionedTopicMetadata) -> None:
    """Answer PARTITIONED_METADATA."""
    request_id = command.request_id
    try:
        name = _known_name(connection, command.topic)
        partitions = connection.broker.partitions(name)
        if partitions == 0 and not connection.broker.has_topic(name):
            creation = connection.broker.auto_creation(name)
            if not command.metadata_auto_creation_enabled or not creation.is_allowed:
                raise TopicNotFound("")
            if creation.partitions > 0 and name.partition < 0:
                connection.start(request_id, _create_partitioned(connection, request_id, name, creation.partitions))
                return
    except (BrokerError, InvalidTopicName) as error:
        code = error.code if isinstance(error, BrokerError) else ServerError.InvalidTopicName
        connection.reply(replies.partitioned_metadata_failed(request_id, code, str(error)))
        return
    connection.reply(replies.partitioned_metadata(request_id, partitions))


async def _create_partitioned(connection: Connection, request_id: int, name: TopicName, partitions: int) -> None:
    partitions = await connection.broker.auto_create_partitioned(name, partitions)
    connection.reply(replies.partitioned_metadata(request_id, partitions))


def lookup(connection: Connection, command: CommandLookupTopic) -> None:
    """Answer LOOKUP: this broker owns every topic of a namespace that exists."""
    try:
        _known_name(connection, command.topic)
    except (BrokerError, InvalidTopicName) as error:
        code = error.code if isinstance(error, BrokerError) else ServerError.InvalidTopicName
        connection.reply(replies.lookup_failed(command.request_id, code, str(error)))
        return
    # A client that came through a tunnel or a container's port cannot reach a loopback address by itself: it is told
    # to stay on the address that it used.
    connection.reply(
        replies.lookup_connect(command.request_id, connection.broker.broker_url, connection.config.is_loopback)
    )


def _known_name(connection: Connection, text: str) -> TopicName:
    name = parse_topic_name(text)
    if not connection.broker.namespaces.has_namespace(name.namespace_name):
        raise TopicNotFound("Namespace not found")
    return name


def topics_of_namespace(connection: Connection, command: CommandGetTopicsOfNamespace) -> None:
    """Answer GET_TOPICS_OF_NAMESPACE; an absent namespace has no topics, a malformed name is a violation."""
    if not is_namespace_name(command.namespace):
        raise ProtocolError(f"GET_TOPICS_OF_NAMESPACE of {command.namespace!r}, which is no tenant/namespace")
    try:
        answer = list_answer(connection.broker.topic_names(command.namespace), command)
    except BrokerError as error:
        connection.fail(command.request_id, error)
        return
    connection.reply(answer)


def get_schema(connection: Connection, command: CommandGetSchema) -> None:
    """Answer GET_SCHEMA: topics have no schema yet, which is what Pulsar says of a topic of bytes."""
    if command.HasField("schema_version") and len(command.schema_version) not in (0, 8):
        raise ProtocolError(f"GET_SCHEMA with a version of {len(command.schema_version)} bytes, which has 8")
    if command.HasField("schema_version") and not command.schema_version:
        code, text = ServerError.IncompatibleSchema, "Empty schema version"
    else:
        try:
            name = parse_topic_name(command.topic)
            code, text = ServerError.TopicNotFound, f"Topic not found or no-schema {name}"
        except InvalidTopicName as error:
            code, text = ServerError.InvalidTopicName, str(error)
    connection.reply(replies.schema_failed(command.request_id, code, text))


def get_or_create_schema(connection: Connection, command: CommandGetOrCreateSchema) -> None:
    """Refuse GET_OR_CREATE_SCHEMA by name: what was said to be stored must be there later."""
    text = "schemas other than bytes are not supported by this broker yet; send bytes"
    connection.reply(replies.schema_creation_failed(command.request_id, ServerError.NotAllowedError, text))
