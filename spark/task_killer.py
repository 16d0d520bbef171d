"""Terminates the Python tasks of a cancelled run.

Design: Spark notifies a Python worker of its task's cancellation only by closing its pipe. A worker in an endless loop
or a sleep does not notice this, and Spark terminates it only after two to four seconds. While one of our tasks runs, a
thread of its worker therefore keeps a connection to the driver open; when the driver closes it, the worker exits. The
worker also exits when the driver dies, so that tasks of a killed driver never run alongside those of its successor. The
task receives the driver's address as a local property of the job; tasks without this property are not affected.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

PROPERTY = "magnetar.task-killer"
"""Local property of a job with the address on which its driver listens."""
WORKER_MODULE = "pyspark_magnetar.worker"
"""Module that calls `install` in each Python worker; Spark only runs modules whose names begin with ``pyspark``."""
CONNECT_TIMEOUT_S = 5.0
EXIT_CODE = 75
_RELEASE = b"."
"""Sent to a worker whose run has ended, so that it continues without a connection."""
_BACKLOG = 512


class TaskKiller:
    """Driver side: connections of one run's Python workers."""

    def __init__(self, host: str) -> None:
        """Listen on an address of this machine that executors can reach."""
        self._socket = socket.create_server((host, 0), backlog=_BACKLOG)
        self.address = f"{host}:{self._socket.getsockname()[1]}"
        self._workers: list[socket.socket] = []
        self._lock = threading.Lock()
        self._has_killed = False
        self._thread = threading.Thread(target=self._accept, name="task killer", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            with self._lock:
                if self._has_killed:
                    connection.close()
                else:
                    self._workers = [one for one in self._workers if not _is_over(one)]
                    self._workers.append(connection)

    def kill(self) -> None:
        """Terminate the connected workers and those that connect later."""
        with self._lock:
            self._has_killed = True
            for connection in self._workers:
                connection.close()
            self._workers.clear()

    def close(self) -> None:
        """Stop listening and release the connected workers, because the tasks have finished."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, unlike closing alone
        self._socket.close()
        self._thread.join()
        with self._lock:
            for connection in self._workers:
                with contextlib.suppress(OSError):
                    connection.send(_RELEASE)
                connection.close()
            self._workers.clear()


def _is_over(connection: socket.socket) -> bool:
    """Return whether the peer, which never sends data, has closed the connection."""
    try:
        over = connection.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        over = True
    if over:
        connection.close()
    return over


class _Watch:
    """Worker side: connection of one task and the thread that waits for its end."""

    def __init__(self, address: str, end: Callable[[int], object]) -> None:
        self._address = address
        self._end = end
        self._connection: socket.socket | None = None
        self._is_released = False
        threading.Thread(target=self._watch, name="task killer", daemon=True).start()

    def _watch(self) -> None:
        host, _, port = self._address.rpartition(":")
        try:
            self._connection = connection = socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S)
        except OSError:
            return  # Spark itself ends the worker shortly afterwards
        with connection:
            connection.settimeout(None)
            try:
                may_go_on = self._is_released or connection.recv(1) == _RELEASE
            except OSError:
                may_go_on = False
            if not may_go_on and not self._is_released:
                self._end(EXIT_CODE)

    def release(self) -> None:
        """End the thread after the task has ended."""
        self._is_released = True
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def install(task_context: Any, end: Callable[[int], object] = os._exit) -> None:
    """Watch each task of this process while it runs.

    Args:
        task_context: PySpark's class, whose context is set at the start of a task and after its end.
        end: called to exit this process.
    """
    original = task_context._setTaskContext
    watches: list[_Watch] = []

    def set_context(_class: Any, context: Any) -> None:
        original(context)
        while watches:
            watches.pop().release()
        address = None if context is None else context.getLocalProperty(PROPERTY)
        if address:
            watches.append(_Watch(address, end))

    task_context._setTaskContext = classmethod(set_context)
