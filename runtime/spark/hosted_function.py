"""One function in the host process: its thread, its sequential runs, and its reports to the worker."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from ...errors import MagnetarError
from ...instance.logs.file import InstanceLog
from ...instance.spec import InstanceSpec
from ...instance.stats import format_error
from ...spark.jobs.progress import RunProgress
from ...spark.jobs.run_history import EndedRun, History
from ...spark.session import Session

if TYPE_CHECKING:
    from .host import Host

REPORT_PERIOD_S = 0.1
"""Minimum interval between progress reports of a stage, in seconds."""
DYING_S = 10.0
"""Time for a JVM to exit after its sockets are closed, in seconds."""
_CANCEL_PERIOD_S = 0.2
_log = logging.getLogger(__name__)


class Job(Protocol):
    """A loaded function, as the host runs it.

    Attributes:
        is_dataframe: whether it takes a DataFrame; otherwise single messages.
        is_statement: whether it is SQL, which `check` can validate.
    """

    is_dataframe: bool

    @property
    def is_statement(self) -> bool:
        """Whether it is an SQL statement."""

    def check(self, session: Session) -> None:
        """Make Spark analyse the function before a run; raises InvalidConfig if it cannot be run."""

    def run(self, run_id: str, report: Callable[[RunProgress], None], due_ms: int = 0) -> RunProgress:
        """Process the backlog and return the result; never raises. ``due_ms`` is the trigger's time, 0 for none."""

    def unfinished(self) -> str:
        """Return the id of a run that another driver started but did not finish, or an empty string."""

    def history(self) -> History:
        """Return the latest completed runs."""

    def remember(self, run: EndedRun, due_ms: int) -> None:
        """Store a run whose end only the worker recorded; raises MagnetarError."""

    def cancel(self) -> None:
        """Stop the run within a second; thread-safe."""

    def close(self) -> None:
        """Stop the function: the current run ends, and no other starts."""


OpenSession = Callable[[], Session]
MakeJob = Callable[[InstanceSpec, OpenSession, Callable[[], bool]], Job]
"""Loads a function while the last argument returns true; raises FunctionLoadError or any error from its code."""


class Throttle:
    """Limits progress reports: a new stage is reported immediately, other progress every `REPORT_PERIOD_S`."""

    def __init__(self, tell: Callable[[RunProgress], None]) -> None:
        """Create a throttle that sends reports with ``tell``."""
        self._tell = tell
        self._lock = threading.Lock()
        self._latest: RunProgress | None = None
        self._timer: threading.Timer | None = None
        self._stage = ""

    def take(self, progress: RunProgress) -> None:
        """Accept a report; thread-safe."""
        if progress.has_ended:
            return  # reported when `run` has returned and another run may start
        with self._lock:
            self._latest = progress
            if progress.stage != self._stage:
                self._stage = progress.stage
                self._flush()
            elif self._timer is None:
                self._timer = threading.Timer(REPORT_PERIOD_S, self._later)
                self._timer.daemon = True
                self._timer.start()

    def _later(self) -> None:
        with self._lock:
            self._timer = None
            self._flush()

    def _flush(self) -> None:
        if self._latest is not None:
            self._tell(self._latest)
            self._latest = None

    def end(self) -> None:
        """Discard unsent reports, as the run has ended."""
        with self._lock:
            self._latest, self._stage = None, ""


