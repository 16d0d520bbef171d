"""Key-value pairs with separate schemas. Both are in the payload, or the key is the message key.

Source: org.apache.pulsar.common.schema.KeyValue and KeyValueSchemaInfo (Java's client, 4.0).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from struct import Struct
from typing import Generic, Literal, NamedTuple, TypeVar, get_args

from ...errors import InvalidConfig, SchemaSerializationError
from ...wire import pulsar_api_pb2 as pb
from .schema import TYPE_NAMES, Schema, SchemaInfo, check_schema, shown

K = TypeVar("K")
V = TypeVar("V")

KeyValueEncoding = Literal["INLINE", "SEPARATED"]

WRITERS_MAX = 1000
"""Maximum number of parsed writer schemas cached per schema."""

_SIZE = Struct(">i")
_NONE = -1
"""Size field value of a missing key or value."""
_KINDS = {name: kind for kind, name in TYPE_NAMES.items()}


class KeyValue(NamedTuple, Generic[K, V]):
    """A key and a value; either may be None."""

    key: K | None
    value: V | None


class KeyValueSchema(Schema[KeyValue[K, V]], Generic[K, V]):
    """A key and a value, with one schema each.

    Attributes:
        encoding: ``INLINE`` if both are in the payload, ``SEPARATED`` if the key is the message key and used for
            routing.
    """

    def __init__(self, key: Schema[K], value: Schema[V], encoding: KeyValueEncoding = "INLINE"):
        """Combine two schemas.

        Args:
            key: schema of the keys.
            value: schema of the values.
            encoding: ``INLINE`` or ``SEPARATED``.

        Raises:
            InvalidConfig: ``key`` or ``value`` is not a schema, or is a KeyValue or AUTO schema; or ``encoding`` is
                unknown.
        """
        for part in (key, value):
            check_schema(part)
            if part.needs_newest or part.needs_topic or isinstance(part, KeyValueSchema):
                raise InvalidConfig(f"{part!r} is not supported inside KeyValueSchema: use it for the whole message")
        if encoding not in get_args(KeyValueEncoding):
            raise InvalidConfig(
                f"invalid encoding {shown(encoding)}: expected {' or '.join(get_args(KeyValueEncoding))}"
            )
        self._key = key
        self._value = value
        self.encoding = encoding
        self.needs_writer = key.needs_writer or value.needs_writer
        self.info = joined(key.info, value.info, encoding)
        self._writers: dict[tuple[bytes, str], tuple[SchemaInfo, SchemaInfo]] = {}

    def __str__(self) -> str:
        return f"schema KEY_VALUE of ({self._key}, {self._value})"

    def encode(self, value: KeyValue[K, V]) -> bytes:
        """Encode key and value; see `Schema.encode`."""
        key, inner = self._parts(value)
        return join(key, inner)

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> KeyValue[K, V]:
        """Decode key and value; see `Schema.decode`."""
        key, value = split(data, str(self))
        return self._pair(key, value, writer)

    def encode_message(self, value: KeyValue[K, V]) -> tuple[bytes | None, bytes | None]:
        """Return payload and key; see `Schema.encode_message`."""
        if self.encoding == "INLINE":
            return self.encode(value), None
        key, inner = self._parts(value)
        return inner, key

    def decode_message(
        self, data: bytes | None, key: bytes | None, writer: SchemaInfo | None = None
    ) -> KeyValue[K, V] | None:
        """Return key and value of a message; see `Schema.decode_message`."""
        if self.encoding == "INLINE":
            return None if data is None else self.decode(data, writer)
        return self._pair(key, data, writer)

    def _parts(self, value: KeyValue[K, V]) -> tuple[bytes | None, bytes | None]:
        if not isinstance(value, tuple) or len(value) != 2:
            self.refuse(value, "a KeyValue or a (key, value) tuple")
        key, inner = value
        return None if key is None else self._key.encode(key), None if inner is None else self._value.encode(inner)

    def _pair(self, key: bytes | None, value: bytes | None, writer: SchemaInfo | None) -> KeyValue[K, V]:
        key_writer, value_writer = (None, None) if writer is None else self._split_writer(writer)
        return KeyValue(
            None if key is None else self._key.decode(key, key_writer),
            None if value is None else self._value.decode(value, value_writer),
        )

    def _split_writer(self, writer: SchemaInfo) -> tuple[SchemaInfo, SchemaInfo]:
        if writer.kind != pb.Schema.KeyValue:
            raise SchemaSerializationError(f"{self}: the message was written with schema {writer.type_name}")
        by = (writer.definition, json.dumps(dict(writer.properties), sort_keys=True))
        found = self._writers.get(by)
        if found is None:
            key, value, _ = separated(writer)
            if len(self._writers) >= WRITERS_MAX:
                self._writers.clear()
            found = self._writers[by] = (key, value)
        return found


def join(key: bytes | None, value: bytes | None) -> bytes:
    """Concatenate key and value, each preceded by its size."""
    parts = [_SIZE.pack(_NONE) if part is None else _SIZE.pack(len(part)) + part for part in (key, value)]
    return b"".join(parts)


def split(data: bytes, what: str) -> tuple[bytes | None, bytes | None]:
    """Split the result of `join` into key and value.

    Args:
        data: the joined bytes.
        what: description of the data in errors.

    Raises:
        SchemaSerializationError: the data is malformed.
    """
    parts: list[bytes | None] = []
    place = 0
    for name in ("key", "value"):
        if place + _SIZE.size > len(data):
            raise SchemaSerializationError(f"{what}: {len(data)} bytes end before the size of the {name}")
        (size,) = _SIZE.unpack_from(data, place)
        place += _SIZE.size
        if size == _NONE:
            parts.append(None)
            continue
        if not 0 <= size <= len(data) - place:
            raise SchemaSerializationError(f"{what}: invalid {name} size {size}: only {len(data) - place} bytes remain")
        parts.append(data[place : place + size])
        place += size
    if place != len(data):
        raise SchemaSerializationError(f"{what}: {len(data) - place} unexpected bytes after the value")
    return parts[0], parts[1]


def joined(key: SchemaInfo, value: SchemaInfo, encoding: str) -> SchemaInfo:
    """Return the schema of key-value pairs."""
    properties = {}
    for name, part in (("key", key), ("value", value)):
        properties[f"{name}.schema.name"] = part.name
        properties[f"{name}.schema.type"] = part.type_name
        properties[f"{name}.schema.properties"] = json.dumps(dict(part.properties), separators=(",", ":"))
    properties["kv.encoding.type"] = encoding
    return SchemaInfo(pb.Schema.KeyValue, join(key.definition, value.definition), "KeyValue", properties)


def separated(info: SchemaInfo) -> tuple[SchemaInfo, SchemaInfo, str]:
    """Return the key schema, the value schema, and the encoding.

    Raises:
        SchemaSerializationError: the broker's schema is malformed.
    """
    definitions = split(info.definition, "definition of schema KEY_VALUE")
    parts = []
    for name, definition in zip(("key", "value"), definitions, strict=True):
        type_name = info.properties.get(f"{name}.schema.type", "BYTES")
        if type_name not in _KINDS:
            raise SchemaSerializationError(f"unknown {name} type {shown(type_name)} in schema KEY_VALUE")
        properties = _properties(info.properties.get(f"{name}.schema.properties", "{}"))
        named = info.properties.get(f"{name}.schema.name", "")
        parts.append(SchemaInfo(_KINDS[type_name], definition or b"", named, properties))
    return parts[0], parts[1], info.properties.get("kv.encoding.type", "INLINE")


def _properties(text: str) -> Mapping[str, str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SchemaSerializationError(f"invalid properties {shown(text)} in schema KEY_VALUE: expected a JSON object")
    return {str(name): str(value) for name, value in found.items()}
