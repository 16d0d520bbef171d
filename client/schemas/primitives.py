"""Primitive schemas: bytes, strings, numbers, dates and times, encoded as in Java's client (big-endian).

Python times have microsecond precision; finer values written by Java are truncated.

Source: org.apache.pulsar.client.impl.schema (Java's client, 4.0).
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import ClassVar, Generic, TypeVar

from ...errors import SchemaSerializationError
from ...wire import pulsar_api_pb2 as pb
from .schema import BYTES, Schema, SchemaInfo

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  local times are without a zone
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MILLISECOND = timedelta(milliseconds=1)
_MICROSECOND = timedelta(microseconds=1)
_DAY_MS = 24 * 60 * 60 * 1000


class BytesSchema(Schema[bytes]):
    """Bytes, unchanged; no schema is sent to the broker."""

    info = SchemaInfo(BYTES, name="BYTES")

    def encode(self, value: bytes) -> bytes:
        """Return bytes; see `Schema.encode`."""
        if not isinstance(value, bytes | bytearray | memoryview):
            self.refuse(value, "bytes")
        return bytes(value)

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> bytes:
        """Return the bytes."""
        return data


class StringSchema(Schema[str]):
    """Strings, encoded as UTF-8."""

    info = SchemaInfo(pb.Schema.String, name="STRING")

    def encode(self, value: str) -> bytes:
        """Encode a string as UTF-8; see `Schema.encode`."""
        if not isinstance(value, str):
            self.refuse(value, "a str")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise SchemaSerializationError(
                f"{self}: cannot encode the lone surrogate at index {error.start} as UTF-8"
            ) from error

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> str:
        """Decode UTF-8 to a string; see `Schema.decode`."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise SchemaSerializationError(f"{self}: invalid UTF-8 at byte {error.start} of {len(data)}") from error


class _Fixed(Schema[T], Generic[T]):
    """A value of fixed size."""

    _form: ClassVar[struct.Struct]
    _wanted: ClassVar[str]

    @abstractmethod
    def _parts(self, value: T) -> tuple[object, ...]:
        """Return the numbers that represent a value; values of other types are rejected."""

    @abstractmethod
    def _value(self, parts: tuple[int, ...]) -> T:
        """Return the value that numbers represent; raises OverflowError or ValueError if Python cannot represent it."""

    def encode(self, value: T) -> bytes:
        """Encode a value; see `Schema.encode`."""
        try:
            return self._form.pack(*self._parts(value))
        except (struct.error, OverflowError):
            self.refuse(value, self._wanted)

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> T:
        """Decode a value; see `Schema.decode`."""
        if len(data) != self._form.size:
            raise SchemaSerializationError(f"{self}: expected {self._form.size} bytes, got {len(data)}")
        try:
            return self._value(self._form.unpack(data))
        except (OverflowError, ValueError) as error:
            raise SchemaSerializationError(
                f"{self}: 0x{data.hex()} cannot be represented in Python: {error}"
            ) from error


class BooleanSchema(_Fixed[bool]):
    """True or False, in one byte."""

    info = SchemaInfo(pb.Schema.Bool, name="BOOLEAN")
    _form = struct.Struct(">B")
    _wanted = "a bool"

    def _parts(self, value: bool) -> tuple[object, ...]:
        if not isinstance(value, bool):
            self.refuse(value, self._wanted)
        return (value,)

    def _value(self, parts: tuple[int, ...]) -> bool:
        return parts[0] != 0


class _Integer(_Fixed[int]):
    def _parts(self, value: int) -> tuple[object, ...]:
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(value, self._wanted)
        return (value,)

    def _value(self, parts: tuple[int, ...]) -> int:
        return parts[0]


class Int8Schema(_Integer):
    """An 8-bit int."""

    info = SchemaInfo(pb.Schema.Int8, name="INT8")
    _form = struct.Struct(">b")
    _wanted = "an 8-bit int"


class Int16Schema(_Integer):
    """A 16-bit int."""

    info = SchemaInfo(pb.Schema.Int16, name="INT16")
    _form = struct.Struct(">h")
    _wanted = "a 16-bit int"


class Int32Schema(_Integer):
    """A 32-bit int."""

    info = SchemaInfo(pb.Schema.Int32, name="INT32")
    _form = struct.Struct(">i")
    _wanted = "a 32-bit int"


class Int64Schema(_Integer):
    """A 64-bit int."""

    info = SchemaInfo(pb.Schema.Int64, name="INT64")
    _form = struct.Struct(">q")
    _wanted = "a 64-bit int"


class _Real(_Fixed[float]):
    def _parts(self, value: float) -> tuple[object, ...]:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(value, self._wanted)
        return (value,)

    def _value(self, parts: tuple[float, ...]) -> float:
        return parts[0]


class FloatSchema(_Real):
    """A 32-bit float; values are rounded to this precision."""

    info = SchemaInfo(pb.Schema.Float, name="FLOAT")
    _form = struct.Struct(">f")
    _wanted = "a 32-bit float"


class DoubleSchema(_Real):
    """A 64-bit float, as in Python."""

    info = SchemaInfo(pb.Schema.Double, name="DOUBLE")
    _form = struct.Struct(">d")
    _wanted = "a float"


