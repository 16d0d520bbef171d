"""Field types: each validates values, defines its part of an Avro schema, and converts to and from JSON and Avro.

Design: a dataclass is converted to a tree of field types once; each value is then converted and validated in a single
traversal of the tree. Errors contain the field's path from the root.

Source: Apache Avro 1.12 (types, logical types); definitions as derived by the official Python client.
"""

from __future__ import annotations

import base64
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from typing import Any

from .schema import shown

MISSING: Any = object()
"""Marks a field without a default."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_US = timedelta(microseconds=1)
_DAY_US = 24 * 60 * 60 * 1_000_000


class Misfit(Exception):
    """Raised when a value does not fit a field.

    Attributes:
        path: the field's path.
        value: the value.
        wanted: description of the expected value.
    """

    def __init__(self, path: str, value: object, wanted: str):
        super().__init__(path, value, wanted)
        self.path = path
        self.value = value
        self.wanted = wanted


class FieldType(ABC):
    """The type of a field's values.

    `plain` and `value` handle two encodings: Avro (through `fastavro`) and JSON.
    """

    wanted: str

    @abstractmethod
    def definition(self, known: set[str]) -> Any:
        """Return the Avro schema of the type; ``known`` is the set of already defined names, and is updated."""

    @abstractmethod
    def plain(self, value: Any, path: str, *, is_json: bool) -> Any:
        """Return the encodable form of a value.

        Raises:
            Misfit: the value does not fit.
        """

    @abstractmethod
    def value(self, plain: Any, path: str, *, is_json: bool) -> Any:
        """Return the value of a decoded form; raises the same errors as `plain`."""


@dataclass(frozen=True)
class Simple(FieldType):
    """A string, bytes, number, or bool.

    Attributes:
        name: name of the Avro type.
        wanted: description of valid values.
        fits: returns whether a value is valid.
    """

    name: str
    wanted: str
    fits: Callable[[Any], bool]

    def definition(self, known: set[str]) -> Any:
        """Return the name; see `FieldType.definition`."""
        return self.name

    def plain(self, value: Any, path: str, *, is_json: bool) -> Any:
        """Return a value; see `FieldType.plain`."""
        self._check(value, path, is_json=is_json)
        return value

    def value(self, plain: Any, path: str, *, is_json: bool) -> Any:
        """Return what was read; see `FieldType.value`."""
        self._check(plain, path, is_json=is_json)
        return float(plain) if isinstance(plain, int) and self.name in ("float", "double") else plain

    def _check(self, value: Any, path: str, *, is_json: bool) -> None:
        if not self.fits(value):
            raise Misfit(path, value, self.wanted)
        if is_json and isinstance(value, float) and not math.isfinite(value):
            raise Misfit(path, value, f"{self.wanted} that JSON can represent")


class Octets(Simple):
    """Bytes. In JSON they are a string, as in the official Python client, and must be valid UTF-8."""

    def plain(self, value: Any, path: str, *, is_json: bool) -> Any:
        """Return a value; see `FieldType.plain`."""
        if not self.fits(value):
            raise Misfit(path, value, self.wanted)
        if not is_json:
            return value
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise Misfit(path, value, "UTF-8 bytes (JSON cannot represent others; AvroSchema can)") from None

    def value(self, plain: Any, path: str, *, is_json: bool) -> Any:
        """Return what was read; see `FieldType.value`."""
        if is_json and isinstance(plain, str):
            return plain.encode(errors="surrogatepass")
        return super().value(plain, path, is_json=is_json)


class Base64Octets(Octets):
    """Bytes that are encoded as base64 in JSON, as in Java's client."""

    def plain(self, value: Any, path: str, *, is_json: bool) -> Any:
        """Return a value; see `FieldType.plain`."""
        if not self.fits(value):
            raise Misfit(path, value, self.wanted)
        return base64.b64encode(value).decode() if is_json else value

    def value(self, plain: Any, path: str, *, is_json: bool) -> Any:
        """Return what was read; see `FieldType.value`."""
        if is_json and isinstance(plain, str):
            try:
                return base64.b64decode(plain, validate=True)
            except ValueError:
                raise Misfit(path, plain, "base64") from None
        return super().value(plain, path, is_json=is_json)


def _is_int(bits: int) -> Callable[[Any], bool]:
    most = 1 << (bits - 1)
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and -most <= value < most


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= one <= "\udfff" for one in value))


