"""Executors of a standalone Spark cluster that die: functions and writes lose and repeat nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.functions import Lab, Running
from tests.spark.spark_cluster import ON_CLUSTER, Master
from tests.spark.test_function_run import SLOW, batches
from tests.spark.test_kills import ROWS, Driver, wait_for_rows
from tests.spark.topics import numbered, options_for, values
from tests.support.servers import running
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600), ON_CLUSTER]


def test_a_killed_executor_costs_nothing(lab: Lab, master: Master) -> None:
    function = lab.function(SLOW.format(pause=0.003), minimum=6)
    lab.fill(batches(60, 20))
    with Running(lab, function) as run:
        wait_for(lambda: lab.reports and lab.reports[-1].tasks_done >= 1, "a task", 120)
        [victim, *_] = master.executors()
        victim.kill()
        end = run.end(200)
    assert end.stage == "done", end.error
    assert end.rows == 1200
    assert sorted(lab.outputs()) == sorted(value + b"!" for value in numbered(1200))


def test_a_write_whose_executor_is_killed_repeats_nothing(master: Master, tmp_path: Path) -> None:
    with running("broker", tmp_path / "broker") as broker:
        driver = Driver(tmp_path / "spark", broker, master)
        try:
            wait_for_rows(broker, driver, ROWS // 10)
            [victim, *_] = master.executors()
            victim.kill()
            driver.wait()
        finally:
            driver.kill()
        assert sorted(map(int, values(options_for(broker.service_url, "out")))) == list(range(ROWS))
