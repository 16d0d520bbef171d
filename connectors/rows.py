"""JSON objects as rows of tables with a schema, for sinks that write Parquet, Delta and Iceberg.

Values are read by Arrow's JSON reader, which does not convert types: strings are not accepted as numbers, nor fractions
as integers. Times and dates are ISO 8601 strings.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..api.connector import Record, RecordRefused
from ..errors import InvalidConfig
from .documents import Outcome, document_of, halved

if TYPE_CHECKING:
    import pyarrow as pa

SchemaEvolution: TypeAlias = Literal["REFUSE", "IGNORE", "MERGE"]
_NOTHING: tuple[object, ...] = (None, [], {})
TYPES = ("string", "long", "int", "double", "float", "boolean", "timestamp", "date", "binary", "decimal(P,S)")


def declared_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Return the schema declared in a configuration as type names by column."""
    import pyarrow as pa

    return pa.schema([(name, _type_of(type_name)) for name, type_name in columns.items()])


def check_columns(columns: Mapping[str, Any]) -> None:
    """Raise InvalidConfig if a column's type is not one of `TYPES`."""
    for name, kind in columns.items():
        text = kind.replace(" ", "") if isinstance(kind, str) else ""
        if text.startswith("decimal("):
            precision, _, scale = text[8:].removesuffix(")").partition(",")
            if precision.isdigit() and scale.isdigit() and 1 <= int(precision) <= 38 and int(scale) <= int(precision):
                continue
        elif text in TYPES:
            continue
        raise InvalidConfig(f"schema: invalid type {kind!r} for column {name!r}: expected one of {', '.join(TYPES)}")


