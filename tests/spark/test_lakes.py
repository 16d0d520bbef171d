"""Topics into tables of Delta and Iceberg and back, with their real packages, on the installed version of Spark."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from magnetar.spark.spark_version import installed_spark

from tests.connectors.servers import maven
from tests.spark.notebooks import give_session, printed
from tests.spark.topics import fill, options_for, planned, publish, values
from tests.support.servers import Server

if TYPE_CHECKING:
    from magnetar.spark.session import Session
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.lakes, pytest.mark.timeout(900)]

ENTRIES, ROWS_PER_ENTRY = 30, 100


@dataclass(frozen=True, kw_only=True)
class Lake:
    """A format of tables.

    Attributes:
        packages: of Maven's repository, by the version of Spark that they are for.
        settings: of a session; ``{}`` is the directory of the tables.
        extension: the class that teaches Spark its SQL.
    """

    packages: dict[tuple[int, int], str]
    settings: dict[str, str]
    extension: str


LAKES = {
    "delta": Lake(
        packages={
            (4, 0): "io.delta:delta-spark_2.13:4.0.1",
            (4, 1): "io.delta:delta-spark_4.1_2.13:4.4.0",
            (4, 2): "io.delta:delta-spark_4.2_2.13:4.4.0",
        },
        settings={
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
        extension="io.delta.sql.DeltaSparkSessionExtension",
    ),
    "iceberg": Lake(
        packages={
            (4, 0): "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
            (4, 1): "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        },
        settings={
            "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.ice.type": "hadoop",
            "spark.sql.catalog.ice.warehouse": "{}/iceberg",
        },
        extension="org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    ),
}
BOTH = pytest.mark.parametrize("lake", list(LAKES))


def served() -> dict[str, Lake]:
    """The formats that have a package for the installed Spark."""
    spark = installed_spark()
    return {name: lake for name, lake in LAKES.items() if spark in lake.packages}


def beside_spark(jars: Path) -> list[Path]:
    """The jars that Spark does not have itself, in whatever version."""
    from magnetar.spark.session import spark_jars

    def artifact(jar: Path) -> str:
        return re.sub(r"-\d.*", "", jar.stem)

    there = {artifact(jar) for jar in spark_jars().glob("*.jar")}
    return sorted(jar for jar in jars.glob("*.jar") if artifact(jar) not in there)


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session with the jars of all formats that there are for its version."""
    from magnetar.spark.session import SessionConfig, open_session

    maven.require()
    spark, there = installed_spark(), served()
    if spark is None or not there:
        pytest.skip(f"neither Delta nor Iceberg has a package for Spark {spark}")
    directory = tmp_path_factory.mktemp("lakes")
    settings = {"spark.sql.shuffle.partitions": "2"}
    paths: list[Path] = []
    for name, lake in there.items():
        settings |= {key: value.format(directory) for key, value in lake.settings.items()}
        paths += beside_spark(maven.jars(f"{name}-spark-{spark[0]}.{spark[1]}", [lake.packages[spark]]))
    settings["spark.sql.extensions"] = ",".join(lake.extension for lake in there.values())
    settings["spark.jars"] = ",".join(map(str, paths))
    config = SessionConfig(
        directory=directory / "spark", master="local[2]", log_file=directory / "jvm.log", settings=settings
    )
    with open_session(config) as session:
        yield session


@pytest.fixture
def spark(lakes: Session, request: pytest.FixtureRequest) -> SparkSession:
    """The session, for a format that its version has."""
    name = request.getfixturevalue("lake")
    if name not in served():
        pytest.skip(f"{name} has no package for Spark {lakes.spark.version}")
    return lakes.spark


@pytest.fixture
def chance() -> random.Random:
    seed = int(os.environ.get("MAGNETAR_SPARK_SEED") or random.SystemRandom().randrange(2**32))
    print(f"MAGNETAR_SPARK_SEED={seed}")
    return random.Random(seed)


def rows(chance: random.Random, first: int, count: int) -> list[bytes]:
    return [b"%d,%d" % (number, chance.randrange(1000)) for number in range(first, first + count)]


def entries(rows: list[bytes]) -> list[list[bytes]]:
    return [rows[start : start + ROWS_PER_ENTRY] for start in range(0, len(rows), ROWS_PER_ENTRY)]


def read(spark: SparkSession, cluster: Server, topic: str, **options: str) -> DataFrame:
    """The numbers and amounts of a topic, with where each row came from."""
    frame = spark.read.format("magnetar").option("service.url", cluster.service_url).options(**options).load(topic)
    text = "split(cast(value AS string), ',')"
    return frame.selectExpr(
        f"cast({text}[0] AS bigint) AS id", f"cast({text}[1] AS int) AS amount", "__publishTime AS at", "value",
        "__messageProperties AS properties",
    )  # fmt: skip


def create(spark: SparkSession, lake: str, name: str, directory: Path) -> str:
    """Make a table without rows; return its name for SQL."""
    table = f"ice.db.{name}" if lake == "iceberg" else f"default.{name}"
    place = "" if lake == "iceberg" else f" LOCATION '{directory}'"
    columns = "id bigint, amount int, at timestamp, value binary, properties map<string,string>"
    if lake == "iceberg":
        spark.sql("CREATE NAMESPACE IF NOT EXISTS ice.db")
    spark.sql(f"CREATE TABLE {table} ({columns}) USING {lake}{place}")
    return table


