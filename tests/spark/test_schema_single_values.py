"""Single values, pairs, messages and JSON as Arrow columns, compared with the schemas of the client. No broker."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: E402
from magnetar.client.schemas.key_value import join  # noqa: E402
from magnetar.client.schemas.primitives import primitive  # noqa: E402
from magnetar.client.schemas.protobuf_native import definition_of  # noqa: E402
from magnetar.client.schemas.schema import BYTES, SchemaInfo  # noqa: E402
from magnetar.errors import SchemaSerializationError  # noqa: E402
from magnetar.spark.source.schemas import json_columns, protobuf_columns  # noqa: E402
from magnetar.spark.source.schemas.avro_types import list_of, map_of  # noqa: E402
from magnetar.spark.source.schemas.primitive_columns import decode, primitive_type, split_pairs  # noqa: E402
from magnetar.wire import pulsar_api_pb2 as pb  # noqa: E402

pytestmark = pytest.mark.spark

MOMENTS = st.datetimes(datetime(1600, 1, 1), datetime(3000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  given above
KINDS: dict[int, st.SearchStrategy[Any]] = {
    BYTES: st.binary(max_size=20),
    pb.Schema.String: st.text(max_size=20),
    pb.Schema.Bool: st.booleans(),
    pb.Schema.Int8: st.integers(-128, 127),
    pb.Schema.Int16: st.integers(-(2**15), 2**15 - 1),
    pb.Schema.Int32: st.integers(-(2**31), 2**31 - 1),
    pb.Schema.Int64: st.integers(-(2**63), 2**63 - 1),
    pb.Schema.Float: st.floats(width=32, allow_nan=False),
    pb.Schema.Double: st.floats(allow_nan=False),
    pb.Schema.Date: MOMENTS,
    pb.Schema.Timestamp: MOMENTS,
    pb.Schema.Instant: MOMENTS,
    pb.Schema.Time: st.times(),
    pb.Schema.LocalTime: st.times(),
    pb.Schema.LocalDate: st.dates(),
    pb.Schema.LocalDateTime: st.datetimes(),
}


def since_midnight(value: Any) -> Any:
    if isinstance(value, time):
        return timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
    return value


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_columns_hold_what_the_schema_of_the_client_reads(kind: int, data: st.DataObject) -> None:
    schema = primitive(kind)
    assert schema is not None
    values = data.draw(st.lists(st.none() | KINDS[kind], min_size=1, max_size=8))
    written = [None if value is None else schema.encode(value) for value in values]
    found = decode(kind, pa.array([None, *written], pa.binary())[1:])
    assert found.type == primitive_type(kind)
    wanted = [None if one is None else since_midnight(schema.decode(one)) for one in written]
    assert found.to_pylist() == wanted


def test_a_value_of_another_size_is_refused() -> None:
    with pytest.raises(SchemaSerializationError, match="schema INT32: invalid value of 3 bytes: expected 4"):
        decode(pb.Schema.Int32, pa.array([b"1234", b"123"]))


@given(st.lists(st.none() | st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9))))
def test_pairs_are_split_where_they_were_joined(pairs: list[tuple[bytes | None, bytes | None] | None]) -> None:
    column = pa.array([None if pair is None else join(*pair) for pair in pairs], pa.binary())
    keys, values = split_pairs(column)
    assert keys.to_pylist() == [pair and pair[0] for pair in pairs]
    assert values.to_pylist() == [pair and pair[1] for pair in pairs]


@given(st.binary(max_size=20))
def test_what_is_no_pair_is_refused(data: bytes) -> None:
    try:
        keys, values = split_pairs(pa.array([data]))
    except SchemaSerializationError:
        return
    assert join(keys[0].as_py(), values[0].as_py()) == data


# -- messages --------------------------------------------------------------------------------------------------------


def message_info(is_recursive: bool = False) -> tuple[Any, SchemaInfo]:
    """A class of messages and its schema; made here, as protoc would."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    kind = file.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "PAID")):
        kind.value.add(name=name, number=number)
    item = file.message_type.add(name="Item")
    item.field.add(name="name", number=1, type=field.TYPE_STRING, label=1)
    order = file.message_type.add(name="Order", oneof_decl=[{"name": "_note"}])
    order.field.add(name="id", number=1, type=field.TYPE_UINT64, label=1)
    order.field.add(name="note", number=2, type=field.TYPE_STRING, label=1, proto3_optional=True, oneof_index=0)
    order.field.add(name="items", number=3, type=field.TYPE_MESSAGE, type_name=".shop.Item", label=3)
    order.field.add(name="first", number=4, type=field.TYPE_MESSAGE, type_name=".shop.Item", label=1)
    order.field.add(name="state", number=5, type=field.TYPE_ENUM, type_name=".shop.State", label=1)
    order.field.add(name="prices", number=6, type=field.TYPE_DOUBLE, label=3)
    order.field.add(name="counts", number=7, type=field.TYPE_MESSAGE, type_name=".shop.Order.CountsEntry", label=3)
    pair = order.nested_type.add(name="CountsEntry", options={"map_entry": True})
    pair.field.add(name="key", number=1, type=field.TYPE_STRING, label=1)
    pair.field.add(name="value", number=2, type=field.TYPE_INT32, label=1)
    if is_recursive:
        item.field.add(name="inside", number=9, type=field.TYPE_MESSAGE, type_name=".shop.Item", label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    return found, SchemaInfo(pb.Schema.ProtobufNative, definition_of(found.DESCRIPTOR), "PROTOBUF_NATIVE")


def test_messages_become_columns_with_what_was_not_set_as_null() -> None:
    order, info = message_info()
    full = order(id=2**64 - 1, note="", items=[{"name": "a"}, {}], first={"name": "a"}, state=1, prices=[1.5, 2])
    full.counts["a"] = 3
    column = pa.array([full.SerializeToString(), None, order(state=7).SerializeToString()], pa.binary())
    kind = protobuf_columns.class_of(info)
    found = protobuf_columns.decode(kind, column)
    assert found.type == protobuf_columns.message_type(kind.DESCRIPTOR)
    assert found.to_pylist() == [
        {
            "id": 2**64 - 1, "note": "", "items": [{"name": "a"}, {"name": ""}], "first": {"name": "a"},
            "state": "PAID", "prices": [1.5, 2.0], "counts": [("a", 3)],
        },
        None,
        {"id": 0, "note": None, "items": [], "first": None, "state": "7", "prices": [], "counts": []},
    ]  # fmt: skip


def test_messages_that_contain_themselves_are_refused() -> None:
    order, _ = message_info(is_recursive=True)
    with pytest.raises(SchemaSerializationError, match=r"shop\.Item is recursive"):
        protobuf_columns.message_type(order.DESCRIPTOR)


def test_messages_of_java_are_read_by_the_numbers_that_it_tells() -> None:
    fields = [
        {"number": 3, "name": "id", "type": "INT64", "label": "LABEL_OPTIONAL", "definition": None},
        {"number": 4, "name": "tags", "type": "STRING", "label": "LABEL_REPEATED", "definition": None},
    ]
    info = SchemaInfo(pb.Schema.Protobuf, b"{}", properties={protobuf_columns.PARSING_INFO: json.dumps(fields)})
    kind: Any = protobuf_columns.class_of(info)
    found = protobuf_columns.decode(kind, pa.array([b"\x18\x05\x22\x01a\x22\x01b"]))
    assert found.to_pylist() == [{"id": 5, "tags": ["a", "b"]}]
    with pytest.raises(SchemaSerializationError, match="PROTOBUF schema does not contain field numbers: use PROTOBUF"):
        protobuf_columns.class_of(SchemaInfo(pb.Schema.Protobuf, b"{}"))


# -- JSON ------------------------------------------------------------------------------------------------------------

ROW = pa.struct([
    ("a", pa.int64()), ("s", pa.string()), ("at", pa.timestamp("ms", "UTC")), ("items", list_of(pa.float64())),
    ("inner", pa.struct([("b", pa.binary()), ("ok", pa.bool_())])),
])  # fmt: skip
SAID = st.fixed_dictionaries({}, optional={
    "a": st.none() | st.integers(-(2**63), 2**63 - 1), "s": st.none() | st.text(), "at": st.integers(0, 2**42),
    "items": st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9), max_size=4),
    "inner": st.fixed_dictionaries({}, optional={"b": st.text(), "ok": st.booleans(), "more": st.integers()}),
    "unknown": st.lists(st.integers()),
})  # fmt: skip


