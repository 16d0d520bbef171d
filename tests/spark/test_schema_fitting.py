"""Columns that are read with another schema than they were written with. Neither Spark nor a broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from magnetar.errors import InvalidConfig, SchemaSerializationError  # noqa: E402
from magnetar.spark.source.schemas.avro_types import arrow_type, parse  # noqa: E402
from magnetar.spark.source.schemas.fitting import can_fit, fit, spark_form, with_hints  # noqa: E402
from magnetar.spark.source.schemas.spark_types import arrow_fields, arrow_of, spark_struct  # noqa: E402
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructType, YearMonthIntervalType  # noqa: E402

from tests.spark.test_schema_avro_columns import TYPES, structs  # noqa: E402

pytestmark = pytest.mark.spark


def record(*fields: dict[str, Any]) -> Any:
    return arrow_type(parse(json.dumps({"type": "record", "name": "R", "fields": list(fields)})))


@given(structs(TYPES))
def test_columns_come_back_from_the_types_of_spark(rows: Any) -> None:
    assert pa.struct(arrow_fields(spark_struct(rows))) == rows


def test_fields_are_found_by_name_or_alias_and_missing_ones_are_their_default() -> None:
    old = pa.array([{"id": 1, "mail": "a", "gone": True}, None], pa.struct([("id", pa.int32()), ("mail", pa.string()),
                   ("gone", pa.bool_())]))  # fmt: skip
    new = record(
        {"name": "id", "type": "long"},
        {"name": "email", "type": "string", "aliases": ["mail"]},
        {"name": "country", "type": "string", "default": "de"},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "note", "type": ["null", "string"], "default": None},
    )
    assert fit(old, new).to_pylist() == [
        {"id": 1, "email": "a", "country": "de", "raw": b"\xff", "note": None}, None
    ]  # fmt: skip


def test_hints_of_the_topic_count_for_declared_columns_too() -> None:
    known = record({"name": "country", "type": "string", "default": "de"})
    declared = pa.struct([("country", pa.string()), ("more", pa.int32())])
    found = fit(pa.array([{}], pa.struct([])), with_hints(declared, known))
    assert found.to_pylist() == [{"country": "de", "more": None}]


@given(st.lists(st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3), min_size=2, max_size=6))
def test_items_of_lists_and_maps_become_the_wanted_type(rows: list[list[int | None] | None]) -> None:
    have = pa.array(rows, pa.list_(pa.int32()))[1:]
    assert fit(have, arrow_of(ArrayType(StringType()))).to_pylist() == [
        None if row is None else [None if one is None else str(one) for one in row] for row in rows[1:]
    ]
    pairs = [None if row is None else [(str(place), one) for place, one in enumerate(row)] for row in rows]
    found = fit(pa.array(pairs, pa.map_(pa.string(), pa.int32()))[1:], pa.map_(pa.string(), pa.int64()))
    assert found.type == pa.map_(pa.string(), pa.int64())
    assert found.to_pylist() == pairs[1:]


def test_times_are_in_microseconds_whatever_their_unit() -> None:
    type_ = pa.struct([("at", pa.timestamp("ns", "UTC")), ("each", pa.list_(pa.duration("ms")))])
    wanted = spark_form(type_)
    assert wanted == pa.struct([("at", pa.timestamp("us", "UTC")), ("each", pa.list_(pa.duration("us")))])
    found = fit(pa.StructArray.from_arrays(
        [pa.array([1_999]).view(pa.timestamp("ns", "UTC")), pa.array([[5]], pa.list_(pa.duration("ms")))],
        fields=list(type_),
    ), wanted)  # fmt: skip
    assert found.field("at").view(pa.int64()).to_pylist() == [1]
    assert found.field("each").values.view(pa.int64()).to_pylist() == [5000]


def test_what_would_lose_something_is_refused_by_column() -> None:
    have = pa.array([{"a": {"b": 2**40}}], pa.struct([("a", pa.struct([("b", pa.int64())]))]))
    wanted = pa.struct([("a", pa.struct([("b", pa.int32())]))])
    with pytest.raises(SchemaSerializationError, match=r"column a\.b has type int64 and cannot be read as int32"):
        fit(have, wanted)
    strict = pa.struct([pa.field("c", pa.int32(), nullable=False)])
    with pytest.raises(SchemaSerializationError, match="column c is null but declared NOT NULL"):
        fit(have, strict)


def test_types_that_never_fit_and_that_no_topic_has_are_known_without_values() -> None:
    with pytest.raises(SchemaSerializationError, match="column a has type bool and cannot be read as timestamp"):
        can_fit(pa.bool_(), pa.timestamp("us"), "a")
    with pytest.raises(InvalidConfig, match=r"column a\.b\[\] has type interval .*which topics do not support"):
        arrow_fields(StructType().add("a", StructType().add("b", ArrayType(YearMonthIntervalType()))))
    assert arrow_of(IntegerType()) == pa.int32()
