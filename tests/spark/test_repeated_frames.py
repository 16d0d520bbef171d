"""Frames of DataFrame functions that are made again: the same rows lie in the same partitions in the same order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from magnetar.spark.jobs.dataframe_run import repeatable
from magnetar.spark.jobs.planned_source import PlannedSource, activate, options_of
from magnetar.spark.jobs.plans import make_tasks
from magnetar.spark.session import Session

from tests.spark.conftest import SmallLedgers
from tests.spark.topics import fill, numbered, options_for, planned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
ROWS = 20_000
PARTITIONS = 4


@pytest.fixture(scope="module")
def source(session: Session, broker: SmallLedgers) -> Callable[[], DataFrame]:
    """Returns the backlog of a plan, each time anew."""
    topic = broker.topic()
    rows = numbered(ROWS)
    fill(broker.service_url, topic, [rows[start : start + 100] for start in range(0, ROWS, 100)])
    tasks = make_tasks(planned(options_for(broker.service_url, topic)), cores=2, min_tasks=None, is_ordered=False)
    spark = session.spark
    activate(spark)
    spark.dataSource.register(PlannedSource)
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    return lambda: spark.read.format("magnetar-plan").options(**options_of([topic], tasks, broker.service_url)).load()


def layout(frame: DataFrame) -> list[str]:
    """A fingerprint of each partition's rows."""

    def fingerprint(_: int, rows: Iterable[Any]) -> Iterator[str]:
        yield sha256(repr([tuple(row) for row in rows]).encode()).hexdigest()

    return list(frame.rdd.mapPartitionsWithIndex(fingerprint).collect())


def exploded(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("value", "map('n', int(cast(value as string)) % 7) AS __messageProperties")


SHUFFLED: dict[str, Callable[[DataFrame], DataFrame]] = {
    "sorted": lambda frame: frame.select("value").orderBy("value"),
    "grouped": lambda frame: frame.groupBy((frame.value.cast("string") % 5000).alias("n")).count(),
    "of an RDD": lambda frame: frame.select("value").rdd.sortBy(lambda row: row.value[::-1]).toDF("value BINARY"),
    "spread with a map": lambda frame: exploded(frame).repartition(3),
}


@pytest.mark.parametrize("kind", SHUFFLED)
def test_rows_out_of_a_shuffle_lie_where_their_content_says(
    source: Callable[[], DataFrame], session: Session, kind: str
) -> None:
    make = SHUFFLED[kind]
    first = repeatable(make(source()), PARTITIONS)
    expected = layout(first)
    session.spark.sparkContext.parallelize([1]).count()  # numbers of RDDs are what sampling takes its chances from
    again = repeatable(make(source()), PARTITIONS)
    assert layout(again) == expected
    assert len(expected) == PARTITIONS
    key = "n" if kind == "grouped" else "value"
    rows = Counter(row[0] for row in make(source()).select(key).collect())
    assert Counter(row[0] for row in again.select(key).collect()) == rows


def test_rows_as_they_were_read_stay_where_they_are(source: Callable[[], DataFrame]) -> None:
    frame = source().select("value").where("length(value) > 3")
    assert repeatable(frame, PARTITIONS) is frame


def test_a_few_rows_of_many_are_sorted(source: Callable[[], DataFrame]) -> None:
    frame = source().select("value").orderBy("value").limit(100)
    values = [row.value for row in repeatable(frame, PARTITIONS).collect()]
    assert sorted(values) == sorted(numbered(ROWS))[:100]
    assert repeatable(frame, PARTITIONS) is not frame
    coalesced = source().select("value").coalesce(1)  # the number may be one of cores, which another driver has not
    assert repeatable(coalesced, PARTITIONS) is not coalesced
