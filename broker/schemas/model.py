"""A schema of a topic: its type, its definition, and what the wire and the registry say of it.

Source: Pulsar binary protocol, section Schema; the names of types are those of Pulsar's REST.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import cast

from ...wire import pulsar_api_pb2 as pb


class InvalidDefinition(ValueError):
    """A text is not a valid schema definition; gives the reason in one line."""


class SchemaType(IntEnum):
    """The kinds of schemas, by Pulsar's names and numbers; those below 0 are never stored."""

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
"""Types that say only that a client takes, or sends, whatever the topic has."""
AVRO_BASED = frozenset({SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF})
"""Types whose definition is one of Avro."""


@dataclass(frozen=True)
class Schema:
    """One schema.

    Attributes:
        type: its kind.
        data: its definition; empty for primitive types.
        properties: what its client says about it.
        timestamp_ms: when the registry took it; 0 if it has not.
    """

    type: SchemaType
    data: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)
    timestamp_ms: int = 0


@dataclass(frozen=True)
class SchemaVersion:
    """A schema that the registry holds.

    Attributes:
        number: its version, counted from 0; the numbers of deleted ones are not used again.
        schema: the schema.
    """

    number: int
    schema: Schema


_COST_BYTES = 300
"""What a version costs in memory besides its definition."""


@dataclass(frozen=True)
class History:
    """What the registry holds of one topic.

    Attributes:
        versions: those that are not deleted, the oldest first.
        numbers: of all versions and deletions.
    """

    versions: tuple[SchemaVersion, ...] = ()
    numbers: tuple[int, ...] = ()

    @property
    def next_number(self) -> int:
        """The number of the next version, or deletion."""
        return self.numbers[-1] + 1 if self.numbers else 0

    @property
    def last(self) -> SchemaVersion | None:
        """The last version, or None."""
        return self.versions[-1] if self.versions else None

    @property
    def bytes_(self) -> int:
        """About what it takes in memory."""
        return sum(len(one.schema.data) for one in self.versions) + _COST_BYTES * (1 + len(self.numbers))

    def find(self, number: int) -> SchemaVersion | None:
        """Return the version of a number, or None if it is missing or deleted."""
        return next((one for one in self.versions if one.number == number), None)


def stored_type(type_: SchemaType) -> SchemaType:
    """Return the type as the registry has it: bytes are no schema."""
    return SchemaType.NONE if type_ is SchemaType.BYTES else type_


def version_bytes(number: int) -> bytes:
    """Return a version as the wire has it: 8 bytes, the highest first."""
    return number.to_bytes(8, "big", signed=True)


def version_number(data: bytes) -> int:
    """Return the number of a version of 8 bytes."""
    return int.from_bytes(data, "big", signed=True)


def from_wire(schema: pb.Schema, now_ms: int) -> Schema:
    """Return the schema that a command carries."""
    kind = schema.type
    if kind == pb.Schema.AutoConsume:
        type_ = SchemaType.AUTO_CONSUME
    else:
        type_ = SchemaType.EXTERNAL if kind == pb.Schema.External else SchemaType(kind)
    # Among the members of Schema is a type KeyValue, which hides the message from the stubs.
    pairs = cast("Iterable[pb.KeyValue]", schema.properties)
    return Schema(type_, schema.schema_data, {pair.key: pair.value for pair in pairs}, now_ms)


def to_wire(schema: Schema, name: str) -> pb.Schema:
    """Return a schema as a command carries it; ``name`` is ``tenant/namespace/topic``."""
    pairs = [pb.KeyValue(key=key, value=value) for key, value in schema.properties.items()]
    return pb.Schema(name=name, schema_data=schema.data, type=schema.type.value, properties=pairs)  # type: ignore[arg-type]
