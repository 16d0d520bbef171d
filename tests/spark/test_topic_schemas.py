"""Columns by the schemas of topics, as the official client writes them: a broker, and the source without a JVM."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pulsar
import pyarrow as pa
import pytest
from magnetar.client import AsyncClient, KeyValue, KeyValueSchema, ProtobufNativeSchema
from magnetar.client import JsonSchema as OurJson
from magnetar.client.schemas.schema import SchemaInfo
from magnetar.errors import ConnectionLost, InvalidConfig, OperationTimeout, SchemaSerializationError
from magnetar.spark.source.schemas.registry import SchemaRegistry
from magnetar.spark.source.schemas.spark_types import arrow_fields
from magnetar.spark.source.schemas.writing import Encoded
from magnetar.spark.source.source import MagnetarSource
from magnetar.wire import pulsar_api_pb2 as pb
from magnetar.wire.topic_name import TopicName, parse_topic_name
from pulsar.schema import (
    Array,
    AvroSchema,
    Boolean,
    Double,
    Float,
    Integer,
    JsonSchema,
    Long,
    Map,
    Record,
    String,
    StringSchema,
)
from pyspark.sql.types import ArrayType, StructType

from tests.spark.conftest import SmallLedgers
from tests.spark.records import Line, Place
from tests.spark.topics import fill

pytestmark = pytest.mark.spark


class Item(Record):
    name = String()
    price = Double()


class Order(Record):
    id = Long(required=True)
    text = String()
    items = Array(Item())
    counts = Map(Integer())


class OrderV2(Record):
    id = Long(required=True)
    text = String()
    items = Array(Item())
    counts = Map(Integer())
    paid = Boolean(default=True, required=True, required_default=True)


class Small(Record):
    id = Integer(required=True)


class Wide(Record):
    id = Long(required=True)
    ratio = Float()


OrderV2.__name__ = "Order"
Wide.__name__ = "Small"


@pytest.fixture(scope="module")
def client(broker: SmallLedgers) -> Iterator[pulsar.Client]:
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.fixture
def source(broker: SmallLedgers, topic: str) -> Any:
    """Makes sources of the test's topic."""

    def make(**options: str) -> MagnetarSource:
        where = {} if "topics" in options or "topicsPattern" in options else {"topic": topic}
        return MagnetarSource({"service.url": broker.service_url, "useTopicSchema": "true", **where, **options})

    return make


def send(client: pulsar.Client, topic: str, schema: Any, values: Sequence[Any], **message: Any) -> None:
    producer = client.create_producer(topic, schema=schema, batching_enabled=True)
    for value in values:
        producer.send_async(value, lambda *_: None, **message)
    producer.flush()
    producer.close()


def declared(**columns: Any) -> StructType:
    """What `.schema(…)` says; no JVM reads DDL here."""
    struct = StructType()
    for name, type_ in columns.items():
        struct.add(name, type_)
    return struct


def rows(source: MagnetarSource, schema: StructType | None = None) -> list[dict[str, Any]]:
    """What Spark would be given, checked against the columns that it was promised."""
    struct = source.schema() if schema is None else schema
    reader = source.reader(struct)
    found = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            assert batch.schema == pa.schema(arrow_fields(struct))
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


