"""The page about Spark: its commands and programs run in order, and the functions that it defines do what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from magnetar.client.blocking.client import Client

from tests.support.doc_blocks import ROOT, blocks_of
from tests.support.doc_reader import Reader, is_client
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]
PAGE = ROOT / "docs" / "spark.md"
CONFIG = "sparkMaster: local[2]\nsparkDriverMemory: 512m\n"
CALLED = {"take_what_is_new", "large_purchases", "bronze", "totals", "write"}
"""The functions that the page defines, all of which are called below."""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    directory = tmp_path_factory.mktemp("page")
    config = directory / "functions_worker.yml"
    config.write_text(CONFIG)
    with Reader(directory / "reader", "--config", str(config)) as it:
        it.read(PAGE)
        yield it


@pytest.fixture(scope="module")
def defined(reader: Reader) -> dict[str, Callable[..., Any]]:
    """The functions of the page that name a server."""
    names: dict[str, Any] = {}
    for block in blocks_of(PAGE):
        if is_client(block) and not block.not_run and "open_session" not in block.code:
            exec(compile(reader.localized(block.code), block.where, "exec"), names)
    return {name: value for name, value in names.items() if getattr(value, "__module__", "") == "builtins"}


def contents(reader: Reader, topic: str, count: int) -> list[bytes]:
    """Return the first messages of a topic."""
    from magnetar.client import EARLIEST

    with Client(reader.service_url) as client:
        messages = client.create_reader(topic, EARLIEST)
        return [messages.read_next(timeout_millis=60_000).data for _ in range(count)]


def test_every_function_of_the_page_is_called(defined: dict[str, Callable[..., Any]]) -> None:
    assert {name for name in defined if not name.startswith("_")} == CALLED


def test_program_of_the_page_counts_by_customer(reader: Reader) -> None:
    assert sorted(contents(reader, "totals", 2)) == [b'{"count":1}', b'{"count":2}']


def test_function_and_sql_of_the_page_give_outputs(reader: Reader) -> None:
    assert sorted(contents(reader, "shouts", 2)) == [b"hello!", b"world!"]
    assert contents(reader, "by-city", 1) == [b'{"city":"Paris","n":2}']


def test_what_is_new_is_taken_once(defined: dict[str, Callable[..., Any]], spark: SparkSession, tmp_path: Path) -> None:
    take = defined["take_what_is_new"]
    after = take(spark, "earliest", str(tmp_path / "orders"))
    take(spark, after, str(tmp_path / "orders"))
    assert spark.read.parquet(str(tmp_path / "orders")).count() == 3


def test_columns_of_the_schema_are_filtered(
    reader: Reader, defined: dict[str, Callable[..., Any]], spark: SparkSession
) -> None:
    writes = next(block for block in blocks_of(ROOT / "docs" / "client.md") if '"purchases"' in block.code)
    exec(compile(reader.localized(writes.code), writes.where, "exec"), {"__name__": "purchases"})
    defined["large_purchases"](spark)
    assert len(contents(reader, "large-purchases", 1)) == 1


def test_stream_writes_files(defined: dict[str, Callable[..., Any]], spark: SparkSession, tmp_path: Path) -> None:
    query = defined["bronze"](spark, str(tmp_path))
    assert query.awaitTermination(300)
    assert spark.read.parquet(str(tmp_path / "bronze")).count() == 3


def test_stream_writes_a_topic(
    reader: Reader, defined: dict[str, Callable[..., Any]], spark: SparkSession, tmp_path: Path
) -> None:
    query = defined["totals"](spark, str(tmp_path))
    try:
        wait_for(lambda: query.lastProgress, "first progress of the query", 300)
        with Client(reader.service_url) as client:
            client.create_producer("orders").send(b"juice")
        assert contents(reader, "totals", 3)[-1] == b"JUICE"
    finally:
        query.stop()


def test_batch_is_written_once_under_its_number(
    reader: Reader, defined: dict[str, Callable[..., Any]], spark: SparkSession
) -> None:
    rows = spark.createDataFrame([("ada", b"1"), ("bob", b"2")], ["__key", "value"])
    for _ in range(2):
        defined["write"](rows, 7)
