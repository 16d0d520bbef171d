"""What Spark shows of an error begins with the line that says what to do."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from magnetar.errors import ConnectionLost, DataLoss, MagnetarError, RequestRefused
from magnetar.spark.source.first_line import told_first

from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def shown(function: Callable[[], Any]) -> list[str]:
    """The lines that a Python worker sends of what a function raises."""
    try:
        function()
    except (MagnetarError, ArithmeticError) as error:
        return "".join(traceback.TracebackException(type(error), error, error.__traceback__).format()).splitlines()
    raise AssertionError("nothing was raised")


@told_first
def refuse() -> None:
    try:
        raise OSError("closed")
    except OSError as error:
        raise ConnectionLost("the broker is away; start it") from error


def test_the_line_comes_before_what_caused_the_error_and_the_error_itself() -> None:
    lines = shown(refuse)
    line = "magnetar.errors.ConnectionLost: the broker is away; start it"
    assert (lines[0], lines[-1]) == (line, line)
    assert "OSError: closed" in lines
    assert lines.count(line) == 2


def test_an_error_passes_several_functions_and_is_told_once() -> None:
    assert shown(told_first(refuse)).count("magnetar.errors.ConnectionLost: the broker is away; start it") == 2


def test_errors_of_what_a_function_yields_are_told_so_too() -> None:
    @told_first
    def rows() -> Iterator[int]:
        yield 1
        raise DataLoss("2 entries are gone")

    assert shown(lambda: list(rows()))[0] == "magnetar.errors.DataLoss: 2 entries are gone"


def test_an_error_with_arguments_of_its_own_is_told() -> None:
    @told_first
    def ask() -> None:
        raise RequestRefused(404, "GET /x answered 404")

    assert shown(ask)[0].endswith("RequestRefused: GET /x answered 404")


def test_an_error_of_others_stays_as_it_is() -> None:
    @told_first
    def divide() -> None:
        1 / 0  # noqa: B018

    assert shown(divide)[0] == "Traceback (most recent call last):"


def test_a_worker_is_told_not_to_leave_causes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", "1")
    shown(refuse)
    assert "SPARK_SIMPLIFIED_TRACEBACK" not in os.environ


WRONG: dict[str, tuple[Callable[[Any, str], Any], str]] = {
    "an unknown option": (
        lambda spark, url: read(spark, url, topik="x").load("in").count(),
        r"InvalidConfig: option 'topik' is unknown; did you mean topic\?",
    ),
    "no such topic": (
        lambda spark, url: read(spark, url).load("nowhere").count(),
        "TopicNotFound: .*public/default/nowhere: .* does not exist",
    ),
    "no broker": (
        lambda spark, _: read(spark, "pulsar://127.0.0.1:1").load("in").count(),
        r"ConnectionLost: cannot connect to 127\.0\.0\.1:1: .*; is the broker running\?",
    ),
    "another URL": (
        lambda spark, _: read(spark, "http://127.0.0.1:1").load("in").count(),
        "InvalidConfig: invalid service URL 'http://127.0.0.1:1': unsupported scheme http: expected pulsar://",
    ),
    "columns of its own": (
        lambda spark, url: read(spark, url).schema("a INT").load("in").count(),
        "InvalidConfig: the columns of a topic are fixed: .*",
    ),
    "a column that no message has": (
        lambda spark, url: write(spark.range(3), url).save("out"),
        "InvalidConfig: the DataFrame has no column value, only id: add the column, for example with .*",
    ),
    "a topic that is overwritten": (
        lambda spark, url: write(spark.sql("SELECT 'a' AS value"), url).mode("overwrite").save("out"),
        r"InvalidConfig: topics cannot be overwritten: use \.mode\('append'\)",
    ),
    "a row without topic, in a task": (
        lambda spark, url: write(spark.sql("SELECT 'a' AS value, cast(null AS string) AS __topic"), url).save(),
        "InvalidConfig: no __topic in row 0 of task 0: set it, or set option topic",
    ),
    "a stream of no topic": (
        lambda spark, url: run(spark, url, "nowhere"),
        "TopicNotFound: .*public/default/nowhere: .* does not exist",
    ),
    "a stream option that is not one": (
        lambda spark, url: run(spark, url, "in", maxOffsetPerTrigger="1"),
        r"InvalidConfig: option '(?i:maxOffsetPerTrigger)' is unknown; did you mean maxOffsetsPerTrigger\?",
    ),
}


def read(spark: SparkSession, url: str, **options: str) -> Any:
    return spark.read.format("magnetar").option("service.url", url).options(**options)


def write(frame: Any, url: str) -> Any:
    return frame.write.format("magnetar").mode("append").option("service.url", url)


def run(spark: SparkSession, url: str, topic: str, **options: str) -> None:
    rows = spark.readStream.format("magnetar").option("service.url", url).options(**options).load(topic)
    rows.writeStream.format("noop").start().awaitTermination(60)


@pytest.mark.spark
@pytest.mark.slow
def test_the_first_line_of_what_spark_shows_says_what_to_do(spark: SparkSession, cluster: Server) -> None:
    from pyspark.errors import PySparkException

    for what, (do, expected) in WRONG.items():
        with pytest.raises(PySparkException) as error:
            do(spark, cluster.service_url)
        lines = str(error.value).splitlines()
        # Spark says in the same line what it was doing; of a task in one before it.
        first = next(line for line in lines if line and "thrown from the Python worker" not in line)
        assert re.search(f"(^|: )magnetar\\.errors\\.{expected}", first), (what, lines[:5])
