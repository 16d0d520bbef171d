"""Progress of a run, reported by its job and shown in its instance's status."""

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
"""Trailing lines of an error that do not state its cause: its consequence, and Spark's additions to Python errors."""


def reason_of(error: str) -> str:
    """Return a run's error in one line: the last line of a traceback and any text before it."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    while len(lines) > 1 and _NO_REASON.match(lines[-1]):
        lines.pop()
    before, traceback, _ = error.partition("Traceback (most recent call last):")
    if not lines or not traceback:
        return lines[0] if lines else ""
    said = " ".join(before.split())
    return f"{said} {lines[-1]}" if said else lines[-1]


def add_metrics(parts: Iterable[Recorded]) -> Recorded:
    """Return the sums of recorded metrics."""
    found: Recorded = {}
    for part in parts:
        for name, (total, count) in part.items():
            total_before, count_before = found.get(name, (0.0, 0))
            found[name] = total_before + total, count_before + count
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """Snapshot of a run's progress.

    Attributes:
        run_id: id of the run.
        stage: current stage; the last one is in `ENDED`.
        tasks_done: number of finished tasks.
        tasks_total: number of planned tasks; 0 during planning.
        rows: messages read by finished tasks; for DataFrame functions also by running tasks, which report every ten
            seconds.
        rows_per_s: average since the tasks started.
        lag: number of entries still to be processed; -1 if it must be requested from the broker.
        error: reason for failure, with a traceback if user code raised; empty if the run did not fail.
        is_user_error: whether the function raised the error.
        metrics: metrics recorded by the function in finished tasks.
        waits_for: one-line reason why no task is running; empty if tasks are running or have just been submitted.
        number: number of the current plan; 0 before there is a plan.
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
        """Whether the run has ended."""
        return self.stage in ENDED
