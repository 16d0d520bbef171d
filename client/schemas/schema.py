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
"""The type of a schema that is not sent to the broker."""

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
"""Type of a schema as its REST interface and Java call it, by the protocol's number."""


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """A schema as the broker knows it.

    Attributes:
        kind: a Schema.Type of the protocol, or `BYTES`.
        definition: what the schema says, in the form that belongs to its type; empty where the type says it all.
        name: shown by tools; the broker does not look at it.
        properties: free pairs of text.
    """

    kind: int
    definition: bytes = b""
    name: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def type_name(self) -> str:
        """Its type, for example ``AVRO``."""
        return TYPE_NAMES.get(self.kind, f"type {self.kind}")

    def to_proto(self) -> pb.Schema | None:
        """Return what a PRODUCER or SUBSCRIBE says of it; None where it says nothing."""
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
        """Return what a broker says of a topic's schema."""
        pairs: Any = schema.properties  # the type checker takes them for the type of that name in Schema
        properties = {pair.key: pair.value for pair in pairs}
        kind = schema.type or BYTES  # type None stands for it, too
        return cls(kind, schema.schema_data, schema.name, properties)


class Schema(ABC, Generic[T]):
    """How values of one kind are written into messages, and read from them.

    Attributes:
        info: as the broker knows it.
        needs_writer: whether bytes are read with the schema that they were written with.
        needs_topic: whether a producer has to know the topic's schema before.
        needs_newest: whether those of a message that names no version are read with the newest of the topic.
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
            SchemaSerializationError: it does not fit; names the schema, the field and the value's type.
        """

    @abstractmethod
    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> T:
        """Return the value of bytes.

        Args:
            data: what was written.
            writer: the schema that it was written with; None for this one, or where that makes no difference.

        Raises:
            SchemaSerializationError: the bytes are no value of this schema.
        """

    def encode_message(self, value: T) -> tuple[bytes | None, bytes | None]:
        """Return payload and key of a message with a value.

        None as the payload says that the message has no value, and as the key, that the caller chooses it.
        """
        return self.encode(value), None

    def decode_message(self, data: bytes | None, key: bytes | None, writer: SchemaInfo | None = None) -> T | None:
        """Return the value of a message with such a payload and key, None where it has none; raises as `decode`."""
        return None if data is None else self.decode(data, writer)

    def for_topic(self, newest: SchemaInfo | None) -> Schema[T]:
        """Return the schema that a producer of a topic uses; ``newest`` is the topic's if `needs_topic`."""
        return self

    def refuse(self, value: object, wanted: str, path: str = "") -> NoReturn:
        """Say that a value is not what the schema wants.

        Args:
            value: given.
            wanted: what it should be.
            path: of the field; empty for the value as a whole.
        """
        raise SchemaSerializationError(refusal(str(self), value, wanted, path))

    def __str__(self) -> str:
        return f"schema {self.info.name or self.info.type_name}"


def refusal(schema: str, value: object, wanted: str, path: str = "") -> str:
    """Return the line that says what a schema wants in the place of a value."""
    where = f"{schema}: field {path}" if path else schema
    return f"{where} is {wanted}, not {shown(value)}, which is {type(value).__name__}"


def shown(value: object) -> str:
    """Return a value in a few ASCII characters."""
    try:
        text = " ".join(ascii(value).split())
    except Exception:  # noqa: BLE001  a value of user code, whose repr may do anything
        text = "an object"
    return text if len(text) <= 40 else f"{text[:36]} ..."


def check_schema(schema: object) -> None:
    """Reject anything but a schema instance.

    Raises:
        InvalidConfig: ``schema`` is something else, for example a schema class.
    """
    if not isinstance(schema, Schema):
        remedy = f"use {schema.__name__}(...)" if isinstance(schema, type) else "use a schema object of magnetar.client"
        raise InvalidConfig(f"schema={shown(schema)} is not a schema: {remedy}")
