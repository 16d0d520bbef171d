"""Conversion between buffers of Arrow columns and numpy arrays. No I/O."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def contents(values: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the content of a binary column as (bytes, start offsets, sizes); nulls are empty.

    Args:
        values: column of type binary or string; may be a slice.
    """
    _, offsets, data = values.buffers()
    first = values.offset
    bounds: np.ndarray = np.frombuffer(offsets, np.int32, len(values) + 1, first * 4).astype(np.int64)
    held: np.ndarray = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    begins, sizes = bounds[:-1], np.diff(bounds)
    if values.null_count:
        sizes = np.where(is_valid(values), sizes, 0)
    return held, begins, sizes


def is_valid(values: pa.Array) -> np.ndarray:
    """Return flags for the values of a column that are not null."""
    found: np.ndarray = values.is_valid().to_numpy(zero_copy_only=False)
    return found


def ranges(begins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the concatenated integers of all ranges."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    found: np.ndarray = np.repeat(begins - (ends - sizes), sizes) + np.arange(total)
    return found


def offsets_of(sizes: np.ndarray) -> np.ndarray:
    """Return the offsets of pieces with the given sizes."""
    found: np.ndarray = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=found[1:])
    return found


def bits(flags: np.ndarray) -> pa.Buffer:
    """Return flags as a validity buffer."""
    return pa.py_buffer(np.packbits(flags, bitorder="little").tobytes())


def slices(data: np.ndarray, begins: np.ndarray, sizes: np.ndarray, valid: np.ndarray | None = None) -> pa.Array:
    """Return a column of slices of a byte array."""
    held = data[ranges(begins, sizes)]
    mask = None if valid is None or valid.all() else bits(valid)
    buffers = [mask, pa.py_buffer(offsets_of(sizes)), pa.py_buffer(held)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers, -1 if mask is not None else 0)


def text(values: pa.Array) -> pa.Array:
    """Convert a binary column to strings; raises pa.ArrowInvalid if any value is not valid UTF-8."""
    found = values.view(pa.string())
    found.validate(full=True)
    return found


def scattered(values: pa.Array, chosen: np.ndarray) -> pa.Array:
    """Return a column with the values in the chosen rows, in order, and null in all other rows."""
    if chosen.all():
        return values
    if not len(values):
        return pa.nulls(len(chosen), values.type)
    places = np.cumsum(chosen) - 1
    return values.take(pa.array(places, pa.int64(), mask=~chosen))
