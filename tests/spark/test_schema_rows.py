"""Rows that are written by a schema: encoded as fastavro and the official client read them; a broker, no JVM."""

from __future__ import annotations

import asyncio
import io
import json
import math
import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pulsar
import pyarrow as pa
import pytest
from magnetar.client import AsyncClient, AutoConsumeSchema
from magnetar.errors import IncompatibleSchema, InvalidConfig, SchemaSerializationError
from magnetar.spark.source.options import WriteOptions
from magnetar.spark.source.schemas import avro_columns, avro_rows
from magnetar.spark.source.schemas.avro_types import arrow_type, definition_of, list_of, map_of, parse
from magnetar.spark.source.schemas.spark_types import arrow_fields
from magnetar.spark.source.source import MagnetarSource, TopicWriter
from magnetar.spark.source.writer import write_rows
from magnetar.wire.message_id import EARLIEST
from pulsar.schema import AvroSchema, Boolean, Double, JsonSchema, Long, Record, String
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

from tests.spark.conftest import SmallLedgers

pytestmark = pytest.mark.spark
RECEIVE_MS = 10_000


class Row(Record):
    _sorted_fields = False
    name = String()
    total = Long()
    share = Double()
    ok = Boolean()


SHOWN = StructType().add("name", "string").add("total", "long", False).add("share", "double").add("ok", "boolean")
DATA: dict[str, list[Any]] = {
    "name": ["a", None, "ü\n"],
    "total": [1, -(2**63), 2**63 - 1],
    "share": [0.5, -0.0, None],
    "ok": [True, True, False],  # of which the official client makes False of null
}

SIMPLE: dict[pa.DataType, Callable[[random.Random], Any]] = {
    pa.bool_(): lambda rng: rng.random() < 0.5,
    pa.int8(): lambda rng: rng.randint(-128, 127),
    pa.int32(): lambda rng: rng.choice([0, -1, 2**31 - 1, -(2**31), rng.randint(-300, 300)]),
    pa.int64(): lambda rng: rng.choice([0, 63, 64, -64, -65, 2**63 - 1, -(2**63), rng.getrandbits(60)]),
    pa.float32(): lambda rng: rng.choice([0.0, -0.5, math.inf, 2.0**100]),
    pa.float64(): lambda rng: rng.choice([0.0, 1e308, -math.inf, rng.random()]),
    pa.string(): lambda rng: "é" * rng.choice([0, 1, 31, 32, 5000]),
    pa.binary(): lambda rng: rng.randbytes(rng.choice([0, 1, 63, 64, 200])),
    pa.decimal128(38, 4): lambda rng: Decimal(
        rng.choice(["0.0000", "-0.0001", "1" + "0" * 33 + ".0000", "-" + "9" * 34 + ".9999"])
    ),
    pa.date32(): lambda rng: date(rng.randint(1, 9999), 1, 2),
    pa.timestamp("us", "UTC"): lambda rng: datetime(rng.randint(1, 9999), 3, 4, 5, 6, 7, 8, UTC),
}


