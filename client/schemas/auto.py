"""Schemas that are fetched from the topic, for decoding by consumers and for validating a producer's encoded bytes."""

from __future__ import annotations

from typing import Any

from ...errors import InvalidConfig, SchemaSerializationError
from ...wire import pulsar_api_pb2 as pb
from .avro_schema import AvroSchema
from .json_schema import load_json
from .key_value import KeyValueSchema, separated
from .primitives import BytesSchema, primitive
from .protobuf_native import ProtobufNativeSchema, message_class
from .schema import Schema, SchemaInfo

KNOWN_MAX = 1000
"""Maximum number of cached writer schemas."""


class _AnyJson(Schema[Any]):
    """Any JSON value."""

    def __init__(self, info: SchemaInfo):
        self.info = info

    def __str__(self) -> str:
        return "schema JSON"

    def encode(self, value: Any) -> bytes:
        """Raise SchemaSerializationError: the schema is read-only."""
        self.refuse(value, "no value, as it is read-only")

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> Any:
        """Return the JSON value; see `Schema.decode`."""
        return load_json(str(self), data)


def schema_of(info: SchemaInfo) -> Schema[Any]:
    """Return a schema that decodes values of a broker schema; records become dicts.

    Raises:
        SchemaSerializationError: decoding the values requires their class, or the schema is damaged.
    """
    found = primitive(info.kind)
    if found is not None:
        return found
    if info.kind == pb.Schema.Json:
        return _AnyJson(info)
    if info.kind == pb.Schema.ProtobufNative:
        return ProtobufNativeSchema(message_class(info))
    if info.kind == pb.Schema.KeyValue:
        key, value, encoding = separated(info)
        try:
            return KeyValueSchema(schema_of(key), schema_of(value), encoding)  # type: ignore[arg-type]  # checks it
        except InvalidConfig as error:
            raise SchemaSerializationError(f"schema KEY_VALUE cannot be read: {error}") from error
    if info.kind == pb.Schema.Avro:
        try:
            return AvroSchema(info.definition.decode())
        except (InvalidConfig, UnicodeDecodeError) as error:
            raise SchemaSerializationError(f"schema AVRO cannot be read: {error}") from error
    if info.kind == pb.Schema.Protobuf:  # the definition is an Avro schema, without the field numbers
        raise SchemaSerializationError(
            "values of schema PROTOBUF cannot be read without their class: use ProtobufSchema"
        )
    raise SchemaSerializationError(f"values of schema {info.type_name} cannot be read without a schema of their class")


class AutoConsumeSchema(Schema[Any]):
    """Decodes each message with the schema that it was written with, for consumers and readers.

    Values are dicts for Avro and JSON, instances of a generated class for PROTOBUF_NATIVE, `KeyValue` for KEY_VALUE,
    Python values for primitive schemas, and bytes if the topic has no schema.
    """

    info = SchemaInfo(pb.Schema.AutoConsume, name="AUTO_CONSUME")
    needs_writer = True
    needs_newest = True

    def __init__(self) -> None:
        """Create the schema; the topic's schema is fetched when the first message arrives."""
        self._known: dict[int, tuple[SchemaInfo, Schema[Any]]] = {}

    def encode(self, value: Any) -> bytes:
        """Raise SchemaSerializationError: the schema is read-only.

        Raises:
            SchemaSerializationError: always.
        """
        raise SchemaSerializationError("schema AUTO_CONSUME is only for consumers: use AutoProduceBytesSchema")

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> Any:
        """Decode a value; see `Schema.decode`."""
        return data if writer is None else self._schema(writer).decode(data)

    def decode_message(self, data: bytes | None, key: bytes | None, writer: SchemaInfo | None = None) -> Any:
        """Return the value of a message; see `Schema.decode_message`."""
        return data if writer is None else self._schema(writer).decode_message(data, key)

    def _schema(self, writer: SchemaInfo) -> Schema[Any]:
        found = self._known.get(id(writer))
        if found is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            # The writer is kept alive with its schema, so that its id() is not reused.
            found = self._known[id(writer)] = (writer, schema_of(writer))
        return found[1]


class _CheckedBytes(Schema[bytes]):
    """Bytes that must be a valid value of a topic's schema."""

    def __init__(self, checked_by: Schema[Any], info: SchemaInfo):
        self._checked_by = checked_by
        self.info = info

    def __str__(self) -> str:
        return str(self._checked_by)

    def encode(self, value: bytes) -> bytes:
        """Return bytes; see `Schema.encode`."""
        data = BytesSchema().encode(value)
        self._checked_by.decode(data)
        return data

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> bytes:
        """Return the bytes."""
        return data


class AutoProduceBytesSchema(Schema[bytes]):
    """For producers: bytes encoded by the application, validated against the topic's schema.

    The topic's newest schema at producer creation is used; if the topic has none, any bytes are accepted.
    """

    info = SchemaInfo(BytesSchema.info.kind, name="AUTO_PRODUCE_BYTES")
    needs_topic = True

    def encode(self, value: bytes) -> bytes:
        """Return bytes; see `Schema.encode`."""
        return BytesSchema().encode(value)

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> bytes:
        """Return the bytes."""
        return data

    def for_topic(self, newest: SchemaInfo | None) -> Schema[bytes]:
        """Return a schema that checks bytes against the topic's schema.

        Raises:
            InvalidConfig: decoding values of the topic's schema requires their class.
        """
        if newest is None:
            return BytesSchema()
        try:
            if newest.kind == pb.Schema.KeyValue and separated(newest)[2] == "SEPARATED":
                raise InvalidConfig("the topic's schema stores keys outside the payload: use KeyValueSchema")
            return _CheckedBytes(schema_of(newest), newest)
        except SchemaSerializationError as error:
            raise InvalidConfig(f"bytes cannot be checked against the topic's schema: {error}") from error
