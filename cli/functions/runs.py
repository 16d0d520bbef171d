"""``magnetar functions runs``: the latest runs of a Spark function."""

from __future__ import annotations

import time
from typing import Any

from ...wire.printable import summary
from ..output import Table
from ..rest import Admin, Record, rest_command
from .target import find_target, target_options


def runs_table(found: list[dict[str, Any]]) -> Table:
    """Return runs, one per row, followed by the reasons why some failed."""
    rows = []
    for one in found:
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["startedMs"] / 1000))
        took = f"{(one['endedMs'] - one['startedMs']) / 1000:.1f} s" if one["endedMs"] else ""
        tasks = f"{one['tasksDone']} of {one['tasksTotal']}" if one["tasksTotal"] else ""
        rows.append((one["runId"], one["number"], one["stage"], began, took, f"{one['rows']:,}", tasks))
    notes = [f"{one['runId']}: {summary(one['reason'])}" for one in found if one["reason"]]
    columns = ("run", "number", "stage", "began at", "took", "rows", "tasks")
    return Table(columns, rows, "", notes)


@rest_command(None)
@target_options
def runs(rest: Admin, /, **target: str | None) -> Record:
    """List the latest runs of a function with --runtime spark, the newest first: one that goes on, and 20 that ended.

    They are kept in the state store, over restarts, until the function is deleted. The number is that of the plan: a
    run that finishes what an earlier one has left has the same, and one that found nothing to do has none.
    """
    return Record(rest.get(f"{find_target(**target).path}/runs"), runs_table, "no runs yet")
