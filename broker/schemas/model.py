"""A topic's schema: its type and definition, with conversions from and to wire format.

Source: Pulsar binary protocol, section Schema. The type names are those of Pulsar's REST API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import cast

from ...wire import pulsar_api_pb2 as pb


class InvalidDefinition(ValueError):
    """A schema definition is invalid; the message is a one-line reason."""


class SchemaType(IntEnum):
    """Schema types with Pulsar's names and numbers. Types with negative numbers are never stored."""

    AUTO_PUBLISH = -4
    AUTO_CONSUME = -3
    AUTO = -2
    BYTES = -1
    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    EXTERNAL = 22


CLIENT_SIDE = frozenset({SchemaType.AUTO, SchemaType.AUTO_CONSUME, SchemaType.AUTO_PUBLISH})
"""Types with which a client accepts or sends any schema of the topic."""
AVRO_BASED = frozenset({SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF})
"""Types with an Avro definition."""


@dataclass(frozen=True)
class Schema:
    """A schema.

    Attributes:
        type: schema type.
        data: definition; empty for primitive types.
        properties: properties set by the client.
        timestamp_ms: registration time; 0 if not yet registered.
    """

    type: SchemaType
    data: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)
    timestamp_ms: int = 0


@dataclass(frozen=True)
class SchemaVersion:
    """A registered schema.

    Attributes:
        number: version number, starting at 0. Numbers of deleted versions are not reused.
        schema: the schema.
    """

    number: int
    schema: Schema


_COST_BYTES = 300
"""Memory overhead of a version, in addition to its definition."""


@dataclass(frozen=True)
class History:
    """The registered schemas of one topic.

    Attributes:
        versions: versions that are not deleted, oldest first.
        numbers: numbers of all versions and deletions.
    """

    versions: tuple[SchemaVersion, ...] = ()
    numbers: tuple[int, ...] = ()

    @property
    def next_number(self) -> int:
        """The number of the next version or deletion."""
        return self.numbers[-1] + 1 if self.numbers else 0

    @property
    def last(self) -> SchemaVersion | None:
        """The last version, or None."""
        return self.versions[-1] if self.versions else None

    @property
    def bytes_(self) -> int:
        """Approximate memory use, in bytes."""
        return sum(len(one.schema.data) for one in self.versions) + _COST_BYTES * (1 + len(self.numbers))

    def find(self, number: int) -> SchemaVersion | None:
        """Return a version by number, or None if it is missing or deleted."""
        return next((one for one in self.versions if one.number == number), None)


def stored_type(type_: SchemaType) -> SchemaType:
    """Return the type under which a schema is registered: BYTES counts as no schema."""
    return SchemaType.NONE if type_ is SchemaType.BYTES else type_


def version_bytes(number: int) -> bytes:
    """Encode a version number in wire format: 8 bytes, big-endian."""
    return number.to_bytes(8, "big", signed=True)


def version_number(data: bytes) -> int:
    """Decode a version number from wire format."""
    return int.from_bytes(data, "big", signed=True)


def from_wire(schema: pb.Schema, now_ms: int) -> Schema:
    """Convert the schema of a command."""
    kind = schema.type
    if kind == pb.Schema.AutoConsume:
        type_ = SchemaType.AUTO_CONSUME
    else:
        type_ = SchemaType.EXTERNAL if kind == pb.Schema.External else SchemaType(kind)
    # Schema has a member KeyValue, which hides the message with that name in the stubs.
    pairs = cast("Iterable[pb.KeyValue]", schema.properties)
    return Schema(type_, schema.schema_data, {pair.key: pair.value for pair in pairs}, now_ms)


def to_wire(schema: Schema, name: str) -> pb.Schema:
    """Convert a schema for a command; ``name`` is ``tenant/namespace/topic``."""
    pairs = [pb.KeyValue(key=key, value=value) for key, value in schema.properties.items()]
    return pb.Schema(name=name, schema_data=schema.data, type=schema.type.value, properties=pairs)  # type: ignore[arg-type]
