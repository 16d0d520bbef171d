"""The process in which a worker's Spark functions run: the driver, with the JVM below it.

Design: it is started by exec, not forked from the zygote, because Spark makes threads. It shares with the worker
nothing but one socket, over which both send JSON objects (`process/messages`). The main thread serves that socket and
never waits for Spark; each function has a thread of its own, which loads the code and then does one run after the
other. The JVM starts with the first run that needs it, so that a mistake in a function is told without waiting for it,
and its end is the end of this process: the worker starts another. When the worker dies, the kernel ends this process,
and the JVM ends with the pipe that is its standard input.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import selectors
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, replace
from queue import SimpleQueue
from typing import Any, Protocol

import setproctitle

from ...errors import MagnetarError, ProtocolError
from ...instance.logs.file import FILE_BYTES_MAX, InstanceLog, rotated, tail
from ...instance.spec import InstanceSpec, from_json
from ...instance.stats import format_error
from ...spark.jobs.progress import RunProgress
from ...spark.jobs.run_failure import RunCancelled
from ...spark.session import Session, SessionConfig, open_session
from ..process.messages import encode, take
from ..thread.routing import OutputRouter
from .host_config import config_from_text

REPORT_PERIOD_S = 0.1
"""Progress within a stage is told so often at most."""
ORDERLY_END_S = 3.0
LOG_LINES_OF_A_CRASH = 10
ANSWER_S = 5.0
"""A JVM that is asked whether it lives has answered by then, or is busy."""
DYING_S = 10.0
"""A JVM whose sockets are closed is gone by then."""
_CHECK_S = 1.0
_OPENING_POLL_S = 0.1
_CANCEL_PERIOD_S = 0.2
_READ_BYTES = 64 * 1024
_PR_SET_PDEATHSIG = 1
_log = logging.getLogger(__name__)


class Job(Protocol):
    """A loaded function."""

    def run(self, run_id: str, report: Callable[[RunProgress], None]) -> RunProgress:
        """Work the backlog off and return how it ended; raises nothing."""

    def unfinished(self) -> str:
        """Return the id of a run that another driver has begun and not ended, empty if there is none."""

    def cancel(self) -> None:
        """Stop the run within a second; from any thread."""

    def close(self) -> None:
        """End; no run goes on, and none is begun."""


OpenSession = Callable[[], Session]
MakeJob = Callable[[InstanceSpec, OpenSession, Callable[[], bool]], Job]
"""Loads a function as long as the last argument says that it is wanted; FunctionLoadError or whatever its code raises
if that fails."""
Tell = Callable[[dict[str, Any]], None]


class Sessions:
    """The session of all functions, opened by whoever needs it first."""

    def __init__(self, config: SessionConfig, has_died: Callable[[str], None]) -> None:
        """Prepare; ``has_died`` is told when the JVM ends by itself."""
        self._config = config
        self._has_died = has_died
        self._opening: Future[Session] | None = None
        self._lock = threading.Lock()
        self._is_closing = False

    def open(self, is_cancelled: Callable[[], bool]) -> Session:
        """Return the session.

        Raises:
            InvalidConfig, SparkFailed: it cannot be started.
            RunCancelled: nobody wants it any more; it is opened all the same, for the next.
        """
        with self._lock:
            if self._opening is None:
                self._opening = Future()
                threading.Thread(target=self._open, args=(self._opening,), name="opening", daemon=True).start()
            opening = self._opening
        while not is_cancelled():
            with contextlib.suppress(TimeoutError):
                return opening.result(_OPENING_POLL_S)
        raise RunCancelled("the run was cancelled while Spark started")

    def _open(self, opening: Future[Session]) -> None:
        try:
            session = open_session(self._config)
        except BaseException as error:  # noqa: BLE001  told to all who wait
            with self._lock:
                self._opening = None
            opening.set_exception(error)
            return
        threading.Thread(target=self._watch, args=(session.pid,), name="JVM watch", daemon=True).start()
        opening.set_result(session)

    def _watch(self, pid: int) -> None:
        # Not reaped here: the session's own process object does that.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        if not self._is_closing:
            log_file = self._config.log_file
            said = tail(log_file, LOG_LINES_OF_A_CRASH) if log_file is not None else ""
            self._has_died(f"the JVM of Spark ended by itself; the end of its log:\n{said}".rstrip())

    def is_dying(self) -> bool:
        """Return whether the JVM can do no more, seen before its end is; it is asked for `ANSWER_S` at most.

        It has closed its sockets, or its cluster has given it up (`cluster.ClusterWatch` ends it then).
        """
        with self._lock:
            opening = self._opening
        if opening is None or not opening.done() or opening.exception() is not None:
            return False
        context = opening.result().spark.sparkContext
        answers: list[bool] = []

        def ask() -> None:
            try:
                answers.append(bool(context._jsc.sc().isStopped()))
            except Exception:  # noqa: BLE001  of py4j, in as many ways as a connection may end
                answers.append(True)

        asking = threading.Thread(target=ask, name="JVM question", daemon=True)
        asking.start()
        asking.join(ANSWER_S)
        return any(answers)

    def close(self) -> None:
        """End the session in order, by force after `ORDERLY_END_S`."""
        self._is_closing = True
        with self._lock:
            opening = self._opening
        if opening is None:
            return
        try:
            session = opening.result(ORDERLY_END_S)
        except Exception:  # noqa: BLE001  there is none, or what there is of it ends with this process
            return
        stopping = threading.Thread(target=session.stop, daemon=True)
        stopping.start()
        stopping.join(ORDERLY_END_S)
        if stopping.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(session.pid, signal.SIGKILL)
            stopping.join(1.0)

    def check_log(self) -> None:
        """Keep the JVM's log, which takes the prints of Python workers too, from growing without end."""
        path = self._config.log_file
        if path is None or not path.exists() or path.stat().st_size <= FILE_BYTES_MAX:
            return
        shutil.copyfile(path, rotated(path))
        os.truncate(path, 0)  # the JVM writes at the end of the file, wherever that is


