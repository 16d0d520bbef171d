"""Converts single JSON values to inputs of Arrow columns. No I/O.

Used for values that `json_columns` cannot read in bulk, and to find invalid fields.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

import pyarrow as pa

from ....client.schemas.schema import shown
from ....errors import SchemaSerializationError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def value_of(said: Any, type_: pa.DataType, path: str = "") -> Any:
    """Return the column value of a JSON value.

    Args:
        said: JSON value, as parsed by `json`.
        type_: column type.
        path: column name for errors.

    Raises:
        SchemaSerializationError: the value does not match the type; the message names the field, value and type.
    """
    if said is None:
        return None
    if pa.types.is_struct(type_):
        if _is_choice(type_):
            return _chosen(said, type_, path)
        if not isinstance(said, dict):
            _refuse(said, "an object", path)
        inside = f"{path}." if path else ""
        return {field.name: value_of(said.get(field.name), field.type, f"{inside}{field.name}") for field in type_}
    if pa.types.is_list(type_):
        if not isinstance(said, list):
            _refuse(said, "an array", path)
        return [value_of(one, type_.value_type, f"{path}[{index}]") for index, one in enumerate(said)]
    if pa.types.is_map(type_):
        if not isinstance(said, dict) or type_.key_type != pa.string():
            _refuse(said, "an object", path)
        return [(name, value_of(one, type_.item_type, f"{path}[{name!r}]")) for name, one in said.items()]
    return _simple(said, type_, path)


def _simple(said: Any, type_: pa.DataType, path: str) -> Any:
    if pa.types.is_boolean(type_):
        return said if isinstance(said, bool) else _refuse(said, "true or false", path)
    if pa.types.is_string(type_):
        return said if isinstance(said, str) else _refuse(said, "a text", path)
    if pa.types.is_binary(type_):
        return said.encode("utf-8", "surrogatepass") if isinstance(said, str) else _refuse(said, "a text", path)
    if pa.types.is_integer(type_):
        return _whole(said, type_, path)
    if pa.types.is_floating(type_):
        return float(said) if _is_number(said) else _refuse(said, "a number", path)
    if pa.types.is_decimal(type_):
        return _decimal(said, type_, path)
    if pa.types.is_temporal(type_):
        return _temporal(said, type_, path)
    _refuse(said, str(type_), path)


def _is_number(said: Any) -> bool:
    return isinstance(said, int | float) and not isinstance(said, bool)


def _whole(said: Any, type_: pa.DataType, path: str) -> int:
    most = 1 << (type_.bit_width - 1)
    if not _is_number(said) or (isinstance(said, float) and not said.is_integer()) or not -most <= said < most:
        _refuse(said, f"a {type_.bit_width}-bit integer", path)
    return int(said)


def _decimal(said: Any, type_: pa.DataType, path: str) -> Decimal:
    try:
        if not isinstance(said, str) and not _is_number(said):
            raise InvalidOperation
        found = Decimal(str(said))
        if not found.is_finite():
            raise InvalidOperation
        fitting: Decimal = pa.scalar(found).cast(type_).as_py()
    except (InvalidOperation, pa.ArrowInvalid):
        _refuse(said, f"a decimal of {type_.precision} digits, {type_.scale} after the point", path)
    return fitting


def _temporal(said: Any, type_: pa.DataType, path: str) -> Any:
    """Return the time given as a number of units or as a string."""
    try:
        if isinstance(said, str):
            if pa.types.is_date(type_):
                return date.fromisoformat(said)
            if pa.types.is_duration(type_):
                clock = datetime.fromisoformat(f"1970-01-01T{said}+00:00") - _EPOCH
                return clock // timedelta(microseconds=1) // _UNITS.get(type_.unit, 1)
            moment = datetime.fromisoformat(said)
            return moment if type_.tz is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        if _is_number(said) and math.isfinite(said) and float(said).is_integer():
            return pa.scalar(int(said), pa.int32() if pa.types.is_date(type_) else pa.int64()).cast(type_)
    except (ValueError, OverflowError, pa.ArrowInvalid):
        pass
    _refuse(said, str(type_), path)


def _is_choice(type_: pa.DataType) -> bool:
    """Return whether a struct type represents a union of several types."""
    return type_.num_fields > 1 and all(field.name == f"member{place}" for place, field in enumerate(type_))


def _chosen(said: Any, type_: pa.DataType, path: str) -> dict[str, Any]:
    """Return the first union member that accepts a value, because JSON does not identify the branch."""
    for field in type_:
        try:
            return {field.name: value_of(said, field.type, path)}
        except SchemaSerializationError:
            continue
    _refuse(said, f"one of {', '.join(str(field.type) for field in type_)}", path)


def _refuse(said: Any, wanted: str, path: str) -> NoReturn:
    where = f"field {path}" if path else "the value"
    raise SchemaSerializationError(f"{where} is {shown(said)}: expected {wanted}")
