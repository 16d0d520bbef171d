"""Avro's values as Arrow columns, compared with fastavro; definitions to types and back. Neither Spark nor a broker."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

from magnetar.errors import SchemaSerializationError  # noqa: E402
from magnetar.spark.source.schemas.avro_columns import decode  # noqa: E402
from magnetar.spark.source.schemas.avro_types import (  # noqa: E402
    arrow_type,
    definition_of,
    fields_of,
    list_of,
    map_of,
    parse,
)

pytestmark = pytest.mark.spark

SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=200),
    "string": st.text(max_size=20),
}


class Types:
    """Draws definitions, each with a strategy for its values; names count on, as Avro wants them different."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw
        self._names = 0

    def name(self) -> str:
        self._names += 1
        return f"N{self._names}"

    def any(self, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        kinds = ["simple", "enum", "fixed"] + (["array", "map", "maybe", "record"] if depth else [])
        kind = self._draw(st.sampled_from(kinds))
        if kind == "enum":
            return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")
        if kind == "fixed":
            return {"type": "fixed", "name": self.name(), "size": 3}, st.binary(min_size=3, max_size=3)
        if kind == "array":
            inner, values = self.any(depth - 1)
            return {"type": "array", "items": inner}, st.lists(values, max_size=5)
        if kind == "map":
            inner, values = self.any(depth - 1)
            return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=5), values, max_size=4)
        if kind == "maybe":
            inner, values = self.any(0)
            both = ["null", inner] if self._draw(st.booleans()) else [inner, "null"]
            return both, st.none() | values
        if kind == "record":
            return self.record(depth - 1)
        name = self._draw(st.sampled_from(sorted(SIMPLE)))
        return name, SIMPLE[name]

    def record(self, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
        fields = {f"f{index}": self.any(depth) for index in range(self._draw(st.integers(1, 4)))}
        definition = {
            "type": "record",
            "name": self.name(),
            "fields": [{"name": name, "type": inner} for name, (inner, _) in fields.items()],
        }
        return definition, st.fixed_dictionaries({name: values for name, (_, values) in fields.items()})


def encoded(definition: Any, values: list[Any]) -> list[bytes | None]:
    schema = fastavro.parse_schema(definition)
    found: list[bytes | None] = []
    for value in values:
        if value is None:
            found.append(None)
            continue
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, value)
        found.append(out.getvalue())
    return found


def plain(value: Any) -> Any:
    """What Arrow gives, with maps as dicts."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(one, tuple) for one in value):
            return {name: plain(one) for name, one in value}
        return [plain(one) for one in value]
    return value


def same(found: Any, wanted: Any) -> bool:
    """Whether values are equal; an empty map and an empty list are alike in what Arrow gives."""
    if isinstance(wanted, dict):
        if found == []:
            return not wanted
        return found.keys() == wanted.keys() and all(same(found[name], wanted[name]) for name in wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == wanted)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_columns_hold_what_fastavro_has_written(data: st.DataObject) -> None:
    definition, values = Types(data.draw).record(3)
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=12))
    column = pa.array([b"before", *encoded(definition, rows)], pa.binary())[1:]
    found = decode(parse(json.dumps(definition)), column)
    found.validate(full=True)
    assert found.type == arrow_type(parse(json.dumps(definition)))
    assert all(same(one, wanted) for one, wanted in zip(map(plain, found.to_pylist()), rows, strict=True))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_damaged_bytes_are_refused_or_read_within_their_bounds(data: st.DataObject) -> None:
    definition, values = Types(data.draw).record(2)
    [whole] = encoded(definition, [data.draw(values)])
    assert whole is not None
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    place, byte = data.draw(st.integers(0, max(0, len(cut) - 1))), data.draw(st.binary(min_size=1, max_size=1))
    damaged = cut[:place] + byte + cut[place + 1 :]
    try:
        found = decode(parse(json.dumps(definition)), pa.array([damaged, whole], pa.binary()))
    except SchemaSerializationError:
        return
    found.validate(full=True)
    assert len(found) == 2


LEAVES = [
    pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.binary(), pa.string(), pa.date32(),
    pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.duration("us"), pa.decimal128(20, 4),
]  # fmt: skip


def structs(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.lists(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), min_size=1, max_size=4, unique=True)
    return names.flatmap(lambda some: st.tuples(*(inner for _ in some)).map(
        lambda types: pa.struct([pa.field(name, one) for name, one in zip(some, types, strict=True)])
    ))  # fmt: skip


TYPES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(inner.map(list_of), inner.map(lambda one: map_of(pa.string(), one)), structs(inner)),
    max_leaves=8,
)


@given(structs(TYPES))
@settings(max_examples=200, deadline=None)
def test_columns_come_back_from_the_definition_that_is_made_of_them(rows: Any) -> None:
    definition = definition_of(list(rows))
    fastavro.parse_schema(definition)
    assert pa.struct(fields_of(parse(json.dumps(definition)))) == rows


def decoded(kind: Any, values: list[Any]) -> list[Any]:
    definition = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    rows = encoded(definition, [{"x": value} for value in values])
    found: list[Any] = decode(parse(json.dumps(definition)), pa.array(rows, pa.binary())).field("x").to_pylist()
    return found


def test_decimals_keep_their_digits() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3}
    digits = random.Random(5)
    values = [Decimal(digits.randrange(-(10**size), 10**size)).scaleb(-3) for size in range(1, 36)]
    assert decoded(kind, [*values, Decimal("0"), Decimal("-0.001")]) == [*values, Decimal("0"), Decimal("-0.001")]


def test_a_union_of_numbers_is_the_largest_and_another_one_a_struct_of_its_members() -> None:
    assert decoded(["null", "int", "long"], [1, None, 2**40]) == [1, None, 2**40]
    assert decoded(["null", "string", "boolean"], ["a", None, True]) == [
        {"member0": "a", "member1": None}, None, {"member0": None, "member1": True},
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["double", "long", "int", "string"])
def test_long_arrays_are_read_whole(kind: str) -> None:
    chance = random.Random(8)
    many = [[chance.randrange(-(10**9), 10**9) for _ in range(size)] for size in (700, 0, 1, 3)]
    values = [[str(one) for one in row] for row in many] if kind == "string" else many
    assert decoded({"type": "array", "items": kind}, values) == values


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ('{"type":"record","name":"Tree","fields":[{"name":"next","type":["null","Tree"]}]}', "type Tree is recursive"),
        (
            '{"type":"record","name":"R","fields":[{"name":"x","type":"strange"}]}',
            "not a valid Avro definition: KeyError",
        ),
        ("[", "is not a valid Avro definition"),
        ('{"type":"array","items":"null"}', "array with zero-byte items"),
    ],
)
def test_a_schema_that_cannot_become_columns_is_refused(definition: str, why: str) -> None:
    with pytest.raises(SchemaSerializationError, match=why):
        parse(definition)


def test_a_column_that_avro_has_not_is_refused_by_name() -> None:
    with pytest.raises(SchemaSerializationError, match="'total sum' of Row is not a valid Avro name"):
        definition_of([pa.field("total sum", pa.int32())])
    with pytest.raises(SchemaSerializationError, match=r"column by_number has type map<int32.*cast it"):
        definition_of([pa.field("by_number", map_of(pa.int32(), pa.int32()))])
