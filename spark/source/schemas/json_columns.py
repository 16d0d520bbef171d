"""Parses JSON documents into Arrow columns.

Design: Arrow's own reader parses all documents of a record batch together, each wrapped as ``{"v":…}`` on a separate
line. A document with invalid JSON or several values therefore cannot shift the following ones: it results in an invalid
line or an extra line. Documents that this reader rejects (maps, times as strings, and invalid JSON) are parsed again
one by one.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ....client.schemas.json_schema import load_json
from ....errors import SchemaSerializationError
from .buffers import is_valid, scattered, text
from .fitting import fit
from .json_values import value_of

_VALUE = "v"
_BEGIN, _END, _NOTHING = (pa.scalar(piece, pa.binary()) for piece in (b'{"v":', b"}\n", b""))
_LINE_FEED, _CARRIAGE_RETURN, _SPACE = b"\n\r "


def decode(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Parse JSON documents; nulls remain null, and missing fields become null.

    Args:
        values: binary column.
        type_: type of the result. Times are numbers in its unit, or strings.

    Raises:
        SchemaSerializationError: a document is not valid JSON or has another type.
    """
    valid = is_valid(values)
    texts = values.drop_null()
    if not len(texts):
        return pa.nulls(len(values), type_)
    found = _read_at_once(texts, type_)
    if found is None:
        found = _one_by_one(texts.to_pylist(), type_)
    return scattered(found, valid)


def _read_at_once(texts: pa.Array, type_: pa.DataType) -> pa.Array | None:
    """Return the column, or None if Arrow's reader rejects it."""
    read = _read_form(type_)
    if read is None:
        return None
    try:
        text(texts)  # Arrow accepts invalid UTF-8
        data = _on_lines(texts)
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=data.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([(_VALUE, read)]), unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != len(texts):
            return None
        return fit(_typed(table.column(0).combine_chunks(), type_), type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, SchemaSerializationError):
        return None


def _on_lines(texts: pa.Array) -> pa.Buffer:
    """Return one line per document; line breaks between JSON tokens are replaced with equivalent spaces."""
    lines = pc.binary_join_element_wise(_BEGIN, texts, _END, _NOTHING)
    _, offsets, data = lines.buffers()
    held: np.ndarray = np.frombuffer(data, np.uint8)
    if np.count_nonzero(held == _LINE_FEED) == len(texts):
        return data
    held = held.copy()
    held[(held == _LINE_FEED) | (held == _CARRIAGE_RETURN)] = _SPACE
    held[np.frombuffer(offsets, np.int32, len(texts), 4) - 1] = _LINE_FEED
    return pa.py_buffer(held)


def _read_form(type_: pa.DataType) -> pa.DataType | None:
    """Return the type that Arrow's reader uses for a type, or None if it does not support the type."""
    if pa.types.is_struct(type_):
        fields = [(field.name, _read_form(field.type)) for field in type_]
        if not fields or any(read is None for _, read in fields) or type_.field(0).name == "member0":
            return None
        return pa.struct(fields)
    if pa.types.is_list(type_):
        inner = _read_form(type_.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_binary(type_):
        return pa.string()
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        return pa.int64()
    if pa.types.is_date(type_):
        return pa.int32()
    if pa.types.is_map(type_) or pa.types.is_decimal(type_) or pa.types.is_null(type_):
        return None
    return type_


def _typed(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert numbers to the types that they represent."""
    if pa.types.is_struct(type_):
        columns = [_typed(values.field(place), field.type) for place, field in enumerate(type_)]
        fields = [pa.field(field.name, column.type) for field, column in zip(type_, columns, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=values.is_null())
    if pa.types.is_list(type_):
        items = _typed(values.values, type_.value_type)
        buffers = values.buffers()[:2]
        return pa.Array.from_buffers(pa.list_(items.type), len(values), buffers, values.null_count, children=[items])
    if pa.types.is_binary(type_):
        return values.view(pa.binary())
    return values.cast(type_)


def _one_by_one(texts: list[bytes], type_: pa.DataType) -> pa.Array:
    found: list[Any] = [value_of(load_json("JSON", text), type_) for text in texts]
    try:
        return pa.array(found, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, OverflowError) as error:
        why = str(error).splitlines()[0]
        raise SchemaSerializationError(f"{json.dumps(why)[1:-1]}") from error
