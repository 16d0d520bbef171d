"""Encodes rows of Arrow columns in Avro's binary encoding, column by column: the inverse of `avro_columns`.

Design: each column is encoded as the concatenated bytes and the sizes of its values. Columns are then joined row by
row, with one copy per column.

Source: Apache Avro 1.12, Binary Encoding. Tests compare the results with fastavro.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....errors import SchemaSerializationError
from .avro_types import Node
from .buffers import contents, is_valid, offsets_of, ranges

_VARINT_BYTES_MAX = 10
_DECIMAL_BYTES = 16


class Pieces(NamedTuple):
    """Encoded values.

    Attributes:
        data: concatenated bytes of the values.
        sizes: size of each value.
    """

    data: np.ndarray
    sizes: np.ndarray


def can_encode(node: Node) -> bool:
    """Return whether a type can be encoded: unions must have null and one other type, and decimals must use bytes."""
    if node.kind == "union" and (len(node.parts) > 2 or _branch(node) is None):
        return False
    if node.kind == "fixed" and node.logical:
        return False
    return all(map(can_encode, (*node.parts, *(field.node for field in node.fields))))


def _branch(node: Node) -> int | None:
    """Return the index of the only branch of a union besides null, or None if there are several."""
    kinds = [part.kind for part in node.parts]
    return 1 - kinds.index("null") if len(kinds) == 2 and kinds.count("null") == 1 else None


def encode(node: Node, columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """Encode rows as a column of bytes.

    Args:
        node: the record type; see `can_encode`.
        columns: fields of the record, with the types from `avro_types.fields_of`.
        rows: number of rows.

    Raises:
        SchemaSerializationError: the record cannot represent a value; the message names the column.
    """
    pairs = zip(node.fields, columns, strict=True)
    found = _join([_any(field.node, column, field.name) for field, column in pairs], rows)
    return pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets_of(found.sizes)), pa.py_buffer(found.data)], 0
    )


def _join(parts: Sequence[Pieces], rows: int) -> Pieces:
    """Join the pieces of each row."""
    if not parts:
        return Pieces(np.zeros(0, np.uint8), np.zeros(rows, np.int64))
    if len(parts) == 1:
        return parts[0]
    sizes: np.ndarray = np.zeros(rows, np.int64)
    for part in parts:
        sizes += part.sizes
    at = np.cumsum(sizes) - sizes
    data: np.ndarray = np.empty(int(sizes.sum()), np.uint8)
    for part in parts:
        data[ranges(at, part.sizes)] = part.data
        at = at + part.sizes
    return Pieces(data, sizes)


def _fixed(values: np.ndarray, width: int) -> Pieces:
    data: np.ndarray = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    return Pieces(data, np.full(len(data) // width, width, np.int64))


def _longs(numbers: np.ndarray) -> Pieces:
    """Encode integers as zigzag varints."""
    signed: np.ndarray = numbers.astype(np.int64)
    left: np.ndarray = (signed << 1).view(np.uint64) ^ (signed >> 63).view(np.uint64)
    sizes: np.ndarray = np.ones(len(signed), np.int64)
    for index in range(1, _VARINT_BYTES_MAX):
        more = left >= np.uint64(1 << (7 * index))
        if not more.any():
            break
        sizes += more
    width = int(sizes.max()) if len(sizes) else 1
    shifts: np.ndarray = np.arange(width, dtype=np.uint64) * np.uint64(7)
    table: np.ndarray = ((left[:, None] >> shifts) & np.uint64(127)).astype(np.uint8)
    places: np.ndarray = np.arange(width)
    table |= np.where(places < sizes[:, None] - 1, 128, 0).astype(np.uint8)
    return Pieces(table[places < sizes[:, None]], sizes)


def _any(node: Node, values: pa.Array, path: str) -> Pieces:
    """Encode nullable values: the branch of the union, followed by any value."""
    if node.kind == "null":
        return Pieces(np.zeros(0, np.uint8), np.zeros(len(values), np.int64))
    if node.kind != "union":
        if values.null_count:
            raise SchemaSerializationError(
                f"column {path} is null in {values.null_count} rows, but the topic's schema requires a value: replace"
                " nulls with coalesce"
            )
        return _values(node, values, path)
    chosen = _branch(node)
    assert chosen is not None
    valid = is_valid(values)
    branch = _fixed(np.where(valid, 2 * chosen, 2 - 2 * chosen).astype(np.uint8), 1)
    return _join([branch, _spread(_values(node.parts[chosen], values.drop_null(), path), valid)], len(values))


def _spread(pieces: Pieces, chosen: np.ndarray) -> Pieces:
    """Assign pieces to the chosen rows; the others are empty."""
    sizes: np.ndarray = np.zeros(len(chosen), np.int64)
    sizes[chosen] = pieces.sizes
    return Pieces(pieces.data, sizes)


def _values(node: Node, values: pa.Array, path: str) -> Pieces:
    """Encode values without nulls."""
    if node.kind == "record":
        pairs = zip(node.fields, values.flatten(), strict=True)
        return _join([_any(field.node, column, f"{path}.{field.name}") for field, column in pairs], len(values))
    if node.kind in ("array", "map"):
        return _many(node, values, path)
    if node.logical == "decimal":
        return _decimals(values)
    if node.kind == "fixed":
        return _of_size(node.size, values, path)
    if node.kind in ("string", "bytes"):
        return _octets(values)
    if node.kind == "enum":
        return _longs(_symbols(node, values, path))
    if node.kind == "boolean":
        return _fixed(values.cast(pa.uint8()).to_numpy(), 1)
    if node.kind in ("float", "double"):
        width = values.type.bit_width // 8
        return _fixed(values.to_numpy().astype(f"<f{width}"), width)
    if pa.types.is_temporal(values.type):
        # Some durations have 32 bits in Avro, but all have 64 bits in Arrow.
        values = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    return _longs(values.to_numpy())


def _decimals(values: pa.Array) -> Pieces:
    raw: np.ndarray = np.frombuffer(values.buffers()[1], np.uint8).reshape(-1, _DECIMAL_BYTES)
    raw = raw[values.offset : values.offset + len(values)]
    table: np.ndarray = np.empty((len(values), _DECIMAL_BYTES + 1), np.uint8)
    table[:, 0] = _DECIMAL_BYTES << 1  # the size precedes the big-endian bytes
    table[:, 1:] = raw[:, ::-1]
    return _fixed(table, _DECIMAL_BYTES + 1)


def _of_size(size: int, values: pa.Array, path: str) -> Pieces:
    data, begins, sizes = contents(values)
    if (sizes != size).any():
        raise SchemaSerializationError(
            f"column {path} has {int(sizes[sizes != size][0])} bytes, but the topic's schema requires {size}"
        )
    return Pieces(data[ranges(begins, sizes)], sizes)


def _symbols(node: Node, values: pa.Array, path: str) -> np.ndarray:
    found = pc.index_in(values, pa.array(node.symbols, pa.string()))
    if found.null_count:
        other = values.filter(found.is_null())[0].as_py()
        raise SchemaSerializationError(
            f"column {path} is {other!r}, but the topic's schema allows only {', '.join(node.symbols)}"
        )
    numbers: np.ndarray = found.to_numpy()
    return numbers


def _octets(values: pa.Array) -> Pieces:
    if not len(values):
        return Pieces(np.zeros(0, np.uint8), np.zeros(0, np.int64))
    data, begins, sizes = contents(values)
    return _join([_longs(sizes), Pieces(data[ranges(begins, sizes)], sizes)], len(values))


def _many(node: Node, values: pa.Array, path: str) -> Pieces:
    """Encode lists or maps as one block of items followed by the empty block."""
    offsets = values.offsets.to_numpy().astype(np.int64)
    first, total = int(offsets[0]), int(offsets[-1] - offsets[0])
    counts = np.diff(offsets)
    part, path = node.parts[0], f"{path}[]"
    if node.kind == "map":
        keys = values.keys.slice(first, total)
        items = _join([_octets(keys), _any(part, values.items.slice(first, total), path)], total)
    else:
        items = _any(part, values.values.slice(first, total), path)
    ends: np.ndarray = np.concatenate((np.zeros(1, np.int64), np.cumsum(items.sizes)))
    bounds = offsets - first
    body = Pieces(items.data, ends[bounds[1:]] - ends[bounds[:-1]])
    has_some = counts > 0
    blocks = _spread(_longs(counts[has_some]), has_some)
    return _join([blocks, body, _fixed(np.zeros(len(values), np.uint8), 1)], len(values))