class HostedFunction:
    """One function and its thread."""

    def __init__(self, number: int, spec: InstanceSpec, host: Host, *, starts_ahead: bool) -> None:
        """Create a function and start loading it; with ``starts_ahead``, open the session when it is loaded."""
        self._number = number
        self._spec = spec
        self._host = host
        self._starts_ahead = starts_ahead
        self._job: Job | None = None
        self._orders: SimpleQueue[tuple[str | EndedRun, int] | None] = SimpleQueue()
        self._is_wanted = True
        self._cancelled: set[str] = set()
        self._current = ""
        self._reports = Throttle(self._tell_progress)
        self._thread = threading.Thread(target=self._work, name=f"function {spec.key}", daemon=True)
        self._thread.start()

    def run(self, run_id: str, due_ms: int = 0) -> None:
        """Queue a run; ``due_ms`` is the time of its trigger, 0 for none."""
        self._orders.put((run_id, due_ms))

    def remember(self, run: EndedRun, due_ms: int) -> None:
        """Store a run that ended together with an earlier host."""
        self._orders.put((run, due_ms))

    def cancel(self, run_id: str) -> None:
        """Cancel a run, whether or not it has started."""
        self._cancelled.add(run_id)
        # A request to the JVM may take long, or forever; the main thread has other functions to serve.
        threading.Thread(target=self._cancel, args=(run_id,), name=f"cancel {run_id}", daemon=True).start()

    def _cancel(self, run_id: str) -> None:
        # Repeat until it has ended, because a run that is just starting may miss the request. A run that has not
        # started is dropped.
        while self._current == run_id and self._job is not None:
            try:
                self._job.cancel()
            except Exception as error:  # noqa: BLE001  the JVM is probably exiting; otherwise the worker will kill this process
                _log.warning("%s: failed to cancel run %s: %s", self._spec.key, run_id, error)
                return
            time.sleep(_CANCEL_PERIOD_S)

    def remove(self) -> None:
        """End the thread after the current run; loading stops immediately."""
        self._is_wanted = False
        self._orders.put(None)

    def _work(self) -> None:
        instance_log = InstanceLog(self._spec.log_file)
        self._host.router.enter(instance_log)
        try:
            reason = self._load(instance_log)
            while not reason and (order := self._orders.get()) is not None:
                what, due_ms = order
                if isinstance(what, EndedRun):
                    self._remember(what, due_ms)
                else:
                    self._run(what, due_ms, instance_log)
            if self._job is not None:
                self._job.close()
            if reason and self._is_wanted:
                self._host.forget(self._number)
                self._host.tell({"event": "ended", "id": self._number, "reason": reason})
            else:
                self._host.tell({"event": "removed", "id": self._number})
        finally:
            self._host.router.leave()
            instance_log.close()

    def _load(self, instance_log: InstanceLog) -> str:
        """Load the function, and return the error, if any."""
        try:
            self._job = self._host.make_job(self._spec, self._open_session, lambda: self._is_wanted)
            unfinished = self._job.unfinished()
            history = self._job.history()
            if self._starts_ahead and self._job.is_statement:
                self._check(self._job)
        except MagnetarError as error:
            reason = f"{type(error).__name__}: {error}"
        except BaseException as error:  # noqa: BLE001  user code may raise anything
            reason = format_error(error)
        else:
            instance_log.write("INFO", f"instance {self._spec.key} is ready for runs")
            runs = [asdict(run) for run in history.runs]
            known = {"unfinished": unfinished, "runs": runs, "served": history.served_ms}
            self._host.tell({"event": "loaded", "id": self._number, **known})
            if self._starts_ahead:
                self._host.session.open_ahead(with_sql=self._job.is_dataframe)
            return ""
        instance_log.write("ERROR", f"instance {self._spec.key} ends: {reason}")
        return reason

    def _check(self, job: Job) -> None:
        """Make Spark analyse a function, in the session that is started ahead of its runs."""
        try:
            session = self._host.session.wait(lambda: not self._is_wanted)
        except Exception as error:  # noqa: BLE001  the first run retries, and reports the error
            _log.warning("cannot analyse %s before its first run: %s", self._spec.key, error)
            return
        job.check(session)

    def _open_session(self) -> Session:
        return self._host.session.open(lambda: self._current in self._cancelled)

    def _remember(self, run: EndedRun, due_ms: int) -> None:
        assert self._job is not None
        try:
            self._job.remember(run, due_ms)
        except MagnetarError as error:
            _log.warning("%s: failed to store run %s in the history: %s", self._spec.key, run.run_id, error)

    def _run(self, run_id: str, due_ms: int, instance_log: InstanceLog) -> None:
        assert self._job is not None
        self._current = run_id
        instance_log.write("INFO", f"run {run_id} begins")
        began_s = time.monotonic()
        if run_id in self._cancelled:
            end = RunProgress(run_id=run_id, stage="cancelled")
        else:
            try:
                end = self._job.run(run_id, self._reports.take, due_ms)
            except BaseException as error:  # noqa: BLE001  last chance to report it
                end = RunProgress(run_id=run_id, stage="failed", error=format_error(error))
            if run_id in self._cancelled and end.stage == "failed":
                end = replace(end, stage="cancelled", error="")  # any error results from the cancellation
        if end.stage == "failed" and self._host.session.is_dying():
            # The run failed because the JVM died, and the next host restarts it. `SharedSession` ends this process
            # meanwhile.
            time.sleep(DYING_S)
        self._current = ""
        self._cancelled.discard(run_id)
        took_s = time.monotonic() - began_s
        ended = {"done": "is done", "failed": "failed"}.get(end.stage, "was cancelled")
        what = f"run {run_id} {ended} after {took_s:.1f} s: {end.rows} rows in {end.tasks_done} tasks"
        instance_log.write("ERROR" if end.error else "INFO", f"{what}; {end.error}" if end.error else what)
        self._reports.end()
        self._tell_progress(end)

    def _tell_progress(self, progress: RunProgress) -> None:
        self._host.tell({"event": "progress", "id": self._number, "progress": asdict(progress)})
