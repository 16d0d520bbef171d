"""Avro definitions from Python classes: dataclasses, or classes with a schema method, such as pulsar-client's `Record`.

Annotations of a dataclass are converted to types: int to long, float to double, a dataclass to a record, an Enum to an
enum of its names; a union with None is optional, with null as its default.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib.util
import sys
import types
import typing
from pathlib import Path
from typing import Any

from ..failure import Failure

_PRIMITIVE = {bool: "boolean", int: "long", float: "double", str: "string", bytes: "bytes"}


def load_class(file: Path, name: str) -> type:
    """Run a Python file and return one of its classes.

    Raises:
        Failure: the file cannot be run, or does not define the class.
    """
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise Failure(f"{file} is not a Python file: expected a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # needed to resolve annotations of dataclasses
    sys.path.insert(0, str(file.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Failure(f"{file} cannot be run: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(file.resolve().parent))
    found = getattr(module, name.rpartition(".")[2], None)
    if not isinstance(found, type):
        raise Failure(f"{file} does not define class {name.rpartition('.')[2]}")
    return found


def definition_of(record: type, *, always_allow_null: bool = True) -> dict[str, Any]:
    """Return the definition of a class as JSON.

    Args:
        record: a dataclass, or a class whose `schema()` returns its definition.
        always_allow_null: whether every field of a dataclass may be null, as in Pulsar.

    Raises:
        Failure: the class does not describe its fields, or an annotation has no Avro type.
    """
    own = getattr(record, "schema", None)
    if callable(own):
        return dict(own())
    if not dataclasses.is_dataclass(record):
        raise Failure(f"{record.__name__} is neither a dataclass nor has a schema() method")
    return _record(record, always_allow_null, set())


def _record(record: type, always_allow_null: bool, known: set[str]) -> dict[str, Any]:
    known.add(record.__name__)
    try:
        hints = typing.get_type_hints(record)
    except NameError as error:
        raise Failure(f"an annotation of {record.__name__} is not defined: {error}") from error
    fields = []
    for field in dataclasses.fields(record):
        type_ = _type(hints[field.name], f"{record.__name__}.{field.name}", always_allow_null, known)
        if always_allow_null and not isinstance(type_, list):
            type_ = ["null", type_]
        shown: dict[str, Any] = {"name": field.name, "type": type_}
        if isinstance(type_, list):
            shown["default"] = None
        elif type(field.default) in _PRIMITIVE and not isinstance(field.default, bytes):
            shown["default"] = field.default
        fields.append(shown)
    return {"type": "record", "name": record.__name__, "fields": fields}


def _type(hint: Any, where: str, always_allow_null: bool, known: set[str]) -> Any:
    if hint in _PRIMITIVE:
        return _PRIMITIVE[hint]
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        others = [_type(each, where, always_allow_null, known) for each in inner if each is not type(None)]
        return (
            others[0] if len(others) == len(inner) == 1 else ["null", *others] if len(others) < len(inner) else others
        )
    if origin is list:
        return {"type": "array", "items": _type(inner[0], where, always_allow_null, known)}
    if origin is dict and inner[0] is str:
        return {"type": "map", "values": _type(inner[1], where, always_allow_null, known)}
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, enum.Enum)):
        if hint.__name__ in known:
            return hint.__name__
        if dataclasses.is_dataclass(hint):
            return _record(hint, always_allow_null, known)
        known.add(hint.__name__)
        return {"type": "enum", "name": hint.__name__, "symbols": [member.name for member in hint]}
    raise Failure(
        f"{where} has type {getattr(hint, '__name__', hint)}, which has no Avro equivalent: use bool, int, float,"
        " str, bytes, list[…], dict[str, …], an Enum or a dataclass"
    )
