"""The Spark session that all functions of a host share, and its JVM: opened by the first run, watched, and ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future

from ...instance.logs.file import FILE_BYTES_MAX, rotated, tail
from ...spark.jobs.run_failure import RunCancelled
from ...spark.session import Session, open_session
from ...spark.session_config import SessionConfig

ORDERLY_END_S = 3.0
LOG_LINES_OF_A_CRASH = 10
ANSWER_S = 5.0
"""A JVM that was asked whether its context is stopped has answered by then, or is busy."""
_OPENING_POLL_S = 0.1


class SharedSession:
    """One session for all functions of this process, opened by the first that needs it."""

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
