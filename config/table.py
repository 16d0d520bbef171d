"""Tables of config fields: kinds of values, rows, and the parsing, JSON, records and flags derived from them.

A config is a frozen dataclass whose attributes are declared with `option`, one table row each, in the order of the JSON
of `get`. Everything that a row can express is declared there and nowhere else.

A kind defines how a value is read from JSON and from a flag, and stored in a record. A reader rejects invalid values
with the field's name. Empty values ("", [], {}, and false for switches that are off by default) count as not sent,
because Pulsar's own tools send them with every request.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Any, NamedTuple, TypeVar

from ..errors import InvalidConfig
from .sizes import EXPECTED, parse_size

Json = Mapping[str, Any]
_C = TypeVar("_C")
_Reader = Callable[[str, Any], Any]
_Converter = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


class Kind(NamedTuple):
    """A kind of value.

    Attributes:
        read: reads the value of a named JSON field; raises InvalidConfig.
        parse: converts a flag's string to the JSON value; raises ValueError.
        metavar: placeholder for the value in the help.
        is_switch: whether the flag may be used without a value, which means true.
        show: converts the value for the JSON of `get`.
        store: converts the value for the constructor of a record's message.
        load: converts the record's content to a value.
        members: fields of the object, as far as known.
    """

    read: _Reader
    parse: Callable[[str], Any] = str
    metavar: str = "TEXT"
    is_switch: bool = False
    show: _Converter = _same
    store: _Converter = _same
    load: _Converter = _same
    members: tuple[Any, ...] = ()


def shown(value: Any) -> str:
    """Return a JSON value for an error message."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _reader(wanted: type | UnionType, what: str) -> _Reader:
    def read(name: str, value: Any) -> Any:
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise InvalidConfig(f"{name} must be {what}, not {shown(value)}")
        return value

    return read


_read_text = _reader(str, "a string")
_read_flag = _reader(bool, "true or false")
_read_whole = _reader(int, "a whole number")
_read_number = _reader(int | float, "a number")
read_object = _reader(dict, "a JSON object")
"""Read a JSON value that must be an object."""


def _read_integer(name: str, value: Any) -> int:
    number: int = _read_whole(name, value)
    if not -(1 << 63) <= number < 1 << 63:
        raise InvalidConfig(f"{name} {number} does not fit into 64 bits")
    return number


def _read_text_map(name: str, value: Any) -> dict[str, str]:
    for key, item in read_object(name, value).items():
        if not isinstance(item, str):
            raise InvalidConfig(f"{name}: the value of {key!r} must be a string, not {shown(item)}")
    return dict(value)


def _read_texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidConfig(f"{name} must be a list of strings, not {shown(value)}")
    return tuple(value)


def _parse_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object, {…}")
    return value


def _parse_number(kind: type[int] | type[float], what: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"expected {what}") from None

    return parse


_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _parse_duration_ms(text: str) -> int:
    number = text.rstrip("smhd")
    unit = _UNITS_MS.get(text[len(number) :])
    if unit is None or not (number.isascii() and number.isdigit()):
        raise ValueError("expected a duration such as 500ms, 10s, 5m, 1h or 1d, or a number of milliseconds")
    return int(number) * unit


def _parse_size(text: str) -> int:
    if (size := parse_size(text)) < 0:
        raise ValueError(f"expected {EXPECTED}")
    return size


def _parse_choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return text

    return parse


def _parse_flag(text: str) -> bool:
    return _parse_choice("true", "false")(text.lower()) == "true"


def one_of(*choices: str) -> Kind:
    """Return a kind with a fixed set of strings."""

    def read(name: str, value: Any) -> str | None:
        text: str | None = _read_text(name, value) or None
        if text is not None and text not in choices:
            raise InvalidConfig(f"invalid {name} {text!r}: expected one of {', '.join(choices)}")
        return text

    return Kind(read, _parse_choice(*choices))


def _or_none(value: Any) -> Any:
    """Return a record's content, or None for "" and 0, which mean that the field is not set."""
    return value or None


TEXT = Kind(lambda name, value: _read_text(name, value) or None, load=_or_none)
CLEARABLE_TEXT = TEXT._replace(read=_read_text)
"""A string that may be empty. In an update, an empty string clears the stored value."""
FLAG = Kind(_read_flag, _parse_flag, "true|false")
SWITCH = Kind(_read_flag, _parse_flag, is_switch=True)
INTEGER = Kind(_read_integer, _parse_number(int, "a whole number"), "N", load=_or_none)
DURATION_MS = INTEGER._replace(parse=_parse_duration_ms, metavar="DURATION")
"""Milliseconds. A flag also accepts units."""
SIZE_BYTES = INTEGER._replace(parse=_parse_size, metavar="SIZE")
"""Bytes. A flag also accepts units."""
NUMBER = Kind(lambda name, value: float(_read_number(name, value)), _parse_number(float, "a number"), "N")
OBJECT = Kind(
    read_object,
    _parse_object,
    "JSON",
    store=lambda value: json.dumps(dict(value), separators=(",", ":")),
    load=lambda text: json.loads(text) if text else None,
)
TEXT_MAP = Kind(_read_text_map, _parse_object, "JSON", show=dict, store=dict, load=dict)
TEXTS = Kind(_read_texts, lambda text: [part.strip() for part in text.split(",") if part.strip()], "A,B")


