"""Validation of schemas before registration: the type can be stored, and the definition is valid for the type.

Source: Pulsar 4.0's SchemaDataValidator and its validators, including their error messages.
"""

from __future__ import annotations

import json
from typing import Any

from .key_value import parts
from .model import AVRO_BASED, CLIENT_SIDE, InvalidDefinition, Schema, SchemaType
from .protobuf_native import root_message

_UNCHECKED = frozenset({SchemaType.NONE, SchemaType.BYTES})
_AVRO_REFUSED = ("union",)
MAX_DEFINITION_BYTES = 400_000
"""Maximum size of a schema with its properties, chosen so that its record fits into every metadata store."""
_OLD_JSON_TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean", "null", "any"})


def check_definition(schema: Schema) -> None:
    """Raise if a schema cannot be stored.

    Raises:
        InvalidDefinition: the schema is invalid; the message is the reason.
    """
    size = len(schema.data) + len(json.dumps(dict(schema.properties)))
    if size > MAX_DEFINITION_BYTES:
        raise InvalidDefinition(f"schema definition of {size} bytes exceeds the limit of {MAX_DEFINITION_BYTES}")
    type_ = schema.type
    if type_ in CLIENT_SIDE:
        raise InvalidDefinition(f"Schema {type_.name} is a client-side schema type")
    if type_ is SchemaType.EXTERNAL:
        raise InvalidDefinition("Schema EXTERNAL is not supported by this broker or by Pulsar 4.0")
    if type_ in AVRO_BASED:
        _check_avro(schema)
    elif type_ is SchemaType.PROTOBUF_NATIVE:
        root_message(schema.data)
    elif type_ is SchemaType.KEY_VALUE:
        for part in parts(schema):
            check_definition(part)
    elif type_ is SchemaType.STRING:
        _check_string(schema.data)
    elif type_ not in _UNCHECKED and schema.data:
        raise InvalidDefinition(
            "Invalid schema definition data for primitive schemas :length of schema data should be zero,"
            f" but {len(schema.data)} bytes is found"
        )


def _check_avro(schema: Schema) -> None:
    from .avro_rules import parse

    try:
        definition = parse(schema.data)
    except InvalidDefinition as error:
        if schema.type is SchemaType.JSON and old_json_schema(schema.data) is not None:
            return
        raise InvalidDefinition(
            f"Invalid schema definition data for {schema.type.name} schema caused by {error}"
        ) from error
    if schema.type is SchemaType.AVRO and definition.type in _AVRO_REFUSED:
        raise InvalidDefinition(f"Avro schema typed [{definition.type.upper()}] is not supported")


def _check_string(data: bytes) -> None:
    """Raise unless the definition is empty or `null`, which the Python client sends."""
    if data not in (b"", b"null"):
        raise InvalidDefinition(f"Invalid schema definition data for string schema : {repr(data[:80])[1:]}")


def old_json_schema(data: bytes) -> dict[str, Any] | None:
    """Return a JSON Schema definition, which Pulsar's first clients sent for JSON, or None for any other definition."""
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value.get("type") in _OLD_JSON_TYPES else None