def names(source: MagnetarSource) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in source.schema()}


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_the_fields_of_a_record_are_columns(kind: Any, client: pulsar.Client, topic: str, source: Any) -> None:
    order = Order(id=2**40, text="të\nxt", items=[Item(name="a", price=1.5), Item()], counts={"x": 3, "y": -1})
    send(client, topic, kind(Order), [order, Order(id=1)], partition_key="k")
    columns = names(source())
    assert {name: columns[name] for name in ("id", "text", "items", "counts", "__key", "__topic")} == {
        "id": "bigint",
        "text": "string",
        "items": "array<struct<name:string,price:double>>",
        "counts": "map<string,int>",
        "__key": "binary",
        "__topic": "string",
    }
    first, second = rows(source(columns="id,text,ITEMS,counts,__key"))
    assert first == {
        "id": 2**40,
        "text": "të\nxt",
        "items": [{"name": "a", "price": 1.5}, {"name": None, "price": None}],
        "counts": [("x", 3), ("y", -1)],
        "__key": b"k",
    }
    assert second == {"id": 1, "text": None, "items": None, "counts": None, "__key": b"k"}


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_each_message_is_read_by_its_own_version(kind: Any, client: pulsar.Client, topic: str, source: Any) -> None:
    send(client, topic, kind(Order), [Order(id=number, text="old") for number in range(3)])
    frame_of_old = source().schema()
    send(client, topic, kind(OrderV2), [OrderV2(id=number, text="new", paid=False) for number in range(3, 6)])
    send(client, topic, kind(Order), [Order(id=6, text="old")])
    found = rows(source(columns="paid,id,text"))
    assert [(row["id"], row["text"], row["paid"]) for row in found] == [
        *((number, "old", True) for number in range(3)),
        *((number, "new", False) for number in range(3, 6)),
        (6, "old", True),
    ]
    assert [row["id"] for row in rows(source(), frame_of_old)] == list(range(7))
    assert "paid" not in rows(source(), frame_of_old)[0]


def test_declared_columns_are_a_choice_in_any_order(client: pulsar.Client, topic: str, source: Any) -> None:
    send(client, topic, AvroSchema(Order), [Order(id=7, text="7", items=[Item(name="a", price=2.0)])])
    assert rows(source(), declared(items=ArrayType(declared(price="double")), __topic="string", id="string")) == [
        {"items": [{"price": 2.0}], "__topic": topic, "id": "7"}
    ]
    assert rows(source(), declared(__topic="string")) == [{"__topic": topic}]
    with pytest.raises(InvalidConfig, match=r"column txt is not in any schema version of .*: did you mean text\?"):
        rows(source(), declared(txt="string"))
    with pytest.raises(InvalidConfig, match=r"column items has type list<.* and cannot be read as bool"):
        rows(source(), declared(items="boolean"))
    with pytest.raises(InvalidConfig, match="column __publishTime has type timestamp"):
        rows(source(), declared(id="long", __publishTime="string"))
    with pytest.raises(InvalidConfig, match="unknown column 'txt' in option columns: expected"):
        source(columns="txt").schema()


def test_a_column_of_an_older_version_can_be_declared(client: pulsar.Client, topic: str, source: Any) -> None:
    send(client, topic, AvroSchema(OrderV2), [OrderV2(id=1, paid=False)])
    send(client, topic, AvroSchema(Order), [Order(id=2)])
    assert rows(source(), declared(id="long", paid="boolean")) == [{"id": 1, "paid": False}, {"id": 2, "paid": None}]


def test_single_values_are_the_column_value(client: pulsar.Client, topic: str, source: Any) -> None:
    send(client, topic, StringSchema(), ["ä", ""])
    assert names(source())["value"] == "string"
    assert [row["value"] for row in rows(source())] == ["ä", ""]


def test_topics_without_a_schema_have_bytes(broker: SmallLedgers, topic: str, source: Any) -> None:
    fill(broker.service_url, topic, [[b"\xff", b"b"]])
    assert names(source())["value"] == "binary"
    assert [row["value"] for row in rows(source())] == [b"\xff", b"b"]


def test_keys_and_values_have_their_own_types(broker: SmallLedgers, topic: str, source: Any) -> None:
    async def send_pairs(encoding: Any, topic: str) -> None:
        async with AsyncClient(broker.service_url) as client:
            schema = KeyValueSchema(OurJson(Place), OurJson(Line), encoding)
            producer = await client.create_producer(topic, schema=schema)
            await producer.send(KeyValue(Place("a", 1), Line("x", 0.5)))
            await producer.send(KeyValue(Place("b", 2), None))
            await producer.close()

    for encoding in ("INLINE", "SEPARATED"):
        one = f"{topic}-{encoding.lower()}"
        asyncio.run(send_pairs(encoding, one))
        pairs = source(topics=one)
        assert names(pairs)["__key"] == "struct<city:string,number:bigint>"
        assert rows(source(topics=one, columns="__key,text,weight")) == [
            {"__key": {"city": "a", "number": 1}, "text": "x", "weight": 0.5},
            {"__key": {"city": "b", "number": 2}, "text": None, "weight": None},
        ]


