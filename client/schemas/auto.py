"""Schemas that the topic brings: a consumer decodes what it has, a producer's bytes are checked against it."""

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
"""Schemas of writers that are kept in the form that reading needs."""


class _AnyJson(Schema[Any]):
    """What JSON says."""

    def __init__(self, info: SchemaInfo):
        self.info = info

    def __str__(self) -> str:
        return "schema JSON"

    def encode(self, value: Any) -> bytes:
        """Refuse: it is for reading."""
        self.refuse(value, "read only")

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> Any:
        """Return what JSON says; as `Schema.decode`."""
        return load_json(str(self), data)


def schema_of(info: SchemaInfo) -> Schema[Any]:
    """Return what reads the values of a broker's schema: dicts for records, and for the rest what its own schema reads.

    Raises:
        SchemaSerializationError: its values can only be read with the class of them, or it is damaged.
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
    if info.kind == pb.Schema.Protobuf:  # the definition is Avro's, without the numbers of the fields
        raise SchemaSerializationError(
            "values of schema PROTOBUF can only be read with their class; use ProtobufSchema"
        )
    raise SchemaSerializationError(f"values of schema {info.type_name} can only be read with a schema of their class")


class AutoConsumeSchema(Schema[Any]):
    """Decodes each message by the topic's schema that it was written with, for consumers and readers.

    Values are dicts for Avro and JSON, messages of a class made on the spot for PROTOBUF_NATIVE, a `KeyValue` for
    KEY_VALUE, and what the schemas of single values have; bytes where the topic has no schema.
    """

    info = SchemaInfo(pb.Schema.AutoConsume, name="AUTO_CONSUME")
    needs_writer = True
    needs_newest = True

    def __init__(self) -> None:
        """Prepare; what the topic has is asked for with the first message."""
        self._known: dict[int, tuple[SchemaInfo, Schema[Any]]] = {}

    def encode(self, value: Any) -> bytes:
        """Refuse.

        Raises:
            SchemaSerializationError: always.
        """
        raise SchemaSerializationError("schema AUTO_CONSUME is for reading; a producer has AutoProduceBytesSchema")

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> Any:
        """Return the value of bytes; as `Schema.decode`."""
        return data if writer is None else self._schema(writer).decode(data)

    def decode_message(self, data: bytes | None, key: bytes | None, writer: SchemaInfo | None = None) -> Any:
        """Return the value of a message; as `Schema.decode_message`."""
        return data if writer is None else self._schema(writer).decode_message(data, key)

    def _schema(self, writer: SchemaInfo) -> Schema[Any]:
        found = self._known.get(id(writer))
        if found is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            # The writer is kept with its schema, so that no other has its id.
            found = self._known[id(writer)] = (writer, schema_of(writer))
        return found[1]


class _CheckedBytes(Schema[bytes]):
    """Bytes that are a value of a topic's schema."""

    def __init__(self, checked_by: Schema[Any], info: SchemaInfo):
        self._checked_by = checked_by
        self.info = info

    def __str__(self) -> str:
        return str(self._checked_by)

    def encode(self, value: bytes) -> bytes:
        """Return bytes; as `Schema.encode`."""
        data = BytesSchema().encode(value)
        self._checked_by.decode(data)
        return data

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> bytes:
        """Return the bytes."""
        return data


class AutoProduceBytesSchema(Schema[bytes]):
    """Bytes that the application encoded: each message is checked against the topic's schema, for producers.

    The schema is the topic's newest when the producer is made; where it has none then, any bytes are sent.
    """

    info = SchemaInfo(BytesSchema.info.kind, name="AUTO_PRODUCE_BYTES")
    needs_topic = True

    def encode(self, value: bytes) -> bytes:
        """Return bytes; as `Schema.encode`."""
        return BytesSchema().encode(value)

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> bytes:
        """Return the bytes."""
        return data

    def for_topic(self, newest: SchemaInfo | None) -> Schema[bytes]:
        """Return what checks against a topic's schema.

        Raises:
            InvalidConfig: that is one whose values are known by their class only.
        """
        if newest is None:
            return BytesSchema()
        try:
            if newest.kind == pb.Schema.KeyValue and separated(newest)[2] == "SEPARATED":
                raise InvalidConfig("the topic's schema has its keys beside the payload; use KeyValueSchema")
            return _CheckedBytes(schema_of(newest), newest)
        except SchemaSerializationError as error:
            raise InvalidConfig(f"bytes cannot be checked against the topic's schema: {error}") from error
