"""The latest runs of functions, as their worker knows them; they outlive the host process that does the work."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from ...instance.spec import InstanceSpec
from ...instance.stats import InstanceStats
from ...spark.jobs.progress import Recorded, RunProgress
from ...wire.functions_pb2 import FunctionStatus

RESUMES_MAX = 3
"""How often a run is begun again whose host died: what kills it each time will do so for ever."""

RUNS_MAX = 10_000
"""Latest runs that are remembered, of functions that may be gone."""


def now_ms() -> int:
    """Return the time of day in milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Run:
    """One run as the worker knows it.

    Attributes:
        progress: the latest that is known.
        started_ms: time of day.
        ended_ms: time of day; 0 while it goes on.
        resumes: how often it was begun again.
        last_death: what ended its host the last time.
    """

    progress: RunProgress
    started_ms: int = field(default_factory=now_ms)
    ended_ms: int = 0
    resumes: int = 0
    last_death: str = ""

    @property
    def is_active(self) -> bool:
        """Whether it goes on."""
        return not self.ended_ms

    def take(self, progress: RunProgress, stats: InstanceStats) -> None:
        """Set the progress, and count what is new.

        A run that was begun again counts its rows from the start; only what goes beyond is new.
        """
        if not self.is_active or progress.run_id != self.progress.run_id:
            return
        rows = progress.rows - self.progress.rows
        if rows > 0:
            stats.total.received += rows
            stats.total.processed += rows
            stats.last_invocation_ms = now_ms()
        else:
            progress = replace(progress, rows=self.progress.rows)
        self.progress = replace(progress, metrics=self._record(progress.metrics, stats))
        if progress.has_ended:
            self.ended_ms = now_ms()
            if progress.error and progress.is_user_error:
                stats.user_exception(progress.error, self.ended_ms)
            elif progress.error:
                stats.system_exception(progress.error, self.ended_ms)

    def _record(self, metrics: Recorded, stats: InstanceStats) -> Recorded:
        """Add what is new of the function's own metrics; return all that was counted."""
        known = dict(self.progress.metrics)
        for name, (total, count) in metrics.items():
            total_before, count_before = known.get(name, (0.0, 0))
            if count > count_before:
                stats.record_many(name, total - total_before, count - count_before)
                known[name] = total, count
        return known

    def cancel(self, stats: InstanceStats) -> None:
        """Note that it is not wanted any more."""
        self.take(replace(self.progress, stage="cancelled"), stats)

    def fail(self, error: str, stats: InstanceStats) -> None:
        """Note that it cannot go on."""
        self.take(replace(self.progress, stage="failed", error=error), stats)

    def resume(self, stats: InstanceStats) -> bool:
        """Note that it is begun again, or, if that was done too often, that it failed; return whether it goes on."""
        self.resumes += 1
        if self.resumes > RESUMES_MAX:
            self.fail(f"given up after {self.resumes} attempts; the last one ended so: {self.last_death}", stats)
        return self.is_active

    def record(self) -> FunctionStatus.Run:
        """Return it as part of a status."""
        progress = self.progress
        return FunctionStatus.Run(
            runId=progress.run_id,
            stage=progress.stage,
            tasksDone=progress.tasks_done,
            tasksTotal=progress.tasks_total,
            rows=progress.rows,
            rowsPerSecond=progress.rows_per_s,
            error=progress.error or progress.waits_for,
            startedMs=self.started_ms,
            endedMs=self.ended_ms,
            lag=progress.lag,
        )


class Runs:
    """The latest run of each function since the worker started."""

    def __init__(self) -> None:
        """Begin without any."""
        self._runs: dict[str, Run] = {}

    def of(self, spec: InstanceSpec) -> Run | None:
        """Return the latest run of a function, None if there was none."""
        return self._runs.get(_identity(spec))

    def remember(self, spec: InstanceSpec, run: Run) -> None:
        """Make a run the latest of its function; beyond `RUNS_MAX` the oldest that has ended is forgotten."""
        self._runs.pop(_identity(spec), None)
        self._runs[_identity(spec)] = run
        if len(self._runs) > RUNS_MAX:
            oldest = next((name for name, held in self._runs.items() if not held.is_active), None)
            if oldest is not None:
                del self._runs[oldest]


def _identity(spec: InstanceSpec) -> str:
    """Return what names a function over updates, and not one of the same name that was created later."""
    return f"{spec.key}@{spec.metadata.functionUuid}"
