"""Avro rules for two definitions: whether one can read data of the other, and whether they are equal.

Apache's own `avro` package implements schema resolution. As in Pulsar, which uses Java's resolution, two of its checks
are skipped: records may have different names, and the reader's enum may lack symbols of the writer's.

Import this module only where a definition is used: it takes 0.5 MB, and most brokers have no Avro schema.

Errors: a definition that cannot be parsed raises `InvalidDefinition`.

Source: Avro 1.11 specification, section Schema Resolution; Pulsar 4.0, AvroSchemaBasedCompatibilityCheck.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

from avro import schema as avro_schema
from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityResult,
    SchemaCompatibilityType,
    lookup_writer_field,
)
from avro.errors import AvroException
from avro.schema import EnumSchema, Field, NamedSchema, RecordSchema, Schema, UnionSchema

from .model import InvalidDefinition

MAX_DEPTH = 100
"""Maximum JSON nesting of a definition, as its parser is recursive."""
MAX_COMPARED = 50_000
"""Maximum number of type pairs compared in one check, which takes about a second."""
MAX_SHOWN = 8
"""Maximum number of union branches in a message."""
_COMPATIBLE = SchemaCompatibilityResult(SchemaCompatibilityType.compatible)
_NAME = re.compile(r"(?!\d)\w+")
_NOT_RESOLVED = ("logicalType", "doc")
"""Members that do not affect resolution; the library warns about unknown logical types."""


class _Indexed:
    """A writer's record with its fields indexed by name. The library would rebuild this index for each field."""

    def __init__(self, record: RecordSchema) -> None:
        self.type = record.type
        self.fields_dict = record.fields_dict


