"""The column type of a schema's values, and their decoder, for all schema types.

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
    """The parts of a topic's schema.

    Attributes:
        value: schema of the values.
        key: schema of the keys, None if keys are bytes.
        is_inline: whether the key is in the payload.
    """

    value: SchemaInfo
    key: SchemaInfo | None
    is_inline: bool


def parts_of(info: SchemaInfo) -> PairInfo:
    """Return the parts of a schema.

    Raises:
        SchemaSerializationError: it is a KEY_VALUE without them.
    """
    if info.kind != pb.Schema.KeyValue:
        return PairInfo(info, None, is_inline=False)
    key, value, encoding = separated(info)
    return PairInfo(value, key, is_inline=encoding != "SEPARATED")


def column_type(info: SchemaInfo) -> pa.DataType:
    """Return the column type of values, in Spark's units; its fields have hints for earlier schemas.

    Raises:
        SchemaSerializationError: no column can hold such values.
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
    """Return a function that decodes bytes written with a schema into a column; it raises as described here.

    Raises:
        SchemaSerializationError: the schema has no such column, or bytes are invalid.
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
