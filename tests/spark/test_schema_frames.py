"""DataFrames with the columns of topics' schemas, read and written by Spark as batches and as streams."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import magnetar
import pulsar
import pytest
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


def test_the_example_of_the_documentation_runs(
    spark: SparkSession, cluster: Broker, client: pulsar.Client, orders: str
) -> None:
    page = (Path(magnetar.__file__).parent / "docs" / "spark.md").read_text()
    code = page.split("## Columns of a topic's schema")[1].split("```python\n")[1].split("```")[0]
    large = own_name("large")
    client.subscribe(large, "keep", initial_position=pulsar.InitialPosition.Earliest).close()
    for written, meant in (
        ("pulsar://127.0.0.1:6650", cluster.service_url),
        ("id > 100", "id > 2"),
        ('"large-orders"', repr(large)),
        ('"orders"', repr(orders)),
    ):
        assert written in code
        code = code.replace(written, meant)
    names: dict[str, Any] = {}
    exec(code, names)
    names["large_orders"](spark)
    reader = client.create_reader(large, pulsar.MessageId.earliest, schema=AvroSchema(Large))
    assert sorted(reader.read_next(RECEIVE_MS).value().id for _ in range(2)) == [3, 4]


def test_declared_columns_are_checked_and_read(spark: SparkSession, cluster: Broker, orders: str) -> None:
    frame = load(spark.read.schema("__key BINARY, text STRING, id STRING"), cluster, orders)
    assert frame.columns == ["__key", "text", "id"]
    assert sorted(row["id"] for row in frame.collect()) == ["0", "1", "2", "3", "4"]
    with pytest.raises(Exception, match=r"column txt is in no schema of .*; did you mean text\?"):
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
