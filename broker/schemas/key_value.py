"""KEY_VALUE schemas, which combine two schemas in one definition and its properties.

Source: Pulsar 4.0, KeyValueSchemaInfo and SchemaUtils.
"""

from __future__ import annotations

import json
from struct import Struct
from typing import Any

from .model import AVRO_BASED, InvalidDefinition, Schema, SchemaType

_LENGTH = Struct(">i")


def parts(schema: Schema) -> tuple[Schema, Schema]:
    """Return the key schema and the value schema. Without properties, both are BYTES.

    Raises:
        InvalidDefinition: the definition does not have two parts, or a property names an unknown type.
    """
    data = schema.data
    split: list[bytes] = []
    for _ in range(2):
        if len(data) < _LENGTH.size:
            raise InvalidDefinition("truncated KEY_VALUE schema definition: expected a key and a value part")
        (length,) = _LENGTH.unpack_from(data)
        data = data[_LENGTH.size :]
        if not -1 <= length <= len(data):  # -1 means null
            raise InvalidDefinition(f"invalid part length {length} in a KEY_VALUE schema definition")
        split.append(data[: max(0, length)])
        data = data[max(0, length) :]
    key, value = (
        Schema(_type_of(schema, name), part, _properties(schema, name))
        for name, part in zip(("key", "value"), split, strict=True)
    )
    return key, value


def joined(key: bytes, value: bytes) -> bytes:
    """Return the definition that combines a key definition and a value definition."""
    return _LENGTH.pack(len(key)) + key + _LENGTH.pack(len(value)) + value


def from_text(text: str) -> bytes:
    """Parse a definition in REST format, an object with ``key`` and ``value``.

    Raises:
        InvalidDefinition: the string is not such an object.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidDefinition(
            f"invalid KEY_VALUE schema ({error}): expected a JSON object with key and value"
        ) from error
    if not isinstance(value, dict) or not {"key", "value"} <= value.keys():
        raise InvalidDefinition("invalid KEY_VALUE schema: expected a JSON object with key and value")
    try:
        return joined(_part_bytes(value["key"]), _part_bytes(value["value"]))
    except (UnicodeEncodeError, RecursionError) as error:
        raise InvalidDefinition(f"the KEY_VALUE schema is not valid UTF-8: {error}") from error


def to_text(schema: Schema) -> str:
    """Return a KEY_VALUE schema's definition in REST format."""
    key, value = parts(schema)
    return f'{{"key":{_part_text(key)},"value":{_part_text(value)}}}'


def _type_of(schema: Schema, part: str) -> SchemaType:
    name = schema.properties.get(f"{part}.schema.type") or "BYTES"
    try:
        return SchemaType[name]
    except KeyError:
        raise InvalidDefinition(f"invalid {part}.schema.type {name[:80]!a}: unknown schema type") from None


def _properties(schema: Schema, part: str) -> dict[str, str]:
    text = schema.properties.get(f"{part}.schema.properties")
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise InvalidDefinition(f"{part}.schema.properties is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidDefinition(f"{part}.schema.properties is not a JSON object")
    return {str(name): str(each) for name, each in value.items()}


def _part_bytes(value: Any) -> bytes:
    # As in Pulsar, an empty string is an empty definition, and any other string keeps its quotes.
    return b"" if value == "" else json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _part_text(part: Schema) -> str:
    text = part.data.decode(errors="replace")
    if part.type in AVRO_BASED:
        try:
            return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
        except (ValueError, RecursionError):
            return json.dumps(text, ensure_ascii=False)
    return json.dumps(text, ensure_ascii=False)
