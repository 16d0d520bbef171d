"""Encodes rows of a DataFrame with the topic's schema, or with a newly registered schema for the columns.

If the topic's newest schema has a field for every column, rows are written with it. Otherwise, a schema is derived from
the columns. As in files written by Spark, all its fields are nullable, so that columns can be added and removed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from ....client import AsyncClient
from ....client.config import ClientConfig, ProducerConfig
from ....client.schemas.json_schema import definition_text
from ....client.schemas.schema import Schema, SchemaInfo, shown
from ....errors import InvalidConfig, SchemaSerializationError
from ....wire import pulsar_api_pb2 as pb
from ....wire.topic_name import parse_topic_name
from ..connection import Routes
from ..options import WriteOptions
from ..rows import GIVEN_BY_BROKER, WRITABLE
from . import avro_rows
from .avro_types import arrow_type, definition_of, parse
from .fitting import fit, spark_form
from .registry import NO_SCHEMA, SchemaRegistry
from .spark_types import arrow_fields

DAY_US = 24 * 60 * 60 * 1_000_000
NAME = "Row"
"""Default record name for a topic without a schema."""
_KINDS = {"AVRO": pb.Schema.Avro, "JSON": pb.Schema.Json}


class Encoded(Schema[bytes]):
    """Schema whose values are already encoded, for the producers of tasks."""

    def __init__(self, info: SchemaInfo):
        self.info = info

    def encode(self, value: bytes) -> bytes:
        """Return the bytes unchanged."""
        return value

    def decode(self, data: bytes, writer: SchemaInfo | None = None) -> bytes:
        """Return the bytes unchanged."""
        return data


@dataclass(frozen=True)
class RowSchema:
    """Encoding of a write's rows.

    Attributes:
        info: the schema, as registered for the topic.
        fields: columns from which values are made.
    """

    info: SchemaInfo
    fields: pa.Schema

    def encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the message columns of rows and their encoded values in ``value``.

        Raises:
            SchemaSerializationError: the schema cannot represent a value; the message names the column.
        """
        columns = []
        for field in self.fields:
            if field.name in batch.schema.names:
                columns.append(fit(batch.column(field.name), field.type, field.name))
                _check_times(columns[-1], field.name)
            else:
                columns.append(pa.nulls(batch.num_rows, field.type))
            if not field.nullable and columns[-1].null_count:
                raise SchemaSerializationError(
                    f"column {field.name} is null in {columns[-1].null_count} rows, but the topic's schema requires a"
                    " value: replace nulls with coalesce"
                )
        if self.info.kind == pb.Schema.Avro:
            values = avro_rows.encode(parse(self.info.definition), columns, batch.num_rows)
        else:
            values = pa.array(_json_rows(self.fields, columns), pa.binary())
        kept = [name for name in batch.schema.names if name in WRITABLE and name != "value"]
        return pa.RecordBatch.from_arrays([values, *map(batch.column, kept)], names=["value", *kept])


def _check_times(values: pa.Array, path: str) -> None:
    """Reject intervals that are not a time of day, because Avro would store them as one."""
    type_ = values.type
    if pa.types.is_struct(type_):
        for field, column in zip(type_, values.flatten(), strict=True):
            _check_times(column, f"{path}.{field.name}")
    elif pa.types.is_list(type_):
        _check_times(values.flatten(), f"{path}[]")
    elif pa.types.is_map(type_):
        _check_times(values.items, f"{path}[]")
    elif pa.types.is_duration(type_) and len(values) > values.null_count:
        least, most = (bound.as_py() for bound in pc.min_max(values.cast(pa.int64())).values())
        if least < 0 or most >= DAY_US:
            raise SchemaSerializationError(
                f"column {path} has an interval of {(least if least < 0 else most) / 1e6:g} s, but schemas support"
                " only times of day: cast it to a number"
            )


def _json_rows(fields: pa.Schema, columns: Sequence[pa.Array]) -> list[bytes]:
    plain = [
        fit(column, _json_type(column.type, field.name), field.name)
        for column, field in zip(columns, fields, strict=True)
    ]
    said = [_said(column) for column in plain]
    try:
        return [
            json.dumps(dict(zip(fields.names, row, strict=True)), separators=(",", ":"), allow_nan=False).encode()
            for row in zip(*said, strict=True)
        ]
    except ValueError as error:
        for name, column in zip(fields.names, said, strict=True):
            for value in column:
                try:
                    json.dumps(value, allow_nan=False)
                except ValueError:
                    raise SchemaSerializationError(
                        f"column {name} is {shown(value)}, but JSON supports neither NaN nor Infinity: replace it with"
                        " nanvl, or set outputSchema=AVRO"
                    ) from error
        raise


def _said(column: pa.Array) -> list[Any]:
    return (
        [_objects(value, column.type) for value in column.to_pylist()] if _has_maps(column.type) else column.to_pylist()
    )


def _has_maps(type_: pa.DataType) -> bool:
    return pa.types.is_map(type_) or any(_has_maps(type_.field(place).type) for place in range(type_.num_fields))


def _objects(value: Any, type_: pa.DataType) -> Any:
    """Return a value with its maps replaced by objects."""
    if value is None or not _has_maps(type_):
        return value
    if pa.types.is_map(type_):
        return {key: _objects(one, type_.item_type) for key, one in value}
    if pa.types.is_list(type_):
        return [_objects(one, type_.value_type) for one in value]
    return {field.name: _objects(value[field.name], field.type) for field in type_}