def append(frame: DataFrame, lake: str, table: str) -> None:
    if lake == "iceberg":
        frame.writeTo(table).append()
    else:
        frame.write.format(lake).mode("append").saveAsTable(table)


def versions_of(spark: SparkSession, lake: str, table: str) -> list[int]:
    """The commits of a table that can be read, oldest first."""
    if lake == "iceberg":
        return [
            row[0] for row in spark.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at").collect()
        ]
    return sorted(row["version"] for row in spark.sql(f"DESCRIBE HISTORY {table}").collect())


@BOTH
def test_a_topic_becomes_a_table_batch_after_batch_with_each_row_once(
    lake: str, spark: SparkSession, cluster: Server, chance: random.Random, tmp_path: Path
) -> None:
    topic = f"persistent://public/default/batches-{lake}"
    first, second = rows(chance, 0, ENTRIES * ROWS_PER_ENTRY), rows(chance, ENTRIES * ROWS_PER_ENTRY, 500)
    fill(cluster.service_url, topic, entries(first))
    end = planned(options_for(cluster.service_url, topic))[-1].end
    fill(cluster.service_url, topic, entries(second))
    publish(cluster.service_url, topic, b"9999,1", properties={"source": "alone"})
    table = create(spark, lake, "batches", tmp_path / "table")
    append(read(spark, cluster, topic, endingOffsets=str(end), minPartitions="4"), lake, table)
    append(read(spark, cluster, topic, startingOffsets=f"{end.ledger_id}:{end.entry_id + 1}"), lake, table)

    expected = [*first, *second, b"9999,1"]
    assert sorted(bytes(row["value"]) for row in spark.table(table).select("value").collect()) == sorted(expected)
    totals = spark.table(table).selectExpr("sum(id)", "sum(amount)", "count(at)").first()
    numbers = [tuple(map(int, value.split(b","))) for value in expected]
    assert totals is not None
    assert tuple(totals) == (sum(one for one, _ in numbers), sum(amount for _, amount in numbers), len(expected))
    [alone] = spark.table(table).where("properties IS NOT NULL").collect()
    assert alone["properties"] == {"source": "alone"}
    before = versions_of(spark, lake, table)[-2]
    assert spark.sql(f"SELECT * FROM {table} VERSION AS OF {before}").count() == len(first)


@BOTH
def test_changes_of_a_topic_are_merged_into_a_table_by_key(
    lake: str, spark: SparkSession, cluster: Server, chance: random.Random, tmp_path: Path
) -> None:
    topic = f"persistent://public/default/changes-{lake}"
    table = create(spark, lake, "changes", tmp_path / "table")
    fill(cluster.service_url, topic, entries(old := rows(chance, 0, 300)))
    append(read(spark, cluster, topic), lake, table)
    fill(cluster.service_url, f"{topic}-more", entries(new := rows(chance, 200, 300)))
    read(spark, cluster, f"{topic}-more").createOrReplaceTempView("more")
    spark.sql(
        f"MERGE INTO {table} t USING more s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    found = sorted(bytes(row["value"]) for row in spark.table(table).select("value").collect())
    assert found == sorted([*old[:200], *new])


@BOTH
def test_a_table_becomes_a_topic_and_a_repeated_write_adds_nothing(
    lake: str, spark: SparkSession, cluster: Server, chance: random.Random, tmp_path: Path
) -> None:
    topic = f"persistent://public/default/back-{lake}"
    fill(cluster.service_url, topic, entries(sent := rows(chance, 0, 1000)))
    table = create(spark, lake, "back", tmp_path / "table")
    append(read(spark, cluster, topic), lake, table)
    ordered = spark.table(table).repartition(2, "id").sortWithinPartitions("id").select("value")
    for _ in range(2):
        writer = ordered.write.format("magnetar").mode("append").option("service.url", cluster.service_url)
        once = {"effectivelyOnce": "true", "admin.url": cluster.web_url, "producer.name.prefix": f"from-{lake}"}
        writer.options(**once).option("topic", f"{topic}-out").save()
    assert sorted(values(options_for(cluster.service_url, f"{topic}-out"))) == sorted(sent)


def test_the_notebook_of_delta_brings_its_tables_up_to_date(
    lakes: Session, cluster: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "delta" not in served():
        pytest.skip(f"delta has no package for Spark {lakes.spark.version}")
    from magnetar.spark.ending import KEEPS_PLANS_FROM

    if (installed_spark() or KEEPS_PLANS_FROM) < KEEPS_PLANS_FROM:
        pytest.skip(f"Spark {lakes.spark.version} does not know where a read ended")
    monkeypatch.setenv("MAGNETAR_SERVICE_URL", cluster.service_url)
    monkeypatch.setenv("MAGNETAR_EXAMPLES", str(tmp_path))
    give_session(monkeypatch, lakes)
    assert printed("medallion") == [
        "6 3 2",
        "cellar: 1 readings, 9.00 degrees",
        "roof: 2 readings, 22.00 degrees",
        "8 4 2",
        "cellar: 2 readings, 12.00 degrees",
        "roof: 2 readings, 22.00 degrees",
    ]
