"""Column types and decoders for the values of all schema types.

Record values become structs, whose fields are the columns of the table.
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
    """Parts of a topic's schema.

    Attributes:
        value: schema of the values.
        key: schema of the keys, or None if keys are bytes.
        is_inline: whether the key is in the payload.
    """

    value: SchemaInfo
    key: SchemaInfo | None
    is_inline: bool


def parts_of(info: SchemaInfo) -> PairInfo:
    """Return the parts of a schema.

    Raises:
        SchemaSerializationError: a KEY_VALUE schema lacks its parts.
    """
    if info.kind != pb.Schema.KeyValue:
        return PairInfo(info, None, is_inline=False)
    key, value, encoding = separated(info)
    return PairInfo(value, key, is_inline=encoding != "SEPARATED")


def column_type(info: SchemaInfo) -> pa.DataType:
    """Return the column type of values in Spark's units, with hints in its fields for reading earlier schemas.

    Raises:
        SchemaSerializationError: columns cannot represent the values.
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
    raise SchemaSerializationError(
        f"the topic's schema has type {info.type_name}, which cannot be converted to columns"
    )


def decoder(info: SchemaInfo, wanted: pa.DataType) -> Decode:
    """Return a function that decodes bytes written with a schema into a column.

    Raises:
        SchemaSerializationError: columns cannot represent the values, or, from the function, bytes are invalid.
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
