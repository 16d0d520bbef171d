"""``magnetar functions runs``: the latest runs of a Spark function."""

from __future__ import annotations

import time
from typing import Any

from ...wire.printable import summary
from ..output import Table
from ..rest import Admin, Record, rest_command
from .target import find_target, target_options


def runs_table(found: list[dict[str, Any]]) -> Table:
    """Return a table of runs, followed by the errors of failed ones."""
    rows = []
    for one in found:
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["startedMs"] / 1000))
        took = f"{(one['endedMs'] - one['startedMs']) / 1000:.1f} s" if one["endedMs"] else ""
        tasks = f"{one['tasksDone']} of {one['tasksTotal']}" if one["tasksTotal"] else ""
        rows.append((one["runId"], one["number"], one["stage"], began, took, f"{one['rows']:,}", tasks))
    notes = [f"{one['runId']}: {summary(one['reason'])}" for one in found if one["reason"]]
    columns = ("run", "number", "stage", "started at", "took", "rows", "tasks")
    return Table(columns, rows, "", notes)


@rest_command(None)
@target_options
def runs(rest: Admin, /, **target: str | None) -> Record:
    """List the current run and the last 20 runs of a function with --runtime spark, newest first.

    The history is kept in the state store until the function is deleted. The number identifies the plan: a run that
    resumes an earlier one has the same number, and a run without new input has none.
    """
    return Record(rest.get(f"{find_target(**target).path}/runs"), runs_table, "no runs yet")
