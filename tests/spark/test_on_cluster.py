"""The same on a standalone Spark cluster with the pip-installed Java: functions, frames, and executors that die."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.functions import Lab, Running
from tests.spark.spark_cluster import ON_CLUSTER, Master
from tests.spark.test_function_requirements import (  # noqa: F401
    libraries,
    test_a_dataframe_function_finds_them_in_the_driver_and_in_what_spark_calls,
)
from tests.spark.test_function_run import (  # noqa: F401  collected here once more
    SLOW,
    batches,
    test_a_driver_that_died_before_it_moved_the_subscription_leaves_that_to_the_next_run,
    test_a_killed_python_worker_costs_nothing,
    test_a_package_does_what_it_does_in_a_process,
    test_a_poison_message_fails_the_run_and_the_repaired_function_finishes_its_plan,
    test_a_run_is_cancelled_within_a_second_and_its_plan_finished_by_the_next,
    test_a_run_works_off_the_backlog_once,
    test_a_second_driver_takes_the_plan_over_and_the_first_one_stops,
    test_a_topic_that_is_deleted_before_its_plan_is_finished_fails_the_run_until_a_reset,
    test_partitions_keep_their_order_where_it_is_asked_for,
    test_the_package_goes_to_where_the_tasks_are,
    test_what_a_task_cannot_do_exactly_once_is_refused,
)
from tests.spark.test_function_run_dataframe import (  # noqa: F401
    test_a_function_in_the_middle_of_a_job_is_cancelled,
    test_a_returned_frame_is_written_once_as_json_where_it_has_no_value,
    test_a_run_that_failed_in_the_middle_of_writing_is_repeated_without_repetition,
    test_the_example_aggregates_by_day,
    test_what_the_function_does_wrong_is_said,
)
from tests.spark.test_kills import (  # noqa: F401
    ROWS,
    Driver,
    test_a_driver_that_was_killed_is_run_again_without_repetition,
    wait_for_rows,
)
from tests.spark.test_losses import (  # noqa: F401
    gate,
    test_a_topic_that_is_deleted_under_running_tasks_fails_the_run_and_is_not_made_anew,
    test_a_topic_that_is_deleted_when_all_of_it_was_read_does_no_harm,
    test_an_output_topic_that_is_deleted_in_the_middle_fails_the_run,
    test_entries_that_are_trimmed_before_their_task_begins_fail_the_run,
)
from tests.spark.test_progress import (  # noqa: F401
    test_a_frame_shows_its_tasks_and_rows_while_it_runs,
    test_what_a_message_function_records_is_added_up_over_its_tasks,
)
from tests.spark.test_stop import test_tasks_that_hang_end_within_a_second  # noqa: F401
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
