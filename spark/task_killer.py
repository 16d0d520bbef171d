"""Ends what tasks do in Python as soon as nobody wants it: a connection from each to the driver, which the driver cuts.

Design: Spark tells a Python worker that its task was cancelled only by not listening any more, and ends one that does
not notice after two to four seconds; one in an endless loop, or asleep, does not notice. So while a task of ours runs,
a thread of its worker holds a connection to the driver and waits for its end, which is the end of the process. It ends
with the driver too, so that tasks of one that was killed do not go on beside those of the next. The driver's address
comes with the task, as a local property of the job; tasks without it are left alone.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

PROPERTY = "magnetar.leash"
"""Local property of a job: where its driver listens."""
WORKER_MODULE = "pyspark_magnetar.worker"
"""Has `install` done in each Python worker; Spark runs only modules whose names begin with ``pyspark``."""
CONNECT_TIMEOUT_S = 5.0
EXIT_CODE = 75
_LET_GO = b"."
_BACKLOG = 512


class Leash:
    """The driver's end: holds the workers of one run."""

    def __init__(self, host: str) -> None:
        """Listen on an address of this machine that executors reach."""
        self._socket = socket.create_server((host, 0), backlog=_BACKLOG)
        self.address = f"{host}:{self._socket.getsockname()[1]}"
        self._held: list[socket.socket] = []
        self._lock = threading.Lock()
        self._is_cut = False
        self._thread = threading.Thread(target=self._accept, name="leash", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            with self._lock:
                if self._is_cut:
                    connection.close()
                else:
                    self._held = [one for one in self._held if not _is_over(one)]
                    self._held.append(connection)

    def cut(self) -> None:
        """End the workers that are held, and those that come later."""
        with self._lock:
            self._is_cut = True
            for connection in self._held:
                connection.close()
            self._held.clear()

    def close(self) -> None:
        """Let go of what is held: the tasks have ended by themselves."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which a close alone does not
        self._socket.close()
        self._thread.join()
        with self._lock:
            for connection in self._held:
                with contextlib.suppress(OSError):
                    connection.send(_LET_GO)
                connection.close()
            self._held.clear()


def _is_over(connection: socket.socket) -> bool:
    """Return whether the other end has closed; it never sends."""
    try:
        over = connection.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        over = True
    if over:
        connection.close()
    return over


class _Hold:
    """The worker's end, for one task."""

    def __init__(self, address: str, end: Callable[[int], object]) -> None:
        self._address = address
        self._end = end
        self._connection: socket.socket | None = None
        self._is_released = False
        threading.Thread(target=self._watch, name="leash", daemon=True).start()

    def _watch(self) -> None:
        host, _, port = self._address.rpartition(":")
        try:
            self._connection = connection = socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S)
        except OSError:
            return  # Spark itself ends the worker then, a little later
        with connection:
            connection.settimeout(None)
            try:
                is_wanted = self._is_released or connection.recv(1) == _LET_GO
            except OSError:
                is_wanted = False
            if not is_wanted and not self._is_released:
                self._end(EXIT_CODE)

    def release(self) -> None:
        """End the thread; the task is over."""
        self._is_released = True
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def install(task_context: Any, end: Callable[[int], object] = os._exit) -> None:
    """Have each task of this process be held while it runs.

    Args:
        task_context: PySpark's class, which is told when a task begins and when it is over.
        end: ends this process.
    """
    tell = task_context._setTaskContext
    holds: list[_Hold] = []

    def told(_class: Any, context: Any) -> None:
        tell(context)
        while holds:
            holds.pop().release()
        address = None if context is None else context.getLocalProperty(PROPERTY)
        if address:
            holds.append(_Hold(address, end))

    task_context._setTaskContext = classmethod(told)
