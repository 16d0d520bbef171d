"""Dataclasses as records: the field types, and the Avro schema.

A field of type ``T`` is required; ``T | None`` is a union with null. A default in the dataclass becomes the default in
the schema, so that the field can be added to an existing schema.
"""

from __future__ import annotations

import dataclasses
import re
import types
from datetime import date, datetime, time
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from ...errors import InvalidConfig
from .field_types import (
    BASE64,
    BOOLEAN,
    DAY,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    MOMENT,
    OCTETS,
    TEXT,
    TIME,
    ByText,
    Choice,
    FieldType,
    Many,
    Maybe,
    Misfit,
    Octets,
    Record,
    RecordField,
    Simple,
)
from .schema import shown

Int32 = Annotated[int, INT]
"""A 32-bit int, Avro's ``int``; a plain int is a ``long``."""
Float32 = Annotated[float, FLOAT]
"""A 32-bit float, Avro's ``float``; a plain float is a ``double``."""

Base64Bytes = Annotated[bytes, BASE64]
"""Bytes that are base64 in JSON, as in Java's client; plain bytes are strings, as in the official Python client."""

_SIMPLE: dict[object, FieldType] = {
    str: TEXT,
    bytes: OCTETS,
    bool: BOOLEAN,
    int: LONG,
    float: DOUBLE,
    datetime: MOMENT,
    date: DAY,
    time: TIME,
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMESPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
NAMESPACE = "_avro_namespace"
"""Class attribute with a record's namespace, as in the official client."""


def record_of(kind: object) -> Record:
    """Return the record type of a dataclass.

    Raises:
        InvalidConfig: ``kind`` is not a dataclass, or a field, named in the message, has a type that Avro lacks.
    """
    return _record(kind, {})


def _record(kind: object, known: dict[type, Record | Choice]) -> Record:
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        raise InvalidConfig(f"{shown(kind)} is not a dataclass: decorate the class with @dataclass")
    found = known.get(kind)
    if isinstance(found, Record):
        return found
    namespace = getattr(kind, NAMESPACE, None)
    if namespace is not None and not (isinstance(namespace, str) and _NAMESPACE.fullmatch(namespace)):
        raise InvalidConfig(
            f"invalid Avro namespace {shown(namespace)} in {kind.__name__}.{NAMESPACE}: use for example org.example"
        )
    _check_name(kind.__name__, "dataclass name")
    record = Record(kind, namespace)
    _add(record, known)
    try:
        hints = get_type_hints(kind, include_extras=True)
    except Exception as error:
        raise InvalidConfig(f"cannot read the field types of {kind.__name__}: {error}") from error
    fields = [field for field in dataclasses.fields(kind) if field.init]
    record.fields = [_field(field, hints[field.name], kind.__name__, known) for field in fields]
    if not fields:
        raise InvalidConfig(f"{kind.__name__} has no fields: a schema requires at least one")
    return record


def _add(new: Record | Choice, known: dict[type, Record | Choice]) -> None:
    if any(other.full_name == new.full_name and other.kind is not new.kind for other in known.values()):
        raise InvalidConfig(f"duplicate class name {new.full_name} in a schema: rename one of the classes")
    known[new.kind] = new


def _check_name(name: str, what: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidConfig(f"invalid {what} {name!a}: Avro allows only letters, digits and _")


def _field(field: dataclasses.Field[Any], hint: object, owner: str, known: dict[type, Record | Choice]) -> RecordField:
    path = f"{owner}.{field.name}"
    _check_name(field.name, f"field name in {owner}")
    kind = _type(hint, path, known)
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    if default is dataclasses.MISSING:
        return RecordField(field.name, kind)
    if isinstance(kind, Maybe) and default is not None:
        kind = dataclasses.replace(kind, none_first=False)
    try:
        return RecordField(field.name, kind, _default(kind, default, path))
    except Misfit as misfit:
        raise InvalidConfig(
            f"invalid default {shown(misfit.value)} for {misfit.path}: expected {misfit.wanted}"
        ) from misfit


def _default(kind: FieldType, default: Any, path: str) -> Any:
    """Return a default as in a definition, where bytes are a string with one character per byte."""
    inner = kind.other if isinstance(kind, Maybe) else kind
    if isinstance(inner, Octets) and isinstance(default, bytes):
        return default.decode("latin-1")
    return kind.plain(default, path, is_json=True)


def _type(hint: Any, path: str, known: dict[type, Record | Choice]) -> FieldType:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        chosen = [one for one in arguments[1:] if isinstance(one, Simple)]
        return chosen[0] if chosen else _type(arguments[0], path, known)
    if origin in (Union, types.UnionType):
        others = [one for one in arguments if one is not type(None)]
        if len(others) == 1 and len(others) < len(arguments):
            return Maybe(_type(others[0], path, known))
        raise InvalidConfig(f"unsupported type {_name(hint)} of {path}: expected a single type, optionally with None")
    if origin is list and len(arguments) == 1:
        return Many(_type(arguments[0], f"{path}[]", known))
    if origin is dict and arguments[:1] == (str,):
        return ByText(_type(arguments[1], f"{path}[]", known))
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if isinstance(hint, type):
        if issubclass(hint, Enum):
            for member in hint:
                _check_name(member.name, f"member name in {hint.__name__}")
            choice = Choice(hint)
            _add(choice, known)
            return choice
        if dataclasses.is_dataclass(hint):
            return _record(hint, known)
    raise InvalidConfig(
        f"unsupported type {_name(hint)} of {path}: expected str, bytes, bool, int, Int32, float, Float32, datetime,"
        " date, time, an Enum, a dataclass, list[...] or dict[str, ...], optionally with | None"
    )


def _name(hint: object) -> str:
    return shown(hint) if get_args(hint) or not isinstance(hint, type) else hint.__name__


def definition_of(record: Record) -> dict[str, Any]:
    """Return the Avro schema of a record."""
    whole: dict[str, Any] = record.definition(set())
    return whole
