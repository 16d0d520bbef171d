"""Columns as one schema has them, as another one wants them: how schemas evolve, and `.schema(…)`. Pure functions.

Fields of records find each other by name, or by the names that the reader's schema has as aliases; one that was not
written is what the reader's schema has as default, or null; one that is not wanted is left out. Values become another
type where that loses nothing, and an error where it would.

Source: Apache Avro 1.12, Schema Resolution, of which this is a superset.
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
    """Return a type with the units that Spark has: all times in microseconds; hints of fields stay."""
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
    """Return a type with the hints that the fields of another one have, as far as it has the same fields."""
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
    """Return a column as another type.

    Args:
        values: as they were written.
        wanted: the type; its fields may have hints.
        path: of the column.

    Raises:
        SchemaSerializationError: names the column, what it is and what it should be.
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
        raise SchemaSerializationError(f"{_called(path)} is {have}, and cannot be {wanted}: {why}") from error


def reads_of(have: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return a struct with those of its fields that another one takes; any other type as it is."""
    if not pa.types.is_struct(have) or not pa.types.is_struct(wanted):
        return have
    places = {_place(have, field) for field in wanted}
    return pa.struct([field for place, field in enumerate(have) if place in places])


def can_fit(have: pa.DataType, wanted: pa.DataType, path: str) -> None:
    """Raise as `fit` where no value of a type could be one of another."""
    fit(pa.array([], have), wanted, path)


def _called(path: str) -> str:
    return f"column {path}" if path else "the value"


def _check_nulls(values: pa.Array, field: pa.Field, path: str) -> None:
    if not field.nullable and values.null_count:
        raise SchemaSerializationError(f"{_called(path)} is null, and declared as NOT NULL")


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
    """Return where a record has a field, -1 for nowhere."""
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
            # Of the schema's type, where `.schema(…)` declares another one.
            value = fit(pa.array([default]), field.type, path)[0]
    return pa.array([value], field.type).take(pa.array([0] * count, pa.int32()))


def _nested(values: pa.Array, wanted: pa.DataType, children: list[pa.Array]) -> pa.Array:
    """Return a list or map with other items."""
    valid, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        wanted, len(values), [valid, offsets], values.null_count, offset=values.offset, children=children
    )
