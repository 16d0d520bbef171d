"""Conversion of Parquet rows to JSON objects, with all value types of Parquet.

Arrow converts most values to Python objects. Values without a Python type, such as nanoseconds and times in years that
`datetime` does not support, are converted individually. Like all times, they become ISO 8601 strings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import IO, TYPE_CHECKING, Any

from ..api.connector import DeadLetter
from .json_rows import encoded, json_text, unique_names
from .text_lines import BrokenObject

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 1000
_UNITS: Mapping[str, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""Units per second."""
_DAY_S = 86_400
_CYCLE_DAYS = 146_097
"""Days in 400 years, after which the calendar repeats."""


def rows_of_parquet(stream: IO[bytes]) -> Iterator[bytes | DeadLetter]:
    """Yield the rows as JSON objects, and a dead letter for each row that JSON cannot represent.

    Raises:
        BrokenObject: the file is damaged.
        OSError: reading failed.
    """
    import pyarrow as pa
    from pyarrow import parquet

    number = 0
    try:
        with parquet.ParquetFile(stream) as file:
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                named = batch.rename_columns(unique_names(batch.schema.names))
                for row in _rows(named):
                    number += 1
                    yield _letter(row, number) if isinstance(row, Exception) else _encoded(row, number)
    except pa.ArrowException as error:
        raise BrokenObject(str(error)) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise BrokenObject(str(error)) from error  # raised by Arrow for damaged pages


def _encoded(row: Mapping[str, Any], number: int) -> bytes | DeadLetter:
    try:
        return encoded(row)
    except UnicodeEncodeError as error:
        return DeadLetter(
            json_text(row), reason=f"row {number} contains a string that is not valid Unicode: {error.reason}"
        )


def _letter(error: Exception, number: int) -> DeadLetter:
    return DeadLetter(b"", reason=f"row {number} cannot be converted to JSON: {error}")


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any] | Exception]:
    """Yield each row of a batch as an object, or the error if it cannot be read."""
    try:
        yield from batch.to_pylist()
    except (ValueError, OverflowError):
        for place in range(batch.num_rows):
            try:
                yield {name: _value(batch[name][place]) for name in batch.schema.names}
            except (ValueError, OverflowError) as error:
                yield error


def _value(scalar: pa.Scalar[Any]) -> Any:
    """Return a Python value; times that Python does not support become strings."""
    import pyarrow as pa

    if not scalar.is_valid:
        return None
    kind = scalar.type
    if pa.types.is_struct(kind):
        names = unique_names([field.name for field in kind])
        return {name: _value(scalar[place]) for place, name in enumerate(names)}
    if pa.types.is_map(kind):
        return [[_value(one["key"]), _value(one["value"])] for one in scalar.values]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_value(one) for one in scalar.values]
    if pa.types.is_dictionary(kind):
        return _value(scalar.value)
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        if pa.types.is_timestamp(kind):
            return _timestamp(scalar.value, kind.unit, kind.tz)
        if pa.types.is_date(kind):
            return _date(scalar.value // (1 if pa.types.is_date32(kind) else _DAY_S * 1000))
        if pa.types.is_time(kind):
            seconds, fraction = divmod(scalar.value, _UNITS[kind.unit])
            return _time(seconds, fraction, kind.unit)
        if pa.types.is_duration(kind):
            return f"{scalar.value} {kind.unit}"
        raise


def _timestamp(value: int, unit: str, zone: str | None) -> str:
    """Format a time like `datetime.isoformat`, for all years and with nanoseconds."""
    seconds, fraction = divmod(value, _UNITS[unit])
    if zone is None:
        days, rest = divmod(seconds, _DAY_S)
        return f"{_date(days)}T{_time(rest, fraction, unit)}"
    offset = _offset(seconds, zone)
    days, rest = divmod(seconds + offset, _DAY_S)
    sign, minutes = "-" if offset < 0 else "+", abs(offset) // 60
    return f"{_date(days)}T{_time(rest, fraction, unit)}{sign}{minutes // 60:02}:{minutes % 60:02}"


def _offset(seconds: int, zone: str) -> int:
    """Return a time zone's UTC offset at a time, in seconds, or 0 for years that Python does not support."""
    import pyarrow as pa

    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
        local = pa.scalar(moment, pa.timestamp("s", zone)).as_py()
    except (ValueError, OverflowError):
        return 0
    ahead = local.utcoffset()
    return 0 if ahead is None else int(ahead.total_seconds())


def _date(days: int) -> str:
    """Format a number of days since 1970 as ISO 8601; years before 0 and after 9999 have a sign."""
    cycles, day = divmod(days, _CYCLE_DAYS)
    found = datetime(1970, 1, 1) + timedelta(days=day)  # noqa: DTZ001  a calendar date
    year = found.year + 400 * cycles
    return f"{year:04}-{found:%m-%d}" if 0 <= year <= 9999 else f"{year:+05}-{found:%m-%d}"


def _time(seconds: int, fraction: int, unit: str) -> str:
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if not fraction:
        return text
    digits = f"{fraction * (10**9 // _UNITS[unit]):09}"
    return f"{text}.{digits.removesuffix('000')}"
