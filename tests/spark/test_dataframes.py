"""Topics as DataFrames, in a Spark session of this process."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from magnetar.wire.message_id import deserialize

from tests.spark.topics import fill, numbered, options_for, values
from tests.support.pulsar import BROKERS, Broker, own_name
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=BROKERS)
def cluster(request: pytest.FixtureRequest, cluster: Server) -> Broker:
    """Ours, and Apache Pulsar."""
    return request.getfixturevalue("apache_pulsar") if request.param == "pulsar" else cluster


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/{own_name('frames')}"


def read(spark: SparkSession, cluster: Broker, topic: str, **options: str) -> DataFrame:
    return spark.read.format("magnetar").option("service.url", cluster.service_url).options(**options).load(topic)


def write(frame: DataFrame, cluster: Broker, topic: str | None, **options: str) -> None:
    writer = frame.write.format("magnetar").mode("append").option("service.url", cluster.service_url)
    for name, value in options.items():
        writer = writer.option(name, value)
    if topic is not None:
        writer = writer.option("topic", topic)
    writer.save()


def message_of(error: pytest.ExceptionInfo[Any]) -> str:
    """What a user sees of an error that came through the JVM."""
    return str(error.value)


def test_a_topic_is_a_table(spark: SparkSession, cluster: Broker, topic: str) -> None:
    fill(cluster.service_url, topic, [[b"a", b"bb"], [b"ccc"]])
    frame = read(spark, cluster, topic)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema.fields] == [
        ("value", "binary"), ("__key", "binary"), ("__topic", "string"), ("__messageId", "binary"),
        ("__publishTime", "timestamp"), ("__eventTime", "timestamp"), ("__messageProperties", "map<string,string>"),
    ]  # fmt: skip
    rows = frame.collect()
    assert [bytes(row["value"]) for row in rows] == [b"a", b"bb", b"ccc"]
    assert [deserialize(bytes(row["__messageId"])).batch_index for row in rows] == [0, 1, 0]
    assert {row["__topic"] for row in rows} == {topic}
    assert frame.where("length(value) > 1").count() == 2
    assert frame.count() == 3  # a filter stays with its own DataFrame
    assert frame.where("value = 'a'").union(frame).count() == 4


def test_sql_reads_topics(spark: SparkSession, cluster: Broker, topic: str) -> None:
    fill(cluster.service_url, topic, [numbered(10)])
    spark.sql(
        f"CREATE TEMPORARY VIEW numbers USING magnetar OPTIONS"
        f" ('service.url' '{cluster.service_url}', topic '{topic}', columns 'value')"
    )
    [row] = spark.sql("SELECT sum(cast(cast(value AS string) AS int)) AS total FROM numbers").collect()
    assert row["total"] == 45


def test_min_partitions_split_a_topic_and_keep_its_order(spark: SparkSession, cluster: Broker, topic: str) -> None:
    fill(cluster.service_url, topic, [numbered(1000)[start : start + 10] for start in range(0, 1000, 10)])
    frame = read(spark, cluster, topic, minPartitions="8", columns="value")
    parts = frame.rdd.glom().collect()
    assert len(parts) == 8
    assert [bytes(row["value"]) for part in parts for row in part] == numbered(1000)
    assert {len(part) for part in parts} <= {120, 130}
    few = read(spark, cluster, topic, columns="value")
    assert few.rdd.getNumPartitions() == 1  # 100 entries are not worth more


def test_an_empty_topic_is_an_empty_table(spark: SparkSession, cluster: Broker, topic: str) -> None:
    fill(cluster.service_url, topic, [])
    assert read(spark, cluster, topic).collect() == []


def test_all_columns_come_back_as_they_were_written(spark: SparkSession, cluster: Broker, topic: str) -> None:
    moment = datetime.datetime(2026, 11, 21, 12, 30, 15, 123000, tzinfo=datetime.UTC)
    rows = [
        ("text", "k", moment, {"a": "1", "b": "2"}),
        ("", "k", None, {}),
        (None, "k", None, None),
        ("plain", None, None, None),
        ("däta", "ключ", moment, None),
    ]
    schema = "value string, __key string, __eventTime timestamp, __messageProperties map<string,string>"
    write(spark.createDataFrame(rows, schema).coalesce(1), cluster, topic)
    found = read(spark, cluster, topic).collect()
    assert [row["value"] if row["value"] is None else bytes(row["value"]).decode() for row in found] == [
        "text", "", None, "plain", "däta",
    ]  # fmt: skip
    assert [row["__key"] and bytes(row["__key"]).decode() for row in found] == ["k", "k", "k", None, "ключ"]
    times = [row["__eventTime"] and row["__eventTime"].astimezone(datetime.UTC) for row in found]
    assert times == [moment, None, None, None, moment]
    assert [row["__messageProperties"] for row in found] == [{"a": "1", "b": "2"}, None, None, None, None]


def test_keys_that_are_no_text_come_back(spark: SparkSession, cluster: Broker, topic: str) -> None:
    write(spark.createDataFrame([(b"v", bytearray(b"\xff\x00"))], "value binary, __key binary"), cluster, topic)
    [row] = read(spark, cluster, topic).collect()
    assert bytes(row["__key"]) == b"\xff\x00"


def test_a_topic_is_copied_with_its_metadata(spark: SparkSession, cluster: Broker, topic: str) -> None:
    rows = [(str(number), f"k{number % 3}") for number in range(5000)]
    write(spark.createDataFrame(rows, "value string, __key string").coalesce(2), cluster, topic)
    write(read(spark, cluster, topic), cluster, f"{topic}-copy", compression="LZ4")
    columns = ("value", "__key")
    copy = read(spark, cluster, f"{topic}-copy").select(*columns)
    assert copy.exceptAll(read(spark, cluster, topic).select(*columns)).count() == 0
    assert copy.count() == 5000


def test_rows_choose_their_topics(spark: SparkSession, cluster: Broker, topic: str) -> None:
    frame = spark.range(100).selectExpr("cast(id AS string) AS value", f"concat('{topic}-', id % 2) AS __topic")
    write(frame, cluster, None)
    for odd in (0, 1):
        found = values(options_for(cluster.service_url, f"{topic}-{odd}"))
        assert sorted(map(int, found)) == list(range(odd, 100, 2))
    with pytest.raises(Exception, match="no __topic in row") as error:
        write(spark.createDataFrame([("a", None)], "value string, __topic string"), cluster, None)
    assert "set it, or set option topic" in message_of(error)


def test_rows_spread_over_partitions_by_key(
    spark: SparkSession, cluster: Broker, topic: str, partitioned: Iterator[str]
) -> None:
    frame = spark.range(0, 9000, 1, 2).selectExpr("cast(id AS string) AS value", "concat('k', id % 7) AS __key")
    write(frame, cluster, next(partitioned))
    found = read(spark, cluster, next(partitioned)).selectExpr("cast(__key AS string) AS key", "__topic").distinct()
    assert found.count() == 7  # each key on one partition
    assert found.select("__topic").distinct().count() > 1
    plain = next(partitioned)
    write(frame.select("value"), cluster, plain)
    per_topic = read(spark, cluster, plain).groupBy("__topic").count().collect()
    assert sum(row["count"] for row in per_topic) == 9000
    assert len(per_topic) == 3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("id AS key", r"the DataFrame has no column value, only key: add the column"),
        ("'a' AS value, id", r"column id cannot be written to a message"),
        ("id AS value", r"column value has type bigint: cast it to binary or string"),
    ],
)
def test_rows_that_are_no_messages_are_refused(
    spark: SparkSession, cluster: Broker, topic: str, columns: str, message: str
) -> None:
    with pytest.raises(Exception, match=message):
        write(spark.range(1).selectExpr(*columns.split(", ")), cluster, topic)


def test_a_message_that_is_too_large_is_refused_by_its_size(spark: SparkSession, cluster: Broker, topic: str) -> None:
    frame = spark.range(1).selectExpr("repeat('x', 6000000) AS value")
    with pytest.raises(Exception, match=r"exceeds the broker's max_message_bytes=5242880"):
        write(frame, cluster, topic)


def test_a_topic_is_not_overwritten(spark: SparkSession, cluster: Broker, topic: str) -> None:
    frame = spark.range(1).selectExpr("'a' AS value")
    writer = frame.write.format("magnetar").mode("overwrite").option("service.url", cluster.service_url)
    with pytest.raises(Exception, match="topics cannot be overwritten"):
        writer.option("topic", topic).save()


def test_errors_of_options_reach_the_user(spark: SparkSession, cluster: Broker, topic: str) -> None:
    with pytest.raises(Exception, match="did you mean startingOffsets"):
        read(spark, cluster, topic, startingOffset="earliest")
    with pytest.raises(Exception, match="does not exist"):
        read(spark, cluster, f"{topic}-missing").count()


def test_the_ledgers_of_the_rest_interface_give_the_same_ranges(
    spark: SparkSession, cluster: Broker, topic: str
) -> None:
    fill(cluster.service_url, topic, [[value] for value in numbered(50)[:30]])
    httpx.put(f"{cluster.web_url}/admin/v2/{topic.replace('://', '/')}/unload").raise_for_status()  # a second ledger
    fill(cluster.service_url, topic, [[value] for value in numbered(50)[30:]])
    frame = read(spark, cluster, topic, minPartitions="4", **{"admin.url": cluster.web_url})
    assert [bytes(row["value"]) for row in frame.collect()] == numbered(50)
    with pytest.raises(Exception, match=r"check option admin\.url"):
        read(spark, cluster, topic, **{"admin.url": "http://127.0.0.1:1"}).count()


def test_a_repeated_write_adds_nothing_to_a_deduplicated_topic(
    spark: SparkSession, cluster: Broker, topic: str
) -> None:
    frame = spark.range(0, 20_000, 1, 3).selectExpr("cast(id AS string) AS value")
    once = {"effectivelyOnce": "true", "admin.url": cluster.web_url, "producer.name.prefix": "daily"}
    write(frame, cluster, topic, **once)
    write(frame, cluster, topic, **once)
    assert sorted(map(int, values(options_for(cluster.service_url, topic)))) == list(range(20_000))
    write(frame, cluster, topic, **(once | {"producer.name.prefix": "next day"}))
    assert len(values(options_for(cluster.service_url, topic))) == 40_000


def test_a_task_that_dies_in_the_middle_writes_each_row_once(
    spark: SparkSession, cluster: Broker, topic: str, tmp_path: Any
) -> None:
    rows, parts = 60_000, 2

    def dies_once(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import signal

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            mark = tmp_path / f"{context.partitionId()}"
            if number == 2 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            # Other batches in the second attempt: entries must not depend on them.
            size = 700 if context.attemptNumber() else 1100
            for start in range(0, batch.num_rows, size):
                yield batch.slice(start, size)

    frame = spark.range(0, rows, 1, parts).selectExpr("lpad(cast(id AS string), 100, '0') AS value")
    dying = frame.mapInArrow(dies_once, "value string")
    write(dying, cluster, topic, effectivelyOnce="true", **{"admin.url": cluster.web_url})
    assert len(list(tmp_path.iterdir())) == parts
    found = values(options_for(cluster.service_url, topic))
    assert sorted(map(int, found)) == list(range(rows))


@pytest.fixture
def partitioned(cluster: Broker, topic: str) -> Iterator[str]:
    """Names of topics with three partitions: the first one twice, then another."""
    import httpx

    names = [f"{topic}-a", f"{topic}-a", f"{topic}-b"]
    for name in dict.fromkeys(names):
        path = name.replace("://", "/")
        httpx.put(f"{cluster.web_url}/admin/v2/{path}/partitions", json=3).raise_for_status()
    return iter(names)