def _json_type(type_: pa.DataType, path: str) -> pa.DataType:
    """Return the JSON form of a type, where times are numbers in the unit of the definition.

    Raises:
        SchemaSerializationError: clients disagree on the JSON form of the type.
    """
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_json_type(field.type, f"{path}.{field.name}")) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_json_type(type_.value_type, f"{path}[]")))
    if pa.types.is_map(type_):
        return pa.map_(type_.key_field, type_.item_field.with_type(_json_type(type_.item_type, f"{path}[]")))
    if pa.types.is_binary(type_):
        raise SchemaSerializationError(
            f"column {path} has type binary, which JSON does not support: encode it with base64, or set"
            " outputSchema=AVRO"
        )
    if pa.types.is_decimal(type_):
        raise SchemaSerializationError(
            f"column {path} has type {type_}, which JSON does not support: cast it to string or double, or set"
            " outputSchema=AVRO"
        )
    if pa.types.is_temporal(type_):
        return pa.int32() if pa.types.is_date32(type_) else pa.int64()
    return type_


def declared(options: WriteOptions, schema: StructType) -> WriteOptions:
    """Return options with the schema for the rows of a DataFrame.

    Raises:
        InvalidConfig: a column cannot be part of a value; the message names it.
        MagnetarError: the topic's schema cannot be fetched from the broker.
    """
    assert options.output_schema is not None
    of_messages = WRITABLE.keys() - {"value"} | GIVEN_BY_BROKER
    ours = StructType([field for field in schema if field.name not in of_messages])
    fields = [field.with_type(_nullable(field.type)).with_nullable(True) for field in arrow_fields(ours)]
    kind = _KINDS[options.output_schema]
    newest = _newest(options)
    adopted = _adopted(newest, kind, fields)
    if adopted is not None:
        return replace(options, schema=adopted)
    try:
        definition = definition_of(fields, *_name(newest, kind))
        if kind == pb.Schema.Json:
            for field in fields:
                _json_type(field.type, field.name)
    except SchemaSerializationError as error:
        raise InvalidConfig(f"outputSchema={options.output_schema}: {error}") from error
    info = SchemaInfo(kind, definition_text(definition), options.output_schema)
    return replace(options, schema=RowSchema(info, pa.schema(fields)))


def _nullable(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_nullable(field.type)).with_nullable(True) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_nullable(type_.value_type)).with_nullable(True))
    if pa.types.is_map(type_):
        return pa.map_(type_.key_field, type_.item_field.with_type(_nullable(type_.item_type)).with_nullable(True))
    return type_


def _newest(options: WriteOptions) -> SchemaInfo:
    if options.topic is None:
        return NO_SCHEMA
    routes = Routes(options.service_url, options.security)
    return SchemaRegistry(routes, options.send_timeout_ms / 1000).newest(parse_topic_name(options.topic))


def _adopted(newest: SchemaInfo, kind: int, fields: Sequence[pa.Field]) -> RowSchema | None:
    """Return the topic's schema if it has a field for every column and allows null for missing columns."""
    if newest.kind != kind:
        return None
    try:
        node = parse(newest.definition)
        if kind == pb.Schema.Json:
            _json_type(arrow_type(node), NAME)
    except SchemaSerializationError:
        return None
    ours = {field.name: field.type for field in fields}
    there = {field.name: spark_form(arrow_type(field.node)) for field in node.fields}
    may_lack = {field.name for field in node.fields if field.node.kind in ("union", "null")}
    if node.kind != "record" or not avro_rows.can_encode(node) or not ours.keys() <= there.keys():
        return None
    if not all(_is_like(type_, there[name]) for name, type_ in ours.items()) or there.keys() - ours.keys() - may_lack:
        return None
    found = pa.schema([pa.field(one.name, arrow_type(one.node), one.name in may_lack) for one in node.fields])
    return RowSchema(newest, found)


def _is_like(have: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values of one type can represent another, such as any number for any other number."""
    if pa.types.is_struct(have) and pa.types.is_struct(wanted):
        return {field.name for field in have} == {field.name for field in wanted} and all(
            _is_like(field.type, wanted.field(field.name).type) for field in have
        )
    if pa.types.is_list(have) and pa.types.is_list(wanted):
        return _is_like(have.value_type, wanted.value_type)
    if pa.types.is_map(have) and pa.types.is_map(wanted):
        return bool(have.key_type == wanted.key_type) and _is_like(have.item_type, wanted.item_type)
    return bool(have == wanted) or (_is_number(have) and _is_number(wanted))


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _name(newest: SchemaInfo, kind: int) -> tuple[str, str]:
    """Return the name and namespace of the topic's record, which must not change."""
    if newest.kind == kind:
        try:
            record = json.loads(newest.definition)
            return str(record["name"]), str(record.get("namespace", ""))
        except (ValueError, TypeError, KeyError):
            pass  # the definition has no name; the broker checks compatibility anyway
    return NAME, ""


async def register(options: WriteOptions, encryption: dict[str, Any]) -> None:
    """Register the schema for the topic before any row is computed.

    Raises:
        IncompatibleSchema: the topic has an incompatible schema.
        MagnetarError: the request failed.
    """
    assert options.schema is not None
    assert options.topic is not None
    async with AsyncClient(options.service_url, ClientConfig(**options.security.to_dict())) as client:
        producer = await client.create_producer(
            options.topic, ProducerConfig(**encryption), schema=Encoded(options.schema.info)
        )
        await producer.close()
