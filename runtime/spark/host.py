"""The process that runs a worker's Spark functions: the driver, with the JVM as its child.

Design: it is started by exec, not forked from the zygote, because Spark creates threads. It shares only one socket with
the worker, over which both send JSON objects (`process/messages`). The main thread serves that socket and never waits
for Spark; each function has its own thread, which loads the code and then executes one run after the other. The JVM
starts when the first function is loaded or, depending on the worker's configuration, with the first run that needs it;
errors in a function are reported without waiting for it. When the JVM exits, this process exits, and the worker starts
another. When the worker dies, the kernel kills this process, and the JVM exits because its standard input is closed.
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
"""Time for a clean exit, in seconds; after that the JVM is killed, and its remaining files are removed. Both must take
less than the worker's `END_TIMEOUT_S`.
"""
LOG_LINES_OF_A_CRASH = 10
ANSWER_S = 5.0
"""Timeout for asking a JVM whether its context is stopped, in seconds; a JVM that does not respond counts as busy."""
ARCHIVE_AFTER_S = 30.0
"""How long a session must be open before a missing class archive is built, in seconds."""
_OPENING_POLL_S = 0.1
_CHECK_S = 1.0
_READ_BYTES = 64 * 1024
_log = logging.getLogger(__name__)


class SharedSession:
    """The session shared by all functions of this process, opened by the first one that needs it."""

    def __init__(self, config: SessionConfig, has_died: Callable[[str], None]) -> None:
        """Create an unopened session; ``has_died`` is called if the JVM exits unexpectedly."""
        self._config = config
        self._has_died = has_died
        self._opening: Future[Session] | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._is_used = False  # a run must not wait for preparations

    def open(self, is_cancelled: Callable[[], bool]) -> Session:
        """Return the session.

        Raises:
            InvalidConfig, SparkFailed: the session cannot be started.
            RunCancelled: the run was cancelled; the session still opens, for the next run.
        """
        self._is_used = True
        return self.wait(is_cancelled)

    def wait(self, is_cancelled: Callable[[], bool]) -> Session:
        """Return the session, for preparations before a run; raises as `open`."""
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
        """Open the session and start its Python workers before a run needs them, in a separate thread.

        Args:
            with_sql: also create `Session.spark`.
        """
        threading.Thread(target=self._open_ahead, args=(with_sql,), name="opening ahead", daemon=True).start()

    def _open_ahead(self, with_sql: bool) -> None:
        try:
            session = self.wait(self._closing.is_set)
            if not self._is_used:
                session.warm_up(with_sql=with_sql)
        except RunCancelled:
            pass  # this process is exiting
        except Exception as error:  # noqa: BLE001  the first run retries, and reports the error
            _log.warning("failed to start Spark ahead of a run: %s", error)

    def _build_archive(self) -> None:
        """Build the archive for the next JVM in a child process, when this JVM is less busy."""
        if self._closing.wait(ARCHIVE_AFTER_S):
            return
        with (
            contextlib.suppress(OSError),
            subprocess.Popen(ARCHIVE_PROGRAM, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as child,
        ):
            # This thread waits for the child, which is killed when the thread that started it ends.
            while child.poll() is None:
                if self._closing.wait(_CHECK_S):
                    child.terminate()
                    child.wait()  # the child terminates its JVM, at the lowest priority

    def _watch(self, pid: int) -> None:
        # The session's own process object reaps it.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        if not self._closing.is_set():
            log_file = self._config.log_file
            said = tail(log_file, LOG_LINES_OF_A_CRASH) if log_file is not None else ""
            self._has_died(f"Spark's JVM exited unexpectedly; the end of its log:\n{said}".rstrip())

    def is_dying(self) -> bool:
        """Return whether the JVM is unusable although its exit was not noticed yet; takes at most `ANSWER_S`.

        It may have closed its sockets, or the cluster may have removed it, in which case `cluster.ClusterWatch` ends
        it.
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
            except Exception:  # noqa: BLE001  py4j raises many different errors for broken connections
                answers.append(True)

        asking = threading.Thread(target=ask, name="JVM question", daemon=True)
        asking.start()
        asking.join(ANSWER_S)
        return any(answers)

    def close(self) -> None:
        """End the session cleanly, or forcibly after `ORDERLY_END_S`."""
        self._closing.set()
        with self._lock:
            opening = self._opening
        if opening is None:
            return
        deadline_s = time.monotonic() + ORDERLY_END_S
        try:
            session = opening.result(ORDERLY_END_S)
        except Exception:  # noqa: BLE001  without a session, or its remains end with this process
            return
        stopping = threading.Thread(target=session.stop, daemon=True)
        stopping.start()
        stopping.join(max(0.0, deadline_s - time.monotonic()))
        if stopping.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(session.pid, signal.SIGKILL)
            stopping.join(CLEAN_UP_S)

    def check_log(self) -> None:
        """Truncate the JVM's log, which also contains the output of Python workers, if it is too large."""
        path = self._config.log_file
        if path is None or not path.exists() or path.stat().st_size <= FILE_BYTES_MAX:
            return
        shutil.copyfile(path, rotated(path))
        os.truncate(path, 0)  # the JVM always appends at the current end of the file


