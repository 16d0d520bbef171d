"""The latest runs of a Spark function in the state store. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import ProtocolError
from magnetar.instance.identity import table_of
from magnetar.instance.spec import InstanceSpec
from magnetar.spark.jobs.plans import RunRequest
from magnetar.spark.jobs.progress import RunProgress
from magnetar.spark.jobs.run_history import (
    KEPT,
    KEY,
    REASON_CHARACTERS,
    EndedRun,
    History,
    RunHistory,
    ended_run,
    latest,
)
from magnetar.state.client import TableClient
from magnetar.state.server import TableServer
from magnetar.wire.functions_pb2 import FunctionMetaData

from tests.spark.specs import make_spec

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TableClient]:
    server = TableServer.start(tmp_path_factory.mktemp("state"))
    client = TableClient(server.url)
    yield client
    client.close()
    server.stop()


def run(number: int, stage: str = "done") -> EndedRun:
    return EndedRun(run_id=f"r{number}", number=number, stage=stage, started_ms=1000 + number, ended_ms=2000 + number)


def test_the_latest_runs_are_kept_and_older_ones_are_not(tables: TableClient, tmp_path: Path) -> None:
    history = RunHistory(tables, make_spec(tmp_path, "bounded"))
    assert history.load("", 5) == History()
    for number in range(KEPT + 5):
        history.add(run(number), due_ms=0)
    again = RunHistory(tables, make_spec(tmp_path, "bounded")).load("", 5)
    assert again.runs == tuple(run(number) for number in range(KEPT + 4, 4, -1))


def test_a_run_that_ends_twice_is_there_once_with_its_last_end(tables: TableClient, tmp_path: Path) -> None:
    history = RunHistory(tables, make_spec(tmp_path, "twice"))
    history.add(run(1, "cancelled"), due_ms=7)
    history.add(run(1), due_ms=0)
    assert history.load("", 5) == History(runs=(run(1),), served_ms=7)


def test_a_new_cron_is_served_up_to_now_and_an_old_one_up_to_its_latest_run(
    tables: TableClient, tmp_path: Path
) -> None:
    history = RunHistory(tables, make_spec(tmp_path, "cron"))
    assert history.load("* * * * *", 100).served_ms == 100
    assert history.load("* * * * *", 900).served_ms == 100
    history.add(run(1), due_ms=300)
    history.add(run(2), due_ms=0)
    assert history.load("* * * * *", 900).served_ms == 300
    assert history.load("0 * * * *", 900).served_ms == 900


def second_life(spec: InstanceSpec) -> InstanceSpec:
    metadata = FunctionMetaData()
    metadata.CopyFrom(spec.metadata)
    metadata.functionUuid = "another"
    return replace(spec, metadata=metadata)


def test_a_function_that_is_created_again_has_no_runs_even_in_the_same_table(
    tables: TableClient, tmp_path: Path
) -> None:
    spec = make_spec(tmp_path, "again")
    RunHistory(tables, spec).add(run(1), due_ms=9)
    other = second_life(spec)
    assert RunHistory(tables, other).load("", 5) == History()
    [value] = tables.read(table_of(spec.metadata), [KEY])
    assert value is not None
    tables.put(table_of(other.metadata), KEY, value.data)
    assert RunHistory(tables, other).load("", 5) == History()


def test_what_another_version_wrote_is_said(tables: TableClient, tmp_path: Path) -> None:
    spec = make_spec(tmp_path, "newer")
    tables.put(table_of(spec.metadata), KEY, b'{"format": 2}')
    with pytest.raises(
        ProtocolError,
        match="key __spark_runs__ of the function's state is not a run history that this version can read",
    ):
        RunHistory(tables, spec).load("", 5)


def test_a_run_that_is_begun_again_keeps_its_first_start_and_its_trigger(tables: TableClient, tmp_path: Path) -> None:
    spec = make_spec(tmp_path, "resumed")
    RunRequest(tables, spec).note("r1", 100, 50)
    heir = RunRequest(tables, spec)
    assert heir.due() == 50
    heir.note("r1", 900)
    assert (heir.started_ms, heir.due_ms) == (100, 50)
    RunRequest(tables, spec).give_up("another")
    assert RunRequest(tables, spec).find() == "r1"
    RunRequest(tables, spec).give_up("r1")
    assert RunRequest(tables, spec).find() == ""
    heir.note("r2", 900)
    assert (heir.started_ms, heir.due_ms) == (900, 0)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 50)), max_size=60))
def test_of_any_runs_the_newest_are_the_latest(pairs: list[tuple[int, int]]) -> None:
    runs = [EndedRun(run_id=str(name), stage="done", started_ms=start, ended_ms=start) for name, start in pairs]
    found = latest(runs)
    assert len(found) == min(KEPT, len({one.run_id for one in runs}))
    assert [one.started_ms for one in found] == sorted((one.started_ms for one in found), reverse=True)
    assert latest([*found, *found]) == found


def test_a_reason_is_one_line_of_bounded_length() -> None:
    error = f"Traceback (most recent call last):\n  File\nValueError: {'x' * 1000}\nplan 3 is kept: so"
    kept = ended_run(RunProgress(run_id="r", stage="failed", error=error, number=3), 1, 2)
    assert kept.reason.startswith("ValueError: xxx")
    assert "\n" not in kept.reason
    assert len(kept.reason) <= REASON_CHARACTERS + 2
    assert kept.number == 3
