"""Routing of output in a process that many functions share: each thread's goes to the log of its instance.

Standard output and the root logger are the process's. While instances run, standard output is a router that looks at
the writing thread; records of function threads reach their instance's log and no handler of the worker's. Threads that
a function starts itself are not known here: what they ``print`` and what they log by a module's own logger arrives all
the same (`imports`, `ThreadHome`), other output of theirs is the worker's.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from typing import TextIO, cast

from ...instance.logs.file import InstanceLog, LogHandler, LogStream
from .logging_guard import LoggingGuard


class OutputRouter:
    """Standard output, standard error and the root logger of one process."""

    def __init__(self) -> None:
        """Prepare; nothing is changed before `install`."""
        self._logs: dict[int, InstanceLog] = {}
        self._replaced: list[tuple[str, TextIO]] = []
        self._handler = _RoutingHandler(self._logs)
        self._filtered: list[logging.Handler] = []
        self._guard: LoggingGuard | None = None

    def install(self) -> None:
        """Begin routing."""
        for name, level in (("stdout", "INFO"), ("stderr", "ERROR")):
            stream: TextIO = getattr(sys, name)
            self._replaced.append((name, stream))
            setattr(sys, name, _RoutingStream(self._logs, stream, level))
        root = logging.getLogger()
        self._filtered = list(root.handlers)
        for handler in self._filtered:
            handler.addFilter(self._is_of_worker)
        root.addHandler(self._handler)
        self._guard = LoggingGuard()

    def mend(self) -> None:
        """Put back what functions have changed of the process's logging."""
        if self._guard is not None:
            self._guard.mend()

    def remove(self) -> None:
        """End routing."""
        if self._guard is not None:
            self._guard.end()
            self._guard = None
        for name, stream in self._replaced:
            if isinstance(getattr(sys, name), _RoutingStream):
                setattr(sys, name, stream)
        self._replaced.clear()
        for handler in self._filtered:
            handler.removeFilter(self._is_of_worker)
        logging.getLogger().removeHandler(self._handler)

    def _is_of_worker(self, record: logging.LogRecord) -> bool:
        return record.thread not in self._logs

    def enter(self, instance_log: InstanceLog) -> None:
        """Send the calling thread's output to an instance's log."""
        self._logs[threading.get_ident()] = instance_log

    def leave(self) -> None:
        """Give the calling thread back to the worker."""
        self._logs.pop(threading.get_ident(), None)


class _RoutingHandler(logging.Handler):
    def __init__(self, logs: dict[int, InstanceLog]) -> None:
        super().__init__()
        self._logs = logs

    def emit(self, record: logging.LogRecord) -> None:
        instance_log = self._logs.get(record.thread or 0)
        if instance_log is not None:
            LogHandler(instance_log).emit(record)


class _RoutingStream(io.TextIOBase):
    """Stands for sys.stdout or sys.stderr."""

    def __init__(self, logs: dict[int, InstanceLog], original: TextIO, level: str) -> None:
        super().__init__()
        self._logs = logs
        self._original = original
        self._level = level
        self._own = threading.local()

    def _target(self) -> TextIO:
        instance_log = self._logs.get(threading.get_ident())
        if instance_log is None:
            return self._original
        stream: LogStream | None = getattr(self._own, "stream", None)
        if stream is None:
            stream = self._own.stream = LogStream(instance_log, self._level)
        return cast(TextIO, stream)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._original.isatty()

    def fileno(self) -> int:
        return self._original.fileno()

    def write(self, text: str) -> int:
        return self._target().write(text)

    def flush(self) -> None:
        self._target().flush()

    def close(self) -> None:
        """Do nothing but flush: the stream is everybody's, and not a function's to close."""
        self.flush()