def _type_of(name: str) -> pa.DataType:
    import pyarrow as pa

    plain = {
        "string": pa.string(),
        "long": pa.int64(),
        "int": pa.int32(),
        "double": pa.float64(),
        "float": pa.float32(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", "UTC"),
        "date": pa.date32(),
        "binary": pa.binary(),
    }
    if name in plain:
        return plain[name]
    precision, scale = name[8:-1].split(",")
    return pa.decimal128(int(precision), int(scale))


def inferred_schema(documents: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """Infer a schema from objects. Fields that are null or empty in all objects do not become columns.

    If the values of a column differ in type, the first value determines the type.
    """
    import pyarrow as pa

    columns: dict[str, list[Any]] = {}
    for document in documents:
        for name, value in document.items():
            if value not in _NOTHING:
                columns.setdefault(name, []).append(value)
    fields = []
    for name, values in columns.items():
        try:
            kind = pa.infer_type(values)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            try:
                kind = pa.infer_type(values[:1])
            except (pa.ArrowException, OverflowError, UnicodeEncodeError):
                continue
        if (whole := _without_nulls(kind)) is not None:
            fields.append((name, whole))
    return pa.schema(fields)


def _without_nulls(kind: pa.DataType) -> pa.DataType | None:
    """Return a type without parts that were always null, or None if no part remains."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return None
    if pa.types.is_list(kind):
        inner = _without_nulls(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(kind):
        fields = [(field.name, whole) for field in kind if (whole := _without_nulls(field.type)) is not None]
        return pa.struct(fields) if fields else None
    return kind


class RowReader:
    """Converts records to tables.

    When a record is rejected, the sink receives the batch again without it. This class remembers rejected records until
    all of them have been reported, so that the batch need not be reread for each.
    """

    def __init__(self, evolution: SchemaEvolution = "REFUSE") -> None:
        self._evolution = evolution
        self._refused: dict[int, tuple[Record, str]] = {}  # by id(); keeping the record prevents reuse of its id

    def documents(self, records: Sequence[Record]) -> list[dict[str, Any]]:
        """Return the values as JSON objects.

        Raises:
            RecordRefused: a value is not a JSON object.
        """
        documents = []
        for index, record in enumerate(records):
            try:
                documents.append(document_of(record))
            except RecordRefused as error:
                raise RecordRefused(str(error), index) from error
        return documents

    def name_refused(self, records: Sequence[Record]) -> None:
        """Raise RecordRefused for the first record that has already been rejected."""
        for index, record in enumerate(records):
            if id(record) in self._refused:
                raise RecordRefused(self._refused.pop(id(record))[1], index)
        self._refused.clear()

    def new_columns(self, documents: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Schema:
        """Return the columns that objects have and a schema lacks; empty unless the evolution is MERGE."""
        if self._evolution != "MERGE":
            return inferred_schema(())
        known = set(schema.names)
        return inferred_schema(
            [{key: one for key, one in document.items() if key not in known} for document in documents]
        )

    def table(self, records: Sequence[Record], documents: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
        """Return a table with one row per record.

        Raises:
            RecordRefused: a record does not match the schema.
        """
        import pyarrow as pa

        names = set(schema.names)
        nested = [field for field in schema if pa.types.is_nested(field.type)]
        lines: list[tuple[int, bytes]] = []
        outcomes: dict[int, str] = {}
        for index, document in enumerate(documents):
            unknown = document.keys() - names
            if unknown:
                wrong = sorted(name for name in unknown if document[name] not in _NOTHING)
                if wrong and self._evolution != "IGNORE":
                    outcomes[index] = f"table has no column {wrong[0]!r}"
                    continue
                document = {key: one for key, one in document.items() if key in names}
            if nested:
                document = {
                    **document,
                    **{f.name: _known(document[f.name], f.type) for f in nested if f.name in document},
                }
            try:
                lines.append((index, json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()))
            except UnicodeEncodeError as error:
                outcomes[index] = f"value is not valid UTF-8: {error.reason}"
        table = self._read(lines, schema) if lines else schema.empty_table()
        if isinstance(table, str):
            found: list[Outcome] = halved(lines, lambda some: _text_of(self._read(some, schema)), lambda cause: True)
            outcomes |= {index: str(cause) for (index, _), cause in zip(lines, found, strict=True) if cause is not None}
        if outcomes:
            self._refused = {id(records[index]): (records[index], cause) for index, cause in outcomes.items()}
            self.name_refused(records)
        assert not isinstance(table, str)
        return table

    def _read(self, lines: Sequence[tuple[int, bytes]], schema: pa.Schema) -> pa.Table | str:
        """Return lines as a table, or the reason why they cannot be read."""
        import pyarrow as pa
        from pyarrow import json as arrow_json

        read = pa.schema([(field.name, _read_as(field.type)) for field in schema])
        data = b"\n".join(line for _, line in lines)
        try:
            table = arrow_json.read_json(
                io.BytesIO(data),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1024),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=read,
                    unexpected_field_behavior="ignore" if self._evolution == "IGNORE" else "error",
                ),
            )
            if table.schema != schema:
                wanted = pa.schema([(field.name, field.type) for field in schema])
                read_table, table = table, table.select(schema.names).cast(wanted)
                for field in schema:
                    if (
                        pa.types.is_date(field.type)
                        and table[field.name].cast(pa.timestamp("s")) != read_table[field.name]
                    ):
                        return f"value of date column {field.name!r} has a time of day"
        except (pa.ArrowException, OverflowError) as error:
            return " ".join(str(error).split())[:300]
        for field in schema:
            if not field.nullable and table[field.name].null_count:
                return f"required column {field.name!r} is missing"
        return table.cast(schema)


def _read_as(kind: pa.DataType) -> pa.DataType:
    """Return the type that Arrow's JSON reader uses to read a type it does not support."""
    import pyarrow as pa

    if pa.types.is_date(kind):
        return pa.timestamp("s")
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_read_as(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _read_as(field.type)) for field in kind])
    return kind


def _known(value: Any, kind: pa.DataType) -> Any:
    """Return a value without empty fields that its type does not have."""
    if isinstance(value, dict):
        fields = {field.name: field.type for field in kind} if hasattr(kind, "fields") else {}
        return {
            key: _known(one, fields[key]) if key in fields else one
            for key, one in value.items()
            if key in fields or one not in _NOTHING
        }
    if isinstance(value, list) and hasattr(kind, "value_type"):
        return [_known(one, kind.value_type) for one in value]
    return value


def _text_of(read: pa.Table | str) -> str | None:
    return read if isinstance(read, str) else None
