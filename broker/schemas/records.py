"""Paths and content of schema records in the metadata store.

A version is stored as ``{"type", "timestamp", "properties", "data"}``, with ``data64`` if the definition is binary; a
deletion as ``{"deleted", "timestamp"}``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from ...errors import StorageError
from ...wire.topic_name import TopicName
from .model import Schema, SchemaType

SCHEMAS = "/schemas"
NO_NAMES = (".", "..")
"""Names that no metadata store accepts, so that topics cannot have them."""


def schema_path(name: TopicName) -> str:
    """Return the path of a topic's versions. As in Pulsar, both domains share them."""
    base = name.base
    return f"{SCHEMAS}/{base.tenant}/{base.namespace}/{quote(base.local, safe='')}"


def numbers_of(names: Sequence[str]) -> list[int]:
    """Return the sorted numbers of versions and deletions, parsed from a topic's record names."""
    return sorted(int(name) for name in names if name.isdecimal())


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def encode(schema: Schema) -> bytes:
    """Encode the record of a version."""
    value: dict[str, Any] = {"type": schema.type.name, "timestamp": schema.timestamp_ms}
    if schema.properties:
        value["properties"] = dict(schema.properties)
    try:
        text = schema.data.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and text.isprintable():
        return _dump(value | {"data": text})
    return _dump(value | {"data64": base64.b64encode(schema.data).decode()})  # also shorter than escapes


def encode_deletion(now_ms: int) -> bytes:
    """Encode the record of a deletion."""
    return _dump({"deleted": True, "timestamp": now_ms})


def decode(path: str, value: bytes) -> Schema | None:
    """Decode a record and return its schema, or None for a deletion.

    Raises:
        StorageError: the record at ``path`` is neither a schema nor a deletion.
    """
    try:
        held = json.loads(value)
        if held.get("deleted"):
            return None
        data = base64.b64decode(held["data64"]) if "data64" in held else held["data"].encode()
        return Schema(SchemaType[held["type"]], data, held.get("properties", {}), int(held["timestamp"]))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise StorageError(
            f"metadata record {path} is not a valid schema ({error}): fix or delete it in the metadata store"
        ) from error