class Host:
    """Runs the functions of one worker.

    Attributes:
        session: shared session.
        router: routes the functions' output to their logs.
        make_job: loads a function.
    """

    def __init__(self, commands: socket.socket, config: SessionConfig, make_job: MakeJob) -> None:
        """Create a host that serves the commands from a connected socket."""
        self.session = SharedSession(config, self._jvm_died)
        self.router = OutputRouter()
        self.make_job = make_job
        self._commands = commands
        self._telling = threading.Lock()
        self._received = bytearray()
        self._functions: dict[int, HostedFunction] = {}

    def run(self) -> None:
        """Serve until the worker closes the socket or ends."""
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
                pass  # it could not be loaded, which is reported to the worker at the same time
            case unknown:
                raise ProtocolError(f"unknown command {unknown!r}")

    def forget(self, number: int) -> None:
        """Remove a function that ended unexpectedly; called on its thread."""
        self._functions.pop(number, None)

    def tell(self, event: dict[str, Any]) -> None:
        """Send an event to the worker, from any thread; the main thread detects when the worker has ended."""
        with self._telling, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._commands.sendall(encode(event))

    def _jvm_died(self, reason: str) -> None:
        self.tell({"event": "failed", "id": 0, "reason": reason})
        os._exit(1)  # PySpark's threads and functions may hang forever in calls to the JVM


def serve(descriptor: int, config_text: str, make_job: MakeJob) -> None:
    """Run as the host of the worker at the other end of a socket, then exit the process.

    Args:
        descriptor: descriptor of the socket.
        config_text: `SessionConfig` serialised by `host_config`.
        make_job: loads a function.
    """
    die_with(os.getppid())
    setproctitle.setproctitle("magnetar spark host")
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # Ctrl-C in a terminal also reaches us, but the worker handles it
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s spark host %(name)s: %(message)s")
    commands = socket.socket(fileno=descriptor)
    commands.set_inheritable(False)
    code = 0
    try:
        Host(commands, config_from_text(config_text), make_job).run()
    except MagnetarError as error:
        _log.error("%s", error)
        code = 1
    except BaseException:  # noqa: BLE001  last chance to report it
        _log.exception("Spark function host is exiting after an error")
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Not sys.exit: threads of functions may run forever, and the interpreter would wait for them.
        os._exit(code)


def main() -> None:
    """Serve the socket in the first argument, with the session config in the second."""
    from ...instance.loading.requirements import Installer
    from ...spark.jobs.function_run import SparkFunction

    directory = config_from_text(sys.argv[2]).directory / "requirements"

    def load(spec: InstanceSpec, opening: OpenSession, is_wanted: Callable[[], bool]) -> Job:
        return SparkFunction(spec, opening, Installer(directory, is_wanted))

    serve(int(sys.argv[1]), sys.argv[2], load)


if __name__ == "__main__":
    main()
