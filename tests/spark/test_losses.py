"""Entries and topics that vanish while tasks run: each is told, none is made up, nothing hangs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from magnetar.spark.jobs.function_run import SparkFunction
from magnetar.spark.jobs.progress import RunProgress
from magnetar.spark.source.connection import ask
from magnetar.wire.functions_pb2 import ConsumerSpec
from magnetar.wire.topic_name import parse_topic_name

from tests.spark.functions import Lab, Running
from tests.spark.topics import fill, numbered
from tests.support.pulsar import own_name
from tests.support.servers import Server
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
END_S = 250.0
"""Far more than it takes: Spark's four attempts are slow on a busy machine."""
ENTRIES = 80
TASKS = 8
"""On two cores: some begin after what happens in the middle."""

WAIT = """
import pathlib, time
GATE = pathlib.Path({gate!r})

def wait():
    (GATE / "begun").touch()
    deadline = time.monotonic() + 200
    while not (GATE / "open").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
"""
MESSAGES = (
    WAIT
    + """
def process(value):
    wait()
    return f"{{value}}!"
"""
)
FRAME = (
    WAIT
    + """
def process(df):
    def through(batches):
        for batch in batches:
            wait()
            yield batch
    return df.select("value").mapInArrow(through, "value BINARY")
"""
)