def _is_real(most: float) -> Callable[[Any], bool]:
    def is_real(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return (not isinstance(value, int) and not math.isfinite(value)) or -most <= value <= most

    return is_real


FLOAT_MAX = float.fromhex("0x1.fffffep+127")
DOUBLE_MAX = float.fromhex("0x1.fffffffffffffp+1023")

TEXT = Simple("string", "a str that UTF-8 can encode", _is_text)
OCTETS = Octets("bytes", "bytes", lambda value: isinstance(value, bytes))
BASE64 = Base64Octets("bytes", "bytes", lambda value: isinstance(value, bytes))
BOOLEAN = Simple("boolean", "a bool", lambda value: isinstance(value, bool))
INT = Simple("int", "a 32-bit int", _is_int(32))
LONG = Simple("long", "a 64-bit int", _is_int(64))
FLOAT = Simple("float", "a 32-bit float", _is_real(FLOAT_MAX))
DOUBLE = Simple("double", "a float", _is_real(DOUBLE_MAX))


@dataclass(frozen=True)
class Temporal(FieldType):
    """A timestamp, date or time of day, represented in Avro as a number with a logical type.

    Attributes:
        name: name of the Avro type.
        logical: name of the logical type.
        wanted: description of valid values.
        fits: returns whether a value is valid.
        number: converts a value to its number.
        moment: converts a number to its value.
    """

    name: str
    logical: str
    wanted: str
    fits: Callable[[Any], bool]
    number: Callable[[Any], int]
    moment: Callable[[int], Any]

    def definition(self, known: set[str]) -> Any:
        """Return the logical type; see `FieldType.definition`."""
        return {"type": self.name, "logicalType": self.logical}

    def plain(self, value: Any, path: str, *, is_json: bool) -> Any:
        """Return a value, or its number for JSON; see `FieldType.plain`."""
        if not self.fits(value):
            raise Misfit(path, value, self.wanted)
        return self.number(value) if is_json else value

    def value(self, plain: Any, path: str, *, is_json: bool) -> Any:
        """Return the value of a number; see `FieldType.value`."""
        if not is_json and self.fits(plain):
            return plain
        if isinstance(plain, bool) or not isinstance(plain, int):
            raise Misfit(path, plain, self.wanted)
        try:
            return self.moment(plain)
        except (OverflowError, ValueError):
            raise Misfit(path, plain, f"{self.wanted} in Python's range") from None


def _time_us(value: time) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _time_of(elapsed_us: int) -> time:
    if not 0 <= elapsed_us < _DAY_US:
        raise ValueError(elapsed_us)
    return (_EPOCH + elapsed_us * _US).time()


MOMENT = Temporal(
    "long",
    "timestamp-micros",
    "a timezone-aware datetime",
    lambda value: isinstance(value, datetime) and value.tzinfo is not None,
    lambda value: (value - _EPOCH) // _US,
    lambda number: _EPOCH + number * _US,
)
DAY = Temporal(
    "int",
    "date",
    "a date",
    lambda value: isinstance(value, date) and not isinstance(value, datetime),
    lambda value: value.toordinal() - _EPOCH_DAY,
    lambda number: date.fromordinal(number + _EPOCH_DAY),
)
TIME = Temporal(
    "long",
    "time-micros",
    "a naive time",
    lambda value: isinstance(value, time) and value.tzinfo is None,
    _time_us,
    _time_of,
)


@dataclass(frozen=True)
class Choice(FieldType):
    """A member of an Enum, encoded as its name."""

    kind: type[Enum]

    @property
    def full_name(self) -> str:
        """The enum's full name in definitions."""
        return self.kind.__name__

    @property
    def wanted(self) -> str:  # type: ignore[override]  # an attribute in other classes
        """Description of valid values."""
        return f"a member of {self.kind.__name__}"

    def definition(self, known: set[str]) -> Any:
        """Return the names of all members; see `FieldType.definition`."""
        name = self.kind.__name__
        if name in known:
            return name
        known.add(name)
        return {"type": "enum", "name": name, "symbols": [member.name for member in self.kind]}

    def plain(self, value: Any, path: str, *, is_json: bool) -> Any:
        """Return the name of a member; see `FieldType.plain`."""
        if not isinstance(value, self.kind):
            raise Misfit(path, value, self.wanted)
        return value.name

    def value(self, plain: Any, path: str, *, is_json: bool) -> Any:
        """Return a member by its name, or by its value, which the official client writes in JSON."""
        if isinstance(plain, str) and plain in self.kind.__members__:
            return self.kind[plain]
        try:
            return self.kind(plain)
        except ValueError:
            raise Misfit(path, plain, f"one of {', '.join(self.kind.__members__)}") from None


@dataclass(frozen=True)
class Many(FieldType):
    """A list of values of one type."""

    items: FieldType
    wanted = "a list"

    def definition(self, known: set[str]) -> Any:
        """Return an array; see `FieldType.definition`."""
        return {"type": "array", "items": self.items.definition(known)}

    def plain(self, value: Any, path: str, *, is_json: bool) -> Any:
        """Return a list; see `FieldType.plain`."""
        if not isinstance(value, list | tuple):
            raise Misfit(path, value, self.wanted)
        return [self.items.plain(one, f"{path}[{place}]", is_json=is_json) for place, one in enumerate(value)]

    def value(self, plain: Any, path: str, *, is_json: bool) -> Any:
        """Return a list of values; see `FieldType.value`."""
        if not isinstance(plain, list):
            raise Misfit(path, plain, self.wanted)
        return [self.items.value(one, f"{path}[{place}]", is_json=is_json) for place, one in enumerate(plain)]


@dataclass(frozen=True)
class ByText(FieldType):
    """A dict with str keys and values of one type."""

    values: FieldType
    wanted = "a dict with str keys"

    def definition(self, known: set[str]) -> Any:
        """Return a map; see `FieldType.definition`."""
        return {"type": "map", "values": self.values.definition(known)}

    def _each(self, given: Any, path: str, call: Callable[[Any, str], Any]) -> dict[str, Any]:
        if not isinstance(given, Mapping) or not all(map(_is_text, given)):
            raise Misfit(path, given, self.wanted)
        return {name: call(one, f"{path}[{shown(name)}]") for name, one in given.items()}

    def plain(self, value: Any, path: str, *, is_json: bool) -> Any:
        """Return a dict; see `FieldType.plain`."""
        return self._each(value, path, lambda one, where: self.values.plain(one, where, is_json=is_json))

    def value(self, plain: Any, path: str, *, is_json: bool) -> Any:
        """Return a dict of values; see `FieldType.value`."""
        return self._each(plain, path, lambda one, where: self.values.value(one, where, is_json=is_json))


@dataclass(frozen=True)
class Maybe(FieldType):
    """A value or None.

    Attributes:
        other: type of the value.
        none_first: whether null is the first type of the union, which determines the type of the default.
    """

    other: FieldType
    none_first: bool = True

    @property
    def wanted(self) -> str:  # type: ignore[override]  # an attribute in other classes
        """Description of valid values."""
        return f"{self.other.wanted} or None"

    def definition(self, known: set[str]) -> Any:
        """Return a union; see `FieldType.definition`."""
        other = self.other.definition(known)
        return ["null", other] if self.none_first else [other, "null"]

    def plain(self, value: Any, path: str, *, is_json: bool) -> Any:
        """Return a value or None; see `FieldType.plain`."""
        return None if value is None else self.other.plain(value, path, is_json=is_json)

    def value(self, plain: Any, path: str, *, is_json: bool) -> Any:
        """Return a value or None; see `FieldType.value`."""
        return None if plain is None else self.other.value(plain, path, is_json=is_json)


@dataclass(frozen=True)
class RecordField:
    """One field of a dataclass.

    Attributes:
        name: the field's name.
        type: type of the field's values.
        default: default value, as in a definition, or `MISSING`.
    """

    name: str
    type: FieldType
    default: Any = MISSING


class Record(FieldType):
    """An instance of a dataclass. Its fields are set later, because they may refer to the same class.

    Attributes:
        kind: the dataclass.
        fields: the fields.
    """

    def __init__(self, kind: type, namespace: str | None = None):
        self.kind = kind
        self.name = kind.__name__
        self.namespace = namespace
        self.full_name = f"{namespace}.{self.name}" if namespace else self.name
        self.wanted = f"an instance of {self.name}"
        self.fields: Sequence[RecordField] = ()

    def definition(self, known: set[str]) -> Any:
        """Return a record with its fields; see `FieldType.definition`."""
        if self.full_name in known:
            return self.full_name
        known.add(self.full_name)
        whole: dict[str, Any] = {"type": "record", "name": self.name}
        if self.namespace:
            whole["namespace"] = self.namespace
        whole["fields"] = fields = []
        for field in self.fields:
            one = {"name": field.name}
            if field.default is not MISSING:
                one["default"] = field.default
            fields.append({**one, "type": field.type.definition(known)})
        return whole

    def plain(self, value: Any, path: str, *, is_json: bool) -> Any:
        """Return the fields of an object as a dict; see `FieldType.plain`."""
        if not isinstance(value, self.kind):
            raise Misfit(path, value, self.wanted)
        before = f"{path}." if path else ""
        return {
            field.name: field.type.plain(getattr(value, field.name, None), f"{before}{field.name}", is_json=is_json)
            for field in self.fields
        }

    def value(self, plain: Any, path: str, *, is_json: bool) -> Any:
        """Return the object with the given fields, ignoring fields that the dataclass lacks."""
        if not isinstance(plain, dict):
            raise Misfit(path, plain, self.wanted)
        before = f"{path}." if path else ""
        found = {}
        for field in self.fields:
            if field.name in plain:
                found[field.name] = field.type.value(plain[field.name], f"{before}{field.name}", is_json=is_json)
            elif field.default is MISSING:
                if not isinstance(field.type, Maybe):
                    raise Misfit(f"{before}{field.name}", MISSING, field.type.wanted)
                found[field.name] = None
        return self.kind(**found)
