"""When the next run of a Spark function is due: decisions alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.config.cron import MINUTE_MS, read_cron
from magnetar.config.function_config import SPARK
from magnetar.spark.jobs.run_history import EndedRun
from magnetar.spark.jobs.triggers import (
    CHECK_MS,
    RETRY_MAX_MS,
    UNKNOWN,
    Past,
    Trigger,
    begins,
    cron_of,
    due_ms,
    past_of,
    retry_after_ms,
    trigger_of,
)

from tests.config.test_rules import registered

pytestmark = pytest.mark.spark
NOW_MS = 1_800_000_000_000
TRIGGERS = (
    Trigger(cron=read_cron("* * * * *")), Trigger(cron=read_cron("7 */3 * * *")), Trigger(entries=100),
    Trigger(interval_ms=1000), Trigger(interval_ms=3_600_000),
)  # fmt: skip


def simulate(trigger: Trigger, until_ms: int, took_ms: list[int], stages: list[str]) -> list[tuple[int, int]]:
    """Begin and end of the runs from `NOW_MS` on, of inputs that always hold something."""
    past, found, now_ms = Past(served_ms=NOW_MS), list[tuple[int, int]](), NOW_MS
    while now_ms < until_ms and len(found) < 200:
        now_ms = max(now_ms, due_ms(trigger, past))
        assert begins(trigger, past, 1_000_000)
        end_ms = now_ms + took_ms[len(found) % len(took_ms)]
        failures = past.failures + 1 if stages[len(found) % len(stages)] == "failed" else 0
        found.append((now_ms, end_ms))
        past = replace(past, served_ms=now_ms, started_ms=now_ms, ended_ms=end_ms, failures=failures)
        now_ms = end_ms
    return found


@given(
    st.sampled_from(TRIGGERS),
    st.lists(st.integers(1, 4 * 3_600_000), min_size=1, max_size=5),
    st.lists(st.sampled_from(["done", "failed"]), min_size=1, max_size=9),
)
def test_runs_never_overlap_nor_follow_each_other_hot(trigger: Trigger, took_ms: list[int], stages: list[str]) -> None:
    runs = simulate(trigger, NOW_MS + 24 * 3_600_000, took_ms, stages)
    assert runs
    for number, ((began, ended), (began_next, _)) in enumerate(pairwise(runs)):
        assert began_next >= ended
        has_failed = stages[number % len(stages)] == "failed"
        assert began_next - began >= (1000 if trigger.interval_ms else 1)
        if has_failed and trigger.cron is None:
            assert 2000 <= began_next - ended <= RETRY_MAX_MS


def test_a_cron_that_fails_is_retried_sooner_than_a_far_time_and_no_sooner_than_a_near_one_allows() -> None:
    daily = Trigger(cron=read_cron("0 0 * * *"))
    runs = simulate(daily, NOW_MS + 2 * 24 * 3_600_000, [1], ["failed"])
    pauses = [later[0] - run[1] for run, later in pairwise(runs)]
    assert pauses[:9] == [2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000, 512000]
    assert max(pauses) == RETRY_MAX_MS
    minutely = simulate(Trigger(cron=read_cron("* * * * *")), NOW_MS + 3_600_000, [1], ["failed"])
    assert len(minutely) <= 60 + 6


@given(st.integers(0, 10 * 365 * 24 * 60), st.sampled_from(TRIGGERS[:2]))
def test_times_that_were_missed_are_one_run_at_the_start(away_minutes: int, trigger: Trigger) -> None:
    assert trigger.cron is not None
    back_ms = NOW_MS + away_minutes * MINUTE_MS
    was_missed = trigger.cron.next_after(NOW_MS) <= back_ms
    before = Past(served_ms=NOW_MS)
    assert (due_ms(trigger, before) <= back_ms) == was_missed
    served = replace(before, served_ms=back_ms, started_ms=back_ms, ended_ms=back_ms + 1)
    assert due_ms(trigger, served) > back_ms


def test_a_run_that_takes_longer_than_the_interval_is_followed_at_once_and_a_short_one_at_the_interval() -> None:
    trigger = Trigger(interval_ms=10_000)
    assert due_ms(trigger, Past(started_ms=NOW_MS, ended_ms=NOW_MS + 12_000)) == NOW_MS + 12_000
    assert due_ms(trigger, Past(started_ms=NOW_MS, ended_ms=NOW_MS + 2_000)) == NOW_MS + 10_000
    assert due_ms(trigger, Past(looked_ms=NOW_MS)) == NOW_MS + 10_000
    assert not begins(trigger, Past(), 0)
    assert begins(trigger, Past(), 1)
    assert begins(trigger, Past(), UNKNOWN)


def test_a_backlog_begins_a_run_from_its_number_on_and_is_looked_at_now_and_then() -> None:
    trigger = Trigger(entries=100)
    assert [begins(trigger, Past(), backlog) for backlog in (UNKNOWN, 0, 99, 100, 10_000)] == [False] * 3 + [True] * 2
    assert due_ms(trigger, Past()) == CHECK_MS  # long ago
    assert due_ms(trigger, Past(looked_ms=NOW_MS)) == NOW_MS + CHECK_MS
    failed = Past(started_ms=NOW_MS, ended_ms=NOW_MS, failures=3)
    assert due_ms(trigger, failed) == NOW_MS + 8000
    assert begins(trigger, failed, 1)  # what it planned is to be finished, however little that is


def test_failures_are_counted_from_the_latest_run_back() -> None:
    def run(stage: str, number: int) -> EndedRun:
        return EndedRun(run_id=str(number), stage=stage, started_ms=number, ended_ms=number + 1)

    runs = [run("failed", 9), run("failed", 8), run("done", 7), run("failed", 6)]
    assert past_of(runs, 5, 4) == Past(served_ms=5, started_ms=9, ended_ms=10, failures=2, looked_ms=4)
    assert past_of([run("cancelled", 9), *runs], 0, 0).failures == 0
    assert past_of([], 0, 0) == Past()
    assert retry_after_ms(1) == 2000
    assert retry_after_ms(10_000) == RETRY_MAX_MS


@pytest.mark.parametrize(
    ("fields", "trigger"),
    [
        ({"cron": "7 */3 * * *"}, TRIGGERS[1]),
        ({"backlogTrigger": 100}, TRIGGERS[2]),
        ({"continuousIntervalMs": 1000}, TRIGGERS[3]),
        ({"cron": "", "backlogTrigger": 0, "continuousIntervalMs": 0}, None),
        ({}, None),
    ],
)
def test_the_record_of_a_function_tells_its_trigger(fields: dict[str, object], trigger: Trigger | None) -> None:
    from magnetar.config.conversion import to_details

    details = to_details(registered(runtimeEnv=SPARK, **fields))
    assert trigger_of(details) == trigger
    assert cron_of(details) == fields.get("cron", "")
