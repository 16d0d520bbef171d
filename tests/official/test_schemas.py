"""Schemas of the official client: records come out as they went in, and what does not fit is refused."""

from __future__ import annotations

import io
import json
from typing import Any

import _pulsar
import httpx
import pulsar
import pytest
from avro import io as avro_io
from avro import schema as avro_schema
from pulsar.schema import Integer, JsonSchema, Record, Schema, String, StringSchema

from tests.official.talk import RECEIVE_MS

EARLIEST = pulsar.InitialPosition.Earliest


class Order(Record):  # type: ignore[misc]
    number = Integer()
    text = String()


class Wrong(Record):  # type: ignore[misc]
    number = String()


class Avro(Schema):  # type: ignore[misc]
    """Avro by Apache's library; the client's own class needs another one."""

    def __init__(self, fields: list[dict[str, Any]]):
        definition = {"type": "record", "name": "R", "fields": fields}
        self.reader = avro_schema.parse(json.dumps(definition))
        super().__init__(dict, _pulsar.SchemaType.AVRO, definition, "AVRO")

    def encode(self, obj: dict[str, Any]) -> bytes:
        buffer = io.BytesIO()
        avro_io.DatumWriter(self.reader).write(obj, avro_io.BinaryEncoder(buffer))
        return buffer.getvalue()

    def decode_message(self, msg: Any) -> object:
        """Read with the schema under which the message was written."""
        info = self._client.get_schema_info(msg.topic_name(), msg.int_schema_version())
        writer = avro_schema.parse(info.schema())
        return avro_io.DatumReader(writer, self.reader).read(avro_io.BinaryDecoder(io.BytesIO(msg.data())))


OLD = [{"name": "a", "type": "int"}]
NEW = [*OLD, {"name": "b", "type": "string", "default": "none"}]


def version_of(message: pulsar.Message) -> int:
    """The version of the schema under which a message was written."""
    return int(message._message.int_schema_version())


def schema_path(topic: str) -> str:
    return f"schemas/{topic.removeprefix('persistent://')}"


def test_json_records_arrive_as_objects(client: pulsar.Client, topic: str, admin: httpx.Client) -> None:
    consumer = client.subscribe(topic, "s", schema=JsonSchema(Order))
    producer = client.create_producer(topic, schema=JsonSchema(Order))
    producer.send(Order(number=7, text="seven"))

    message = consumer.receive(RECEIVE_MS)

    value = message.value()
    assert (value.number, value.text, version_of(message)) == (7, "seven", 0)
    held = admin.get(f"{schema_path(topic)}/schema").json()
    assert (held["type"], held["version"]) == ("JSON", 0)
    assert json.loads(held["data"]) == Order.schema()


def test_strings_arrive_as_text(client: pulsar.Client, topic: str, admin: httpx.Client) -> None:
    producer = client.create_producer(topic, schema=StringSchema())
    producer.send("grüße")
    consumer = client.subscribe(topic, "s", schema=StringSchema(), initial_position=EARLIEST)

    assert consumer.receive(RECEIVE_MS).value() == "grüße"
    assert admin.get(f"{schema_path(topic)}/schema").json()["type"] == "STRING"


def test_each_message_is_read_with_the_version_that_wrote_it(client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic, schema=Avro(OLD)).send({"a": 1})
    client.create_producer(topic, schema=Avro(NEW)).send({"a": 2, "b": "two"})
    consumer = client.subscribe(topic, "s", schema=Avro(NEW), initial_position=EARLIEST)

    messages = [consumer.receive(RECEIVE_MS) for _ in range(2)]

    assert [version_of(message) for message in messages] == [0, 1]
    assert [message.value() for message in messages] == [{"a": 1, "b": "none"}, {"a": 2, "b": "two"}]


def test_versions_count_on_and_a_known_schema_keeps_its_own(
    client: pulsar.Client, topic: str, admin: httpx.Client
) -> None:
    for fields in (OLD, NEW, OLD, NEW):
        client.create_producer(topic, schema=Avro(fields)).close()

    held = admin.get(f"{schema_path(topic)}/schemas").json()["getSchemaResponses"]
    assert [one["version"] for one in held] == [0, 1]


@pytest.mark.parametrize("schema", [JsonSchema(Wrong), StringSchema(), Avro(OLD)])
def test_clients_whose_schema_does_not_fit_are_refused(client: pulsar.Client, topic: str, schema: Schema) -> None:
    producer = client.create_producer(topic, schema=JsonSchema(Order))

    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=schema)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(topic, "s", schema=schema)

    producer.send(Order(number=1, text="still here"))
    assert client.subscribe(topic, "t", schema=JsonSchema(Order), initial_position=EARLIEST).receive(RECEIVE_MS)


def test_a_consumer_with_a_schema_is_refused_where_data_has_none(client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic).send(b"bytes")

    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(topic, "s", schema=JsonSchema(Order))

    producer = client.create_producer(topic, schema=JsonSchema(Order))
    producer.send(Order(number=1, text="one"))
    assert client.subscribe(topic, "s", schema=JsonSchema(Order)) is not None


def test_partitions_have_one_schema(client: pulsar.Client, topic: str, admin: httpx.Client) -> None:
    admin.put(f"{topic.replace('://', '/')}/partitions", json=3).raise_for_status()
    producer = client.create_producer(topic, schema=JsonSchema(Order))
    for number in range(6):
        producer.send(Order(number=number, text="x"))
    consumer = client.subscribe(topic, "s", schema=JsonSchema(Order), initial_position=EARLIEST)

    values = {consumer.receive(RECEIVE_MS).value().number for _ in range(6)}

    assert values == set(range(6))
    held = admin.get(f"{schema_path(topic)}/schemas").json()["getSchemaResponses"]
    assert [one["version"] for one in held] == [0]


def test_a_schema_that_was_uploaded_holds_for_clients(client: pulsar.Client, topic: str, admin: httpx.Client) -> None:
    body = {"type": "AVRO", "schema": json.dumps({"type": "record", "name": "R", "fields": NEW}), "properties": {}}
    admin.post(f"{schema_path(topic)}/schema", json=body).raise_for_status()

    client.create_producer(topic, schema=Avro(NEW)).close()
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=Avro([{"name": "a", "type": "string"}]))

    assert len(admin.get(f"{schema_path(topic)}/schemas").json()["getSchemaResponses"]) == 1
