"""What a topic takes beside the schemas that it has, by each of Pulsar's strategies."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.schemas import key_value
from magnetar.broker.schemas.compatibility import Incompatible, Strategy, check_consumer, check_new, version_of
from magnetar.broker.schemas.model import InvalidDefinition, Schema, SchemaType, SchemaVersion, from_wire, to_wire
from magnetar.broker.schemas.validity import MAX_DEFINITION_BYTES, check_definition

DECIDED = [strategy for strategy in Strategy if strategy is not Strategy.UNDEFINED]
A: dict[str, Any] = {"name": "a", "type": "int"}
OPTIONAL: dict[str, Any] = {"name": "b", "type": ["null", "int"], "default": None}
REQUIRED: dict[str, Any] = {"name": "c", "type": "int"}
PRIMITIVE = [type_ for type_ in SchemaType if SchemaType.BOOLEAN <= type_ <= SchemaType.LOCAL_DATE_TIME
             and type_ is not SchemaType.KEY_VALUE]  # fmt: skip


def record(*fields: dict[str, Any], type_: SchemaType = SchemaType.AVRO) -> Schema:
    return Schema(type_, json.dumps({"type": "record", "name": "R", "fields": fields}).encode())


def versions(*schemas: Schema) -> list[SchemaVersion]:
    return [SchemaVersion(number, schema) for number, schema in enumerate(schemas)]


def native(root: str, *fields: str) -> Schema:
    file = FileDescriptorProto(name="a.proto", package="x")
    message = file.message_type.add(name="M")
    for number, name in enumerate(fields, 1):
        message.field.add(name=name, number=number, type=5, label=1)
    file.message_type.add(name="N")
    text = base64.b64encode(FileDescriptorSet(file=[file]).SerializeToString()).decode()
    value = {"fileDescriptorSet": text, "rootMessageTypeName": root, "rootFileDescriptorName": "a.proto"}
    return Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(value).encode())


def key_and_value(value: Schema, value_type: str = "AVRO") -> Schema:
    properties = {"key.schema.type": "STRING", "value.schema.type": value_type, "kv.encoding.type": "SEPARATED"}
    return Schema(SchemaType.KEY_VALUE, key_value.joined(b"", value.data), properties)


def refusal(check: Callable[[], object]) -> str | None:
    """Why something is refused, in one line; None if it is not."""
    text = None
    try:
        check()
    except (Incompatible, InvalidDefinition) as error:
        text = str(error)
    assert text is None or len(text.splitlines()) == 1
    return text


def takes(new: Schema, old: list[SchemaVersion], strategy: Strategy) -> bool:
    return refusal(lambda: check_new(new, old, strategy)) is None


# What a real Pulsar 4.0.7 answers to these uploads, on a topic that has `R(a int)`.
@pytest.mark.parametrize("type_", [SchemaType.AVRO, SchemaType.JSON])
@pytest.mark.parametrize(
    ("strategy", "optional", "required", "other_type"),
    [
        (Strategy.ALWAYS_INCOMPATIBLE, False, False, False),
        (Strategy.ALWAYS_COMPATIBLE, True, True, True),
        (Strategy.BACKWARD, True, False, False),
        (Strategy.FORWARD, True, True, False),
        (Strategy.FULL, True, False, False),
        (Strategy.BACKWARD_TRANSITIVE, True, False, False),
        (Strategy.FORWARD_TRANSITIVE, True, True, False),
        (Strategy.FULL_TRANSITIVE, True, False, False),
    ],
)
def test_strategy_decides_as_in_pulsar(
    type_: SchemaType, strategy: Strategy, optional: bool, required: bool, other_type: bool
) -> None:
    old = versions(record(A, type_=type_))

    assert takes(record(A, OPTIONAL, type_=type_), old, strategy) == optional
    assert takes(record(A, REQUIRED, type_=type_), old, strategy) == required
    assert takes(Schema(SchemaType.STRING), old, strategy) == other_type
    assert takes(record(A, type_=type_), [], strategy)


@pytest.mark.parametrize(
    ("strategy", "is_taken"),
    [(Strategy.BACKWARD, True), (Strategy.BACKWARD_TRANSITIVE, False)],
)
def test_transitive_strategies_look_at_all_versions(strategy: Strategy, is_taken: bool) -> None:
    old = versions(record(A), record(A, REQUIRED))

    assert takes(record(REQUIRED), old, strategy) == is_taken


def test_refusal_names_the_field_and_the_version() -> None:
    with pytest.raises(Incompatible, match=r"strategy FULL: .*version 1, using the new schema: field d has no default"):
        check_new(record(A, {"name": "d", "type": "int"}), versions(record(A), record(A, OPTIONAL)), Strategy.FULL)


@pytest.mark.parametrize("type_", PRIMITIVE)
@pytest.mark.parametrize("strategy", DECIDED)
def test_primitive_types_fit_themselves_only(type_: SchemaType, strategy: Strategy) -> None:
    other = next(each for each in PRIMITIVE if each is not type_)
    old = versions(Schema(type_))

    assert version_of(Schema(type_), old) == 0
    assert version_of(Schema(other), old) is None
    assert takes(Schema(type_), old, strategy) == (strategy is not Strategy.ALWAYS_INCOMPATIBLE)
    assert takes(Schema(other), old, strategy) == (strategy is Strategy.ALWAYS_COMPATIBLE)


def test_protobuf_native_keeps_its_root_message() -> None:
    old = versions(native("x.M", "a"))

    assert takes(native("x.M", "a", "b"), old, Strategy.FULL)
    assert takes(native("x.N", "a"), old, Strategy.ALWAYS_COMPATIBLE)
    assert not takes(native("x.M", "a", "b"), old, Strategy.ALWAYS_INCOMPATIBLE)
    with pytest.raises(Incompatible, match=r"Original message name: 'x.M', new message name: 'x.N'"):
        check_new(native("x.N", "a"), old, Strategy.FULL)


def test_both_parts_of_key_value_are_checked() -> None:
    old = versions(key_and_value(record(A)))

    assert takes(key_and_value(record(A, OPTIONAL)), old, Strategy.FULL)
    with pytest.raises(Incompatible, match=r"the value of version 0, using the new schema: field c has no default"):
        check_new(key_and_value(record(A, REQUIRED)), old, Strategy.FULL)
    with pytest.raises(Incompatible, match=r"from value schema is AVRO and to value schema is JSON"):
        check_new(key_and_value(record(A), "JSON"), old, Strategy.FULL)


def test_json_schema_of_old_clients_gives_way_to_avro() -> None:
    old_form = Schema(SchemaType.JSON, b'{"type":"object","id":"x","properties":{"a":{"type":"integer"}}}')
    other_id = Schema(SchemaType.JSON, old_form.data.replace(b'"x"', b'"y"'))

    assert takes(record(A, type_=SchemaType.JSON), versions(old_form), Strategy.FULL)
    assert takes(old_form, versions(record(A, type_=SchemaType.JSON)), Strategy.FULL)
    assert not takes(other_id, versions(old_form), Strategy.FULL)


@pytest.mark.parametrize(
    ("strategy", "reads_required", "reads_optional"),
    [
        (Strategy.FULL, False, True),
        (Strategy.FORWARD, False, True),
        (Strategy.BACKWARD_TRANSITIVE, False, True),
        (Strategy.ALWAYS_COMPATIBLE, True, True),
        (Strategy.ALWAYS_INCOMPATIBLE, False, False),
    ],
)
def test_consumer_must_read_what_the_topic_has(strategy: Strategy, reads_required: bool, reads_optional: bool) -> None:
    def reads(schema: Schema) -> bool:
        return refusal(lambda: check_consumer(schema, versions(record(A)), strategy)) is None

    assert reads(record(A, REQUIRED)) == reads_required
    assert reads(record(A, OPTIONAL)) == reads_optional


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (Schema(SchemaType.AVRO, b"not avro"), "Invalid schema definition data for AVRO schema"),
        (Schema(SchemaType.AVRO, b'["null","int"]'), r"Avro schema typed \[UNION\] is not supported"),
        (Schema(SchemaType.JSON, b'{"foo":1}'), "Invalid schema definition data for JSON schema"),
        (Schema(SchemaType.PROTOBUF, b"x"), "Invalid schema definition data for PROTOBUF schema"),
        (Schema(SchemaType.INT32, b"x"), "length of schema data should be zero, but 1 bytes is found"),
        (Schema(SchemaType.STRING, b"x"), "Invalid schema definition data for string schema : 'x'"),
        (Schema(SchemaType.AUTO_CONSUME), "Schema AUTO_CONSUME is a client-side schema type"),
        (Schema(SchemaType.AUTO_PUBLISH), "Schema AUTO_PUBLISH is a client-side schema type"),
        (Schema(SchemaType.PROTOBUF_NATIVE, b"{}"), "deserialize ProtobufNative Schema failed"),
        (native("x.Q"), "deserialize ProtobufNative Schema failed"),
        (Schema(SchemaType.KEY_VALUE, b"\0\0\0\5a"), "invalid part length 5"),
        (key_and_value(Schema(SchemaType.AVRO, b"bad")), "Invalid schema definition data for AVRO schema"),
        (Schema(SchemaType.STRING, b"", {"k": "v" * MAX_DEFINITION_BYTES}), "exceeds"),
    ],
)
def test_invalid_definition_is_refused(schema: Schema, text: str) -> None:
    with pytest.raises(InvalidDefinition, match=text):
        check_definition(schema)


@pytest.mark.parametrize(
    "schema",
    [record(A), Schema(SchemaType.STRING, b"null"), Schema(SchemaType.NONE, b"x"), native("x.M", "a"),
     Schema(SchemaType.JSON, b'["null","int"]'), key_and_value(record(A)), *map(Schema, PRIMITIVE)],
)  # fmt: skip
def test_valid_definition_is_taken_and_comes_back_from_the_wire(schema: Schema) -> None:
    check_definition(schema)

    assert from_wire(to_wire(schema, "t/n/x"), 0) == schema


@given(st.binary(max_size=60), st.dictionaries(st.sampled_from(["key.schema.type", "value.schema.properties"]),
       st.sampled_from(["AVRO", "KEY_VALUE", "NOPE", "{", "[]", ""])))  # fmt: skip
def test_garbage_of_key_value_is_refused_or_read(data: bytes, properties: dict[str, str]) -> None:
    found: list[Schema] = []
    text = refusal(lambda: found.extend(key_value.parts(Schema(SchemaType.KEY_VALUE, data, properties))))
    assert (len(found) == 2) == (text is None)


@given(st.sampled_from(SchemaType), st.binary(max_size=80))
def test_any_bytes_are_a_definition_or_refused_in_one_line(type_: SchemaType, data: bytes) -> None:
    text = refusal(lambda: check_definition(Schema(type_, data)))
    assert text != ""
