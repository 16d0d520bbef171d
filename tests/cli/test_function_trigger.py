"""Runs of Spark functions from the command line: what is asked, and what a person, a pipe and a program are shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from magnetar.cli.functions import trigger as function_trigger
from magnetar.cli.functions.functions import status_table

from tests.cli.conftest import FakeRest, Magnetar

FUNCTION = "/admin/v3/functions/public/default/f"
TRIGGER = ("functions", "trigger", "--name", "f")


def run_at(stage: str, **fields: Any) -> dict[str, Any]:
    run = {
        "runId": "r1", "stage": stage, "tasksDone": 0, "tasksTotal": 0, "rows": 0, "rowsPerSecond": 0.0, "lag": None,
        "reason": "", "error": "", "startedMs": 1_000, "endedMs": 0,
    }  # fmt: skip
    return {"running": True, "error": "", "run": {**run, **fields}}


DONE = run_at("done", tasksDone=8, tasksTotal=8, rows=80_000, rowsPerSecond=20_000.0, endedMs=5_000)
COURSE = [
    {"running": True, "error": ""},
    run_at("planning"),
    run_at("running", tasksTotal=8, reason="no executors: all are busy"),
    run_at("running", tasksDone=2, tasksTotal=8, rows=20_000, rowsPerSecond=19_876.4),
    run_at("committing", tasksDone=8, tasksTotal=8, rows=80_000, rowsPerSecond=20_000.0),
    DONE,
]


@pytest.fixture
def spark_function(rest: FakeRest, monkeypatch: pytest.MonkeyPatch) -> FakeRest:
    monkeypatch.setattr(function_trigger, "POLL_S", 0.001)
    rest.answer(f"GET {FUNCTION}", {"name": "f", "runtimeEnv": "spark"})
    rest.answer(f"POST {FUNCTION}/trigger", {"runId": "r1"})
    rest.answer_in_turn(f"GET {FUNCTION}/0/status", COURSE)
    return rest


def test_a_run_is_followed_to_its_end_line_by_line_in_a_pipe(magnetar: Magnetar, spark_function: FakeRest) -> None:
    result = magnetar(*TRIGGER)
    assert result.code == 0, result.err
    assert result.out.splitlines() == [
        "run r1: planning",
        "run r1: running, 0 of 8 tasks, 0 rows; no executors: all are busy",
        "run r1: running, 2 of 8 tasks, 20,000 rows, 19,876 rows/s",
        "run r1: committing, 8 of 8 tasks, 80,000 rows, 20,000 rows/s",
        "run r1 is done: 80,000 rows, 8 tasks, 4.0 s",
    ]
    posted = next(request for request in spark_function.requests if request.method == "POST")
    assert (posted.query, posted.body) == ({"noWait": "true"}, b"")


def test_a_run_with_nothing_to_do_says_so(magnetar: Magnetar, spark_function: FakeRest) -> None:
    spark_function.answer_in_turn(f"GET {FUNCTION}/0/status", [*COURSE[:2], run_at("done", endedMs=1_200)])
    result = magnetar(*TRIGGER)
    assert result.code == 0, result.err
    assert result.out.splitlines()[-1] == "run r1 is done: all inputs were already processed"


def test_a_program_gets_nothing_but_the_record_of_the_run(magnetar: Magnetar, spark_function: FakeRest) -> None:
    assert json.loads(magnetar(*TRIGGER, "-o", "json").out) == DONE["run"]


def test_a_run_that_is_not_waited_for_is_named(magnetar: Magnetar, spark_function: FakeRest) -> None:
    assert magnetar(*TRIGGER, "--no-wait").out == "r1\n"
    assert json.loads(magnetar(*TRIGGER, "--no-wait", "-o", "json").out) == {"runId": "r1"}
    assert not any(request.path.endswith("status") for request in spark_function.requests)


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (
            run_at("failed", reason="ValueError: 7", error="Traceback:\nValueError: 7"),
            "run r1 failed: ValueError: 7; see functions logs",
        ),
        (run_at("cancelled"), "run r1 was cancelled"),
    ],
)
def test_a_run_that_ends_badly_is_an_error(
    magnetar: Magnetar, spark_function: FakeRest, end: dict[str, Any], message: str
) -> None:
    spark_function.answer_in_turn(f"GET {FUNCTION}/0/status", [*COURSE[:2], end])
    result = magnetar(*TRIGGER)
    assert result.code != 0
    assert message in result.err


def test_a_run_that_nobody_knows_any_more_is_given_up(
    magnetar: Magnetar, spark_function: FakeRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_trigger, "LOST_AFTER_S", 0.5)
    lost = {"running": False, "error": "worker w2 does not answer"}
    spark_function.answer_in_turn(f"GET {FUNCTION}/0/status", [*COURSE[:2], lost])
    result = magnetar(*TRIGGER)
    assert result.code != 0
    assert (
        "no status of run r1 for 0.5 s: worker w2 does not answer; trigger the function again to resume" in result.err
    )


def test_a_run_that_nobody_knows_is_asked_for_again_under_its_id(
    magnetar: Magnetar, spark_function: FakeRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_trigger, "REQUEST_AGAIN_S", 0.0)
    lost = {"running": False, "error": "worker w2 does not answer"}
    spark_function.answer(f"POST {FUNCTION}/0/trigger", None, 204)
    spark_function.answer_in_turn(f"GET {FUNCTION}/0/status", [*COURSE[:4], lost, lost, run_at("planning"), DONE])
    result = magnetar(*TRIGGER)
    assert result.code == 0, result.err
    asked = [request.query for request in spark_function.requests if request.path.endswith("/0/trigger")]
    assert asked
    assert all(query == {"runId": "r1"} for query in asked)


def test_why_a_run_cannot_be_begun_again_is_said_in_the_end(
    magnetar: Magnetar, spark_function: FakeRest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(function_trigger, "REQUEST_AGAIN_S", 0.0)
    monkeypatch.setattr(function_trigger, "LOST_AFTER_S", 0.5)
    spark_function.answer(
        f"POST {FUNCTION}/0/trigger", {"reason": "f:0 is stopped: start it with `functions start`"}, 409
    )
    spark_function.answer_in_turn(f"GET {FUNCTION}/0/status", [COURSE[1], {"running": False, "error": ""}])
    result = magnetar(*TRIGGER)
    assert result.code != 0
    assert "f:0 is stopped: start it with `functions start`" in result.err


def test_the_end_of_the_function_is_the_end_of_waiting(magnetar: Magnetar, spark_function: FakeRest) -> None:
    spark_function.turns.clear()
    spark_function.answer(f"GET {FUNCTION}/0/status", {"reason": "Function f doesn't exist"}, 404)
    result = magnetar(*TRIGGER)
    assert result.code != 0
    assert "run r1 was aborted: the function was deleted" in result.err


def test_another_function_still_needs_a_message(magnetar: Magnetar, rest: FakeRest) -> None:
    rest.answer(f"GET {FUNCTION}", {"name": "f"})
    result = magnetar(*TRIGGER)
    assert result.code != 0
    assert "--trigger-value" in result.err
    assert [request.method for request in rest.requests] == ["GET"]


def test_a_terminal_gets_a_bar(
    magnetar: Magnetar, spark_function: FakeRest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(function_trigger, "wants_table", lambda ctx: True)
    result = magnetar(*TRIGGER)
    assert "8/8" in result.out
    assert result.out.count("no executors: all are busy") == 1
    assert "80,000 rows" in result.out
    assert "run r1 is done" in result.out


def test_the_table_of_a_spark_function_shows_its_run() -> None:
    counters = {"numReceived": 9, "numSuccessfullyProcessed": 9, "numUserExceptions": 0, "numSystemExceptions": 0}
    run = run_at("running", tasksDone=2, tasksTotal=8, rows=20_000, rowsPerSecond=19_876.4, lag=1234)
    status = {"instanceId": 0, "status": {**run, **counters, "numRestarts": 1, "workerId": "w"}}
    table = status_table({"numInstances": 1, "numRunning": 1, "instances": [status]})
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert {name: row[name] for name in function_trigger.RUN_COLUMNS} == {
        "stage": "running", "tasks": "2 of 8", "rows": "20,000", "rows/s": "19,876", "lag": "1,234",
    }  # fmt: skip
