"""Tables of a config's fields, and what follows from them: reading, defaults, updates, JSON, records, flags.

A config is a frozen dataclass whose attributes are declared by `option`, one row of the table each, in the order in
which the JSON of `get` has them. Whatever a row can say is said there and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, NamedTuple, TypeVar

from ..errors import InvalidConfig
from .kinds import OBJECT, Kind, read_object

Json = Mapping[str, Any]
_C = TypeVar("_C")


class Field(NamedTuple):
    """Row of a table.

    Attributes:
        name: of the field in JSON, Pulsar's.
        kind: of its value.
        help: one line, of the flag's help and of the documentation.
        flags: spellings of its flag; those with capitals are accepted and not shown in the help.
        alias: another name in JSON, which Pulsar's tools send too.
        attribute: of the config; empty for a field that is read into others, or only refused.
        record: where its value is in the record's message, ``a.b`` for a field of a nested message.
        default: what registration fills in; for a refused field, a value that asks for nothing.
        fixed: why an update that changes it is refused, in Pulsar's words.
        refused: why a value that asks for anything is refused.
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
    """Declare an attribute of a config together with its row.

    Args:
        name: of the field in JSON.
        kind: of its value.
        text: the row's help.
        unset: what the attribute holds when the field was not sent.
        compare: whether configs with different values are different.
        row: what else `Field` has.
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
    """Return fields by all names that they have in JSON."""
    return {name: field for field in fields for name in (field.name, field.alias) if name}


def with_flags(fields: Iterable[Field]) -> Iterator[tuple[str, Field]]:
    """Yield the fields that have a flag with their path in JSON, ``a.b`` for a field of a nested object."""
    for field in fields:
        if field.flags:
            yield field.name, field
        yield from ((f"{field.name}.{path}", member) for path, member in with_flags(field.kind.members))


def read_fields(fields: Mapping[str, Field], sent: Json, where: str = "") -> dict[str, Any]:
    """Return the values of a JSON object by the names of its fields; null counts as not sent.

    Args:
        fields: the table, by names.
        sent: the object.
        where: its own name, empty for the config itself.

    Raises:
        InvalidConfig: an unknown field (with the nearest known name) or a value of the wrong type.
    """
    values = {}
    for name, value in sent.items():
        if name not in fields:
            near = get_close_matches(name, fields, n=1, cutoff=0.5)
            advice = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(fields))}"
            raise InvalidConfig(f"{where + ': ' if where else ''}unknown field {name}; {advice}")
        if value is not None:
            values[name] = fields[name].kind.read(f"{where}.{name}" if where else name, value)
    return values


def attributes(fields: Mapping[str, Field], values: Json) -> dict[str, Any]:
    """Return the values of those fields that are attributes of a config, by attribute."""
    return {fields[name].attribute: value for name, value in values.items() if fields[name].attribute}


def nested(config: type) -> Kind:
    """Return the kind of an object that has a table of its own."""
    fields = fields_of(config)
    names = by_name(fields)

    def read(where: str, value: Any) -> Any:
        return config(**attributes(names, read_fields(names, read_object(where, value), where)))

    return OBJECT._replace(
        read=read, show=show, store=to_message, load=lambda message: from_message(config, message), members=fields
    )


def map_of(kind: Kind) -> Kind:
    """Return the kind of an object whose values, under names of the user's, are all of one kind."""

    def each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda values: {name: convert(value) for name, value in values.items()}

    def read(where: str, value: Any) -> dict[str, Any]:
        items = read_object(where, value).items()
        return {name: kind.read(f"{where}[{name}]", {} if item is None else item) for name, item in items}

    return OBJECT._replace(
        read=read, show=each(kind.show), store=each(kind.store), load=each(kind.load), members=kind.members
    )


def with_defaults(config: _C) -> _C:
    """Return the config with everything filled in that registration does not ask for."""
    values = {}
    for field in fields_of(type(config)):
        value = getattr(config, field.attribute)
        value = field.default if value in (None, "") else value
        values[field.attribute] = with_defaults(value) if dataclasses.is_dataclass(value) else value
    return dataclasses.replace(config, **values)  # type: ignore[type-var]


def overlay(existing: _C, sent: _C) -> _C:
    """Return the existing config with what was sent in its place; an empty text takes away what is there."""
    values = {field.attribute: getattr(sent, field.attribute) for field in fields_of(type(sent))}
    given = {name: None if value == "" else value for name, value in values.items() if value is not None}
    return dataclasses.replace(existing, **given)  # type: ignore[type-var]


def check_fixed(existing: _C, sent: _C) -> None:
    """Raise InvalidConfig if what was sent alters a fixed field."""
    for field in fields_of(type(sent)):
        value = getattr(sent, field.attribute)
        if field.fixed and value is not None and value != getattr(existing, field.attribute):
            raise InvalidConfig(field.fixed)


def refusals(config: object, where: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name and the reason of everything that a config asks for and that is refused."""
    for field in fields_of(type(config)):
        if field.refused and getattr(config, field.attribute):
            yield where + field.name, field.refused


def show(config: object) -> dict[str, Any]:
    """Return a config as JSON, in the order of its table, without fields that have no value."""
    answer = {}
    for field in fields_of(type(config)):
        value = getattr(config, field.attribute)
        answer[field.name] = None if value is None else field.kind.show(value)
    return {name: value for name, value in answer.items() if value is not None}


def to_message(config: object) -> dict[str, Any]:
    """Return what the constructor of the config's message takes, with dicts for the messages inside."""
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
    """Return the config that a message came from."""
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
