"""``create``, ``update`` and ``rollback`` wait until the new version runs, and say why if it does not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from magnetar.cli.functions.versions import versions_table
from magnetar.cli.output import print_table
from magnetar.web.deployments import VERSION_HEADER

from .conftest import FakeRest, Magnetar

FUNCTION = "/admin/v3/functions/public/default/f"
ERROR = 'Traceback (most recent call last):\n  File "f.py", line 1\nValueError: no good'


def progress(state: str, **other: Any) -> dict[str, Any]:
    return {
        "version": 3, "state": state, "numInstances": 2, "numRunning": 1, "error": "", "restoredVersion": None,
        "rollsBack": False, **other,
    }  # fmt: skip


@pytest.fixture
def create(rest: FakeRest, tmp_path: Path) -> tuple[str, ...]:
    """The command, on a worker that tells the version."""
    for method in ("POST", "PUT"):
        rest.answers[f"{method} {FUNCTION}"] = (204, b"", {VERSION_HEADER: "3"})
    code = tmp_path / "f.py"
    code.write_text("def process(text): return text\n")
    return "functions", "create", "--name", "f", "--py", str(code), "--classname", "f.process", "--inputs", "in"


def test_create_returns_when_all_instances_run(magnetar: Magnetar, rest: FakeRest, create: tuple[str, ...]) -> None:
    answers = [progress("starting"), progress("failed", rollsBack=True), progress("running")]
    rest.answer_in_turn(f"GET {FUNCTION}/deployment", answers)
    result = magnetar(*create)
    assert (result.code, result.out) == (0, "Created successfully\n"), result.err
    assert [one.query for one in rest.requests if one.path.endswith("/deployment")] == [{"version": "3"}] * 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (progress("failed", error=ERROR), "version 3 was stored but failed to start: ValueError: no good"),
        (
            progress("failed", error="FunctionLoadError: a\nb"),
            "version 3 was stored but failed to start: FunctionLoadError: a",
        ),
        (
            progress("rolledBack", error=ERROR, restoredVersion=1),
            "version 3 did not start and was rolled back to version 1: ValueError: no good",
        ),
        (progress("replaced"), "version 3 was replaced by another version before it was running"),
    ],
)
def test_a_version_that_does_not_come_up_is_a_failure_with_its_reason(
    magnetar: Magnetar, rest: FakeRest, create: tuple[str, ...], answer: dict[str, Any], reason: str
) -> None:
    rest.answer(f"GET {FUNCTION}/deployment", answer)
    result = magnetar(*create)
    assert (result.code, result.out) == (1, "")
    assert result.err == f"magnetar: {reason}\n"
    assert ("Traceback" in magnetar(*create, "--traceback").err) == ("Traceback" in answer["error"])


def test_the_wait_ends_in_time(magnetar: Magnetar, rest: FakeRest, create: tuple[str, ...]) -> None:
    rest.answer(f"GET {FUNCTION}/deployment", progress("starting", error="waits for a lock"))
    began_s = time.monotonic()
    result = magnetar(*create, "--wait-timeout", "0.2")
    assert result.code == 1
    assert "version 3 was stored, but only 1 of 2 instances are running after 0.2 s: waits for a lock" in result.err
    assert time.monotonic() - began_s < 10


def test_no_wait_and_a_worker_that_tells_no_version_return_at_once(
    magnetar: Magnetar, rest: FakeRest, create: tuple[str, ...]
) -> None:
    assert magnetar(*create, "--no-wait").code == 0
    rest.answers[f"POST {FUNCTION}"] = (204, b"", {})
    assert magnetar(*create).code == 0
    assert not [one for one in rest.requests if one.path.endswith("/deployment")]


def test_update_asks_for_a_rollback_unless_told_otherwise(
    magnetar: Magnetar, rest: FakeRest, create: tuple[str, ...]
) -> None:
    rest.answer(f"GET {FUNCTION}/deployment", progress("running"))
    update = ("functions", "update", "--name", "f", "--parallelism", "2")
    assert magnetar(*update).code == 0
    assert magnetar(*update, "--no-rollback-on-failure").code == 0
    assert [one.query for one in rest.requests if one.method == "PUT"] == [{"rollbackOnFailure": "true"}, {}]
    assert magnetar(*update, "--keep-state").code == 0
    assert rest.requests[-2].query == {"rollbackOnFailure": "true", "keepState": "true"}


def test_versions_are_a_table_and_a_rollback_names_one(
    magnetar: Magnetar, rest: FakeRest, capsys: pytest.CaptureFixture[str]
) -> None:
    one = {
        "version": 2, "state": "rolledBack", "timeMs": 0, "className": "f.process", "parallelism": 1,
        "package": "package-" + "a" * 64, "packageName": "f.py", "restoredVersion": None, "failure": ERROR,
    }  # fmt: skip
    rest.answer(f"GET {FUNCTION}/versions", [{**one, "version": 3, "state": "onTrial", "restoredVersion": 1}, one])
    print_table(versions_table(json.loads(magnetar("functions", "versions", "--name", "f").out)))
    table = capsys.readouterr().out
    assert "on trial, same as 1" in table
    assert "a" * 12 in table
    assert "a" * 13 not in table
    assert "2: ValueError: no good" in table
    found = versions_table([{**one, "stateKept": True}, {**one, "stateKept": False}])
    assert [row[1] for row in found.rows] == ["rolled back, state kept", "rolled back"]
    print_table(versions_table([{**one, "stateKept": None}]))
    assert "the state store does not respond, so the versions with kept state are unknown" in capsys.readouterr().out
    rest.answers[f"POST {FUNCTION}/rollback"] = (204, b"", {VERSION_HEADER: "4"})
    rest.answer(f"GET {FUNCTION}/deployment", progress("running"))
    back = magnetar("functions", "rollback", "--name", "f", "--to-version", "1")
    assert (back.code, back.out) == (0, "Rolled back to version 1 successfully\n"), back.err
    assert magnetar("functions", "rollback", "--name", "f", "--to-version", "1", "--with-state").code == 0
    assert [one.query for one in rest.requests if one.method == "POST"] == [
        {"toVersion": "1"}, {"toVersion": "1", "withState": "true"},
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["sinks", "sources"])
def test_connectors_have_versions_and_a_way_back(magnetar: Magnetar, rest: FakeRest, kind: str) -> None:
    one = f"/admin/v3/{kind}/public/default/c"
    rest.answer(f"GET {one}/versions", [])
    assert magnetar(kind, "versions", "--name", "c").code == 0
    rest.answers[f"POST {one}/rollback"] = (204, b"", {VERSION_HEADER: "4"})
    rest.answer(f"GET {one}/deployment", progress("failed", error="no disk"))
    back = magnetar(kind, "rollback", "--name", "c", "--to-version", "1")
    assert (back.code, "version 3 was stored but failed to start: no disk" in back.err) == (1, True)
    assert magnetar(kind, "rollback", "--name", "c", "--to-version", "1", "--no-wait").code == 0
    assert rest.last.query == {"toVersion": "1"}


def versions(*found: tuple[int, str, int | None]) -> list[dict[str, Any]]:
    """The versions of a function, the newest first, by number, state and the version that each restored."""
    return [{"version": number, "state": state, "restoredVersion": restored} for number, state, restored in found]


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (versions((2, "deployed", None), (0, "replaced", None)), 0),
        (versions((3, "onTrial", None), (2, "replaced", None), (1, "replaced", None)), 2),
        (versions((3, "deployed", None), (2, "rolledBack", None), (1, "replaced", None)), 1),
        # rolled back twice: the second time goes on to the one before
        (versions((4, "deployed", 2), (3, "replaced", None), (2, "replaced", None), (1, "replaced", None)), 1),
        # updated after a rollback: what was restored is the version before
        (versions((5, "deployed", None), (4, "replaced", 2), (3, "replaced", None), (2, "replaced", None)), 4),
        # the version that was restored is not kept any more
        (versions((9, "deployed", 5), (8, "replaced", None), (4, "replaced", None)), 4),
    ],
)
@pytest.mark.parametrize("kind", ["functions", "sources", "sinks"])
def test_a_rollback_without_a_version_takes_the_one_before(
    magnetar: Magnetar, rest: FakeRest, kind: str, found: list[dict[str, Any]], wanted: int
) -> None:
    path = f"/admin/v3/{kind}/public/default/f"
    rest.answer(f"GET {path}/versions", found)
    rest.answers[f"POST {path}/rollback"] = (204, b"", {VERSION_HEADER: "10"})
    back = magnetar(kind, "rollback", "--name", "f", "--no-wait")
    assert (back.code, back.out) == (0, f"Rolled back to version {wanted} successfully\n"), back.err
    assert rest.last.query == {"toVersion": str(wanted)}


@pytest.mark.parametrize(
    "found",
    [
        versions((0, "deployed", None)),
        versions((2, "deployed", 0), (1, "rolledBack", None), (0, "replaced", None)),
    ],
)
def test_a_rollback_without_an_earlier_version_is_refused(
    magnetar: Magnetar, rest: FakeRest, found: list[dict[str, Any]]
) -> None:
    rest.answer(f"GET {FUNCTION}/versions", found)
    back = magnetar("functions", "rollback", "--name", "f")
    assert (back.code, back.err) == (
        1, "magnetar: there is no earlier version to roll back to: deploy one with `update`, or use --to-version\n"
    )  # fmt: skip
    assert rest.last.method == "GET"
