"""Converts Avro definitions to trees without named references, and to and from Arrow types. No I/O.

JSON and AVRO schemas of Pulsar are Avro definitions; definitions for writing are derived from the columns. Types that
Spark lacks are mapped as in Spark's own Avro reader: a union of several types becomes a struct of ``member0``,
``member1``, …, of which one is not null, and a union of numbers becomes the largest type. Time units are those of the
definition; `fitting.spark_form` converts them to Spark's.

Source: Apache Avro 1.12, Schema Declaration and Logical Types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ....client.schemas.avro_shape import has_arrays_of_nothing
from ....errors import SchemaSerializationError

NODES_MAX = 10_000
"""Maximum number of types in a definition, counting named types at each use."""
DECIMAL_DIGITS_MAX = 38
"""Maximum number of digits of Spark's decimals."""
DEFAULT, ALIASES = b"default", b"aliases"
"""Properties of a field, stored as JSON in the metadata of the Arrow field."""
UTC = "UTC"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.duration("ms"),
    ("long", "time-micros"): pa.duration("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", UTC),
    ("long", "timestamp-micros"): pa.timestamp("us", UTC),
    ("long", "timestamp-nanos"): pa.timestamp("ns", UTC),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
"""Types that Avro stores as numbers; a time of day is the time since midnight."""
_WIDTHS: dict[pa.DataType, int] = {pa.int32(): 1, pa.int64(): 2, pa.float32(): 3, pa.float64(): 4}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record.

    Attributes:
        name: field name.
        node: type of the field.
        hints: default and aliases, as metadata of the Arrow field.
    """

    name: str
    node: Node
    hints: Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Node:
    """A type in a definition.

    Attributes:
        kind: Avro type name, or ``union``.
        logical: logical type, or empty if missing or unknown.
        size: size of a ``fixed`` in bytes.
        precision: precision of a decimal.
        scale: scale of a decimal.
        symbols: symbols of an enum.
        fields: fields of a record.
        parts: branches of a union, or item type of an array or map.
    """

    kind: str
    logical: str = ""
    size: int = 0
    precision: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    parts: tuple[Node, ...] = ()


def parse(definition: bytes | str) -> Node:
    """Parse a definition into a tree.

    Raises:
        SchemaSerializationError: the definition is invalid or recursive; columns cannot represent recursive types.
    """
    try:
        record = json.loads(definition)
        if has_arrays_of_nothing(record):
            raise SchemaSerializationError("it contains an array with zero-byte items")
        return _Parser().node(record, "")
    except SchemaSerializationError as error:
        raise SchemaSerializationError(f"cannot convert the topic's schema to columns: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise SchemaSerializationError(
            f"the topic's schema is not a valid Avro definition: {type(error).__name__} {why}"
        ) from error


class _Parser:
    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, str]] = {}
        self._around: list[str] = []
        self._count = 0

    def node(self, definition: Any, space: str) -> Node:
        self._count += 1
        if self._count > NODES_MAX:
            raise SchemaSerializationError(f"it has more than {NODES_MAX} types")
        if isinstance(definition, str):
            return Node(definition) if definition in _SIMPLE and definition not in ("fixed", "enum") else (
                self._named(definition, space)
            )  # fmt: skip
        if isinstance(definition, Sequence):
            return Node("union", parts=tuple(self.node(one, space) for one in definition))
        kind = definition["type"]
        if not isinstance(kind, str):
            return self.node(kind, space)
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(definition, kind, space)
        if kind == "array":
            return Node(kind, parts=(self.node(definition["items"], space),))
        if kind == "map":
            return Node(kind, parts=(self.node(definition["values"], space),))
        if kind not in _SIMPLE:
            return self._named(kind, space)
        return Node(kind, *_logical(kind, definition, DECIMAL_DIGITS_MAX))

    def _named(self, name: str, space: str) -> Node:
        full = name if "." in name or not space or f"{space}.{name}" not in self._known else f"{space}.{name}"
        if full in self._around:
            raise SchemaSerializationError(f"type {full} is recursive, which Spark does not support")
        definition, around = self._known[full]
        return self.node(definition, around)

    def _define(self, definition: Mapping[str, Any], kind: str, space: str) -> Node:
        name = definition["name"]
        space = definition.get("namespace", space) if "." not in name else name.rpartition(".")[0]
        full = name if "." in name or not space else f"{space}.{name}"
        self._known[full] = definition, space
        if kind == "enum":
            return Node(kind, symbols=tuple(map(str, definition["symbols"])))
        if kind == "fixed":
            size = int(definition["size"])
            return Node(kind, *_logical(kind, definition, min(DECIMAL_DIGITS_MAX, _digits(size)), size))
        self._around.append(full)
        fields = tuple(self._field(field, space) for field in definition["fields"])
        self._around.pop()
        if len({field.name for field in fields}) < len(fields):
            raise SchemaSerializationError(f"type {full} has duplicate fields")
        return Node("record", fields=fields)

    def _field(self, field: Mapping[str, Any], space: str) -> Field:
        hints = {}
        if field.get("default") is not None:
            hints[DEFAULT] = json.dumps(field["default"]).encode()
        if field.get("aliases"):
            hints[ALIASES] = json.dumps(field["aliases"]).encode()
        return Field(str(field["name"]), self.node(field["type"], space), hints)


def _digits(size: int) -> int:
    """Return the number of digits needed for any number of a given size in bytes."""
    return len(str((1 << (8 * size - 1)) - 1)) - 1 if size > 0 else 0


def _logical(kind: str, definition: Mapping[str, Any], digits: int, size: int = 0) -> tuple[str, int, int, int]:
    """Return the logical type, size, precision and scale of a definition; invalid logical types are ignored."""
    logical = str(definition.get("logicalType", ""))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = _whole(definition.get("precision")), _whole(definition.get("scale", 0))
        if 0 < precision <= digits and 0 <= scale <= precision:
            return "decimal", size, precision, scale
        return "", size, 0, 0
    return (logical if (kind, logical) in _LOGICAL else ""), size, 0, 0


def _whole(number: Any) -> int:
    """Return a number of digits, or -1 if it is invalid."""
    return number if isinstance(number, int) and not isinstance(number, bool) else -1


def arrow_type(node: Node) -> pa.DataType:
    """Return the Arrow type for a tree; all values are nullable."""
    if node.logical == "decimal":
        return pa.decimal128(node.precision, node.scale)
    if node.logical:
        return _LOGICAL[node.kind, node.logical]
    if node.kind == "record":
        return pa.struct(fields_of(node))
    if node.kind == "array":
        return list_of(arrow_type(node.parts[0]))
    if node.kind == "map":
        return map_of(pa.string(), arrow_type(node.parts[0]))
    if node.kind != "union":
        return _SIMPLE[node.kind]
    types = [arrow_type(part) for part in node.parts if part.kind != "null"]
    if len(types) < 2:
        return types[0] if types else pa.null()
    if all(one in _WIDTHS for one in types):
        widest = max(types, key=lambda one: _WIDTHS[one])
        return pa.float64() if widest == pa.float32() and pa.int64() in types else widest
    return pa.struct([pa.field(f"member{index}", one) for index, one in enumerate(types)])


def fields_of(node: Node) -> list[pa.Field]:
    """Return the Arrow fields of a record, with hints for reading values of earlier schemas."""
    return [pa.field(field.name, arrow_type(field.node), metadata=dict(field.hints)) for field in node.fields]


def list_of(items: pa.DataType) -> pa.DataType:
    """Return a list type with Spark's field name."""
    return pa.list_(pa.field("element", items))


