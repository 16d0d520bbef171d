"""Avro's resolution as Pulsar has it: against recorded verdicts of Java's, and against reading real data."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from avro import io as avro_io
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.schemas import avro_rules
from magnetar.broker.schemas.model import InvalidDefinition

GOLDEN = Path(__file__).parents[2] / "golden" / "schemas" / "avro-resolution.tsv"
ROWS = [line.split("\t") for line in GOLDEN.read_text().splitlines()]

VALUES: dict[str, Any] = {"int": 7, "long": 1 << 40, "double": 1.5, "string": "é", "boolean": True, "null": None}
TYPES: st.SearchStrategy[Any] = st.sampled_from(sorted(VALUES)).flatmap(
    lambda name: st.just(name) if name == "null" else st.sampled_from([name, ["null", name]])
)


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    fields = []
    for name in draw(st.lists(st.sampled_from("abcd"), unique=True, min_size=1)):
        kind = draw(TYPES)
        field: dict[str, Any] = {"name": name, "type": kind}
        if draw(st.booleans()):
            field["default"] = None if isinstance(kind, list) else VALUES[kind]
        fields.append(field)
    return {"type": "record", "name": "R", "fields": fields}


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(("verdict", "identity", "writer", "reader"), ROWS)
def test_verdict_is_the_one_of_java(verdict: str, identity: str, writer: str, reader: str) -> None:
    if verdict == "bad":
        with pytest.raises(InvalidDefinition):
            avro_rules.difference(avro_rules.parse(reader.encode()), avro_rules.parse(writer.encode()))
        return

    difference = avro_rules.difference(avro_rules.parse(reader.encode()), avro_rules.parse(writer.encode()))

    assert (difference is None) == (verdict == "ok"), difference
    assert avro_rules.is_same(writer.encode(), reader.encode()) == (identity == "same")


@given(records(), records())
def test_what_counts_as_readable_is_read(old: dict[str, Any], new: dict[str, Any]) -> None:
    writer, reader = avro_rules.parse(encoded(old)), avro_rules.parse(encoded(new))
    if avro_rules.difference(reader, writer) is not None:
        return
    values = {field["name"]: VALUES[field["type"][1] if isinstance(field["type"], list) else field["type"]]
              for field in old["fields"]}  # fmt: skip
    buffer = io.BytesIO()
    avro_io.DatumWriter(writer).write(values, avro_io.BinaryEncoder(buffer))

    read = avro_io.DatumReader(writer, reader).read(avro_io.BinaryDecoder(io.BytesIO(buffer.getvalue())))

    assert isinstance(read, dict)
    assert read.keys() == {field["name"] for field in new["fields"]}


@given(records(), records())
def test_what_differs_names_a_field_that_does(old: dict[str, Any], new: dict[str, Any]) -> None:
    text = avro_rules.difference(avro_rules.parse(encoded(new)), avro_rules.parse(encoded(old)))
    if text is None:
        return
    assert "\n" not in text
    name = text.split()[1]
    written = {field["name"]: field["type"] for field in old["fields"]}
    field = next(field for field in new["fields"] if field["name"] == name)
    assert written.get(name) != field["type"]


@given(records())
def test_a_schema_reads_itself_and_is_itself(record: dict[str, Any]) -> None:
    schema = avro_rules.parse(encoded(record))

    assert avro_rules.difference(schema, schema) is None
    assert avro_rules.is_same(encoded(record), json.dumps({"doc": "x"} | record, indent=3).encode())


@given(st.binary() | st.text().map(str.encode) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["record", "int", "R", "", "a-b"]),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "size", "default", "namespace"]), inner
    ),
).map(encoded))  # fmt: skip
def test_garbage_is_refused_in_one_line_or_taken(data: bytes) -> None:
    refusal = None
    try:
        schema = avro_rules.parse(data)
        assert avro_rules.difference(schema, schema) is None
    except InvalidDefinition as error:
        refusal = str(error)
    assert refusal is None or len(refusal.splitlines()) == 1


@pytest.mark.parametrize(
    ("new", "text"),
    [
        ({"name": "n", "type": {"type": "array", "items": {"type": "record", "name": "Z", "fields": [
            {"name": "z", "type": "string"}]}}}, "field n[].z is string, but int in the data"),
        ({"name": "n", "type": {"type": "array", "items": {"type": "record", "name": "Z", "fields": [
            {"name": "q", "type": "int"}]}}}, "field n[].q has no default value and is missing from the data"),
        ({"name": "m", "type": "int"}, "field m has no default value and is missing from the data"),
    ],
)  # fmt: skip
def test_difference_is_named_by_its_path(new: dict[str, Any], text: str) -> None:
    inner = {"type": "record", "name": "Z", "fields": [{"name": "z", "type": "int"}]}
    old = {"type": "record", "name": "R", "fields": [{"name": "n", "type": {"type": "array", "items": inner}}]}

    found = avro_rules.difference(
        avro_rules.parse(encoded({"type": "record", "name": "R", "fields": [new]})), avro_rules.parse(encoded(old))
    )

    assert found == text


def test_recursive_types_and_deep_ones_end() -> None:
    linked = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    schema = avro_rules.parse(encoded(linked))
    deep = b'{"type":"array","items":' * 5000 + b'"int"' + b"}" * 5000

    assert avro_rules.difference(schema, schema) is None
    with pytest.raises(InvalidDefinition):
        avro_rules.parse(deep)


def test_large_schemas_are_compared_in_time_or_refused() -> None:
    def record(kind: str) -> bytes:
        fields = [{"name": f"f{index}", "type": ["null", "int"], "default": None} for index in range(2000)]
        return encoded({"type": "record", "name": "R", "fields": [*fields, {"name": "last", "type": kind}]})

    def union(kind: str) -> bytes:
        branches = [
            {"type": "record", "name": f"U{index}", "fields": [{"name": f"a{index}", "type": kind}]}
            for index in range(300)
        ]
        return encoded({"type": "record", "name": "R", "fields": [{"name": "x", "type": branches}]})

    text = avro_rules.difference(avro_rules.parse(record("int")), avro_rules.parse(record("string")))
    assert text == "field last is int, but string in the data"
    assert avro_rules.difference(avro_rules.parse(union("int")), avro_rules.parse(union("int"))) is None
    with pytest.raises(InvalidDefinition, match="too complex to compare"):
        avro_rules.difference(avro_rules.parse(union("int")), avro_rules.parse(union("string")))
