"""Decodes Avro's binary encoding into Arrow columns, one field at a time for all values.

Design: all values of a record batch are in one byte array. Each value has a cursor at the start of its next field. Each
step reads one field of all values and advances the cursors, with a few array operations per field rather than a few
objects per value. Each branch of a union is a step for the values that use it. Array items are read item by item: first
the first item of all values, then the second, and so on. For numbers, whole blocks are read in one operation.

All sizes in a value are checked against its end, so that no value can read the bytes of another.

Source: Apache Avro 1.12, Binary Encoding. Tests compare the results with fastavro.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....errors import SchemaSerializationError
from .avro_types import Field, Node, arrow_type, list_of, map_of
from .buffers import contents, is_valid, offsets_of, ranges, scattered, slices, text

_PADDING = 16
_VARINT_BYTES_MAX = 10
_FLAT = {"int": 0, "long": 0, "float": 4, "double": 8, "boolean": 1}
"""Bytes per item, or 0 if variable, for kinds whose blocks of items are read in one step."""


class Misread(SchemaSerializationError):
    """The bytes are not a valid value of their schema."""


def decode(node: Node, values: pa.Array) -> pa.Array:
    """Decode bytes; nulls remain null.

    Args:
        node: schema of all values.
        values: binary column.

    Raises:
        Misread: a value is corrupt or was written with another schema.
    """
    valid = is_valid(values)
    data, begins, sizes = contents(values)
    reader = _Reader(data, begins[valid] + sizes[valid])
    ends = reader.ends
    found, at = reader.read(node, np.arange(len(ends)), begins[valid])
    if (at != ends).any():
        left = int((ends - at)[at != ends][0])
        raise Misread(f"{left} unexpected bytes after the value")
    return scattered(found, valid)


class _Reader:
    """Reads values from one byte array.

    Attributes:
        ends: offset of the end of each value.
    """

    def __init__(self, data: np.ndarray, ends: np.ndarray):
        self.ends = ends
        self._data: np.ndarray = np.concatenate((data, np.zeros(_PADDING, np.uint8)))
        self._last = len(self._data) - 1
        self._terminators: np.ndarray | None = None

    def read(self, node: Node, of: np.ndarray, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """Read a part of the given type from some values.

        Args:
            node: the type.
            of: indexes of the values, shape (n,).
            at: cursors of these values, shape (n,).

        Returns:
            The column and the new cursors.
        """
        if node.kind == "record":
            columns = []
            for field in node.fields:
                column, at = self.read(field.node, of, at)
                columns.append(column)
            type_ = arrow_type(node)
            if not columns:
                return pa.array([{}] * len(of), type_), at
            return pa.StructArray.from_arrays(columns, fields=list(type_)), at
        if node.kind == "union":
            return self._union(node, of, at)
        if node.kind == "array":
            return self._array(node, of, at)
        if node.kind == "map":
            return self._map(node, of, at)
        if node.kind == "null":
            return pa.nulls(len(of)), at
        if node.kind in ("int", "long"):
            numbers, at = self._longs(of, at)
            return _numbers(node, numbers), at
        if node.kind in _FLAT:
            after = self._within(of, at, np.full(len(of), _FLAT[node.kind], np.int64))
            return _flat(node, self._data[ranges(at, after - at)]), after
        if node.kind == "enum":
            return self._enum(node, of, at)
        return self._octets(node, of, at)

    # -- numbers and bytes -------------------------------------------------------------------------------------------

    def _longs(self, of: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        byte = self._data[np.minimum(at, self._last)].astype(np.uint64)
        numbers: np.ndarray = byte & np.uint64(127)
        after: np.ndarray = at + 1
        more = np.flatnonzero(byte > 127)
        for index in range(1, _VARINT_BYTES_MAX):
            if not more.size:
                break
            byte = self._data[np.minimum(after[more], self._last)].astype(np.uint64)
            numbers[more] |= (byte & np.uint64(127)) << np.uint64(7 * index)
            after[more] += 1
            more = more[byte > 127]
        if more.size:
            raise Misread(f"number longer than {_VARINT_BYTES_MAX} bytes")
        if (after > self.ends[of]).any():
            raise Misread("input ends inside a number")
        return _unzigzag(numbers), after

    def _within(self, of: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the positions after a number of bytes, which must be within the values."""
        wrong = (sizes < 0) | (sizes > self.ends[of] - at)
        if wrong.any():
            place = int(np.flatnonzero(wrong)[0])
            raise Misread(
                f"length {int(sizes[place])} exceeds the remaining {int(self.ends[of][place] - at[place])} bytes"
            )
        after: np.ndarray = at + sizes
        return after

    def _octets(self, node: Node, of: np.ndarray, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        if node.kind == "fixed":
            sizes: np.ndarray = np.full(len(of), node.size, np.int64)
        else:
            sizes, at = self._longs(of, at)
        after = self._within(of, at, sizes)
        if node.logical == "decimal":
            return _decimals(node, self._data, at, sizes), after
        found = slices(self._data, at, sizes)
        if node.kind != "string":
            return found, after
        try:
            return text(found), after
        except pa.ArrowInvalid as error:
            raise Misread(f"string is not valid UTF-8: {error}") from error

    def _enum(self, node: Node, of: np.ndarray, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        numbers, at = self._longs(of, at)
        wrong = (numbers < 0) | (numbers >= len(node.symbols))
        if wrong.any():
            raise Misread(f"invalid enum symbol {int(numbers[wrong][0])}: the enum has {len(node.symbols)} symbols")
        return pa.array(node.symbols, pa.string()).take(pa.array(numbers)), at

    # -- nested types ------------------------------------------------------------------------------------------------

    def _union(self, node: Node, of: np.ndarray, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        branches, at = self._longs(of, at)
        wrong = (branches < 0) | (branches >= len(node.parts))
        if wrong.any():
            raise Misread(f"invalid union branch {int(branches[wrong][0])}: the union has {len(node.parts)} branches")
        type_ = arrow_type(node)
        found: list[pa.Array] = []
        chosen_some: np.ndarray = np.zeros(len(of), np.bool_)
        for index, part in enumerate(node.parts):
            chosen = branches == index
            if part.kind == "null":
                continue
            column, after = self.read(part, of[chosen], at[chosen])
            at[chosen] = after
            chosen_some |= chosen
            found.append(scattered(column, chosen))
        if not found:
            return pa.nulls(len(of)), at
        if len(found) == 1:
            return found[0], at
        if not pa.types.is_struct(type_):
            merged = found[0].cast(type_)
            for one in found[1:]:
                merged = pc.coalesce(merged, one.cast(type_, safe=False))
            return merged, at
        return pa.StructArray.from_arrays(found, fields=list(type_), mask=pa.array(~chosen_some)), at

    def _array(self, node: Node, of: np.ndarray, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        part = node.parts[0]
        items, counts, at = self._blocks(of, at, partial(self._flat_block if part.kind in _FLAT else self._block, part))
        if items is None:
            items = pa.array([], arrow_type(part))
        buffers = [None, pa.py_buffer(offsets_of(counts))]
        return pa.Array.from_buffers(list_of(items.type), len(of), buffers, 0, children=[items]), at

    def _map(self, node: Node, of: np.ndarray, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        pair = Node("record", fields=(Field("key", Node("string"), {}), Field("value", node.parts[0], {})))
        items, counts, at = self._blocks(of, at, partial(self._block, pair))
        type_ = map_of(pa.string(), arrow_type(node.parts[0]))
        if items is None:
            items = pa.array([], arrow_type(pair))
        entries = pa.StructArray.from_arrays(items.flatten(), fields=[type_.key_field, type_.item_field])
        buffers = [None, pa.py_buffer(offsets_of(counts))]
        return pa.Array.from_buffers(type_, len(of), buffers, 0, children=[entries]), at

    def _blocks(
        self, of: np.ndarray, at: np.ndarray, read: Callable[..., tuple[pa.Array, np.ndarray]]
    ) -> tuple[pa.Array | None, np.ndarray, np.ndarray]:
        """Read all blocks of items up to the empty block; return the items, their number per value, and the cursors."""
        at = at.copy()
        totals: np.ndarray = np.zeros(len(of), np.int64)
        parts: list[pa.Array] = []
        owners: list[np.ndarray] = []
        active = np.arange(len(of))
        while active.size:
            counts, after = self._longs(of[active], at[active])
            sized = counts < 0
            if sized.any():  # the size of the block follows
                counts = np.where(sized, -counts, counts)
                _, after[sized] = self._longs(of[active[sized]], after[sized])
            at[active] = after
            active, counts = active[counts != 0], counts[counts != 0]
            if not active.size:
                break
            if (counts > self.ends[of[active]] - at[active]).any() or (counts < 0).any():
                raise Misread(f"block of {int(counts.max())} items exceeds the remaining bytes")
            column, at[active] = read(of[active], at[active], counts)
            parts.append(column)
            owners.append(np.repeat(active, counts))
            totals[active] += counts
        if not parts:
            return None, totals, at
        items = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
        if len(parts) > 1:
            items = items.take(pa.array(np.argsort(np.concatenate(owners), kind="stable")))
        return items, totals, at

    def _block(self, part: Node, of: np.ndarray, at: np.ndarray, counts: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """Read the first item of all values, then the second, and so on; the result is ordered by value."""
        at = at.copy()
        steps: list[pa.Array] = []
        owners: list[np.ndarray] = []
        active = np.arange(len(of))
        for step in range(int(counts.max())):
            active = active[counts[active] > step]
            column, at[active] = self.read(part, of[active], at[active])
            steps.append(column)
            owners.append(active)
        if len(steps) == 1:
            return steps[0], at
        order = np.argsort(np.concatenate(owners), kind="stable")
        return pa.concat_arrays(steps).take(pa.array(order)), at

    def _flat_block(
        self, part: Node, of: np.ndarray, at: np.ndarray, counts: np.ndarray
    ) -> tuple[pa.Array, np.ndarray]:
        width = _FLAT[part.kind]
        if width:
            after = self._within(of, at, counts * width)
            return _flat(part, self._data[ranges(at, counts * width)]), after
        if self._terminators is None:
            self._terminators = np.flatnonzero(self._data < 128)
        first: np.ndarray = np.asarray(np.searchsorted(self._terminators, at))
        last = first + counts - 1
        if (last >= len(self._terminators)).any():
            raise Misread("input ends inside a number")
        after = self._terminators[last] + 1
        if (after > self.ends[of]).any():
            raise Misread("input ends inside a number")
        places = ranges(first, counts)
        begins = np.where(places > 0, self._terminators[np.maximum(places - 1, 0)] + 1, 0)
        heads = np.cumsum(counts) - counts
        begins[heads] = at
        numbers, _ = self._longs(np.repeat(of, counts), begins)
        return _numbers(part, numbers), after


def _unzigzag(numbers: np.ndarray) -> np.ndarray:
    found: np.ndarray = ((numbers >> np.uint64(1)) ^ (np.uint64(0) - (numbers & np.uint64(1)))).view(np.int64)
    return found


def _numbers(node: Node, numbers: np.ndarray) -> pa.Array:
    if node.kind == "int":
        small: np.ndarray = numbers.astype(np.int32)
        if (small != numbers).any():
            raise Misread(f"{int(numbers[small != numbers][0])} is not a 32-bit int")
        numbers = small
    found = pa.array(numbers)
    type_ = arrow_type(node)
    if type_ == pa.duration("ms"):
        found = found.cast(pa.int64())  # represented as durations in Arrow
    return found if found.type == type_ else found.view(type_)


def _flat(node: Node, data: np.ndarray) -> pa.Array:
    if node.kind == "boolean":
        return pa.array(data != 0)
    return pa.array(data.view("<f4" if node.kind == "float" else "<f8"))


def _decimals(node: Node, data: np.ndarray, at: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """Convert big-endian numbers to decimals, which Arrow stores as sixteen little-endian bytes."""
    if (sizes > 16).any():
        raise Misread(f"decimal has {int(sizes.max())} bytes, but {node.precision} digits fit into 16")
    negative = (sizes > 0) & (data[np.minimum(at, len(data) - 1)] > 127)
    table: np.ndarray = np.where(negative, 255, 0).astype(np.uint8)[:, None].repeat(16, axis=1)
    for place in range(16):
        has = sizes > place
        table[has, place] = data[(at + sizes - 1 - place)[has]]
    type_ = arrow_type(node)
    found = pa.Array.from_buffers(type_, len(sizes), [None, pa.py_buffer(table.tobytes())], 0)
    try:
        found.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Misread(f"decimal has more than {node.precision} digits") from error
    return found
