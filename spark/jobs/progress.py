"""The progress of a run: the value that the job reports and the status of its instance shows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Stage = Literal["planning", "running", "committing", "done", "failed", "cancelled"]
Recorded = dict[str, tuple[float, int]]
"""Sum and count of the values of a function's own metrics, by name."""
ENDED: tuple[Stage, ...] = ("done", "failed", "cancelled")


_NO_REASON = re.compile(r"plan \d+ is kept|SQLSTATE: \w+$")
"""Lines at the end of an error: what is done about it, and what Spark adds to errors of Python."""


def reason_of(error: str) -> str:
    """Return a run's error in one line: of a traceback its end, and what stands before it."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    while len(lines) > 1 and _NO_REASON.match(lines[-1]):
        lines.pop()
    before, traceback, _ = error.partition("Traceback (most recent call last):")
    if not lines or not traceback:
        return lines[0] if lines else ""
    said = " ".join(before.split())
    return f"{said} {lines[-1]}" if said else lines[-1]


def add_metrics(parts: Iterable[Recorded]) -> Recorded:
    """Return what several have recorded."""
    found: Recorded = {}
    for part in parts:
        for name, (total, count) in part.items():
            total_before, count_before = found.get(name, (0.0, 0))
            found[name] = total_before + total, count_before + count
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """The progress of one run at one moment.

    Attributes:
        run_id: names the run.
        stage: what it does; one of `ENDED` is the last.
        tasks_done: of all tasks planned.
        tasks_total: 0 while it is planned.
        rows: messages read by the tasks that are done; of a DataFrame function also what Spark has heard, every ten
            seconds, from those that run.
        rows_per_s: since the tasks began.
        lag: entries that are still to be processed, or -1 where only the broker knows.
        error: why it failed, with a traceback where user code raised; empty if it did not.
        is_user_error: the function raised.
        metrics: what the function recorded in the tasks that are done.
        waits_for: why no task runs at the moment, in one line; empty if some do, or have not had the time to begin.
        number: of the plan that it works off; 0 as long as there is none.
    """

    run_id: str
    stage: Stage
    tasks_done: int = 0
    tasks_total: int = 0
    rows: int = 0
    rows_per_s: float = 0.0
    lag: int = -1
    error: str = ""
    is_user_error: bool = False
    waits_for: str = ""
    metrics: Recorded = field(default_factory=dict)
    number: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether the run is over."""
        return self.stage in ENDED
