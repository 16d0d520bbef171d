"""Converts columns from one schema to another, for schema evolution and `.schema(…)`. No I/O.

Record fields are matched by name or by the aliases in the reader's schema. Missing fields get the default of the
reader's schema, or null; unused fields are dropped. Values are converted to another type if the conversion is lossless;
otherwise an error is raised.

Source: Apache Avro 1.12, Schema Resolution; this module supports a superset of it.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from ....errors import SchemaSerializationError
from .avro_types import ALIASES, DEFAULT
from .buffers import is_valid, text
from .json_values import value_of


def spark_form(type_: pa.DataType) -> pa.DataType:
    """Return a type with Spark's units, where all times are in microseconds; field hints are preserved."""
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", type_.tz)
    if pa.types.is_duration(type_):
        return pa.duration("us")
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(spark_form(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(spark_form(type_.value_type)))
    if pa.types.is_map(type_):
        item = type_.item_field.with_type(spark_form(type_.item_type))
        return pa.map_(type_.key_field.with_type(spark_form(type_.key_type)), item)
    return type_


def with_hints(wanted: pa.DataType, known: pa.DataType) -> pa.DataType:
    """Return a type with the hints of the matching fields of another type."""
    if pa.types.is_struct(wanted) and pa.types.is_struct(known):
        fields = []
        for field in wanted:
            place = known.get_field_index(field.name)
            if place >= 0:
                same = known.field(place)
                field = field.with_type(with_hints(field.type, same.type)).with_metadata(same.metadata)
            fields.append(field)
        return pa.struct(fields)
    if pa.types.is_list(wanted) and pa.types.is_list(known):
        return pa.list_(wanted.value_field.with_type(with_hints(wanted.value_type, known.value_type)))
    if pa.types.is_map(wanted) and pa.types.is_map(known):
        item = wanted.item_field.with_type(with_hints(wanted.item_type, known.item_type))
        return pa.map_(wanted.key_field, item)
    return wanted


def fit(values: pa.Array, wanted: pa.DataType, path: str = "") -> pa.Array:
    """Convert a column to another type.

    Args:
        values: column as written.
        wanted: target type; its fields may have hints.
        path: column name for errors.

    Raises:
        SchemaSerializationError: the conversion would lose data; the message contains the column and both types.
    """
    have = values.type
    if pa.types.is_struct(wanted) and pa.types.is_struct(have):
        return _struct(values, wanted, path)
    if pa.types.is_list(wanted) and pa.types.is_list(have):
        items = fit(values.values, wanted.value_type, f"{path}[]")
        _check_nulls(values.flatten(), wanted.value_field, f"{path}[]")
        return _nested(values, wanted, [items])
    if pa.types.is_map(wanted) and pa.types.is_map(have):
        keys = fit(values.keys, wanted.key_type, f"{path}[]")
        items = fit(values.items, wanted.item_type, f"{path}[]")
        _check_nulls(values.items, wanted.item_field, f"{path}[]")
        entries = pa.StructArray.from_arrays([keys, items], fields=[wanted.key_field, wanted.item_field])
        return _nested(values, wanted, [entries])
    if have == wanted:
        return values
    if pa.types.is_null(have):
        return pa.nulls(len(values), wanted)
    try:
        if pa.types.is_string(wanted) and pa.types.is_binary(have):
            return text(values)
        if pa.types.is_temporal(wanted) and getattr(have, "unit", "") == "ns":
            return values.cast(wanted, safe=False)  # Spark has no nanoseconds
        return values.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        why = str(error).splitlines()[0]
        raise SchemaSerializationError(
            f"{_called(path)} has type {have} and cannot be read as {wanted}: {why}"
        ) from error


def reads_of(have: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return a struct type with only the fields that another type uses; other types are returned unchanged."""
    if not pa.types.is_struct(have) or not pa.types.is_struct(wanted):
        return have
    places = {_place(have, field) for field in wanted}
    return pa.struct([field for place, field in enumerate(have) if place in places])


def can_fit(have: pa.DataType, wanted: pa.DataType, path: str) -> None:
    """Raise the same error as `fit` if no value of one type can be converted to another."""
    fit(pa.array([], have), wanted, path)


def _called(path: str) -> str:
    return f"column {path}" if path else "the value"


def _check_nulls(values: pa.Array, field: pa.Field, path: str) -> None:
    if not field.nullable and values.null_count:
        raise SchemaSerializationError(f"{_called(path)} is null but declared NOT NULL")


def _struct(values: pa.Array, wanted: pa.DataType, path: str) -> pa.Array:
    have, mask = values.type, None
    if values.null_count:
        mask = pa.array(~is_valid(values))
    columns = []
    inside = f"{path}." if path else ""
    for field in wanted:
        where = f"{inside}{field.name}"
        place = _place(have, field)
        if place >= 0:
            found = fit(values.field(place), field.type, where)
        elif field.metadata and DEFAULT in field.metadata:
            found = _defaults(field, len(values), where)
        else:
            found = pa.nulls(len(values), field.type)
        if not field.nullable:
            _check_nulls(found if mask is None else found.filter(values.is_valid()), field, where)
        columns.append(found)
    if not columns:
        return pa.array([{}] * len(values), wanted)
    return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=mask)


def _place(have: pa.DataType, field: pa.Field) -> int:
    """Return the index of a field in a record, or -1 if it is missing."""
    place: int = have.get_field_index(field.name)
    if place < 0 and field.metadata and ALIASES in field.metadata:
        for alias in json.loads(field.metadata[ALIASES]):
            place = have.get_field_index(str(alias))
            if place >= 0:
                return place
    return place


def _defaults(field: pa.Field, count: int, path: str) -> pa.Array:
    default: Any = json.loads(field.metadata[DEFAULT])
    if pa.types.is_binary(field.type) and isinstance(default, str):
        value: Any = default.encode("latin-1")  # as Avro writes bytes in definitions
    else:
        try:
            value = value_of(default, field.type, path)
        except SchemaSerializationError:
            # Use the schema's type, even if `.schema(…)` declares another type.
            value = fit(pa.array([default]), field.type, path)[0]
    return pa.array([value], field.type).take(pa.array([0] * count, pa.int32()))


def _nested(values: pa.Array, wanted: pa.DataType, children: list[pa.Array]) -> pa.Array:
    """Return a list or map with replaced items."""
    valid, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        wanted, len(values), [valid, offsets], values.null_count, offset=values.offset, children=children
    )
