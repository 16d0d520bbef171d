"""JSON and Avro schemas of dataclasses: definitions and bytes against the official client's, evolution, refusals."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import sys
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from enum import Enum
from typing import Any

import pulsar.schema as official
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.client import (
    AutoConsumeSchema,
    AvroSchema,
    Base64Bytes,
    Float32,
    Int32,
    InvalidConfig,
    JsonSchema,
    Schema,
    SchemaSerializationError,
)

from tests.client.schemas.records import Color, Item, Order, TheirOrder, their_order

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
ITEMS = st.builds(Item, TEXTS, INTS)
ORDERS = st.builds(
    Order,
    text=TEXTS,
    number=LONGS,
    small=INTS,
    real=st.floats(allow_nan=False, allow_infinity=False),
    single=st.floats(allow_nan=False, allow_infinity=False, width=32),
    flag=st.booleans(),
    raw=TEXTS.map(str.encode),
    item=ITEMS,
    items=st.lists(ITEMS, max_size=3),
    words=st.lists(TEXTS, max_size=3),
    by_name=st.dictionaries(TEXTS, LONGS, max_size=3),
    color=st.sampled_from(Color),
    maybe_text=st.none() | TEXTS,
    maybe_item=st.none() | ITEMS,
    maybe_number=st.none() | LONGS,
    retries=LONGS,
    tags=st.lists(TEXTS, max_size=2),
    shade=st.sampled_from(Color),
)
ORDER = Order("a", 1, 2, 3.0, 4.0, True, b"b", Item("i"), [], ["w"], {"k": 5}, Color.GREEN, None)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(AvroSchema(Order), official.AvroSchema(TheirOrder)), (JsonSchema(Order), official.JsonSchema(TheirOrder))],
)
def test_definitions_are_those_of_the_official_client(ours: Schema[Order], theirs: Any) -> None:
    assert ours.info.definition.decode() == theirs.schema_info().schema()
    assert ours.info.name == theirs.schema_info().name()


@given(ORDERS)
def test_avro_is_that_of_the_official_client(order: Order) -> None:
    ours, theirs = AvroSchema(Order), official.AvroSchema(TheirOrder)
    written = ours.encode(order)
    assert written == theirs.encode(their_order(order))
    assert ours.decode(written) == order


@given(ORDERS)
def test_json_is_read_by_the_official_client_and_the_other_way_round(order: Order) -> None:
    ours, theirs = JsonSchema(Order), official.JsonSchema(TheirOrder)
    assert theirs.decode(ours.encode(order)) == their_order(order)
    assert ours.decode(theirs.encode(their_order(order))) == order


@given(ORDERS)
def test_json_has_the_fields_in_their_order_and_enums_by_name_as_java_does(order: Order) -> None:
    written = json.loads(JsonSchema(Order).encode(order))
    assert list(written) == list(vars(order))
    assert written["color"] == order.color.name


@dataclass
class Times:
    moment: datetime
    day: date
    hour: time
    last: datetime | None = None


@given(st.builds(Times, st.datetimes(timezones=st.just(UTC)), st.dates(), st.times(), st.none()))
def test_times_keep_their_microseconds(times: Times) -> None:
    for schema in (JsonSchema(Times), AvroSchema(Times)):
        assert schema.decode(schema.encode(times)) == times


@dataclass
class Node:
    name: str
    next: Node | None = None
    below: list[Node] | None = None


NODES = st.recursive(
    st.builds(Node, TEXTS, st.none()),
    lambda nodes: st.builds(Node, TEXTS, nodes, st.none() | st.lists(nodes, max_size=2)),
    max_leaves=6,
)


@given(NODES)
def test_record_may_contain_itself(node: Node) -> None:
    for schema in (JsonSchema(Node), AvroSchema(Node)):
        assert schema.decode(schema.encode(node)) == node


def test_value_that_is_nested_too_deeply_is_refused() -> None:
    node = Node("end")
    for _ in range(100_000):
        node = Node("", node)
    itself = Node("itself")
    itself.next = itself
    for schema in (JsonSchema(Node), AvroSchema(Node)):
        for value in (node, itself):
            with pytest.raises(SchemaSerializationError, match="nested"):
                schema.encode(value)
    while (below := node.next) is not None:  # link by link: else it would be freed by recursion
        node.next = None
        node = below


def test_message_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(SchemaSerializationError, match="nested too deeply"):
        AvroSchema(Node).decode(b"\x00\x02" * 200_000)
    with pytest.raises(SchemaSerializationError, match=r"nested too deeply|not valid JSON"):
        JsonSchema(Node).decode(b'{"name":"","next":' * 200_000)


# -- evolution --------------------------------------------------------------------------------------------------------


@dataclass
class OrderBefore:
    number: int
    gone: str
    small: Int32


@dataclass
class OrderAfter:
    number: int
    small: float
    added: str = "none"
    color: Color = Color.GREEN
    maybe: str | None = "some"


def test_reader_resolves_what_another_schema_wrote() -> None:
    before, after = AvroSchema(OrderBefore), AvroSchema(OrderAfter)
    written = before.encode(OrderBefore(7, "x", 5))
    for _ in range(2):
        assert after.decode(written, before.info) == OrderAfter(7, 5.0, "none", Color.GREEN, "some")
    assert before.decode(written, before.info) == OrderBefore(7, "x", 5)


def test_default_that_is_not_null_comes_first_in_its_union() -> None:
    [field] = [
        field for field in json.loads(AvroSchema(OrderAfter).info.definition)["fields"] if field["name"] == "maybe"
    ]
    assert field == {"name": "maybe", "default": "some", "type": ["string", "null"]}


def test_message_that_cannot_be_resolved_says_why() -> None:
    @dataclass
    class Other:
        number: str

    before = AvroSchema(OrderBefore)
    written = AvroSchema(Other).encode(Other("x"))
    with pytest.raises(SchemaSerializationError, match=r"^schema AVRO of OrderBefore: cannot decode 2 bytes: "):
        before.decode(written, AvroSchema(Other).info)
    with pytest.raises(SchemaSerializationError, match=r"was written with schema JSON$"):
        before.decode(b"{}", JsonSchema(Other).info)
    with pytest.raises(SchemaSerializationError, match="cannot read the writer's schema"):
        before.decode(b"", replace(before.info, definition=b"{"))


def test_json_that_lacks_a_field_takes_its_default() -> None:
    read = JsonSchema(OrderAfter).decode(b'{"number":1,"small":2,"other":[]}')
    assert read == OrderAfter(1, 2.0)
    with pytest.raises(
        SchemaSerializationError, match=r"^schema JSON of OrderAfter: missing field small: expected a float$"
    ):
        JsonSchema(OrderAfter).decode(b'{"number":1}')


# -- definitions of text and dicts ------------------------------------------------------------------------------------

AVSC = '{"type": "record", "name": "Point", "namespace": "org.example", "fields": [{"name": "x", "type": "long"},'
AVSC += ' {"name": "label", "type": ["null", "string"], "default": null}]}'


def test_definition_of_text_takes_dicts() -> None:
    schema: AvroSchema[dict[str, Any]] = AvroSchema(AVSC)
    assert schema.decode(schema.encode({"x": 1})) == {"x": 1, "label": None}
    theirs = official.AvroSchema(None, schema_definition=json.loads(AVSC))
    assert schema.encode({"x": 1, "label": "é"}) == theirs.encode({"x": 1, "label": "é"})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"x": 1.5}, "field org.example.Point.x: expected Avro type long, got 1.5 (float)"),
        ({"x": True}, "field org.example.Point.x: expected Avro type long, got True (bool)"),
        ({"label": "x"}, "field org.example.Point.x: expected Avro type long, got None (NoneType)"),
        ({"x": 1, "lable": "x"}, "record contains more fields than the schema specifies: lable"),
        (5, "got 5 (int)"),
    ],
)
def test_dict_that_does_not_fit_is_refused(value: Any, why: str) -> None:
    with pytest.raises(SchemaSerializationError, match=re.escape(why)) as caught:
        AvroSchema(AVSC).encode(value)
    assert str(caught.value).startswith("schema AVRO of Point")


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ("{", "is not valid JSON"),
        ({1, 2}, "is not valid JSON: Object of type set"),
        ({"type": "record", "name": b"x"}, "is not valid JSON: Object of type bytes"),
        ('{"type": "nothing"}', "is not a valid Avro schema"),
        ({"type": "array", "items": "null"}, "array of zero-byte items"),
        ({"type": "map", "values": {"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}}, "zero-byte"),
    ],
)
def test_definition_that_is_none_is_refused(definition: Any, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        AvroSchema(definition)


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    info = AvroSchema(Item).info
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(InvalidConfig, match=r"^Avro schemas require fastavro: install magnetar\[avro\]$"):
        AvroSchema(Item)
    with pytest.raises(SchemaSerializationError, match="schema AVRO cannot be read: Avro schemas require fastavro"):
        AutoConsumeSchema().decode(b"", info)


def test_writer_whose_arrays_take_no_bytes_is_refused() -> None:
    schema: AvroSchema[Any] = AvroSchema(AVSC)
    with pytest.raises(SchemaSerializationError, match="array of zero-byte items"):
        schema.decode(
            b"\x80\x80\x80\x80\x80\x80\x01", replace(schema.info, definition=b'{"type":"array","items":"null"}')
        )


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    schemas: list[Schema[Any]] = [AvroSchema(Order), AvroSchema(Node), JsonSchema(Order), AvroSchema(AVSC)]
    for schema in schemas:
        with contextlib.suppress(SchemaSerializationError):
            value = schema.decode(data)
            assert schema.decode(schema.encode(value)) is not None


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"text": 5}, "field text: expected a str that UTF-8 can encode, got 5 (int)"),
        ({"text": "\ud800"}, "field text: expected a str that UTF-8 can encode, got '\\ud800' (str)"),
        ({"number": 1 << 63}, "field number: expected a 64-bit int, got 9223372036854775808 (int)"),
        ({"small": 1 << 31}, "field small: expected a 32-bit int, got 2147483648 (int)"),
        ({"number": True}, "field number: expected a 64-bit int, got True (bool)"),
        ({"single": 1e39}, "field single: expected a 32-bit float, got 1e+39 (float)"),
        ({"item": None}, "field item: expected an instance of Item, got None (NoneType)"),
        ({"item": Item("x", 1 << 40)}, "field item.count: expected a 32-bit int, got 1099511627776 (int)"),
        ({"items": [Item("x"), 5]}, "field items[1]: expected an instance of Item, got 5 (int)"),
        ({"words": "abc"}, "field words: expected a list, got 'abc' (str)"),
        ({"by_name": {"k": "v"}}, "field by_name['k']: expected a 64-bit int, got 'v' (str)"),
        ({"color": "RED"}, "field color: expected a member of Color, got 'RED' (str)"),
        ({"maybe_text": 5}, "field maybe_text: expected a str that UTF-8 can encode, got 5 (int)"),
    ],
)
def test_object_that_does_not_fit_is_refused(changes: dict[str, Any], why: str) -> None:
    for schema in (AvroSchema(Order), JsonSchema(Order)):
        with pytest.raises(SchemaSerializationError) as caught:
            schema.encode(replace(ORDER, **changes))
        assert str(caught.value) == f"schema {schema.info.type_name} of Order, {why}"


def test_what_json_cannot_carry_is_refused_there_only() -> None:
    for changes, why in (({"raw": b"\xff"}, "UTF-8 bytes"), ({"real": float("inf")}, "that JSON can represent")):
        order = replace(ORDER, **changes)
        with pytest.raises(SchemaSerializationError, match=why):
            JsonSchema(Order).encode(order)
        assert AvroSchema(Order).decode(AvroSchema(Order).encode(order)) == order


@given(st.binary())
def test_bytes_are_base64_where_java_reads_them(raw: bytes) -> None:
    @dataclass
    class Raw:
        raw: Base64Bytes
        none: Base64Bytes | None = b"\xff"

    schema = JsonSchema(Raw)
    assert json.loads(schema.encode(Raw(raw))) == {"raw": base64.b64encode(raw).decode(), "none": "/w=="}
    assert schema.decode(schema.encode(Raw(raw, None))) == Raw(raw, None)
    assert AvroSchema(Raw).decode(AvroSchema(Raw).encode(Raw(raw))) == Raw(raw)
    assert json.loads(schema.info.definition)["fields"][1] == {
        "name": "none",
        "default": "\xff",
        "type": ["bytes", "null"],
    }
    with pytest.raises(SchemaSerializationError, match=r"field raw: expected base64, got '#' \(str\)"):
        schema.decode(b'{"raw":"#"}')


def test_object_that_refuses_its_values_is_named() -> None:
    @dataclass
    class Positive:
        number: int

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError("it is\nnegative")

    with pytest.raises(SchemaSerializationError, match=r"Positive\(...\) raised ValueError: it is negative$"):
        JsonSchema(Positive).decode(b'{"number":-1}')


def test_class_that_is_no_record_is_refused() -> None:
    class Empty(Enum):
        pass

    @dataclass
    class Odd:
        number: complex

    @dataclass
    class Either:
        number: int | str

    @dataclass
    class Nothing:
        pass

    @dataclass
    class Unknown:
        number: Nowhere  # type: ignore[name-defined]  # noqa: F821

    @dataclass
    class WrongDefault:
        number: Float32 = "x"  # type: ignore[assignment]

    for kind, why in (
        (int, "is not a dataclass"),
        (Odd, "unsupported type complex of Odd.number"),
        (Either, "expected a single type, optionally with None"),
        (Nothing, "has no fields"),
        (Unknown, "cannot read the field types of Unknown: name 'Nowhere' is not defined"),
        (WrongDefault, "invalid default 'x' for WrongDefault.number: expected a 32-bit float"),
    ):
        for make in (JsonSchema, AvroSchema):
            with pytest.raises(InvalidConfig, match=why):
                make(kind)
