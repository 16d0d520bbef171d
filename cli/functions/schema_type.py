"""`--schema-type`: encodes a message value given as text."""

from __future__ import annotations

import json
import struct

from ..failure import Failure

_INTEGERS = {"INT8": ">b", "INT16": ">h", "INT32": ">i", "INT64": ">q"}
_FLOATS = {"FLOAT": ">f", "DOUBLE": ">d"}
SCHEMA_TYPES = ("BYTES", "STRING", "JSON", "BOOLEAN", *_INTEGERS, *_FLOATS)
"""Schemas whose values can be given on the command line; Avro and Protobuf messages require a file."""


def as_message(content: bytes, schema_type: str | None) -> bytes:
    """Encode a value as Pulsar's clients do.

    Args:
        content: the value as a string.
        schema_type: one of `SCHEMA_TYPES`; None for bytes.

    Raises:
        Failure: the value is invalid for the schema type.
    """
    if schema_type in (None, "BYTES"):
        return content
    try:
        return _encoded(content.decode(), str(schema_type))
    except (ValueError, struct.error) as error:
        why = "out of range" if isinstance(error, struct.error) else str(error)
        shown = content.decode(errors="backslashreplace")[:60]
        raise Failure(f"the message {shown!r} is not a valid value of --schema-type {schema_type}: {why}") from error


def _encoded(text: str, schema_type: str) -> bytes:
    if schema_type in _INTEGERS:
        return struct.pack(_INTEGERS[schema_type], int(text.strip()))
    if schema_type in _FLOATS:
        value = float(text.strip())
        try:
            return struct.pack(_FLOATS[schema_type], value)
        except OverflowError:
            raise ValueError("out of range") from None
    if schema_type == "BOOLEAN":
        words = {"true": b"\1", "false": b"\0"}
        if text.strip().lower() not in words:
            raise ValueError("expected true or false")
        return words[text.strip().lower()]
    if schema_type == "JSON":
        return json.dumps(_read_json(text), ensure_ascii=False, separators=(",", ":")).encode()
    return text.encode()


def _read_json(text: str) -> object:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not valid JSON")

    value: object = json.loads(text, parse_constant=refuse)
    return value