class Throttle:
    """Passes a run's progress on: a new stage at once, the latest of all else every `REPORT_PERIOD_S`."""

    def __init__(self, tell: Callable[[RunProgress], None]) -> None:
        """Tell by ``tell``."""
        self._tell = tell
        self._lock = threading.Lock()
        self._latest: RunProgress | None = None
        self._timer: threading.Timer | None = None
        self._stage = ""

    def take(self, progress: RunProgress) -> None:
        """Take a report; from any thread."""
        if progress.has_ended:
            return  # told once `run` has returned, when another may begin
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
        """Drop what was not told yet: the run has ended."""
        with self._lock:
            self._latest, self._stage = None, ""


class HostedFunction:
    """One function and its thread."""

    def __init__(self, number: int, spec: InstanceSpec, host: Host) -> None:
        """Begin to load it."""
        self._number = number
        self._spec = spec
        self._host = host
        self._job: Job | None = None
        self._orders: SimpleQueue[str | None] = SimpleQueue()
        self._is_wanted = True
        self._cancelled: set[str] = set()
        self._current = ""
        self._reports = Throttle(self._tell_progress)
        self._thread = threading.Thread(target=self._live, name=f"function {spec.key}", daemon=True)
        self._thread.start()

    def run(self, run_id: str) -> None:
        """Do a run after what there is to do."""
        self._orders.put(run_id)

    def cancel(self, run_id: str) -> None:
        """Stop a run, whether or not it has begun."""
        self._cancelled.add(run_id)
        # Asking the JVM may take long, or for ever; the main thread has other functions to serve.
        threading.Thread(target=self._cancel, args=(run_id,), name=f"cancel {run_id}", daemon=True).start()

    def _cancel(self, run_id: str) -> None:
        # Until it has ended: a run that is just beginning may not hear it. One that has not begun does not begin.
        while self._current == run_id and self._job is not None:
            try:
                self._job.cancel()
            except Exception as error:  # noqa: BLE001  a JVM that is ending; the worker ends us if the run goes on
                _log.warning("%s: run %s could not be cancelled: %s", self._spec.key, run_id, error)
                return
            time.sleep(_CANCEL_PERIOD_S)

    def remove(self) -> None:
        """End the thread after the run at hand; what it waits for before its first ends at once."""
        self._is_wanted = False
        self._orders.put(None)

    def _live(self) -> None:
        instance_log = InstanceLog(self._spec.log_file)
        self._host.router.enter(instance_log)
        try:
            reason = self._load(instance_log)
            while not reason and (run_id := self._orders.get()) is not None:
                self._run(run_id, instance_log)
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
        """Load the function; return why that failed."""
        try:
            self._job = self._host.make_job(self._spec, self._open_session, lambda: self._is_wanted)
            unfinished = self._job.unfinished()
        except MagnetarError as error:
            reason = f"{type(error).__name__}: {error}"
        except BaseException as error:  # noqa: BLE001  user code raises what it likes
            reason = format_error(error)
        else:
            instance_log.write("INFO", f"instance {self._spec.key} is ready for runs")
            self._host.tell({"event": "loaded", "id": self._number, "unfinished": unfinished})
            return ""
        instance_log.write("ERROR", f"instance {self._spec.key} ends: {reason}")
        return reason

    def _open_session(self) -> Session:
        return self._host.sessions.open(lambda: self._current in self._cancelled)

    def _run(self, run_id: str, instance_log: InstanceLog) -> None:
        assert self._job is not None
        self._current = run_id
        instance_log.write("INFO", f"run {run_id} begins")
        began_s = time.monotonic()
        if run_id in self._cancelled:
            end = RunProgress(run_id=run_id, stage="cancelled")
        else:
            try:
                end = self._job.run(run_id, self._reports.take)
            except BaseException as error:  # noqa: BLE001  the last place that can say why
                end = RunProgress(run_id=run_id, stage="failed", error=format_error(error))
            if run_id in self._cancelled and end.stage == "failed":
                end = replace(end, stage="cancelled", error="")  # whatever it met on its way out
        if end.stage == "failed" and self._host.sessions.is_dying():
            # It has failed of that, and is begun again in the next host. `Sessions` ends this process meanwhile.
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


