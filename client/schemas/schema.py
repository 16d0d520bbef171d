"""Base class of schemas: their definition for the broker, and conversion between values and bytes.

Source: Pulsar binary protocol, message Schema; type names as in Pulsar's Java client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar

from ...errors import InvalidConfig, SchemaSerializationError
from ...wire import pulsar_api_pb2 as pb

T = TypeVar("T")

BYTES = -1
"""Type number of a schema that is not sent to the broker."""

TYPE_NAMES: Mapping[int, str] = {
    BYTES: "BYTES",
    pb.Schema.String: "STRING",
    pb.Schema.Json: "JSON",
    pb.Schema.Protobuf: "PROTOBUF",
    pb.Schema.Avro: "AVRO",
    pb.Schema.Bool: "BOOLEAN",
    pb.Schema.Int8: "INT8",
    pb.Schema.Int16: "INT16",
    pb.Schema.Int32: "INT32",
    pb.Schema.Int64: "INT64",
    pb.Schema.Float: "FLOAT",
    pb.Schema.Double: "DOUBLE",
    pb.Schema.Date: "DATE",
    pb.Schema.Time: "TIME",
    pb.Schema.Timestamp: "TIMESTAMP",
    pb.Schema.KeyValue: "KEY_VALUE",
    pb.Schema.Instant: "INSTANT",
    pb.Schema.LocalDate: "LOCAL_DATE",
    pb.Schema.LocalTime: "LOCAL_TIME",
    pb.Schema.LocalDateTime: "LOCAL_DATE_TIME",
    pb.Schema.ProtobufNative: "PROTOBUF_NATIVE",
    pb.Schema.AutoConsume: "AUTO_CONSUME",
}
"""Schema type names as in the REST interface and in Java, by protocol number."""


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """A schema's definition as stored by the broker.

    Attributes:
        kind: the protocol's Schema.Type, or `BYTES`.
        definition: the definition, in a format specific to the type; empty if the type is sufficient.
        name: shown by tools; ignored by the broker.
        properties: application-defined string pairs.
    """

    kind: int
    definition: bytes = b""
    name: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def type_name(self) -> str:
        """The type's name, for example ``AVRO``."""
        return TYPE_NAMES.get(self.kind, f"type {self.kind}")

    def to_proto(self) -> pb.Schema | None:
        """Return the schema for PRODUCER or SUBSCRIBE, or None if it is not sent."""
        if self.kind == BYTES:
            return None
        return pb.Schema(
            name=self.name,
            schema_data=self.definition,
            type=self.kind,  # type: ignore[arg-type]  # the protocol's number itself
            properties=[{"key": key, "value": value} for key, value in self.properties.items()],
        )

    @classmethod
    def from_proto(cls, schema: pb.Schema) -> SchemaInfo:
        """Return the schema in a broker's response."""
        pairs: Any = schema.properties  # the type checker confuses them with the type of that name in Schema
        properties = {pair.key: pair.value for pair in pairs}
        kind = schema.type or BYTES  # type None also means bytes
        return cls(kind, schema.schema_data, schema.name, properties)


class Schema(ABC, Generic[T]):
    """Converts values of one type to and from messages.

    Attributes:
        info: the definition for the broker.
        needs_writer: whether decoding requires the writer's schema.
        needs_topic: whether a producer must fetch the topic's schema first.
        needs_newest: whether messages without a schema version are decoded with the topic's newest schema.
    """

    info: SchemaInfo
    needs_writer: bool = False
    needs_newest: bool = False
    needs_topic: bool = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.info.name or self.info.type_name})"

    @abstractmethod
    def encode(self, value: T) -> bytes:
        """Return a value as bytes.

        Raises:
            SchemaSerializationError: the value does not fit; the message names the schema, the field and the value's
                type.
        """

    @abstractmethod
    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> T:
        """Decode bytes to a value.

        Args:
            data: the encoded value.
            writer: the writer's schema; None if it is this schema or irrelevant.

        Raises:
            SchemaSerializationError: the bytes cannot be decoded with this schema.
        """

    def encode_message(self, value: T) -> tuple[bytes | None, bytes | None]:
        """Return payload and key of a message with a value.

        If the payload is None, the message has no value; if the key is None, the caller chooses the key.
        """
        return self.encode(value), None

    def decode_message(self, data: bytes | None, key: bytes | None, writer: SchemaInfo | None = None) -> T | None:
        """Return the value of a message with this payload and key, or None without a value; see `decode` for errors."""
        return None if data is None else self.decode(data, writer)

    def for_topic(self, newest: SchemaInfo | None) -> Schema[T]:
        """Return the schema that a producer of a topic uses; ``newest`` is the topic's schema if `needs_topic`."""
        return self

    def refuse(self, value: object, wanted: str, path: str = "") -> NoReturn:
        """Raise the error for a value that does not fit the schema.

        Args:
            value: the value.
            wanted: description of the expected value.
            path: the field's path; empty for the whole value.
        """
        raise SchemaSerializationError(refusal(str(self), value, wanted, path))

    def __str__(self) -> str:
        return f"schema {self.info.name or self.info.type_name}"


def refusal(schema: str, value: object, wanted: str, path: str = "") -> str:
    """Return the error message for a value that does not fit a schema."""
    where = f"{schema}, field {path}" if path else schema
    return f"{where}: expected {wanted}, got {shown(value)} ({type(value).__name__})"


def shown(value: object) -> str:
    """Return an abbreviated ASCII representation of a value."""
    try:
        text = " ".join(ascii(value).split())
    except Exception:  # noqa: BLE001  a value of user code, whose repr may do anything
        text = "an object"
    return text if len(text) <= 40 else f"{text[:36]} ..."


def check_schema(schema: object) -> None:
    """Reject anything but a schema instance.

    Raises:
        InvalidConfig: ``schema`` is not an instance, for example a schema class.
    """
    if not isinstance(schema, Schema):
        remedy = f"use {schema.__name__}(...)" if isinstance(schema, type) else "use a schema object of magnetar.client"
        raise InvalidConfig(f"invalid schema {shown(schema)}: {remedy}")
