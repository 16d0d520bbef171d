"""What values of a schema are as columns, whatever its type: the type of the column, and what makes it of bytes.

Values of a record become a struct, whose fields are the columns of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from ....client.schemas.key_value import separated
from ....client.schemas.schema import SchemaInfo
from ....errors import SchemaSerializationError
from ....wire import pulsar_api_pb2 as pb
from . import avro_columns, json_columns, primitive_columns
from .avro_types import arrow_type, parse
from .fitting import fit, reads_of, spark_form

Decode = Callable[[pa.Array], pa.Array]
_OF_AVRO = (pb.Schema.Avro, pb.Schema.Json)
_OF_PROTOBUF = (pb.Schema.Protobuf, pb.Schema.ProtobufNative)


class PairInfo(NamedTuple):
    """A topic's schema by its parts.

    Attributes:
        value: schema of the values.
        key: schema of the keys, None where messages have keys of bytes.
        is_inline: whether the key lies in the payload.
    """

    value: SchemaInfo
    key: SchemaInfo | None
    is_inline: bool


def parts_of(info: SchemaInfo) -> PairInfo:
    """Return the parts of a schema.

    Raises:
        SchemaSerializationError: it is a KEY_VALUE that does not say them.
    """
    if info.kind != pb.Schema.KeyValue:
        return PairInfo(info, None, is_inline=False)
    key, value, encoding = separated(info)
    return PairInfo(value, key, is_inline=encoding != "SEPARATED")


def column_type(info: SchemaInfo) -> pa.DataType:
    """Return the type of a column of values, in Spark's units; its fields say how earlier schemas are read.

    Raises:
        SchemaSerializationError: no column can have such values.
    """
    return spark_form(_written_type(info))


def _written_type(info: SchemaInfo) -> pa.DataType:
    simple = primitive_columns.primitive_type(info.kind)
    if simple is not None:
        return simple
    if info.kind in _OF_AVRO:
        return arrow_type(parse(info.definition))
    if info.kind in _OF_PROTOBUF:
        from . import protobuf_columns

        return protobuf_columns.message_type(protobuf_columns.class_of(info).DESCRIPTOR)
    raise SchemaSerializationError(f"the topic's schema is of type {info.type_name}, of which there are no columns")


def decoder(info: SchemaInfo, wanted: pa.DataType) -> Decode:
    """Return what makes a column of a type of bytes that were written with a schema; it raises as this does.

    Raises:
        SchemaSerializationError: the schema has no such column, or bytes are no value of it.
    """
    kind = info.kind
    if primitive_columns.primitive_type(kind) is not None:
        return lambda values: fit(primitive_columns.decode(kind, values), wanted)
    if kind == pb.Schema.Avro:
        node = parse(info.definition)
        return lambda values: fit(avro_columns.decode(node, values), wanted)
    have = reads_of(_written_type(info), wanted)
    if kind == pb.Schema.Json:
        return lambda values: fit(json_columns.decode(values, have), wanted)
    from . import protobuf_columns

    messages = protobuf_columns.class_of(info)
    return lambda values: fit(protobuf_columns.decode(messages, values, have), wanted)
