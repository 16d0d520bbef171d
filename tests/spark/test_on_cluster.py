"""Tests of other files once more, on a standalone Spark cluster with the pip-installed Java.

`make test-spark` runs a seeded sample of them, `make test-spark-all` all.
"""

from __future__ import annotations

import pytest

from tests.spark.spark_cluster import ON_CLUSTER
from tests.spark.test_function_requirements import (  # noqa: F401
    libraries,
    test_a_dataframe_function_finds_them_in_the_driver_and_in_what_spark_calls,
)
from tests.spark.test_function_run import (  # noqa: F401  collected here once more
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
    test_a_driver_that_was_killed_is_run_again_without_repetition,
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

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.elsewhere,
    pytest.mark.timeout(600),
    ON_CLUSTER,
]
