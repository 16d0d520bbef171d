"""What a worker knows of a run: rows and the function's own metrics are counted once, however often a run begins."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from magnetar.instance.stats import InstanceStats
from magnetar.runtime.spark.instance import Run
from magnetar.spark.jobs.progress import RunProgress, Stage, add_metrics

pytestmark = pytest.mark.spark


def progress(stage: Stage = "running", rows: int = 0, **metrics: tuple[float, int]) -> RunProgress:
    sent = asdict(RunProgress(run_id="r", stage=stage, rows=rows, metrics=metrics))
    return RunProgress(**json.loads(json.dumps(sent)))  # as it comes from the host


def test_metrics_of_tasks_are_added_up() -> None:
    parts = [{"a": (1.5, 2)}, {}, {"a": (-1.0, 1), "b": (4.0, 4)}]
    assert add_metrics(parts) == {"a": (0.5, 3), "b": (4.0, 4)}


def test_what_a_function_records_is_in_its_statistics_once() -> None:
    stats = InstanceStats(0)
    run = Run(RunProgress(run_id="r", stage="planning"))
    run.take(progress(rows=10, size=(100.0, 10)), stats)
    run.take(progress(rows=20, size=(180.0, 20), late=(1.0, 1)), stats)
    # The host died, and the run begins again: what was counted is not counted again.
    run.take(progress(), stats)
    run.take(progress(rows=10, size=(100.0, 10)), stats)
    run.take(progress("done", rows=30, size=(270.0, 30), late=(1.0, 1)), stats)
    assert stats.user_metrics() == {
        "user_metric_size_sum": 270.0, "user_metric_size_count": 30.0,
        "user_metric_late_sum": 1.0, "user_metric_late_count": 1.0,
    }  # fmt: skip
    assert stats.total.received == 30
    second = Run(RunProgress(run_id="r2", stage="planning"))
    second.take(RunProgress(run_id="r2", stage="done", rows=1, metrics={"size": (5.0, 1)}), stats)
    assert stats.metrics().userMetrics["user_metric_size_sum"] == 275.0


def test_a_run_that_is_cancelled_keeps_what_was_counted() -> None:
    stats = InstanceStats(0)
    run = Run(RunProgress(run_id="r", stage="planning"))
    run.take(progress(rows=10, size=(100.0, 10)), stats)
    run.cancel(stats)
    assert (run.progress.stage, run.progress.rows) == ("cancelled", 10)
    assert stats.user_metrics()["user_metric_size_count"] == 10.0