@given(st.lists(st.none() | SAID, min_size=1, max_size=8), st.sampled_from([None, 1]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_json_is_read_at_once_as_it_is_text_by_text(rows: list[Any], indent: int | None, is_ascii: bool) -> None:
    texts = [None if row is None else json.dumps(row, indent=indent, ensure_ascii=is_ascii).encode() for row in rows]
    column = pa.array(texts, pa.binary())
    found = json_columns.decode(column, ROW)
    there = [text for text in texts if text is not None]
    if there:
        at_once = json_columns._read_at_once(pa.array(there, pa.binary()), ROW)
        assert at_once is not None, "Arrow's reader has not taken it"
        assert at_once.equals(json_columns._one_by_one(there, ROW))
    assert found.drop_null().equals(json_columns._one_by_one(there, ROW))
    assert [one is None for one in found.to_pylist()] == [row is None for row in rows]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "0 bytes are not valid JSON"),
        (b"{}{}", "are not valid JSON: Extra data"),
        (b'{} } {"v":{}', "are not valid JSON: Extra data"),
        (b'{"a":1},"v":{"a":2}', "are not valid JSON: Extra data"),
        (b'{"a":"x"}', "field a is 'x': expected a 64-bit integer"),
        (b'{"inner":{"ok":1}}', r"field inner\.ok is 1: expected true or false"),
        (b'{"items":[1,"y"]}', r"field items\[1\] is 'y': expected a number"),
        (b"[1]", r"the value is \[1\]: expected an object"),
        (b'{"s":"\xff"}', "are not valid JSON: 'utf-8' codec"),
    ],
)
def test_what_json_does_not_say_is_refused_by_field(text: bytes, why: str) -> None:
    with pytest.raises(SchemaSerializationError, match=why):
        json_columns.decode(pa.array([b"{}", text]), ROW)


def test_json_has_maps_and_times_as_text() -> None:
    type_ = pa.struct([("by", map_of(pa.string(), pa.int32())), ("at", pa.timestamp("us", "UTC")), ("on", pa.date32())])
    text = b'{"by":{"x":1},"at":"2026-01-02T03:04:05Z","on":"2026-01-02"}'
    assert json_columns.decode(pa.array([text]), type_).to_pylist() == [
        {"by": [("x", 1)], "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "on": date(2026, 1, 2)}
    ]