def test_what_cannot_be_read_names_topic_message_and_remedy(
    broker: SmallLedgers, client: pulsar.Client, topic: str, source: Any
) -> None:
    send(client, topic, AvroSchema(Order), [Order(id=number, text="x" * number) for number in range(5)])
    fill(broker.service_url, topic, [[b"\x02", b"\xff" * 30, b"\x04\x00\x00\x00"]])
    with pytest.raises(SchemaSerializationError) as caught:
        rows(source())
    said = str(caught.value)
    assert "\n" not in said
    assert topic in said
    assert "mode=PERMISSIVE" in said
    assert "the newest version (the message has no version)" in said
    assert re.search(r"cannot decode message \d+:\d+:\S+ with ", said)
    found = rows(source(mode="permissive", columns="id,text,__key"))
    assert [row["id"] for row in found] == [0, 1, 2, 3, 4, None, None, 2]


def test_a_version_that_is_gone_is_named(broker: SmallLedgers, client: pulsar.Client, topic: str, source: Any) -> None:
    """A topic that was deleted and created again has other schemas under the same numbers."""
    send(client, topic, AvroSchema(Order), [Order(id=1, text="a")])
    columns = source().schema()
    reader = source().reader(columns)
    broker.delete(topic)
    send(client, topic, StringSchema(), ["text"])
    with pytest.raises(InvalidConfig, match=r"the values of .* are not records but string"):
        source().reader(columns)
    fresh = source().reader(declared(value="string"))
    [partition] = fresh.partitions()
    assert [row["value"] for batch in fresh.read(partition) for row in batch.to_pylist()] == ["text"]
    with pytest.raises(SchemaSerializationError, match=r"version 0 of the topic's schema: .*string"):
        list(reader.read(partition))


def test_topics_with_different_schemas_need_to_be_allowed(client: pulsar.Client, topic: str, source: Any) -> None:
    send(client, f"{topic}-a", AvroSchema(Small), [Small(id=1)])
    send(client, f"{topic}-b", JsonSchema(Wide), [Wide(id=2, ratio=0.5)])
    both = {"topics": f"{topic}-a,{topic}-b"}
    with pytest.raises(InvalidConfig, match=r"have different schemas: .*allowDifferentTopicSchemas=true"):
        source(**both).schema()
    with pytest.raises(InvalidConfig, match="have different schemas"):
        rows(source(**both), declared(id="long"))
    allowed = source(**both, allowDifferentTopicSchemas="true")
    assert names(allowed)["value"] == "binary"
    assert [row["value"] for row in rows(allowed)] == [b"\x02", rows(allowed)[1]["value"]]
    assert json.loads(rows(allowed)[1]["value"]) == {"id": 2, "ratio": 0.5}
    assert [row["id"] for row in rows(allowed, declared(id="long", __topic="string"))] == [1, 2]
    with pytest.raises(InvalidConfig, match=r"column ratio is not in any schema version of .*-a"):
        rows(allowed, declared(id="long", ratio="float"))
    send(client, f"{topic}-c", AvroSchema(Small), [Small(id=3)])
    assert [row["id"] for row in rows(source(topics=f"{topic}-a,{topic}-c"))] == [1, 3]


def test_a_pattern_takes_the_columns_of_its_topics(client: pulsar.Client, topic: str, source: Any) -> None:
    send(client, f"{topic}-a", AvroSchema(Small), [Small(id=1)])
    send(client, f"{topic}-b", AvroSchema(Small), [Small(id=2)])
    assert sorted(row["id"] for row in rows(source(topicsPattern=f"{topic}-.*"))) == [1, 2]
    with pytest.raises(InvalidConfig, match="no topic matches"):
        source(topicsPattern=f"{topic}-none-.*").schema()