def drawn(rng: random.Random, depth: int) -> tuple[pa.DataType, Callable[[], Any]]:
    """A type, and what makes values of it, some of them null."""
    kind = rng.choice(["simple", "simple", "list", "map", "struct"]) if depth else "simple"
    if kind == "simple":
        type_ = rng.choice(list(SIMPLE))
        make = SIMPLE[type_]
        return type_, lambda: None if rng.random() < 0.2 else make(rng)
    parts = [drawn(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    inner, of_inner = parts[0]
    if kind == "list":
        return list_of(
            inner
        ), lambda: None if rng.random() < 0.2 else [of_inner() for _ in range(rng.choice([0, 1, 5]))]
    if kind == "map":
        return map_of(
            pa.string(), inner
        ), lambda: None if rng.random() < 0.2 else [(f"k{place}", of_inner()) for place in range(rng.choice([0, 1, 3]))]
    struct = pa.struct([(f"f{place}", type_) for place, (type_, _) in enumerate(parts)])
    return (
        struct,
        lambda: None if rng.random() < 0.2 else {f"f{place}": make() for place, (_, make) in enumerate(parts)},
    )


@pytest.mark.parametrize("seed", range(25))
def test_encoded_rows_are_what_fastavro_reads(seed: int) -> None:
    rng = random.Random(seed)
    columns, fields = [], []
    rows = rng.choice([1, 7, 40])
    for place in range(rng.randint(1, 4)):
        type_, make = drawn(rng, 2)
        whole = pa.array([make() for _ in range(rows + 3)], type_)
        columns.append(whole.slice(2, rows))
        fields.append(pa.field(f"c{place}", type_))
    definition = definition_of(fields)
    node = parse(json.dumps(definition))
    found = avro_rows.encode(node, columns, rows)
    found.validate(full=True)
    back = avro_columns.decode(node, found)
    schema = fastavro.parse_schema(definition)
    for data in found.to_pylist():
        stream = io.BytesIO(data)
        fastavro.schemaless_reader(stream, schema, None)
        assert stream.read() == b""
    plain = pa.StructArray.from_arrays(columns, fields=fields)
    widened = plain.cast(arrow_type(node)) if plain.type != arrow_type(node) else plain
    assert back.to_pylist() == widened.to_pylist()


@pytest.fixture
def client(broker: SmallLedgers) -> Iterator[pulsar.Client]:
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def writer(broker: SmallLedgers, topic: str, schema: StructType, kind: str, **options: str) -> WriteOptions:
    """The options that Spark sends to the tasks of a write."""
    given = {"service.url": broker.service_url, "topic": topic, "outputSchema": kind, **options}
    made = MagnetarSource(given).writer(schema, overwrite=False)
    assert isinstance(made, TopicWriter)
    return made._options


def write(
    broker: SmallLedgers, topic: str, schema: StructType, kind: str, data: dict[str, list[Any]], **options: str
) -> None:
    batch = pa.record_batch(data, schema=pa.schema(arrow_fields(schema)))
    write_rows(writer(broker, topic, schema, kind, **options), 0, [batch])


def expected() -> list[dict[str, Any]]:
    return [dict(zip(DATA, row, strict=True)) for row in zip(*DATA.values(), strict=True)]


@pytest.mark.parametrize("kind", ["avro", "JSON"])
def test_official_and_own_clients_read_what_was_written(
    kind: str, broker: SmallLedgers, client: pulsar.Client, topic: str
) -> None:
    write(broker, topic, SHOWN, kind, DATA)
    schema = (AvroSchema if kind == "avro" else JsonSchema)(Row)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
    found = [reader.read_next(RECEIVE_MS).value() for _ in range(3)]
    assert [{name: getattr(one, name) for name in DATA} for one in found] == expected()

    async def receive() -> list[Any]:
        async with AsyncClient(broker.service_url) as ours:
            reading = await ours.create_reader(topic, EARLIEST, schema=AutoConsumeSchema())
            return [(await reading.receive(RECEIVE_MS / 1000)).value for _ in range(3)]

    assert [dict(one) for one in asyncio.run(receive())] == expected()
    source = MagnetarSource({"service.url": broker.service_url, "topic": topic, "useTopicSchema": "true"})
    columns = source.schema()
    assert [field.name for field in columns][: len(DATA)] == list(DATA)
    rows = [
        row
        for partition in source.reader(columns).partitions()
        for batch in source.reader(columns).read(partition)
        for row in batch.select(list(DATA)).to_pylist()
    ]
    assert rows == expected()


def test_columns_of_messages_go_where_they_went_before(broker: SmallLedgers, client: pulsar.Client, topic: str) -> None:
    schema = (
        StructType()
        .add("__key", "string")
        .add("value", "long")
        .add("__messageProperties", MapType(StringType(), StringType()))
    )
    write(broker, topic, schema, "JSON", {"__key": ["k"], "value": [5], "__messageProperties": [[("a", "b")]]})
    message = client.create_reader(topic, pulsar.MessageId.earliest).read_next(RECEIVE_MS)
    assert (message.partition_key(), message.properties()) == ("k", {"a": "b"})
    assert json.loads(message.data()) == {"value": 5}


def test_another_column_is_another_version_of_the_same_record(
    broker: SmallLedgers, client: pulsar.Client, topic: str
) -> None:
    client.subscribe(topic, "keep", schema=AvroSchema(Row)).close()
    write(broker, topic, SHOWN, "AVRO", DATA)
    more = StructType([*SHOWN.fields]).add("tags", ArrayType(StringType())).add("at", "timestamp")
    write(
        broker, topic, more, "AVRO", {**DATA, "tags": [["x"], [], None], "at": [datetime(2026, 1, 2, tzinfo=UTC)] * 3}
    )
    options = writer(broker, topic, SHOWN, "AVRO")
    assert options.schema is not None
    assert json.loads(options.schema.info.definition)["name"] == "Row"
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=AvroSchema(Row))
    assert [reader.read_next(RECEIVE_MS).value().total for _ in range(6)] == 2 * DATA["total"]


DECLARED: dict[str, tuple[Any, list[Any]]] = {
    "id": ("int", [1, -(2**31)]),
    "share": (["double", "null"], [0.5, None]),
    "kind": ({"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, ["B", "A"]),
    "code": ({"type": "fixed", "name": "Code", "size": 2}, [b"ab", b"\x00\xff"]),
    "tags": ({"type": "array", "items": "string"}, [["x", "y"], []]),
    "at": ({"type": "long", "logicalType": "timestamp-millis"}, [datetime(2026, 1, 2, tzinfo=UTC)] * 2),
    "place": (
        {"type": "record", "name": "Place", "fields": [{"name": "n", "type": "long"}, {"name": "m", "type": "float"}]},
        [{"n": 2**62, "m": 0.25}, {"n": 0, "m": -1.0}],
    ),
    "absent": (["null", "string"], [None, None]),
}
"""Field -> type in a topic's own schema, two values."""
OTHERS = (
    StructType()
    .add("place", StructType().add("m", "double").add("n", "long"))
    .add("at", "timestamp")
    .add("code", "binary")
    .add("tags", ArrayType(StringType()))
    .add("share", "double")
    .add("kind", "string")
    .add("id", "long")
)


def test_rows_are_written_by_the_schema_that_a_topic_has(
    broker: SmallLedgers, client: pulsar.Client, topic: str
) -> None:
    fields = [{"name": name, "type": type_} for name, (type_, _) in DECLARED.items()]
    definition = {"type": "record", "name": "Declared", "namespace": "of.others", "fields": fields}
    client.subscribe(topic, "keep", schema=AvroSchema(None, schema_definition=definition)).close()
    data = {field.name: DECLARED[field.name][1] for field in OTHERS}
    write(broker, topic, OTHERS, "AVRO", data)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    schema = fastavro.parse_schema(definition)
    for place in range(2):
        stream = io.BytesIO(reader.read_next(RECEIVE_MS).data())
        assert fastavro.schemaless_reader(stream, schema, None) == {
            name: values[place] for name, (_, values) in DECLARED.items()
        }
    for change, why in (
        ({"id": [None, 1]}, "column id is null in 1 rows, but the topic's schema requires a value"),
        ({"id": [2**31, 1]}, "column id has type int64 and cannot be read as int32"),
        ({"kind": ["C", "A"]}, "column kind is 'C', but the topic's schema allows only A, B"),
        ({"code": [b"abc", b"ab"]}, "column code has 3 bytes, but the topic's schema requires 2"),
        ({"tags": [["x", None], []]}, r"column tags\[\] is null in 1 rows"),
        ({"place": [{"n": None, "m": 0.5}, None]}, "column place is null in 1 rows"),
    ):
        with pytest.raises(SchemaSerializationError, match=why):
            write(broker, topic, OTHERS, "AVRO", data | change)


def test_an_incompatible_schema_is_refused_before_rows_are_made(broker: SmallLedgers, topic: str) -> None:
    write(broker, topic, SHOWN, "AVRO", DATA)
    with pytest.raises(IncompatibleSchema):
        writer(broker, topic, StructType().add("total", "string"), "AVRO")


def test_what_cannot_be_written_is_refused_by_name(broker: SmallLedgers, topic: str) -> None:
    def refused(schema: StructType, kind: str, match: str) -> None:
        with pytest.raises(InvalidConfig, match=match):
            writer(broker, topic, schema, kind)

    refused(SHOWN, "XML", "invalid outputSchema 'XML': expected one of AVRO, JSON")
    refused(StructType().add("__key", "string"), "AVRO", "writes columns as values, but the DataFrame has none")
    refused(
        StructType().add("a", "long").add("__eventtime", "timestamp"), "AVRO", "column __eventtime cannot be written"
    )
    refused(StructType().add("a b", "long"), "AVRO", "is not a valid Avro name")
    refused(StructType().add("a", BinaryType()), "JSON", "column a has type binary, which JSON does not support")
    refused(StructType().add("a", "decimal(10,2)"), "JSON", "column a has type decimal.*outputSchema=AVRO")
    plain = MagnetarSource({"service.url": broker.service_url, "topic": topic})
    with pytest.raises(InvalidConfig, match="set outputSchema to AVRO or JSON"):
        plain.writer(SHOWN, overwrite=False)
    with pytest.raises(
        SchemaSerializationError, match="column share is nan, but JSON supports neither NaN nor Infinity"
    ):
        write(broker, topic, StructType().add("share", "double"), "JSON", {"share": [1.0, math.nan]})
    days = StructType().add("t", "interval day to second")
    with pytest.raises(
        SchemaSerializationError, match=r"column t has an interval of 86400 s, but .* only times of day"
    ):
        write(broker, f"{topic}-times", days, "AVRO", {"t": [timedelta(0), timedelta(days=1)]})


def test_rows_that_name_their_topics_register_their_schema_there(broker: SmallLedgers, topic: str) -> None:
    schema = StructType().add("__topic", "string").add("total", "long")
    given = {"service.url": broker.service_url, "outputSchema": "AVRO"}
    made = MagnetarSource(given).writer(schema, overwrite=False)
    assert isinstance(made, TopicWriter)
    topics = [f"{topic}-a", f"{topic}-b"]
    write_rows(made._options, 0, [pa.record_batch({"__topic": topics, "total": [1, 2]})])
    for number, name in enumerate(topics, 1):
        source = MagnetarSource({"service.url": broker.service_url, "topic": name, "useTopicSchema": "true"})
        [partition] = source.reader(source.schema()).partitions()
        assert [batch.column("total").to_pylist() for batch in source.reader(source.schema()).read(partition)] == [
            [number]
        ]
