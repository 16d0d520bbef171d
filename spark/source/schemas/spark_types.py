"""Conversion between Spark's and Arrow's types, with the same mapping as Spark's own for data sources.

The types of a source must equal the results of Spark's own functions, whose parameters differ between versions.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ....errors import InvalidConfig

_SIMPLE: tuple[tuple[type[DataType], pa.DataType], ...] = (
    (BooleanType, pa.bool_()),
    (ByteType, pa.int8()),
    (ShortType, pa.int16()),
    (IntegerType, pa.int32()),
    (LongType, pa.int64()),
    (FloatType, pa.float32()),
    (DoubleType, pa.float64()),
    (BinaryType, pa.binary()),
    (StringType, pa.string()),
    (DateType, pa.date32()),
    (TimestampType, pa.timestamp("us", "UTC")),
    (TimestampNTZType, pa.timestamp("us")),
    (DayTimeIntervalType, pa.duration("us")),
    (NullType, pa.null()),
)
_TO_SPARK = {arrow: spark for spark, arrow in _SIMPLE}


def spark_type(type_: pa.DataType) -> DataType:
    """Return the Spark type of a column in the units of `fitting.spark_form`."""
    if type_ in _TO_SPARK:
        return _TO_SPARK[type_]()
    if pa.types.is_decimal128(type_):
        return DecimalType(type_.precision, type_.scale)
    if pa.types.is_list(type_):
        return ArrayType(spark_type(type_.value_type), type_.value_field.nullable)
    if pa.types.is_map(type_):
        return MapType(spark_type(type_.key_type), spark_type(type_.item_type), type_.item_field.nullable)
    assert pa.types.is_struct(type_), type_
    return spark_struct(type_)


def spark_struct(fields: Iterable[pa.Field]) -> StructType:
    """Return the Spark type of rows with the given columns."""
    return StructType([StructField(field.name, spark_type(field.type), field.nullable) for field in fields])


def arrow_of(type_: DataType, what: str = "") -> pa.DataType:
    """Return the Arrow type of a column.

    Args:
        type_: Spark type.
        what: path of the column.

    Raises:
        InvalidConfig: topics do not support values of this type.
    """
    if isinstance(type_, StructType):
        return pa.struct(arrow_fields(type_, what))
    if isinstance(type_, ArrayType):
        return pa.list_(pa.field("element", arrow_of(type_.elementType, f"{what}[]"), type_.containsNull))
    if isinstance(type_, MapType):
        key = pa.field("key", arrow_of(type_.keyType, f"{what}[]"), nullable=False)
        return pa.map_(key, pa.field("value", arrow_of(type_.valueType, f"{what}[]"), type_.valueContainsNull))
    if isinstance(type_, DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    for spark, arrow in _SIMPLE:
        if type(type_) is spark:
            return arrow
    raise InvalidConfig(
        f"column {what} has type {type_.simpleString()}, which topics do not support: read it as string and cast it"
    )


def arrow_fields(struct: StructType, what: str = "") -> list[pa.Field]:
    """Return the Arrow fields of columns; raises the same errors as `arrow_of`."""
    inside = f"{what}." if what else ""
    return [pa.field(field.name, arrow_of(field.dataType, f"{inside}{field.name}"), field.nullable) for field in struct]