def test_messages_without_a_value_have_nulls(
    broker: SmallLedgers, client: pulsar.Client, topic: str, source: Any
) -> None:
    send(client, topic, AvroSchema(Small), [Small(id=1)])
    produce(broker, topic, SchemaInfo(pb.Schema.Avro, json.dumps(Small.schema()).encode()), [None])
    assert [row["id"] for row in rows(source())] == [1, None]
    with pytest.raises(SchemaSerializationError, match=r"column id is null in 1 messages, .*NOT NULL"):
        rows(source(), StructType().add("id", "integer", nullable=False))


def test_schemas_of_any_depth_are_refused(broker: SmallLedgers, topic: str, source: Any) -> None:
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "next", "type": ["null", "Tree"]}]}
    register(broker, topic, SchemaInfo(pb.Schema.Avro, json.dumps(tree).encode()))
    with pytest.raises(InvalidConfig, match=r"Tree is recursive, .*omit useTopicSchema"):
        source().schema()
    other = f"{topic}-other"
    taken = {"type": "record", "name": "Taken", "fields": [{"name": "__key", "type": "string"}]}
    register(broker, other, SchemaInfo(pb.Schema.Avro, json.dumps(taken).encode()))
    with pytest.raises(InvalidConfig, match="schema field __key has the same name as a message column"):
        source(topics=other).schema()


def test_a_default_is_taken_as_the_declared_type(broker: SmallLedgers, topic: str, source: Any) -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    new = {**old, "fields": [*old["fields"], {"name": "count", "type": "int", "default": 7}]}
    for definition, payload in ((old, b"\x02"), (new, b"\x04\x06")):
        produce(broker, topic, SchemaInfo(pb.Schema.Avro, json.dumps(definition).encode()), [payload])
    for type_, shown in (("integer", [7, 3]), ("long", [7, 3]), ("double", [7.0, 3.0]), ("string", ["7", "3"])):
        assert [row["count"] for row in rows(source(), declared(count=type_))] == shown


def test_versions_that_alternate_keep_the_order(broker: SmallLedgers, topic: str, source: Any) -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    new = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "string", "default": "d"}, *old["fields"]]}

    async def alternate() -> None:
        async with AsyncClient(broker.service_url) as client:
            infos = [SchemaInfo(pb.Schema.Avro, json.dumps(one).encode()) for one in (old, new)]
            producers = [await client.create_producer(topic, schema=Encoded(info)) for info in infos]
            for number in range(60):
                zigzag = bytes([2 * number])
                await producers[number % 2].send(zigzag if number % 2 == 0 else b"\x02n" + zigzag)

    asyncio.run(alternate())
    found = rows(source(minPartitions="1", columns="id,x"))
    assert [(row["id"], row["x"]) for row in found] == [(number, "dn"[number % 2]) for number in range(60)]


def test_partitions_have_the_schema_of_their_topic(
    broker: SmallLedgers, client: pulsar.Client, topic: str, source: Any
) -> None:
    for number in range(3):
        send(client, f"{topic}-partition-{number}", AvroSchema(Small), [Small(id=number)])
        assert [row["id"] for row in rows(source(topics=f"{topic}-partition-{number}"))] == [number]


def test_what_no_schema_means_by_mistake_is_told_and_not_shown(broker: SmallLedgers, topic: str, source: Any) -> None:
    """Bytes that are no UTF-8, times that Spark has no room for, sizes of a liar: each alone, and among others."""
    definition = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "text", "type": "string"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
    good, most = b"\x02a\x02", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    wrong = {
        b"\x02\xff\x02": "not valid UTF-8",
        b"\x02a" + most: "timestamp",
        b"\xfe\xff\x03a\x02": "exceeds the remaining",
        b"\x02a\x02\x02": "unexpected bytes after the value",
        b"": "ends inside a number",
    }
    for number, (payload, why) in enumerate(wrong.items()):
        name = f"{topic}-{number}"
        produce(broker, name, SchemaInfo(pb.Schema.Avro, json.dumps(definition).encode()), [good, payload, good])
        with pytest.raises(
            SchemaSerializationError, match=rf"cannot decode message \d+:1\b.* with version 0 of .*{why}"
        ):
            rows(source(topics=name, minPartitions="1"))
        assert [row["text"] for row in rows(source(topics=name, mode="PERMISSIVE"))] == ["a", None, "a"]


