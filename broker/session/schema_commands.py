"""Handlers for GET_SCHEMA and GET_OR_CREATE_SCHEMA. PRODUCER and SUBSCRIBE also contain schemas.

Source: Pulsar binary protocol, section Schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import IncompatibleSchema, ProtocolError, TopicNotFound
from ...wire import pulsar_api_pb2 as pb
from ...wire.topic_name import TopicName, parse_topic_name
from ..schemas.model import from_wire, to_wire, version_bytes, version_number
from ..topics.topic_schemas import added

if TYPE_CHECKING:
    from .connection import Connection

_VERSION_BYTES = 8


def get_schema(connection: Connection, command: pb.CommandGetSchema) -> None:
    """Send a topic's schema, in the requested version or the last one."""
    number = None
    if command.HasField("schema_version"):
        if not command.schema_version:
            raise IncompatibleSchema("Empty schema version")
        if len(command.schema_version) != _VERSION_BYTES:
            raise ProtocolError(f"GET_SCHEMA with a schema version of {len(command.schema_version)} bytes: expected 8")
        number = version_number(command.schema_version)
    name = parse_topic_name(command.topic)
    connection.start(command.request_id, _get_schema(connection, command.request_id, name, number))


async def _get_schema(connection: Connection, request_id: int, name: TopicName, number: int | None) -> None:
    history = await connection.broker.schemas.history(name)
    version = history.last if number is None else history.find(number)
    if version is None:
        raise TopicNotFound(f"Topic not found or no-schema {name}")
    base = name.base
    answer = pb.CommandGetSchemaResponse(
        request_id=request_id,
        schema=to_wire(version.schema, f"{base.namespace_name}/{base.local}"),
        schema_version=version_bytes(version.number),
    )
    connection.reply(answer)


def get_or_create_schema(connection: Connection, command: pb.CommandGetOrCreateSchema) -> None:
    """Send the version of a schema, after adding it to an existing topic if it is new."""
    name = parse_topic_name(command.topic)
    connection.start(command.request_id, _get_or_create(connection, command, name))


async def _get_or_create(connection: Connection, command: pb.CommandGetOrCreateSchema, name: TopicName) -> None:
    broker = connection.broker
    if not broker.has_topic(name):
        raise TopicNotFound(f"Topic not found {name}")
    version = b""
    if command.schema.type != pb.Schema.Type.Value("None"):
        topic = await broker.topic(name, create=False)
        version = version_bytes(await added(topic, from_wire(command.schema, broker.now_ms())))
    connection.reply(pb.CommandGetOrCreateSchemaResponse(request_id=command.request_id, schema_version=version))
