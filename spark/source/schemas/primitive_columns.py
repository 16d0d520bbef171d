"""Decodes values of Pulsar's primitive schemas, and splits KEY_VALUE payloads, into Arrow columns.

Times of day become the time since midnight, as in Avro.

Source: org.apache.pulsar.client.impl.schema (Java's client, 4.0); `client.schemas.primitives` reads single values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ....client.schemas.schema import BYTES, TYPE_NAMES
from ....errors import SchemaSerializationError
from ....wire import pulsar_api_pb2 as pb
from .avro_types import UTC
from .buffers import contents, is_valid, ranges, scattered, slices, text

_DAY_MS = 24 * 60 * 60 * 1000
_SECOND_US, _DAY_US = 1_000_000, _DAY_MS * 1000
_MOST_DAYS = (2**63 - 1) // _DAY_US - 1
_TIME = pa.duration("us")
_MOMENT = pa.timestamp("us", UTC)


def _plain(dtype: str) -> Callable[[np.ndarray], pa.Array]:
    native = np.dtype(dtype).newbyteorder("=")
    return lambda data: pa.array(data.view(dtype).astype(native))


def _milliseconds(data: np.ndarray) -> pa.Array:
    return pa.array(data.view(">i8").astype(np.int64)).view(pa.timestamp("ms", UTC)).cast(_MOMENT)


def _instants(data: np.ndarray) -> pa.Array:
    parts: np.ndarray = data.view([("seconds", ">i8"), ("nanos", ">i4")])
    seconds = _within(parts["seconds"].astype(np.int64), _MOST_DAYS * 86_400)
    return pa.array(seconds * _SECOND_US + parts["nanos"].astype(np.int64) // 1000).view(_MOMENT)


def _times(data: np.ndarray) -> pa.Array:
    return pa.array(data.view(">i8").astype(np.int64) % _DAY_MS * 1000).view(_TIME)


def _days(data: np.ndarray) -> pa.Array:
    return pa.array(_within(data.view(">i8").astype(np.int64), 2**31 - 1).astype(np.int32)).view(pa.date32())


def _local_times(data: np.ndarray) -> pa.Array:
    return pa.array(_of_day_us(data.view(">i8").astype(np.int64))).view(_TIME)


def _local_date_times(data: np.ndarray) -> pa.Array:
    parts: np.ndarray = data.view(">i8").astype(np.int64).reshape(-1, 2)
    return pa.array(_within(parts[:, 0], _MOST_DAYS) * _DAY_US + _of_day_us(parts[:, 1])).view(pa.timestamp("us"))


def _of_day_us(nanos: np.ndarray) -> np.ndarray:
    if ((nanos < 0) | (nanos >= _DAY_US * 1000)).any():
        raise SchemaSerializationError("time of day is not between 0 and 24 hours")
    found: np.ndarray = nanos // 1000
    return found


def _within(numbers: np.ndarray, most: int) -> np.ndarray:
    if (np.abs(numbers) > most).any() or (numbers == -(2**63)).any():
        raise SchemaSerializationError("time is outside Spark's range")
    return numbers


_FIXED: dict[int, tuple[pa.DataType, int, Callable[[np.ndarray], pa.Array]]] = {
    pb.Schema.Bool: (pa.bool_(), 1, lambda data: pa.array(data != 0)),
    pb.Schema.Int8: (pa.int8(), 1, _plain("i1")),
    pb.Schema.Int16: (pa.int16(), 2, _plain(">i2")),
    pb.Schema.Int32: (pa.int32(), 4, _plain(">i4")),
    pb.Schema.Int64: (pa.int64(), 8, _plain(">i8")),
    pb.Schema.Float: (pa.float32(), 4, _plain(">f4")),
    pb.Schema.Double: (pa.float64(), 8, _plain(">f8")),
    pb.Schema.Date: (_MOMENT, 8, _milliseconds),
    pb.Schema.Timestamp: (_MOMENT, 8, _milliseconds),
    pb.Schema.Time: (_TIME, 8, _times),
    pb.Schema.Instant: (_MOMENT, 12, _instants),
    pb.Schema.LocalDate: (pa.date32(), 8, _days),
    pb.Schema.LocalTime: (_TIME, 8, _local_times),
    pb.Schema.LocalDateTime: (pa.timestamp("us"), 16, _local_date_times),
}
"""Column type, bytes per value, and decoder for all values of a column, by schema type."""


def primitive_type(kind: int) -> pa.DataType | None:
    """Return the column type of a primitive schema, or None for other schemas."""
    if kind == BYTES:
        return pa.binary()
    if kind == pb.Schema.String:
        return pa.string()
    found = _FIXED.get(kind)
    return found[0] if found is not None else None


def decode(kind: int, values: pa.Array) -> pa.Array:
    """Decode bytes; nulls remain null.

    Args:
        kind: primitive schema type.
        values: binary column.

    Raises:
        SchemaSerializationError: the bytes are not valid for the type.
    """
    if kind == BYTES:
        return values
    if kind == pb.Schema.String:
        try:
            return text(values)
        except pa.ArrowInvalid as error:
            raise SchemaSerializationError(f"schema STRING: not valid UTF-8: {error}") from error
    _, width, make = _FIXED[kind]
    valid = is_valid(values)
    data, begins, sizes = contents(values)
    wrong = valid & (sizes != width)
    name = TYPE_NAMES[kind]
    if wrong.any():
        raise SchemaSerializationError(
            f"schema {name}: invalid value of {int(sizes[wrong][0])} bytes: expected {width}"
        )
    try:
        found = make(data[ranges(begins[valid], sizes[valid])])
    except (SchemaSerializationError, pa.ArrowInvalid) as error:
        raise SchemaSerializationError(f"schema {name}: {error}") from error
    return scattered(found, valid)


def split_pairs(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Split payloads into keys and values, which each follow their size; size -1 means null.

    Args:
        values: binary column; a null results in a null key and a null value.

    Raises:
        SchemaSerializationError: a payload does not have two parts.
    """
    valid = is_valid(values)
    data, begins, sizes = contents(values)
    padded: np.ndarray = np.concatenate((data, np.zeros(8, np.uint8)))
    begins, ends = begins[valid], (begins + sizes)[valid]
    pieces = []
    at = begins
    for name in ("key", "value"):
        if (at + 4 > ends).any():
            raise SchemaSerializationError(f"schema KEY_VALUE: input ends before the size of the {name}")
        held = padded[ranges(at, np.full(len(at), 4, np.int64))].view(">i4").astype(np.int64)
        at = at + 4
        is_there = held != -1
        lengths = np.where(is_there, held, 0)
        if ((lengths < 0) | (lengths > ends - at)).any():
            raise SchemaSerializationError(f"schema KEY_VALUE: {name} exceeds the remaining bytes")
        pieces.append(scattered(slices(padded, at, lengths, is_there), valid))
        at = at + lengths
    if (at != ends).any():
        raise SchemaSerializationError("schema KEY_VALUE: unexpected bytes after the value")
    return pieces[0], pieces[1]