def map_of(keys: pa.DataType, values: pa.DataType) -> pa.DataType:
    """Return a map type with Spark's field names."""
    return pa.map_(pa.field("key", keys, nullable=False), pa.field("value", values))


# -- from columns to definitions -----------------------------------------------------------------------------------

_NUMBERS: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.binary(): "bytes",
    pa.string(): "string",
    pa.null(): "null",
    **{type_: {"type": kind, "logicalType": logical} for (kind, logical), type_ in _LOGICAL.items()},
}


def definition_of(fields: Sequence[pa.Field], name: str = "Row", namespace: str = "") -> dict[str, Any]:
    """Return the Avro definition for rows with the given columns.

    Args:
        fields: the columns; nullable columns default to null.
        name: record name; names of nested records append their path.
        namespace: namespace of all records.

    Raises:
        SchemaSerializationError: Avro does not support a column; the message names it.
    """
    found = []
    for field in fields:
        if not _NAME.fullmatch(field.name):
            raise SchemaSerializationError(
                f"column name {field.name!r} of {name} is not a valid Avro name: rename it using only letters, digits"
                " and _"
            )
        kind = _definition(field.type, f"{name}_{field.name}")
        if field.nullable and kind != "null":
            found.append({"name": field.name, "type": ["null", kind], "default": None})
        else:
            found.append({"name": field.name, "type": kind})
    return {"type": "record", "name": name, **({"namespace": namespace} if namespace else {}), "fields": found}


def _definition(type_: pa.DataType, name: str) -> Any:
    if type_ in _NUMBERS:
        return _NUMBERS[type_]
    if pa.types.is_decimal128(type_):
        return {"type": "bytes", "logicalType": "decimal", "precision": type_.precision, "scale": type_.scale}
    if pa.types.is_struct(type_):
        return definition_of(list(type_), name)
    if pa.types.is_list(type_):
        return {"type": "array", "items": _maybe(type_.value_field, f"{name}_element")}
    if pa.types.is_map(type_) and type_.key_type == pa.string():
        return {"type": "map", "values": _maybe(type_.item_field, f"{name}_value")}
    raise SchemaSerializationError(
        f"column {name.partition('_')[2]} has type {type_}, which Avro does not support: cast it"
    )


def _maybe(field: pa.Field, name: str) -> Any:
    kind = _definition(field.type, name)
    return ["null", kind] if field.nullable and kind != "null" else kind
