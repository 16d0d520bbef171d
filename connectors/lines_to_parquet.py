"""Conversion of JSON lines to Parquet, where objects may differ in their fields and field types.

Arrow reads the lines in blocks, twice: once to determine the types and once to write the values. Memory use therefore
does not grow with the file. If Arrow finds two types in one field, or numbers that it might round, Python reads the
lines instead, which is several times slower. A field then gets the narrowest type that fits all its values: null yields
to any type, integers to floats, and other differing types to text, with values other than strings written as JSON.
Strings are never interpreted as times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from .libraries import need

BLOCK_BYTES = 8 << 20
FIELDS_MAX = 1000
"""Maximum number of fields in a nested object, and in a file. Larger objects are written as JSON."""
DEPTH_MAX = 50
"""Maximum nesting of lists and objects. Deeper values are written as JSON."""
_LARGE_NUMBER = re.compile(rb"[0-9]{16}")
"""Matches all numbers that Arrow might round, and some others."""
_INT64 = range(-(2**63), 2**63)
_EXACT_IN_FLOAT = range(-(2**53), 2**53 + 1)


class _NotPlain(Exception):
    """Arrow cannot read the lines without changing values."""


def write_parquet(lines: Path, made: Path) -> None:
    """Convert a file of JSON lines to Parquet.

    Args:
        lines: UTF-8 file with one object per line, each with at least one field.
        made: the file to create or replace.

    Raises:
        OSError: reading or writing failed.
        InvalidConfig: pyarrow is not installed.
    """
    arrow: Any = need("parquet", "pyarrow", "file")
    try:
        _write_by_arrow(arrow, lines, made)
    except (_NotPlain, arrow.ArrowInvalid, arrow.ArrowNotImplementedError, arrow.ArrowTypeError):
        _write_by_python(arrow, lines, made)


def _blocks(lines: Path) -> Iterator[bytes]:
    """Yield the file's content in blocks of complete lines."""
    with open(lines, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block + file.readline()


# -- with Arrow -------------------------------------------------------------------------------------------------------


def _write_by_arrow(arrow: Any, lines: Path, made: Path) -> None:
    arrow_json, parquet = need("parquet", "pyarrow.json", "file"), need("parquet", "pyarrow.parquet", "file")

    def read(block: bytes, **options: Any) -> Any:
        sizes = arrow_json.ReadOptions(block_size=len(block) + 1, use_threads=False)
        parsing = arrow_json.ParseOptions(**options)
        return arrow_json.read_json(arrow.BufferReader(block), read_options=sizes, parse_options=parsing)

    schema = arrow.schema([])
    for block in _blocks(lines):
        if _LARGE_NUMBER.search(block):
            raise _NotPlain
        found = arrow.schema([arrow.field(one.name, _without_times(arrow, one.type)) for one in read(block).schema])
        schema = arrow.unify_schemas([schema, found], promote_options="permissive")
    if sum(map(_leaves, schema.types)) > FIELDS_MAX:
        raise _NotPlain
    with parquet.ParquetWriter(made, schema) as out:
        for block in _blocks(lines):
            out.write_table(read(block, explicit_schema=schema, unexpected_field_behavior="error"))


def _without_times(arrow: Any, kind: Any, depth: int = 0) -> Any:
    """Replace times with strings in a type, because Arrow infers times from strings that look like them."""
    types = arrow.types
    if depth > DEPTH_MAX:
        raise _NotPlain
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
        return arrow.string()
    if types.is_list(kind):
        return arrow.list_(_without_times(arrow, kind.value_type, depth + 1))
    if types.is_struct(kind):
        if not kind.num_fields:
            raise _NotPlain  # Parquet does not support objects without fields
        return arrow.struct([arrow.field(one.name, _without_times(arrow, one.type, depth + 1)) for one in kind])
    return kind


def _leaves(kind: Any) -> int:
    return sum(_leaves(kind.field(number).type) for number in range(kind.num_fields)) or 1


# -- with Python ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _List:
    """A list type."""

    of: _Kind


@dataclass(slots=True)
class _Object:
    """An object type with the kinds of its fields."""

    fields: dict[str, _Kind]


_Kind: TypeAlias = "str | _List | _Object | None"
"""None if only null was seen, or one of "bool", "int", "large int", "float" and "text", or a list or object type."""


def _write_by_python(arrow: Any, lines: Path, made: Path) -> None:
    parquet = need("parquet", "pyarrow.parquet", "file")
    whole = _Object({})
    for block in _blocks(lines):
        for line in block.splitlines():
            for name, value in json.loads(line).items():
                whole.fields[name] = _merged(whole.fields.get(name), _kind_of(value))
    schema = arrow.schema([arrow.field(name, _type_of(arrow, kind)) for name, kind in whole.fields.items()])
    with parquet.ParquetWriter(made, schema) as out:
        for block in _blocks(lines):
            rows = [_fitting(json.loads(line), whole) for line in block.splitlines()]
            out.write_table(arrow.Table.from_pylist(rows, schema=schema))


def _kind_of(value: Any, depth: int = 0) -> _Kind:
    match value:
        case None:
            return None
        case bool():
            return "bool"
        case int():
            if value in _EXACT_IN_FLOAT:
                return "int"
            return "large int" if value in _INT64 else "text"
        case float():
            return "float"
        case list() if depth < DEPTH_MAX:
            kind: _Kind = None
            for item in value:
                kind = _merged(kind, _kind_of(item, depth + 1))
            return _List(kind)
        case dict() if depth < DEPTH_MAX and 0 < len(value) <= FIELDS_MAX:
            return _Object({name: _kind_of(item, depth + 1) for name, item in value.items()})
    return "text"


def _merged(one: _Kind, other: _Kind) -> _Kind:
    """Return the narrowest kind that fits both."""
    match one, other:
        case None, kind:
            return kind
        case kind, None:
            return kind
        case ("int", "large int") | ("large int", "int"):
            return "large int"
        case ("int", "float") | ("float", "int"):
            return "float"
        case _List(), _List():
            return _List(_merged(one.of, other.of))
        case _Object(), _Object():
            names = one.fields | other.fields
            if len(names) <= FIELDS_MAX:
                return _Object({name: _merged(one.fields.get(name), other.fields.get(name)) for name in names})
    return one if one == other else "text"


def _type_of(arrow: Any, kind: _Kind) -> Any:
    match kind:
        case None:
            return arrow.null()
        case _List():
            return arrow.list_(_type_of(arrow, kind.of))
        case _Object():
            return arrow.struct([arrow.field(name, _type_of(arrow, one)) for name, one in kind.fields.items()])
    types = {"bool": arrow.bool_, "int": arrow.int64, "large int": arrow.int64, "float": arrow.float64}
    return types.get(kind, arrow.string)()


def _fitting(value: Any, kind: _Kind) -> Any:
    """Convert a value to its kind."""
    if value is None:
        return None
    match kind:
        case "text":
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        case "float":
            return float(value)
        case _List():
            return [_fitting(item, kind.of) for item in value]
        case _Object():
            return {name: _fitting(value.get(name), one) for name, one in kind.fields.items()}
    return value
