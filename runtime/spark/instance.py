"""The worker's instance of a Spark function, which can be triggered whether or not a host is running.

Its latest run outlives the host process that does the work: `Runs` holds the latest run of each function.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...errors import ClosedError, RunNotYet, RunRefused
from ...instance.loading.loader import REQUIREMENTS, requirements_of
from ...instance.spec import InstanceSpec
from ...instance.stats import InstanceStats, now_ms
from ...spark.jobs.backlog import Backlog, backlog_entries
from ...spark.jobs.progress import Recorded, RunProgress, reason_of
from ...spark.jobs.run_history import EndedRun, ended_run, latest, read_runs
from ...spark.jobs.triggers import Past, past_of, trigger_of
from ...tasks import settle, within
from ...wire.functions_pb2 import FunctionStatus, MetricsData
from .trigger_loop import TriggerLoop

if TYPE_CHECKING:
    from .runtime import HostProcess

_log = logging.getLogger(__name__)

RESUMES_MAX = 3
"""Maximum number of restarts of a run whose host died, as a run may kill its host each time."""

RUNS_MAX = 10_000
"""Number of latest runs to keep, including those of deleted functions."""

Event = dict[str, Any]
"""An event of a host."""


@dataclass(slots=True)
class Run:
    """The worker's view of a run.

    Attributes:
        progress: latest known progress.
        started_ms: start time.
        ended_ms: end time; 0 while it is active.
        resumes: number of restarts.
        last_death: why its host last ended.
        due_ms: time of its trigger; 0 for none.
    """

    progress: RunProgress
    started_ms: int = field(default_factory=now_ms)
    ended_ms: int = 0
    resumes: int = 0
    last_death: str = ""
    due_ms: int = 0

    @property
    def is_active(self) -> bool:
        """Whether the run has not ended."""
        return not self.ended_ms

    def take(self, progress: RunProgress, stats: InstanceStats) -> None:
        """Update the progress, and add the difference to the statistics.

        A restarted run counts its rows from 0; only the excess is added.
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
        """Add the new part of the function's own metrics, and return the total."""
        known = dict(self.progress.metrics)
        for name, (total, count) in metrics.items():
            total_before, count_before = known.get(name, (0.0, 0))
            if count > count_before:
                stats.record_many(name, total - total_before, count - count_before)
                known[name] = total, count
        return known

    def cancel(self, stats: InstanceStats) -> None:
        """Mark the run as cancelled."""
        self.take(replace(self.progress, stage="cancelled"), stats)

    def fail(self, error: str, stats: InstanceStats) -> None:
        """Mark the run as failed."""
        self.take(replace(self.progress, stage="failed", error=error), stats)

    def resume(self, stats: InstanceStats) -> bool:
        """Mark the run as restarted, or as failed after too many restarts; return whether it continues."""
        self.resumes += 1
        if self.resumes > RESUMES_MAX:
            self.fail(f"giving up after {self.resumes} attempts; the last one ended with: {self.last_death}", stats)
        return self.is_active

    def record(self) -> FunctionStatus.Run:
        """Return the run as a status record."""
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


def _record_of(run: EndedRun) -> FunctionStatus.Run:
    """Return a run from before the worker started as a status record."""
    return FunctionStatus.Run(
        runId=run.run_id,
        stage=run.stage,
        tasksDone=run.tasks_done,
        tasksTotal=run.tasks_total,
        rows=run.rows,
        error=run.reason,
        startedMs=run.started_ms,
        endedMs=run.ended_ms,
        lag=-1,
    )


class Runs:
    """The latest run of each function since the worker started."""

    def __init__(self) -> None:
        """Create an empty set."""
        self._runs: dict[str, Run] = {}

    def of(self, spec: InstanceSpec) -> Run | None:
        """Return the latest run of a function, or None."""
        return self._runs.get(_identity(spec))

    def remember(self, spec: InstanceSpec, run: Run) -> None:
        """Make a run the latest of its function; beyond `RUNS_MAX`, drop the oldest completed run."""
        self._runs.pop(_identity(spec), None)
        self._runs[_identity(spec)] = run
        if len(self._runs) > RUNS_MAX:
            oldest = next((name for name, held in self._runs.items() if not held.is_active), None)
            if oldest is not None:
                del self._runs[oldest]


def _identity(spec: InstanceSpec) -> str:
    """Return a name that is unchanged by updates of a function, but differs if it is deleted and recreated."""
    return f"{spec.key}@{spec.metadata.functionUuid}"