class Host:
    """Serves one worker.

    Attributes:
        sessions: the session of all functions.
        router: leads what functions print into their logs.
        make_job: loads a function.
    """

    def __init__(self, commands: socket.socket, config: SessionConfig, make_job: MakeJob) -> None:
        """Serve the commands of a connected socket."""
        self.sessions = Sessions(config, self._jvm_died)
        self.router = OutputRouter()
        self.make_job = make_job
        self._commands = commands
        self._telling = threading.Lock()
        self._received = bytearray()
        self._functions: dict[int, HostedFunction] = {}

    def run(self) -> None:
        """Serve until the worker closes the socket or is gone."""
        self.router.install()
        with selectors.DefaultSelector() as selector:
            selector.register(self._commands, selectors.EVENT_READ)
            while True:
                if selector.select(_CHECK_S):
                    data = self._commands.recv(_READ_BYTES)
                    if not data:
                        break
                    self._received += data
                    while (command := take(self._received)) is not None:
                        self._obey(command)
                self.sessions.check_log()
        self.sessions.close()

    def _obey(self, command: dict[str, Any]) -> None:
        number = command["id"]
        function = self._functions.get(number)
        match command["command"]:
            case "add":
                self._functions[number] = HostedFunction(number, from_json(command["spec"]), self)
            case "run" if function is not None:
                function.run(command["run"])
            case "cancel" if function is not None:
                function.cancel(command["run"])
            case "remove" if function is not None:
                del self._functions[number]
                function.remove()
            case "run" | "cancel" | "remove":
                pass  # it could not be loaded, which the worker learns at this moment
            case unknown:
                raise ProtocolError(f"unknown command {unknown!r}")

    def forget(self, number: int) -> None:
        """Drop a function that has ended by itself; from its thread."""
        self._functions.pop(number, None)

    def tell(self, event: dict[str, Any]) -> None:
        """Send an event to the worker; from any thread. A worker that is gone is noticed by the main thread."""
        with self._telling, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._commands.sendall(encode(event))

    def _jvm_died(self, reason: str) -> None:
        self.tell({"event": "failed", "id": 0, "reason": reason})
        os._exit(1)  # PySpark's threads and functions may hang in calls to the JVM for ever


def serve(descriptor: int, config_text: str, make_job: MakeJob) -> None:
    """Live as the host of the worker at the other end of a socket, and end.

    Args:
        descriptor: of the socket.
        config_text: what `SessionConfig` is made of, as `host_config` gives it.
        make_job: loads a function.
    """
    _die_with_worker()
    setproctitle.setproctitle("magnetar spark host")
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # a terminal's Ctrl-C reaches us too; the worker decides
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s spark host: %(message)s")
    commands = socket.socket(fileno=descriptor)
    commands.set_inheritable(False)
    code = 0
    try:
        Host(commands, config_from_text(config_text), make_job).run()
    except MagnetarError as error:
        _log.error("%s", error)
        code = 1
    except BaseException:  # noqa: BLE001  the last place that can say why
        _log.exception("the host of Spark functions ends")
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: threads of functions may go on for ever, and the interpreter would wait for them.
        os._exit(code)


def _die_with_worker() -> None:
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # it died before the line above


def main() -> None:
    """Serve the socket whose descriptor is the first argument, with the session that the second describes."""
    from ...spark.jobs.function_requirements import Installer
    from ...spark.jobs.function_run import make_job

    directory = config_from_text(sys.argv[2]).directory / "requirements"

    def load(spec: InstanceSpec, opening: OpenSession, is_wanted: Callable[[], bool]) -> Job:
        return make_job(spec, opening, Installer(directory, is_wanted))

    serve(int(sys.argv[1]), sys.argv[2], load)


if __name__ == "__main__":
    main()
