"""Schemas of two parts, of Protocol Buffers, and those that the topic brings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulsar.schema as official
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.client import (
    AutoConsumeSchema,
    AutoProduceBytesSchema,
    AvroSchema,
    BytesSchema,
    Int32Schema,
    InvalidConfig,
    JsonSchema,
    KeyValue,
    KeyValueSchema,
    ProtobufNativeSchema,
    ProtobufSchema,
    Schema,
    SchemaInfo,
    SchemaSerializationError,
    StringSchema,
)
from magnetar.client.schemas.protobuf_native import message_class
from magnetar.client.typed.producer import encode
from magnetar.wire import pulsar_api_pb2 as pb
from magnetar.wire.functions_pb2 import FunctionDetails

from tests.client.schemas.records import Item

ITEM = Item("x", 5)
AVRO, JSON = AvroSchema(Item), JsonSchema(Item)


# -- key and value ----------------------------------------------------------------------------------------------------


def test_definition_of_key_and_value_is_javas() -> None:
    info = KeyValueSchema(StringSchema(), AVRO, "SEPARATED").info
    size = len(AVRO.info.definition).to_bytes(4, "big")
    assert info.definition == b"\x00\x00\x00\x00" + size + AVRO.info.definition
    assert info.properties == {
        "key.schema.name": "STRING",
        "key.schema.type": "STRING",
        "key.schema.properties": "{}",
        "value.schema.name": "AVRO",
        "value.schema.type": "AVRO",
        "value.schema.properties": "{}",
        "kv.encoding.type": "SEPARATED",
    }


@pytest.mark.parametrize(
    ("pair", "written"),
    [
        (KeyValue("k", 1), "000000016b0000000400000001"),
        (KeyValue(None, 1), "ffffffff0000000400000001"),
        (KeyValue("", None), "00000000ffffffff"),
    ],
)
def test_key_and_value_follow_their_sizes_as_in_java(pair: KeyValue[str, int], written: str) -> None:
    schema = KeyValueSchema(StringSchema(), Int32Schema())
    assert schema.encode(pair).hex() == written
    assert schema.decode(bytes.fromhex(written)) == pair


@given(st.none() | st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.binary())
def test_key_and_value_come_back(key: str | None, value: bytes | None) -> None:
    pair = KeyValue(key, value)
    inline: KeyValueSchema[str, bytes] = KeyValueSchema(StringSchema(), BytesSchema())
    assert inline.decode_message(*inline.encode_message(pair)) == pair
    apart: KeyValueSchema[str, bytes] = KeyValueSchema(StringSchema(), BytesSchema(), "SEPARATED")
    assert apart.encode_message(pair) == (value, None if key is None else key.encode())
    assert apart.decode_message(*apart.encode_message(pair)) == pair


@given(st.binary(max_size=24))
def test_any_bytes_are_a_pair_or_refused(data: bytes) -> None:
    schema: KeyValueSchema[bytes, bytes] = KeyValueSchema(BytesSchema(), BytesSchema())
    try:
        pair = schema.decode(data)
    except SchemaSerializationError:
        return
    assert schema.encode(pair) == data


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00\x00", "2 bytes end before the size of the key"),
        (b"\x00\x00\x00\x05ab", "invalid key size 5: only 2 bytes remain"),
        (b"\x80\x00\x00\x00", "invalid key size -2147483648: only 0 bytes remain"),
        (b"\x00\x00\x00\x00\x00\x00\x00\x00x", "1 unexpected bytes after the value"),
    ],
)
def test_bytes_that_are_no_pair_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(SchemaSerializationError, match=why):
        KeyValueSchema(BytesSchema(), BytesSchema()).decode(data)


def test_each_part_is_read_with_its_writer() -> None:
    written = KeyValueSchema(AVRO, AVRO)
    read = KeyValueSchema(AvroSchema(Item), AvroSchema(Item))
    assert read.needs_writer
    assert read.decode(written.encode(KeyValue(ITEM, ITEM)), written.info) == (ITEM, ITEM)
    with pytest.raises(SchemaSerializationError, match="was written with schema STRING"):
        read.decode(written.encode(KeyValue(ITEM, ITEM)), StringSchema().info)


def test_pair_that_is_none_is_refused() -> None:
    schema = KeyValueSchema(StringSchema(), Int32Schema())
    wrong: Any
    for wrong, why in (
        ("ab", "expected a KeyValue"),
        (("a",), "expected a KeyValue"),
        (("a", "b"), "schema INT32: expected a 32-bit int"),
    ):
        with pytest.raises(SchemaSerializationError, match=why):
            schema.encode(wrong)


def test_parts_that_cannot_be_joined_are_refused() -> None:
    part: Any
    for part, why in (
        (StringSchema, r"invalid schema .*: use StringSchema\(...\)"),
        (AutoConsumeSchema(), "use it for the whole message"),
        (KeyValueSchema(StringSchema(), StringSchema()), "use it for the whole message"),
    ):
        with pytest.raises(InvalidConfig, match=why):
            KeyValueSchema(part, StringSchema())
    with pytest.raises(InvalidConfig, match="invalid encoding 'BOTH': expected INLINE or SEPARATED"):
        KeyValueSchema(StringSchema(), StringSchema(), "BOTH")  # type: ignore[arg-type]


def test_key_of_a_separated_pair_is_the_messages() -> None:
    schema = KeyValueSchema(StringSchema(), Int32Schema(), "SEPARATED")
    payload, options = encode(schema, KeyValue("k", 1), {"event_time_ms": 5})
    assert (payload, options) == (b"\x00\x00\x00\x01", {"event_time_ms": 5, "key": "aw=="})
    with pytest.raises(InvalidConfig, match="invalid key 'a': schema KEY_VALUE"):
        encode(schema, KeyValue("k", 1), {"key": "a"})


# -- Protocol Buffers -------------------------------------------------------------------------------------------------


def test_protobuf_is_that_of_the_official_client() -> None:
    ours, theirs = ProtobufNativeSchema(FunctionDetails), official.ProtobufNativeSchema(FunctionDetails)
    assert ours.info.definition.decode() == theirs.schema_info().schema()
    details = FunctionDetails(tenant="t", name="é")
    assert ours.encode(details) == theirs.encode(details)
    assert ours.decode(theirs.encode(details)) == details


def test_avro_schema_of_a_message_is_the_one_that_java_derives() -> None:
    java = json.loads(Path(__file__).with_name("java_protobuf.json").read_text())  # by ProtobufSchema of Java's 4.0.7
    kind = message_class(SchemaInfo(pb.Schema.ProtobufNative, json.dumps(java["native"]).encode()))
    schema = ProtobufSchema(kind)
    assert json.loads(schema.info.definition) == java["avro"]
    AvroSchema(schema.info.definition.decode())
    assert schema.info.type_name == "PROTOBUF"


def test_avro_schema_of_a_message_has_its_defaults() -> None:
    fields = json.loads(ProtobufSchema(pb.MessageIdData).info.definition)["fields"]
    assert fields[0] == {"name": "ledgerId", "type": "long"}
    assert fields[2] == {"name": "partition", "type": "int", "default": -1}
    schema = ProtobufSchema(FunctionDetails)
    assert schema.decode(schema.encode(FunctionDetails(name="f"))) == FunctionDetails(name="f")


def test_other_messages_are_refused() -> None:
    schema = ProtobufNativeSchema(FunctionDetails)
    wrong: Any = pb.MessageIdData(ledgerId=1, entryId=1)
    with pytest.raises(
        SchemaSerializationError,
        match=r"expected an instance of proto.FunctionDetails, got ledgerId: 1 entryId: 1 \(MessageIdData\)",
    ):
        schema.encode(wrong)
    with pytest.raises(
        SchemaSerializationError, match=r"schema PROTOBUF_NATIVE of proto.FunctionDetails: cannot parse 1 bytes"
    ):
        schema.decode(b"\xff")
    with pytest.raises(SchemaSerializationError, match=r"MessageIdData: .*missing required"):
        ProtobufNativeSchema(pb.MessageIdData).encode(pb.MessageIdData())
    for kind in (int, FunctionDetails()):
        with pytest.raises(InvalidConfig, match="is not a protobuf message class"):
            ProtobufNativeSchema(kind)  # type: ignore[type-var,arg-type]


# -- what the topic brings --------------------------------------------------------------------------------------------

PAIRS = KeyValueSchema(StringSchema(), JSON)
WRITTEN: list[tuple[Schema[Any], Any, Any]] = [
    (StringSchema(), "é", "é"),
    (Int32Schema(), 5, 5),
    (AVRO, ITEM, {"name": "x", "count": 5}),
    (JSON, ITEM, {"name": "x", "count": 5}),
    (PAIRS, ("k", ITEM), ("k", {"name": "x", "count": 5})),
]


@pytest.mark.parametrize(("schema", "value", "read"), WRITTEN)
def test_consumer_reads_what_the_topic_has(schema: Schema[Any], value: Any, read: Any) -> None:
    auto = AutoConsumeSchema()
    for _ in range(2):
        assert auto.decode(schema.encode(value), schema.info) == read
    assert auto.decode(b"\xff") == b"\xff"


def test_consumer_reads_protobuf_without_its_class() -> None:
    schema = ProtobufNativeSchema(FunctionDetails)
    read = AutoConsumeSchema().decode(schema.encode(FunctionDetails(tenant="t")), schema.info)
    assert (read.DESCRIPTOR.full_name, read.tenant) == ("proto.FunctionDetails", "t")


@pytest.mark.parametrize(("schema", "value", "read"), WRITTEN)
def test_producer_checks_bytes_by_the_topics_schema(schema: Schema[Any], value: Any, read: Any) -> None:
    auto = AutoProduceBytesSchema().for_topic(schema.info)
    assert auto.info == schema.info
    assert auto.encode(schema.encode(value)) == schema.encode(value)
    with pytest.raises(SchemaSerializationError, match=f"^schema {schema.info.type_name}"):
        auto.encode(b"\xff")
    assert AutoProduceBytesSchema().for_topic(None).encode(b"\xff") == b"\xff"


@pytest.mark.parametrize(
    ("info", "why"),
    [
        (
            SchemaInfo(pb.Schema.Protobuf),
            "values of schema PROTOBUF cannot be read without their class: use ProtobufSchema",
        ),
        (SchemaInfo(99), "values of schema type 99 cannot"),
        (SchemaInfo(pb.Schema.Avro, b"{"), "schema AVRO cannot be read"),
        (SchemaInfo(pb.Schema.Avro, b"\xff"), "schema AVRO cannot be read"),
        (SchemaInfo(pb.Schema.KeyValue, b""), "definition of schema KEY_VALUE: 0 bytes end"),
        (replace(PAIRS.info, properties={"key.schema.type": "ODD"}), "unknown key type 'ODD'"),
        (replace(PAIRS.info, properties={"kv.encoding.type": "ODD"}), "invalid encoding 'ODD': expected"),
        (replace(PAIRS.info, properties={"key.schema.properties": "["}), "expected a JSON object"),
        (SchemaInfo(pb.Schema.ProtobufNative, b"{}"), "does not describe a message: KeyError"),
        (SchemaInfo(pb.Schema.ProtobufNative, b"[" * 100_000), "are not valid JSON"),
        (SchemaInfo(pb.Schema.ProtobufNative, json.dumps({"fileDescriptorSet": "AAAA"}).encode()), "does not describe"),
    ],
)
def test_schema_of_a_broker_that_cannot_be_read_is_named(info: SchemaInfo, why: str) -> None:
    with pytest.raises(SchemaSerializationError, match=why) as caught:
        AutoConsumeSchema().decode(b"", info)
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidConfig, match="cannot be checked"):
        AutoProduceBytesSchema().for_topic(info)
