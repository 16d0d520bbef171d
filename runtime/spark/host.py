"""The process in which a worker's Spark functions run: the driver, with the JVM as its child.

Design: it is started by exec, not forked from the zygote, because Spark creates threads. It shares only one socket with
the worker, over which both send JSON objects (`process/messages`). The main thread serves that socket and never waits
for Spark; each function has its own thread, which loads the code and then executes one run after the other. The JVM
starts when the first function is loaded, or, if the worker is configured so, with the first run that needs it; errors
in a function are reported without waiting for it. When the JVM ends, this process ends, and the worker starts another.
When the worker dies, the kernel ends this process, and the JVM ends with the pipe that is its standard input.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import setproctitle

from ...errors import MagnetarError, ProtocolError
from ...instance.logs.file import FILE_BYTES_MAX, rotated, tail
from ...instance.spec import InstanceSpec, from_json
from ...spark.build_class_archive import PROGRAM as ARCHIVE_PROGRAM
from ...spark.jobs.run_history import read_runs
from ...spark.jobs.spark_job import RunCancelled
from ...spark.session import Session, open_session
from ...spark.session_config import SessionConfig
from ..process.channel import encode, take
from ..process.forked import die_with
from ..thread.routing import OutputRouter
from .host_config import config_from_text
from .hosted_function import HostedFunction, Job, MakeJob, OpenSession

ORDERLY_END_S = 2.0
CLEAN_UP_S = 2.0
"""After that the JVM is killed, and what it left on the disk removed; both within the `END_TIMEOUT_S` of the worker."""
LOG_LINES_OF_A_CRASH = 10
ANSWER_S = 5.0
"""A JVM that was asked whether its context is stopped has answered by then, or is busy."""
ARCHIVE_AFTER_S = 30.0
"""A session has been open for so long before the archive of classes is built, if it had to start without."""
_OPENING_POLL_S = 0.1
_CHECK_S = 1.0
_READ_BYTES = 64 * 1024
_log = logging.getLogger(__name__)


class SharedSession:
    """One session for all functions of this process, opened by the first that needs it."""

    def __init__(self, config: SessionConfig, has_died: Callable[[str], None]) -> None:
        """Prepare; ``has_died`` is called when the JVM ends by itself."""
        self._config = config
        self._has_died = has_died
        self._opening: Future[Session] | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._is_used = False  # a run does not wait behind what would be done ahead of it

    def open(self, is_cancelled: Callable[[], bool]) -> Session:
        """Return the session.

        Raises:
            InvalidConfig, SparkFailed: it cannot be started.
            RunCancelled: the caller cancelled; the session still opens, for the next run.
        """
        self._is_used = True
        return self.wait(is_cancelled)

    def wait(self, is_cancelled: Callable[[], bool]) -> Session:
        """Return the session, for what is done ahead of a run; raises as `open`."""
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
            session = open_session(self._config, with_sql=False)
        except BaseException as error:  # noqa: BLE001  raised in all waiting callers
            with self._lock:
                self._opening = None
            opening.set_exception(error)
            return
        threading.Thread(target=self._watch, args=(session.pid,), name="JVM watch", daemon=True).start()
        if self._config.class_archive and not session.has_archive:
            threading.Thread(target=self._build_archive, name="archive of classes", daemon=True).start()
        opening.set_result(session)

    def open_ahead(self, *, with_sql: bool) -> None:
        """Open the session before a run needs it, and have its Python workers started; from a thread of its own.

        Args:
            with_sql: the run will need that too.
        """
        threading.Thread(target=self._open_ahead, args=(with_sql,), name="opening ahead", daemon=True).start()

    def _open_ahead(self, with_sql: bool) -> None:
        try:
            session = self.wait(self._closing.is_set)
            if not self._is_used:
                session.warm_up(with_sql=with_sql)
        except RunCancelled:
            pass  # this process ends
        except Exception as error:  # noqa: BLE001  the first run tries again, and says why it cannot
            _log.warning("Spark was not started ahead of a run: %s", error)

    def _build_archive(self) -> None:
        """Have a child build what the next JVM starts from, at a time when this one has less to do."""
        if self._closing.wait(ARCHIVE_AFTER_S):
            return
        with (
            contextlib.suppress(OSError),
            subprocess.Popen(ARCHIVE_PROGRAM, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as child,
        ):
            # This thread waits for its end: the child ends with the thread that started it.
            while child.poll() is None:
                if self._closing.wait(_CHECK_S):
                    child.terminate()
                    child.wait()  # it ends its JVM, at the lowest priority

    def _watch(self, pid: int) -> None:
        # Not reaped here: the session's own process object does that.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        if not self._closing.is_set():
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
        context = opening.result().context
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
        self._closing.set()
        with self._lock:
            opening = self._opening
        if opening is None:
            return
        deadline_s = time.monotonic() + ORDERLY_END_S
        try:
            session = opening.result(ORDERLY_END_S)
        except Exception:  # noqa: BLE001  there is no session, or its remains end with this process
            return
        stopping = threading.Thread(target=session.stop, daemon=True)
        stopping.start()
        stopping.join(max(0.0, deadline_s - time.monotonic()))
        if stopping.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(session.pid, signal.SIGKILL)
            stopping.join(CLEAN_UP_S)

    def check_log(self) -> None:
        """Keep the JVM's log, which takes the prints of Python workers too, from growing without end."""
        path = self._config.log_file
        if path is None or not path.exists() or path.stat().st_size <= FILE_BYTES_MAX:
            return
        shutil.copyfile(path, rotated(path))
        os.truncate(path, 0)  # the JVM writes at the end of the file, wherever that is


class Host:
    """Runs the functions of one worker.

    Attributes:
        session: of all functions.
        router: leads what functions print into their logs.
        make_job: loads a function.
    """

    def __init__(self, commands: socket.socket, config: SessionConfig, make_job: MakeJob) -> None:
        """Serve the commands of a connected socket."""
        self.session = SharedSession(config, self._jvm_died)
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
                self.session.check_log()
        self.session.close()

    def _obey(self, command: dict[str, Any]) -> None:
        number = command["id"]
        function = self._functions.get(number)
        match command["command"]:
            case "add":
                function = HostedFunction(number, from_json(command["spec"]), self, starts_ahead=command["ahead"])
                self._functions[number] = function
            case "run" if function is not None:
                function.run(command["run"], command["due"])
            case "remember" if function is not None:
                [run] = read_runs([command["ended"]])
                function.remember(run, command["due"])
            case "cancel" if function is not None:
                function.cancel(command["run"])
            case "remove" if function is not None:
                del self._functions[number]
                function.remove()
            case "run" | "remember" | "cancel" | "remove":
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
    """Run as the host of the worker at the other end of a socket; exits the process.

    Args:
        descriptor: of the socket.
        config_text: what `SessionConfig` is made of, as `host_config` gives it.
        make_job: loads a function.
    """
    die_with(os.getppid())
    setproctitle.setproctitle("magnetar spark host")
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # a terminal's Ctrl-C reaches us too; the worker decides
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s spark host %(name)s: %(message)s")
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


def main() -> None:
    """Serve the socket whose descriptor is the first argument, with the session that the second describes."""
    from ...instance.loading.requirements import Installer
    from ...spark.jobs.function_run import SparkFunction

    directory = config_from_text(sys.argv[2]).directory / "requirements"

    def load(spec: InstanceSpec, opening: OpenSession, is_wanted: Callable[[], bool]) -> Job:
        return SparkFunction(spec, opening, Installer(directory, is_wanted))

    serve(int(sys.argv[1]), sys.argv[2], load)


if __name__ == "__main__":
    main()