class Field(NamedTuple):
    """A table row.

    Attributes:
        name: JSON name of the field, as in Pulsar.
        kind: kind of value.
        help: one line, for the flag's help and the documentation.
        flags: spellings of the flag. Those with capitals are accepted but not shown in the help.
        alias: another JSON name, which Pulsar's tools also send.
        attribute: attribute of the config; empty for a field that is merged into others, or only rejected.
        record: location of the value in the record's message, ``a.b`` for a field of a nested message.
        default: value filled in by registration; for a rejected field, a value that is harmless.
        fixed: error of an update that changes the field, in Pulsar's words.
        refused: error of a request that sets the field to anything but the default.
    """

    name: str
    kind: Kind
    help: str = ""
    flags: str = ""
    alias: str = ""
    attribute: str = ""
    record: str = ""
    default: Any = None
    fixed: str = ""
    refused: str = ""


def option(name: str, kind: Kind, text: str = "", *, unset: Any = None, compare: bool = True, **row: Any) -> Any:
    """Declare a config attribute together with its row.

    Args:
        name: JSON name.
        kind: kind of value.
        text: help of the row.
        unset: value of the attribute if the field was not sent.
        compare: whether the attribute is included when comparing configs.
        row: other attributes of `Field`.
    """
    metadata = {"field": Field(name, kind, text, **row)}
    if unset == {}:
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=unset, compare=compare, metadata=metadata)


def _fields_of(config: Any) -> tuple[Field, ...]:
    rows = ((field.name, field.metadata.get("field")) for field in dataclasses.fields(config))
    return tuple(row._replace(attribute=attribute) for attribute, row in rows if row is not None)


fields_of: Callable[[type], tuple[Field, ...]] = cache(_fields_of)
"""Return the rows of a config's attributes."""


def by_name(fields: Iterable[Field]) -> dict[str, Field]:
    """Return fields by all their JSON names."""
    return {name: field for field in fields for name in (field.name, field.alias) if name}


def with_flags(fields: Iterable[Field]) -> Iterator[tuple[str, Field]]:
    """Yield the fields that have a flag with their JSON paths, ``a.b`` for a field of a nested object.

    If an object is rejected as a whole, so are all its fields.
    """
    for field in fields:
        if field.flags:
            yield field.name, field
        for path, member in with_flags(field.kind.members):
            yield f"{field.name}.{path}", member._replace(refused=field.refused or member.refused)


def read_fields(fields: Mapping[str, Field], sent: Json, where: str = "") -> dict[str, Any]:
    """Return the values of a JSON object by field name. null counts as not sent.

    Args:
        fields: the table, by name.
        sent: the object.
        where: name of the object, empty for the config itself.

    Raises:
        InvalidConfig: a field is unknown or has a value of the wrong type. For an unknown field, the message suggests
          the
            nearest known name.
    """
    values = {}
    for name, value in sent.items():
        if name not in fields:
            from difflib import get_close_matches  # slow to import, and only needed after a typo

            near = get_close_matches(name, fields, n=1, cutoff=0.5)
            advice = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(sorted(fields))}"
            raise InvalidConfig(f"{where + ': ' if where else ''}unknown field {name}: {advice}")
        if value is not None:
            values[name] = fields[name].kind.read(f"{where}.{name}" if where else name, value)
    return values


def attributes(fields: Mapping[str, Field], values: Json) -> dict[str, Any]:
    """Return the values of the fields that have an attribute, by attribute."""
    return {fields[name].attribute: value for name, value in values.items() if fields[name].attribute}


def nested(config: type) -> Kind:
    """Return the kind of an object with its own table."""
    fields = fields_of(config)
    names = by_name(fields)

    def read(where: str, value: Any) -> Any:
        return config(**attributes(names, read_fields(names, read_object(where, value), where)))

    return OBJECT._replace(
        read=read, show=show, store=to_message, load=lambda message: from_message(config, message), members=fields
    )


def map_of(kind: Kind) -> Kind:
    """Return the kind of an object with user-defined keys whose values are all of one kind."""

    def each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda values: {name: convert(value) for name, value in values.items()}

    def read(where: str, value: Any) -> dict[str, Any]:
        items = read_object(where, value).items()
        return {name: kind.read(f"{where}[{name}]", {} if item is None else item) for name, item in items}

    return OBJECT._replace(
        read=read, show=each(kind.show), store=each(kind.store), load=each(kind.load), members=kind.members
    )


def show(config: object) -> dict[str, Any]:
    """Return a config as JSON, in table order, without empty fields."""
    answer = {}
    for field in fields_of(type(config)):
        value = getattr(config, field.attribute)
        answer[field.name] = None if value is None else field.kind.show(value)
    return {name: value for name, value in answer.items() if value is not None}


def to_message(config: object) -> dict[str, Any]:
    """Return the constructor arguments of the config's message, with dicts for nested messages."""
    message: dict[str, Any] = {}
    for field in fields_of(type(config)):
        value = getattr(config, field.attribute)
        value = field.default if value is None else value
        if not field.record or value is None or (value == {} and field.default is None):
            continue
        *outer, name = field.record.split(".")
        inner = message
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[name] = field.kind.store(value)
    return message


def from_message(config: type[_C], message: Any) -> _C:
    """Convert a message to the config that it was created from."""
    values = {}
    for field in fields_of(config):
        *outer, name = field.record.split(".")
        inner = message
        for part in outer:
            inner = getattr(inner, part)
        description = inner.DESCRIPTOR.fields_by_name.get(name)
        if description is None or (description.has_presence and not inner.HasField(name)):
            continue
        value = getattr(inner, name)
        if description.enum_type is not None:
            value = description.enum_type.values_by_number[value].name
        values[field.attribute] = field.kind.load(value)
    return config(**values)
