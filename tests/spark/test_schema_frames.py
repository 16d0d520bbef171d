"""DataFrames with the columns of topics' schemas, read and written by Spark as batches and as streams."""

from __future__ import annotations

import asyncio
import io
import json
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import magnetar
import pulsar
import pytest
from magnetar.client import AsyncClient
from magnetar.client.schemas.schema import SchemaInfo
from magnetar.wire import pulsar_api_pb2 as pb
from pulsar.schema import AvroSchema, Integer, Long, Map, Record, String

from tests.support.pulsar import Broker, own_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
RECEIVE_MS = 10_000


class Order(Record):
    id = Long(required=True)
    text = String()
    counts = Map(Integer())


class Purchase(Record):
    item = String()
    count = Long()
    note = String()


class LargePurchase(Record):
    item = String()
    count = Long()


class Large(Record):
    id = Long()
    text = String()


Large.__name__ = "Row"


@pytest.fixture(scope="module")
def client(cluster: Broker) -> Iterator[pulsar.Client]:
    client = pulsar.Client(cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


@pytest.fixture
def orders(client: pulsar.Client) -> str:
    """A topic with a few orders, kept by a subscription."""
    name = own_name("schemas")
    client.subscribe(name, "keep", initial_position=pulsar.InitialPosition.Earliest).close()
    producer = client.create_producer(name, schema=AvroSchema(Order))
    for number in range(5):
        producer.send(Order(id=number, text=f"t{number}", counts={"n": number}), partition_key="k")
    producer.close()
    return name


def load(reader: Any, cluster: Broker, name: str, **options: str) -> DataFrame:
    frame: DataFrame = (
        reader.format("magnetar")
        .options(**{"service.url": cluster.service_url, "useTopicSchema": "true", **options})
        .load(name)
    )
    return frame


def test_columns_of_a_schema_are_read_and_written(
    spark: SparkSession, cluster: Broker, client: pulsar.Client, orders: str
) -> None:
    frame = load(spark.read, cluster, orders)
    assert dict(frame.dtypes) | {"id": "bigint", "text": "string", "counts": "map<string,int>"} == dict(frame.dtypes)
    totals = frame.filter("id > 1").selectExpr(
        "text", "counts['n'] AS n", "struct(id, __publishTime AS at) AS inner", "__key"
    )
    assert [
        (row["text"], row["n"], row["inner"]["id"], bytes(row["__key"])) for row in totals.orderBy("n").collect()
    ] == [(f"t{number}", number, number, b"k") for number in range(2, 5)]
    written = own_name("written")
    client.subscribe(written, "keep", initial_position=pulsar.InitialPosition.Earliest).close()
    where = {"service.url": cluster.service_url, "topic": written, "outputSchema": "AVRO"}
    totals.write.format("magnetar").mode("append").options(**where).save()
    back = load(spark.read, cluster, written).select(*totals.columns)
    assert back.dtypes == totals.dtypes
    assert sorted(back.collect()) == sorted(totals.collect())


EVERY: dict[str, tuple[Any, Any, str]] = {
    "nothing": ("null", None, "void"),
    "whole": ({"type": "int", "logicalType": "date"}, date(1, 2, 3), "date"),
    "clock": ({"type": "int", "logicalType": "time-millis"}, time(23, 59, 59, 999000), "interval day to second"),
    "at": ({"type": "long", "logicalType": "timestamp-micros"}, datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "timestamp"),
    "here": ({"type": "long", "logicalType": "local-timestamp-millis"}, datetime(2026, 1, 2, 3), "timestamp_ntz"),  # noqa: DTZ001
    "price": (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2},
        Decimal("-0.01"),
        "decimal(38,2)",
    ),
    "kind": ({"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "B", "string"),
    "raw": ({"type": "fixed", "name": "Raw", "size": 2}, b"\x00\xff", "binary"),
    "choice": (["null", "string", "boolean"], True, "struct<member0:string,member1:boolean>"),
    "wide": (["int", "double"], 0.5, "double"),
    "odd": ("float", math.nan, "float"),
    "inner": (
        {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int", "default": 5}]},
        {"n": 2**31 - 1},
        "struct<n:int>",
    ),
    "many": (
        {"type": "array", "items": {"type": "map", "values": "long"}},
        [{"a": -(2**63)}, {}],
        "array<map<string,bigint>>",
    ),
}
"""Field -> type in a schema, a value, type in Spark."""


def test_every_type_of_a_schema_comes_through_spark(spark: SparkSession, cluster: Broker) -> None:
    fields = [{"name": name, "type": type_} for name, (type_, _, _) in EVERY.items()]
    definition = {"type": "record", "name": "Every", "fields": fields}
    stream = io.BytesIO()
    fastavro.schemaless_writer(
        stream, fastavro.parse_schema(definition), {name: value for name, (_, value, _) in EVERY.items()}
    )
    name = own_name("every")
    produce(cluster.service_url, name, SchemaInfo(pb.Schema.Avro, json.dumps(definition).encode()), stream.getvalue())
    frame = load(spark.read, cluster, name)
    assert dict(frame.dtypes) | {name: type_ for name, (_, _, type_) in EVERY.items()} == dict(frame.dtypes)
    [row] = frame.select(*EVERY).collect()
    found = row.asDict(recursive=True)
    assert math.isnan(found.pop("odd"))
    assert found.pop("clock") == timedelta(days=1, milliseconds=-1)
    assert found.pop("choice") == {"member0": None, "member1": True}
    assert found.pop("at").astimezone(UTC) == EVERY["at"][1]
    assert bytes(found.pop("raw")) == b"\x00\xff"
    assert found == {name: EVERY[name][1] for name in found}


def produce(service_url: str, topic: str, schema: Any, payload: bytes) -> None:
    """Publish bytes that are encoded by a schema already."""
    from magnetar.spark.source.schemas.writing import Encoded

    async def produce() -> None:
        async with AsyncClient(service_url) as client:
            await (await client.subscribe(topic, "keep")).close()
            producer = await client.create_producer(topic, schema=Encoded(schema))
            await producer.send(payload)
            await producer.close()

    asyncio.run(produce())


def test_the_example_of_the_documentation_runs(spark: SparkSession, cluster: Broker, client: pulsar.Client) -> None:
    page = (Path(magnetar.__file__).parent / "docs" / "how-to" / "spark-schema.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    purchases, large = own_name("purchases"), own_name("large")
    for name in (purchases, large):
        client.subscribe(name, "keep", initial_position=pulsar.InitialPosition.Earliest).close()
    producer = client.create_producer(purchases, schema=AvroSchema(Purchase))
    for number in range(4):
        producer.send(Purchase(item=f"i{number}", count=number), partition_key="k")
    producer.close()
    for written, meant in (
        ("pulsar://127.0.0.1:6650", cluster.service_url),
        ('"large-purchases"', repr(large)),
        ('"purchases"', repr(purchases)),
    ):
        assert written in code
        code = code.replace(written, meant)
    names: dict[str, Any] = {}
    exec(code, names)
    names["large_purchases"](spark)
    reader = client.create_reader(large, pulsar.MessageId.earliest, schema=AvroSchema(LargePurchase))
    assert sorted(reader.read_next(RECEIVE_MS).value().count for _ in range(2)) == [2, 3]


def test_declared_columns_are_checked_and_read(spark: SparkSession, cluster: Broker, orders: str) -> None:
    frame = load(spark.read.schema("__key BINARY, text STRING, id STRING"), cluster, orders)
    assert frame.columns == ["__key", "text", "id"]
    assert sorted(row["id"] for row in frame.collect()) == ["0", "1", "2", "3", "4"]
    with pytest.raises(Exception, match=r"column txt is not in any schema version of .*: did you mean text\?"):
        load(spark.read.schema("txt STRING"), cluster, orders).collect()


def test_streams_have_the_columns_of_a_schema_both_ways(
    spark: SparkSession, cluster: Broker, client: pulsar.Client, orders: str, tmp_path: Path
) -> None:
    written = own_name("streamed")
    client.subscribe(written, "keep", initial_position=pulsar.InitialPosition.Earliest).close()
    frame = load(spark.readStream, cluster, orders, startingOffsets="earliest")
    where = {
        "service.url": cluster.service_url,
        "admin.url": cluster.web_url,
        "topic": written,
        "outputSchema": "JSON",
        "unshuffled": "true",
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }
    query = frame.selectExpr("id", "upper(text) AS text").writeStream.format("magnetar").options(**where)
    query.trigger(once=True).start().awaitTermination(120)
    back = load(spark.read, cluster, written)
    assert sorted((row["id"], row["text"]) for row in back.collect()) == [(number, f"T{number}") for number in range(5)]