class SparkInstance:
    """A function that can be triggered."""

    def __init__(
        self,
        spec: InstanceSpec,
        number: int,
        runs: Runs,
        add: Callable[[SparkInstance], Awaitable[None]],
        forget: Callable[[int], None],
        time_ms: Callable[[], int] = now_ms,
    ) -> None:
        """Create an instance that the runtime adds to the host.

        Args:
            spec: the function.
            number: instance number in its host.
            runs: latest runs of all functions.
            add: loads the function in a running host.
            forget: called with the number when the instance has ended.
            time_ms: wall clock that determines when runs are due.
        """
        self.spec = spec
        self.number = number
        self.host: HostProcess | None = None
        self._runs = runs
        self._add = add
        self._forget = forget
        self._stats = InstanceStats(time.monotonic())
        self._backlog = Backlog(spec)
        self._ended_runs: tuple[EndedRun, ...] = ()
        self._served_ms = 0
        self._time_ms = time_ms
        trigger = trigger_of(spec.details)
        self._triggers = None if trigger is None else TriggerLoop(spec.key, trigger, self, time_ms)
        self._is_loaded = False
        self._is_ready = False
        self._is_stopping = False
        self._released = asyncio.Event()
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def is_busy(self) -> bool:
        """Whether the instance currently needs its host."""
        run = self._runs.of(self.spec)
        return self.host is not None and (not self._is_loaded or (run is not None and run.is_active))

    def added(self, host: HostProcess) -> None:
        """Record that the host was requested to load it."""
        self.host = host
        self._is_loaded = False
        self._released.clear()

    async def status(self) -> FunctionStatus:  # noqa: D102  documented in interface.Instance
        status = self._stats.status()
        status.running = self._is_ready and not self._ended.done()
        if self._ended.done():
            status.failureException = self._ended.result()
        elif not self._is_ready and requirements_of(self.spec.package) is not None:
            status.failureException = f"waiting for pip to install the package's {REQUIREMENTS}"
        elif self._triggers is not None and self._triggers.trouble:
            reason = reason_of(self._ended_runs[0].reason) if self._ended_runs else ""
            status.failureException = f"{self._triggers.trouble}{': ' if reason else ''}{reason}"
        run = self._runs.of(self.spec)
        if run is not None:
            status.run.CopyFrom(run.record())
        elif self._ended_runs:
            status.run.CopyFrom(_record_of(self._ended_runs[0]))
        else:
            status.run.CopyFrom(FunctionStatus.Run(stage="idle", lag=-1))
        if run is None or not run.is_active or run.progress.lag < 0:
            status.run.lag = await self._backlog.entries()
        return status

    async def metrics(self) -> MetricsData:  # noqa: D102
        self._stats.roll(time.monotonic())
        return self._stats.metrics()

    def may_begin(self) -> bool:
        """Return whether it is loaded and no run is active."""
        run = self._runs.of(self.spec)
        return self._is_ready and not self._is_stopping and (run is None or not run.is_active)

    def past(self, looked_ms: int) -> Past:
        """Return the history that decides when the next run is due."""
        return past_of(self._ended_runs, self._served_ms, looked_ms)

    async def entries(self) -> int:
        """Return the backlog as counted by the broker, or -1 if unknown."""
        return await asyncio.to_thread(backlog_entries, self.spec)

    async def begin_run(self, run_id: str, due_ms: int = 0) -> None:
        """Start a run over the current backlog.

        Args:
            run_id: id of the run.
            due_ms: time of its trigger, 0 for none.

        Raises:
            RunNotYet: the function is being loaded, or is ending.
            RunRefused: another run is active.
        """
        if not self._is_ready or self._is_stopping or self._ended.done():
            raise RunNotYet(f"{self.spec.function_name} is being loaded")
        run = self._runs.of(self.spec)
        if run is not None and run.progress.run_id == run_id:
            return  # repeated because the first response was lost
        if run is not None and run.is_active:
            progress = run.progress
            raise RunRefused(
                f"run {progress.run_id} is in progress: {progress.stage}, {progress.tasks_done} of"
                f" {progress.tasks_total} tasks done; wait until it has ended, or stop the function"
            )
        run = Run(RunProgress(run_id=run_id, stage="planning"), started_ms=self._time_ms(), due_ms=due_ms)
        self._runs.remember(self.spec, run)
        await self._start_run(run)

    async def resume(self, run: Run) -> None:
        """Restart a run whose host has died, unless this happened too often."""
        if run.resume(self._stats):
            await self._start_run(run)
            return
        self._run_ended(run)
        if self.host is not None:
            ended = asdict(self._ended_run(run))
            self.host.channel.tell({"command": "remember", "id": self.number, "ended": ended, "due": run.due_ms})

    def _ended_run(self, run: Run) -> EndedRun:
        return ended_run(run.progress, run.started_ms, run.ended_ms)

    def _run_ended(self, run: Run) -> None:
        """Record a completed run, which its driver has stored."""
        self._served_ms = max(self._served_ms, run.due_ms)
        self._ended_runs = latest([self._ended_run(run), *self._ended_runs])
        if self._triggers is not None:
            self._triggers.changed()

    async def _start_run(self, run: Run) -> None:
        try:
            if self.host is None or not self.host.is_alive:
                await self._add(self)
        except (ClosedError, OSError) as error:
            run.fail(f"{type(error).__name__}: {error}", self._stats)
            self._run_ended(run)
            return
        if self.host is not None and run.is_active:
            self._tell_run(run)

    def _tell_run(self, run: Run) -> None:
        assert self.host is not None
        command = {"command": "run", "id": self.number, "run": run.progress.run_id, "due": run.due_ms}
        self.host.channel.tell(command)

    def _take_up(self, run_id: str) -> None:
        """Resume a run of a lost worker, unless its completion is already known here."""
        known = self._runs.of(self.spec)
        is_known = known is not None and (known.is_active or known.progress.run_id == run_id)
        if run_id and not is_known and not self._is_stopping and self.host is not None:
            _log.warning("%s: resuming run %s, which another worker started", self.spec.key, run_id)
            run = Run(RunProgress(run_id=run_id, stage="planning"), started_ms=self._time_ms())
            self._runs.remember(self.spec, run)
            self._tell_run(run)

    def take_event(self, event: Event) -> None:
        """Handle a host event about this function."""
        match event["event"]:
            case "loaded":
                self._is_loaded = self._is_ready = True
                self._ended_runs = latest([*self._ended_runs, *read_runs(event["runs"])])
                self._served_ms = max(self._served_ms, event["served"])
                self._take_up(event["unfinished"])
                if self._triggers is not None and not self._is_stopping:
                    self._triggers.start()
                    self._triggers.changed()
            case "progress":
                run = self._runs.of(self.spec)
                if run is not None and run.is_active:
                    run.take(RunProgress(**event["progress"]), self._stats)
                    if not run.is_active:
                        self._backlog.run_ended(run.progress.lag)
                        self._run_ended(run)
            case "ended":
                self.host = None
                self._end(event["reason"])
            case "removed":
                self.host = None
                self._released.set()

    def host_ended(self, reason: str, *, is_failure: bool) -> None:
        """Handle the end of the host: a busy instance ends, and its supervisor restarts it."""
        was_busy = is_failure and self.is_busy
        self.host = None
        self._released.set()
        run = self._runs.of(self.spec)
        if run is not None:
            run.last_death = reason
        if was_busy and not self._is_stopping:
            self._end(reason)

    def _end(self, reason: str) -> None:
        self._backlog.close()
        if self._triggers is not None:
            self._triggers.close()
        self._forget(self.number)
        self._released.set()
        settle(self._ended, reason)

    async def stop(self, grace_s: float) -> None:
        """End the instance and its run; if a job does not stop within ``grace_s``, kill the host."""
        if self._ended.done():
            return
        self._is_stopping = True
        run = self._runs.of(self.spec)
        host = self.host
        if host is not None:
            if run is not None and run.is_active:
                host.channel.tell({"command": "cancel", "id": self.number, "run": run.progress.run_id})
            host.channel.tell({"command": "remove", "id": self.number})
            if not await within(grace_s, self._released.wait()):
                reason = f"{self.spec.key} did not stop within {grace_s:g} s"
                _log.error("killing the Spark function host: %s", reason)
                host.kill(reason)
                await self._released.wait()
        if run is not None:
            run.cancel(self._stats)
        self._end("")

    def leftover(self) -> str:  # noqa: D102  documented in interface.Instance
        return ""  # anything that does not stop is killed with the host

    def death(self) -> str:  # noqa: D102
        return ""  # Spark counts the attempts of its tasks

    async def wait(self) -> str:  # noqa: D102
        return await asyncio.shield(self._ended)