def test_a_registry_asks_again_while_a_broker_is_away() -> None:
    answers: list[Any] = [ConnectionLost("gone"), OperationTimeout("late"), (SchemaInfo(pb.Schema.String), bytes(8))]

    class Away:
        def schema(self, topic: TopicName, version: bytes | None = None) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    topic = parse_topic_name("t")
    registry = SchemaRegistry(Away(), 30)  # type: ignore[arg-type]
    assert registry.of_version(topic, bytes(8)).kind == pb.Schema.String
    assert registry.of_version(topic, bytes(8)).kind == pb.Schema.String  # not asked for again
    with pytest.raises(SchemaSerializationError, match="no longer has version 0x01"):
        registry.of_version(topic, b"\x01")
    answers.append(ConnectionLost("gone"))
    with pytest.raises(ConnectionLost):
        SchemaRegistry(Away()).newest(topic)  # type: ignore[arg-type]


def test_messages_of_protocol_buffers_have_columns(broker: SmallLedgers, topic: str, source: Any) -> None:
    schema = ProtobufNativeSchema(pb.KeyValue)
    payloads = [pb.KeyValue(key="a", value="ä").SerializeToString(), b"\x0a\xff"]
    produce(broker, topic, schema.info, payloads[:1])
    assert rows(source(columns="value,key")) == [{"value": "ä", "key": "a"}]
    produce(broker, topic, schema.info, payloads[1:])
    with pytest.raises(SchemaSerializationError, match=r"not a valid message .*KeyValue"):
        rows(source())
    assert rows(source(columns="key,__key", mode="PERMISSIVE"))[1] == {"key": None, "__key": b"k"}


def test_values_that_nobody_asks_for_are_not_decoded(
    broker: SmallLedgers, client: pulsar.Client, topic: str, source: Any
) -> None:
    send(client, topic, AvroSchema(Small), [Small(id=1)])
    fill(broker.service_url, topic, [[b"\xff"]])
    with pytest.raises(SchemaSerializationError):
        rows(source(columns="id"))
    assert rows(source(columns="__topic")) == [{"__topic": topic}] * 2


def test_columns_are_chosen_in_one_place(client: pulsar.Client, topic: str, source: Any) -> None:
    send(client, topic, AvroSchema(Small), [Small(id=1)])
    with pytest.raises(InvalidConfig, match=r"option columns and \.schema\(…\) select different columns"):
        rows(source(columns="id,__key"), declared(id="long"))


def test_options_of_schemas_need_them(broker: SmallLedgers, topic: str) -> None:
    plain = {"service.url": broker.service_url, "topic": topic}
    for option in ({"mode": "PERMISSIVE"}, {"allowDifferentTopicSchemas": "true"}):
        with pytest.raises(InvalidConfig, match="set useTopicSchema=true as well"):
            MagnetarSource({**plain, **option}).schema()
    with pytest.raises(InvalidConfig, match="invalid mode 'SKIP': expected one of FAILFAST, PERMISSIVE"):
        MagnetarSource({**plain, "useTopicSchema": "true", "mode": "skip"}).schema()
    assert names(MagnetarSource(plain))["value"] == "binary"


def register(broker: SmallLedgers, topic: str, info: SchemaInfo) -> None:
    """Give a topic a schema, and a message by it."""
    produce(broker, topic, info, [b"\x00"])


def produce(broker: SmallLedgers, topic: str, info: SchemaInfo, payloads: Sequence[bytes | None]) -> None:
    """Publish what is encoded already; None deletes a key."""

    async def produce() -> None:
        async with AsyncClient(broker.service_url) as client:
            producer = await client.create_producer(topic, schema=Encoded(info))
            for payload in payloads:
                await producer.send(payload, key="k")
            await producer.close()

    asyncio.run(produce())
