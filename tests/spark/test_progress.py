"""What a run shows while it goes on: tasks, rows, and what the function records."""

from __future__ import annotations

from pathlib import Path

import pytest
from magnetar.spark.jobs.progress import RunProgress

from tests.spark.functions import Lab, Running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
START_S = 250.0
END_S = 250.0
ENTRIES = 40
ROWS = 400
TASKS = 8

# The task that has the row "399", one of the last two, waits for the gate.
GATED = """
import pathlib, time
GATE = pathlib.Path({gate!r})

def process(df):
    def through(batches):
        for batch in batches:
            if b"399" in batch.column(0).to_pylist():
                while not GATE.exists():
                    time.sleep(0.01)
            yield batch
    return df.select("value").mapInArrow(through, "value BINARY").distinct()
"""
RECORDS = """
def process(value, context):
    context.record_metric("length", len(str(value)))
    if str(value).endswith("7"):
        context.record_metric("sevens", 1)
    return None
"""


def entries() -> list[list[bytes]]:
    size = ROWS // ENTRIES
    return [[b"%d" % number for number in range(first, first + size)] for first in range(0, ROWS, size)]


def test_a_frame_shows_its_tasks_and_rows_while_it_runs(lab: Lab, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    function = lab.function(GATED.format(gate=str(gate)), minimum=TASKS)
    lab.fill(entries())

    def shown() -> RunProgress | None:
        last = lab.reports[-1] if lab.reports else None
        return last if last is not None and last.tasks_done == TASKS - 1 else None

    with Running(lab, function) as running:
        try:
            progress = wait_for(shown, "all tasks but one", START_S)
            assert progress.stage == "running"
            # Spark may have heard already what the waiting task has read.
            assert ROWS - ROWS // TASKS <= progress.rows <= ROWS
            assert progress.rows_per_s > 0
            assert progress.tasks_total > TASKS  # those of the shuffle too
        finally:
            gate.touch()
        end = running.end(END_S)
    assert (end.stage, end.rows, end.tasks_done) == ("done", ROWS, end.tasks_total), end.error
    # A second run of the same session counts from its own beginning.
    lab.fill([[b"more"]])
    end = lab.run(function, "next")
    assert (end.stage, end.rows) == ("done", 1), end.error
    assert end.tasks_total < progress.tasks_total


def test_rows_of_a_frame_that_is_read_in_part_are_those_that_were_read(lab: Lab) -> None:
    function = lab.function("def process(df):\n    return df.select('value').limit(3)\n", minimum=TASKS)
    lab.fill(entries())
    end = lab.run(function)
    assert end.stage == "done", end.error
    assert 3 <= end.rows < ROWS
    assert len(lab.outputs()) == 3


def test_what_a_message_function_records_is_added_up_over_its_tasks(lab: Lab) -> None:
    function = lab.function(RECORDS, minimum=TASKS, output="")
    lab.fill(entries())
    end = lab.run(function)
    assert end.stage == "done", end.error
    assert end.metrics == {"length": (10 + 2 * 90 + 3 * 300, ROWS), "sevens": (ROWS / 10, ROWS // 10)}