class _Checker(ReaderWriterCompatibilityChecker):
    """The library's compatibility check with Java's rules and a limit on comparisons."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._left = MAX_COMPARED
        self._indexed: dict[int, _Indexed] = {}

    def can_read(self, reader: Schema, writer: Schema) -> bool:
        """Return whether data written with ``writer`` can be read with ``reader``."""
        result = self.get_compatibility(reader, writer)
        return bool(result.compatibility is SchemaCompatibilityType.compatible)

    def calculate_compatibility(self, reader: Schema, writer: Schema, location: list[str]) -> SchemaCompatibilityResult:
        """Return the compatibility, ignoring record names and enum symbols."""
        self._left -= 1
        if self._left < 0:
            raise InvalidDefinition(
                f"the schemas are too complex to compare: more than {MAX_COMPARED} type comparisons"
            )
        if isinstance(reader, RecordSchema) and isinstance(writer, RecordSchema):
            indexed = self._indexed.get(id(writer))
            if indexed is None:
                indexed = self._indexed[id(writer)] = _Indexed(writer)
            return self.check_reader_writer_record_fields(reader, cast(RecordSchema, indexed), [])
        if isinstance(reader, EnumSchema) and isinstance(writer, EnumSchema) and reader.name == writer.name:
            return _COMPATIBLE
        if isinstance(reader, UnionSchema) and isinstance(writer, NamedSchema):
            # Any branch may match. The branch with the same name is checked first, as it usually does and the others
            # are expensive to check.
            named = (branch for branch in reader.schemas if getattr(branch, "name", None) == writer.name)
            if any(self.can_read(branch, writer) for branch in named):
                return _COMPATIBLE
        # Without locations: they are computed separately, and the library's grow with the depth.
        return super().calculate_compatibility(reader, writer, [])


def parse(data: bytes) -> Schema:
    """Parse a JSON definition.

    Raises:
        InvalidDefinition: the definition is not an Avro schema.
    """
    return _made(_loaded(data))


def is_same(one: bytes, other: bytes) -> bool:
    """Return whether two definitions are the same schema, ignoring documentation, aliases and whitespace.

    Raises:
        InvalidDefinition: one of them is not an Avro schema.
    """
    return bool(_identity(_loaded(one)) == _identity(_loaded(other)))


def difference(reader: Schema, writer: Schema) -> str | None:
    """Return why data written with ``writer`` cannot be read with ``reader``, naming the field, or None if it can.

    Raises:
        InvalidDefinition: the schemas are too large to compare.
    """
    checker = _Checker()
    if checker.can_read(reader, writer):
        return None
    return next(_differences(checker, reader, writer, "", set()), "the types differ")


def _differences(
    checker: _Checker, reader: Schema, writer: Schema, path: str, seen: set[tuple[int, int]]
) -> Iterator[str]:
    """Yield the differences, innermost field first."""
    pair = id(reader), id(writer)
    if pair in seen or checker.can_read(reader, writer):  # the checker caches this
        return
    seen.add(pair)
    where = f"field {path}" if path else "the schema"
    if isinstance(reader, RecordSchema) and isinstance(writer, RecordSchema):
        indexed = cast(RecordSchema, _Indexed(writer))
        for field in cast("list[Field]", reader.fields):
            inner = f"{path}.{field.name}" if path else str(field.name)
            theirs = lookup_writer_field(writer_schema=indexed, reader_field=field)
            if theirs is not None:
                yield from _differences(checker, field.type, theirs.type, inner, seen)
            elif not field.has_default:
                yield f"field {inner} has no default value and is missing from the data"
    for name in ("items", "values"):
        mine, others = getattr(reader, name, None), getattr(writer, name, None)
        if isinstance(mine, Schema) and isinstance(others, Schema):
            yield from _differences(checker, mine, others, f"{path}[]", seen)
    mine_records, their_records = _records(reader), _records(writer)
    if (mine_records, their_records) != ([reader], [writer]) and len(mine_records) == len(their_records) == 1:
        yield from _differences(checker, mine_records[0], their_records[0], path, seen)
    yield f"{where} is {_shown(reader)}, but {_shown(writer)} in the data"


def _records(schema: Schema) -> list[Schema]:
    branches = schema.schemas if isinstance(schema, UnionSchema) else [schema]
    return [branch for branch in branches if isinstance(branch, RecordSchema)]


def _shown(schema: Schema) -> str:
    if isinstance(schema, UnionSchema):
        shown = [_shown(branch) for branch in schema.schemas[:MAX_SHOWN]]
        return f"[{', '.join(shown)}{', …' if len(schema.schemas) > MAX_SHOWN else ''}]"
    name, size = getattr(schema, "name", None), getattr(schema, "size", None)
    return " ".join(str(part) for part in (schema.type, name, size and f"of {size} bytes") if part)


# Texts


def _loaded(data: bytes) -> Any:
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidDefinition(f"the definition is not valid UTF-8 JSON: {error}") from error
    return _checked(value, 0)


def _checked(value: Any, depth: int) -> Any:
    """Validate the depth and names of a definition, and return it."""
    if depth > MAX_DEPTH:
        raise InvalidDefinition(f"the definition is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, list):
        return [_checked(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    name = value.get("name")
    if isinstance(name, str) and not _NAME.fullmatch(name.rpartition(".")[2]):
        raise InvalidDefinition(f"Illegal character in: {name[:80]!a}")
    return {key: item if key == "default" else _checked(item, depth + 1) for key, item in value.items()}


def _made(value: Any) -> Schema:
    try:
        # The library's own check rejects `$` in a namespace, which Java uses for nested classes.
        return avro_schema.make_avsc_object(_stripped(value), validate_names=False)
    except (AvroException, AttributeError, TypeError, ValueError, RecursionError) as error:
        raise InvalidDefinition(" ".join(str(error).split())[:300]) from error


def _stripped(value: Any) -> Any:
    if isinstance(value, list):
        return [_stripped(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: item if key == "default" else _stripped(item) for key, item in value.items() if key not in _NOT_RESOLVED
    }


def _identity(value: Any) -> Any:
    """Return the compared part of a definition, without documentation and aliases, as in Java's `Schema.equals`."""
    if isinstance(value, list):
        return [_identity(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: item if key == "default" else _identity(item) for key, item in value.items()}
    for key in ("doc", "aliases"):
        kept.pop(key, None)
    if kept.get("order") == "ascending":
        del kept["order"]
    if kept.keys() == {"type"}:  # {"type": "int"} is "int"
        return kept["type"]
    return kept