class _Moment(_Fixed[datetime]):
    _form = struct.Struct(">q")
    _wanted = "a timezone-aware datetime"

    def _parts(self, value: datetime) -> tuple[object, ...]:
        if not isinstance(value, datetime) or value.tzinfo is None:
            self.refuse(value, self._wanted)
        return self._since(value - _EPOCH)

    def _since(self, elapsed: timedelta) -> tuple[object, ...]:
        return (elapsed // _MILLISECOND,)

    def _value(self, parts: tuple[int, ...]) -> datetime:
        return _EPOCH + timedelta(milliseconds=parts[0])


class DateSchema(_Moment):
    """A timestamp in milliseconds, Java's ``java.util.Date``; a datetime in UTC."""

    info = SchemaInfo(pb.Schema.Date, name="DATE")


class TimestampSchema(_Moment):
    """A timestamp in milliseconds, Java's ``java.sql.Timestamp``; a datetime in UTC."""

    info = SchemaInfo(pb.Schema.Timestamp, name="TIMESTAMP")


class InstantSchema(_Moment):
    """A timestamp in nanoseconds, Java's ``Instant``; a datetime in UTC."""

    info = SchemaInfo(pb.Schema.Instant, name="INSTANT")
    _form = struct.Struct(">qi")

    def _since(self, elapsed: timedelta) -> tuple[object, ...]:
        seconds, rest = divmod(elapsed, timedelta(seconds=1))
        return seconds, rest // _MICROSECOND * 1000

    def _value(self, parts: tuple[int, ...]) -> datetime:
        return _EPOCH + timedelta(seconds=parts[0], microseconds=parts[1] // 1000)


def _clock(elapsed_us: int) -> time:
    """Return the time of day for microseconds after midnight."""
    return (_LOCAL_EPOCH + timedelta(microseconds=elapsed_us)).time()


def _after_midnight_us(value: time) -> int:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


class _OfDay(_Fixed[time]):
    _form = struct.Struct(">q")
    _wanted = "a naive time"
    _unit: ClassVar[Callable[[int], int]]

    def _check(self, value: time) -> None:
        if not isinstance(value, time) or value.tzinfo is not None:
            self.refuse(value, self._wanted)


class TimeSchema(_OfDay):
    """A time of day in milliseconds, Java's ``java.sql.Time`` in UTC."""

    info = SchemaInfo(pb.Schema.Time, name="TIME")

    def _parts(self, value: time) -> tuple[object, ...]:
        self._check(value)
        return (_after_midnight_us(value) // 1000,)

    def _value(self, parts: tuple[int, ...]) -> time:
        return _clock(parts[0] % _DAY_MS * 1000)


class LocalTimeSchema(_OfDay):
    """A time of day in nanoseconds, Java's ``LocalTime``."""

    info = SchemaInfo(pb.Schema.LocalTime, name="LOCAL_TIME")

    def _parts(self, value: time) -> tuple[object, ...]:
        self._check(value)
        return (_after_midnight_us(value) * 1000,)

    def _value(self, parts: tuple[int, ...]) -> time:
        return _clock(_checked_us(parts[0]))


def _checked_us(nanoseconds: int) -> int:
    """Convert nanoseconds after midnight to microseconds; raise ValueError if out of range."""
    if not 0 <= nanoseconds < _DAY_MS * 1_000_000:
        raise ValueError(f"{nanoseconds} ns is not a time of day")
    return nanoseconds // 1000


class LocalDateSchema(_Fixed[date]):
    """A date, Java's ``LocalDate``."""

    info = SchemaInfo(pb.Schema.LocalDate, name="LOCAL_DATE")
    _form = struct.Struct(">q")
    _wanted = "a date"

    def _parts(self, value: date) -> tuple[object, ...]:
        if not isinstance(value, date) or isinstance(value, datetime):
            self.refuse(value, self._wanted)
        return (value.toordinal() - _EPOCH_DAY,)

    def _value(self, parts: tuple[int, ...]) -> date:
        return date.fromordinal(parts[0] + _EPOCH_DAY)


class LocalDateTimeSchema(_Fixed[datetime]):
    """A date and time in nanoseconds, Java's ``LocalDateTime``."""

    info = SchemaInfo(pb.Schema.LocalDateTime, name="LOCAL_DATE_TIME")
    _form = struct.Struct(">qq")
    _wanted = "a naive datetime"

    def _parts(self, value: datetime) -> tuple[object, ...]:
        if not isinstance(value, datetime) or value.tzinfo is not None:
            self.refuse(value, self._wanted)
        return value.toordinal() - _EPOCH_DAY, _after_midnight_us(value.time()) * 1000

    def _value(self, parts: tuple[int, ...]) -> datetime:
        return datetime.combine(date.fromordinal(parts[0] + _EPOCH_DAY), _clock(_checked_us(parts[1])))


_PRIMITIVES: dict[int, type[Schema[object]]] = {
    kind.info.kind: kind  # type: ignore[misc]
    for kind in (
        BytesSchema, StringSchema, BooleanSchema, Int8Schema, Int16Schema, Int32Schema, Int64Schema, FloatSchema,
        DoubleSchema, DateSchema, TimeSchema, TimestampSchema, InstantSchema, LocalDateSchema, LocalTimeSchema,
        LocalDateTimeSchema,
    )
}  # fmt: skip


def primitive(kind: int) -> Schema[object] | None:
    """Return the primitive schema of a type, or None if the type is not primitive."""
    found = _PRIMITIVES.get(kind)
    return found() if found is not None else None
