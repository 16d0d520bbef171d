"""Streams from topic to topic without a statement about their order: Spark's plan decides how they are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from magnetar.spark.session import Session
from magnetar.spark.stream_plans import why_batches_differ

from tests.spark.topics import fill, numbered, options_for, values
from tests.support.pulsar import Broker, own_name
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
ROWS = 900


@pytest.fixture(scope="module")
def topic(cluster: Broker) -> str:
    name = f"persistent://public/default/{own_name('plans')}"
    fill(cluster.service_url, name, [numbered(ROWS)[at : at + 3] for at in range(0, ROWS, 3)])
    return name


Load = Callable[..., "DataFrame"]


@pytest.fixture
def load(spark: SparkSession, cluster: Broker, topic: str) -> Load:
    def load(**more: str) -> DataFrame:
        options = {"service.url": cluster.service_url, "topic": topic, "startingOffsets": "earliest", **more}
        return spark.readStream.format("magnetar").options(**options).load()

    return load


def udf_of(frame: DataFrame, *, is_marked: bool) -> DataFrame:
    from pyspark.sql.functions import udf

    function = udf(len, "int")
    return frame.select((function.asNondeterministic() if is_marked else function)("value").alias("value"))


REPEATABLE: dict[str, Callable[[DataFrame], DataFrame]] = {
    "as read": lambda frame: frame,
    "columns and conditions": lambda frame: (
        frame.where("length(value) > 1 AND __key IS NULL")
        .withColumn("n", frame.value.cast("string").cast("int"))
        .selectExpr("upper(cast(n % 7 AS string)) AS value", "date_trunc('hour', __publishTime) AS __eventTime")
    ),
    "JSON": lambda frame: frame.selectExpr("to_json(struct(__topic, __publishTime)) AS value").selectExpr(
        "from_json(value, 'a int').a AS a", "get_json_object(value, '$.b') AS b"
    ),
    "lambdas": lambda frame: frame.selectExpr("transform(split(__topic, '/'), part -> concat(part, '!')) AS parts"),
    "exploded": lambda frame: frame.selectExpr("explode(split(cast(value AS string), '1')) AS value"),
    "a UDF": lambda frame: udf_of(frame, is_marked=False),
    "a watermark": lambda frame: frame.withWatermark("__publishTime", "1 minute").select("value"),
    "an alias": lambda frame: frame.alias("a").select("a.value"),
}
UNREPEATABLE: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "repartition": (lambda frame: frame.repartition(2), "Repartition"),
    "repartition by key": (lambda frame: frame.repartition("value"), "RepartitionByExpression"),
    "coalesce": (lambda frame: frame.coalesce(1), "Repartition"),
    "grouped": (lambda frame: frame.groupBy("__key").count(), "Aggregate"),
    "distinct": (lambda frame: frame.select("value").distinct(), "operator D"),
    "duplicates dropped": (lambda frame: frame.dropDuplicates(["value"]), "Deduplicate"),
    "limit": (lambda frame: frame.limit(5), "Limit"),
    "sample": (lambda frame: frame.sample(0.5, seed=1), "Sample"),
    "union": (lambda frame: frame.union(frame), "Union"),
    "join": (lambda frame: frame.join(frame.sparkSession.range(5), frame.value.cast("string") == "1"), "Join"),
    "subquery": (lambda frame: frame.selectExpr("(SELECT max(id) FROM range(3)) AS m"), "ScalarSubquery"),
    "mapInArrow": (lambda frame: frame.select("value").mapInArrow(lambda rows: rows, "value binary"), "MapInArrow"),
    "rand": (lambda frame: frame.selectExpr("rand() AS value"), "Rand"),
    "uuid in a filter": (lambda frame: frame.where("uuid() > 'a'"), "Uuid"),
    "a clock": (lambda frame: frame.selectExpr("current_timestamp() AS t"), "Current"),
    "encryption": (lambda frame: frame.selectExpr("aes_encrypt(value, '0000111122223333') AS value"), "AesEncrypt"),
    "reflection": (lambda frame: frame.selectExpr("java_method('java.util.UUID', 'randomUUID') AS v"), "Reflection"),
    "a number of the task": (lambda frame: frame.selectExpr("monotonically_increasing_id() AS v"), "Monotonically"),
    "a marked UDF": (lambda frame: udf_of(frame, is_marked=True), "nondeterministic UDF"),
}


def why(frame: DataFrame) -> str:
    return why_batches_differ(frame._jdf.queryExecution().analyzed())


def test_plans_of_narrow_deterministic_operators_are_repeatable(load: Load) -> None:
    frame = load()
    assert {name: why(make(frame)) for name, make in REPEATABLE.items()} == dict.fromkeys(REPEATABLE, "")


def test_all_other_plans_are_unrepeatable(load: Load) -> None:
    frame = load()
    found = {name: why(make(frame)) for name, (make, _) in UNREPEATABLE.items()}
    assert {name: text for name, text in found.items() if UNREPEATABLE[name][1] not in text} == {}


def test_other_sources_and_batches_with_gaps_are_unrepeatable(spark: SparkSession, load: Load) -> None:
    assert "does not read exactly one stream" in why(spark.readStream.format("rate").load())
    assert "failOnDataLoss" in why(load(failOnDataLoss="false").select("value"))


def write(frame: DataFrame, cluster: Broker, target: str, directory: Path, **more: str) -> None:
    """Run a stream to the end of its topic."""
    options = {"service.url": cluster.service_url, "admin.url": cluster.web_url, "topic": target, **more}
    writer = frame.writeStream.format("magnetar").options(**options)
    query = writer.option("checkpointLocation", str(directory / target)).trigger(availableNow=True).start()
    assert query.awaitTermination(500)


def forget_the_last_commit(directory: Path, target: str) -> None:
    """Leave the checkpoint of a driver that died between the last row and the commit of its batch."""
    commits = directory / target / "commits"
    newest = max(int(path.name) for path in commits.glob("[0-9]*"))
    for path in (commits / str(newest), commits / f".{newest}.crc"):
        path.unlink(missing_ok=True)


def warnings(session: Session, target: str) -> int:
    return (
        (session.scratch.parent / "jvm.log")
        .read_text()
        .count(f"writing rows to persistent://public/default/{target} at least once")
    )


def await_warnings(session: Session, target: str, count: int) -> None:
    """Wait until so many warnings are in the log: a thread of the JVM copies what Python workers print."""
    wait_for(lambda: warnings(session, target) == count, f"log with {count} warnings")


def stored(cluster: Broker, target: str) -> Counter[bytes]:
    return Counter(values(options_for(cluster.service_url, target)))


def test_a_plan_that_repeats_is_written_exactly_once_also_when_it_is_cut_otherwise(
    session: Session, load: Load, cluster: Broker, tmp_path: Path
) -> None:
    target = own_name("exact")
    for tasks in ("3", "1", "5"):  # its pending batch stays cut in 3
        write(load(minPartitions=tasks).selectExpr("upper(cast(value AS string)) AS value"), cluster, target, tmp_path)
        assert stored(cluster, target) == Counter(numbered(ROWS)), tasks
        forget_the_last_commit(tmp_path, target)
    assert warnings(session, target) == 0


def test_a_plan_that_may_differ_is_written_at_least_once_with_one_warning_in_each_run(
    session: Session, load: Load, cluster: Broker, tmp_path: Path
) -> None:
    target = own_name("loose")
    for run in (1, 2):
        write(load().select("value").repartition(2), cluster, target, tmp_path)
        assert stored(cluster, target) == Counter(numbered(ROWS) * run)
        await_warnings(session, target, run)
        forget_the_last_commit(tmp_path, target)


def test_exactly_once_that_is_demanded_is_refused_for_a_plan_that_may_differ(
    load: Load, cluster: Broker, tmp_path: Path
) -> None:
    frame = load().select("value").repartition(2)
    with pytest.raises(Exception, match="does not guarantee: it has the operator Repartition; set sortBy="):
        write(frame, cluster, own_name("demanded"), tmp_path, effectivelyOnce="true")


def test_a_session_that_shows_no_plans_writes_at_least_once(
    session: Session, load: Load, cluster: Broker, topic: str, tmp_path: Path
) -> None:
    target = own_name("unseen")
    other = session.spark.newSession()
    options = {"service.url": cluster.service_url, "topic": topic, "startingOffsets": "earliest"}
    frame = other.readStream.format("magnetar").options(**options).load().select("value")
    write(frame, cluster, target, tmp_path)
    assert stored(cluster, target) == Counter(numbered(ROWS))
    await_warnings(session, target, 1)