class Gate:
    """Tasks that have begun wait until it opens."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def code(self, text: str) -> str:
        return text.format(gate=str(self._directory))

    def await_task(self) -> None:
        wait_for((self._directory / "begun").exists, "a task", END_S)

    def open(self) -> None:
        (self._directory / "open").touch()


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def topic_exists(cluster: Server, topic: str) -> bool:
    found = ask(cluster.web_url, "GET", "/admin/v2/persistent/public/default")
    return any(name.endswith(f"/{topic}") for name in found)


def entries(prefix: str = "") -> list[list[bytes]]:
    return [[f"{prefix}{number}".encode()] for number in range(ENTRIES)]


def end_after(lab: Lab, gate: Gate, function: SparkFunction, change: Callable[[], object]) -> RunProgress:
    """Change something while the tasks of a run wait at the gate, open it, and return how the run ended."""
    with Running(lab, function) as running:
        gate.await_task()
        change()
        gate.open()
        return running.end(END_S)


@pytest.mark.parametrize("code", [MESSAGES, FRAME], ids=["messages", "frame"])
def test_a_topic_that_is_deleted_under_running_tasks_fails_the_run_and_is_not_made_anew(
    lab: Lab, cluster: Server, gate: Gate, code: str
) -> None:
    function = lab.function(gate.code(code), minimum=TASKS)
    lab.fill(entries())
    end = end_after(lab, gate, function, lambda: lab.delete(lab.input))
    assert end.stage == "failed", end
    assert not end.is_user_error
    assert "the topic no longer exists" in end.error
    assert "entries are lost; use functions reset-cursor" in end.error
    assert not topic_exists(cluster, lab.input)
    assert len(set(lab.outputs())) == len(lab.outputs()) < ENTRIES


@pytest.mark.parametrize("code", [MESSAGES, FRAME], ids=["messages", "frame"])
def test_a_topic_that_is_deleted_when_all_of_it_was_read_does_no_harm(
    lab: Lab, cluster: Server, gate: Gate, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    function = lab.function(gate.code(code), minimum=1)
    lab.fill(entries())
    end = end_after(lab, gate, function, lambda: lab.delete(lab.input))
    assert (end.stage, end.rows) == ("done", ENTRIES), end.error
    assert len(lab.outputs()) == ENTRIES
    assert not topic_exists(cluster, lab.input)
    assert "was deleted after this run had read" in caplog.text
    lab.fill([[b"new"]])
    end = lab.run(lab.function("def process(value):\n    return 'next'\n"), "next")
    assert (end.stage, end.rows) == ("done", 1), end.error
    assert b"next" in lab.outputs()


@pytest.mark.parametrize("code", [MESSAGES, FRAME], ids=["messages", "frame"])
def test_entries_that_are_trimmed_before_their_task_begins_fail_the_run(
    lab: Lab, cluster: Server, gate: Gate, code: str
) -> None:
    """Two inputs: the tasks of the first hold the cores while the second is emptied."""
    inputs = {f"a-{lab.input}": ConsumerSpec(), f"b-{lab.input}": ConsumerSpec()}
    function = lab.function(gate.code(code), minimum=TASKS, inputs=inputs)
    second = [parse_topic_name(one.topic).local for one in function.subscriptions()][1]
    for topic in inputs:
        fill(lab.service_url, topic, entries())
    truncate = f"/admin/v2/persistent/public/default/{second}/truncate"
    end = end_after(lab, gate, function, lambda: ask(cluster.web_url, "DELETE", truncate))
    assert (end.stage, end.is_user_error) == ("failed", False)
    assert f"{second}" in end.error
    assert "the topic holds nothing, but" in end.error
    assert "functions reset-cursor" in end.error
    end = lab.run(function, "next")
    assert (end.stage, end.tasks_done) == ("failed", 0)
    assert "no longer all exist: the topic holds nothing" in end.error


def test_an_output_topic_that_is_deleted_in_the_middle_fails_the_run(lab: Lab, gate: Gate) -> None:
    function = lab.function(gate.code(MESSAGES), minimum=TASKS)
    lab.fill(entries())
    end = end_after(lab, gate, function, lambda: lab.delete(lab.output))
    assert (end.stage, end.is_user_error) == ("failed", False), end
    assert "deduplication of" in end.error
    assert "possibly because the topic was deleted" in end.error


class Reading:
    """An action on a DataFrame in a thread, whose tasks wait at the gate."""

    def __init__(self, spark: SparkSession, gate: Gate, service_url: str, topic: str, **options: str) -> None:
        directory = str(gate._directory)

        def through(batches):  # type: ignore[no-untyped-def]
            import pathlib
            import time

            here = pathlib.Path(directory)
            for batch in batches:
                (here / "begun").touch()
                deadline = time.monotonic() + 200
                while not (here / "open").exists() and time.monotonic() < deadline:
                    time.sleep(0.01)
                yield batch

        reader = spark.read.format("magnetar").option("service.url", service_url).options(**options)
        frame: DataFrame = reader.option("minPartitions", str(TASKS)).load(topic).select("value")
        frame = frame.mapInArrow(through, "value BINARY")
        self.rows: list[bytes] = []
        self.error = ""
        self._thread = threading.Thread(target=self._collect, args=(frame.collect,))
        self._thread.start()

    def _collect(self, collect: Callable[[], list]) -> None:  # type: ignore[type-arg]
        try:
            self.rows = [bytes(row.value) for row in collect()]
        except Exception as error:  # noqa: BLE001  the test looks at it
            self.error = str(error)

    def end(self) -> None:
        self._thread.join(END_S)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("how", ["delete", "truncate"])
@pytest.mark.parametrize("is_strict", [True, False], ids=["strict", "lenient"])
def test_a_read_loses_its_topic_in_the_middle(
    spark: SparkSession, cluster: Server, gate: Gate, how: str, is_strict: bool
) -> None:
    topic = own_name("read")
    fill(cluster.service_url, topic, entries())
    reading = Reading(spark, gate, cluster.service_url, topic, failOnDataLoss=json.dumps(is_strict))
    gate.await_task()
    path = f"/admin/v2/persistent/public/default/{topic}"
    ask(cluster.web_url, "DELETE", f"{path}?force=true" if how == "delete" else f"{path}/truncate")
    gate.open()
    reading.end()
    if is_strict:
        why = "the topic no longer exists" if how == "delete" else "the topic holds nothing, but"
        assert why in reading.error
        assert "entries are lost; set failOnDataLoss=false to continue with the remaining data" in reading.error
    else:
        assert reading.error == ""
        assert 0 < len(set(reading.rows)) == len(reading.rows) < ENTRIES
        assert set(reading.rows) < set(numbered(ENTRIES))
    assert topic_exists(cluster, topic) == (how == "truncate")
