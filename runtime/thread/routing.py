"""Routes output in a process shared by many functions: each thread's output goes to its instance's log.

Standard output and the root logger belong to the process. While instances run, standard output is a router that checks
the writing thread; log records of function threads go only to their instance's log and not to the worker's handlers.
Threads started by a function itself are unknown here: their ``print`` output and the records of module loggers are
still routed (`import_space`, `ThreadHome`), other output goes to the worker.

Python's logging is shared by the process. A function that configures its own, by ``basicConfig(force=True)`` or
``dictConfig``, removes the root logger's handlers and disables some or all existing loggers. So the worker's handlers
cannot be removed from the root logger's handler list, and other changes are undone by `mend`, which is called twice a
second and after each import of a function. Additions by functions are kept.

A worker with thousands of functions has thousands of loggers, so `mend` does not check all of them each time. A
configuration disables all loggers that it does not name, so a few samples reveal whether one was applied. Some of the
other loggers are checked in each call, to detect functions that disable a single logger.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from typing import TextIO, cast

from ...instance.logs.file import InstanceLog, LogHandler, LogStream

log = logging.getLogger(__name__)

OURS = "magnetar"
LOOKED_AT_ONCE = 500
"""Number of loggers checked by one call of `mend` if no sample is disabled."""
_SAMPLES = (__name__, "fn_", f"{OURS}/")
"""A sample logger of each protected kind; the last two exist only for this purpose."""


class _KeptHandlers(list[logging.Handler]):
    """A handler list from which some handlers cannot be removed."""

    def __init__(self, kept: list[logging.Handler]) -> None:
        super().__init__(kept)
        self._kept = tuple(kept)

    def remove(self, handler: logging.Handler) -> None:
        if handler not in self._kept:
            super().remove(handler)


class LoggingGuard:
    """Protects the root logger and this package's loggers against changes."""

    def __init__(self) -> None:
        """Create a guard: record the loggers, and start protecting the handlers."""
        root = logging.getLogger()
        self._handlers = list(root.handlers)
        self._level = root.level
        self._disable = root.manager.disable
        self._samples = [logging.getLogger(name) for name in _SAMPLES]
        self._taking = threading.Lock()
        self._left: list[str] = []  # loggers to be checked in this round
        root.handlers = _KeptHandlers(self._handlers)

    def mend(self) -> None:
        """Undo changes made by functions, and log a warning."""
        root = logging.getLogger()
        found = []
        if not isinstance(root.handlers, _KeptHandlers) or not set(self._handlers) <= set(root.handlers):
            found.append("its handlers")
            added = [handler for handler in root.handlers if handler not in self._handlers]
            root.handlers = _KeptHandlers(self._handlers)
            root.handlers += added
        if root.level != self._level:
            found.append("its level")
            root.setLevel(self._level)
        if root.manager.disable != self._disable:
            found.append("its disabled levels")
            logging.disable(self._disable)
        if self._enable():
            found.append("its loggers")
        if found:
            log.warning(
                "restored the worker's logging (%s) after changes by a thread function: functions that configure"
                " logging require --runtime process",
                ", ".join(found),
            )

    def _enable(self) -> int:
        """Re-enable the loggers of this package and of instances; return how many were disabled."""
        count = 0
        known = logging.getLogger().manager.loggerDict
        for name in list(known) if any(sample.disabled for sample in self._samples) else self._next():
            logger = known.get(name)
            is_kept = name.partition(".")[0] == OURS or "/" in name or name.startswith("fn_")
            if is_kept and isinstance(logger, logging.Logger) and logger.disabled:
                logger.disabled = False
                count += 1
        return count

    def _next(self) -> list[str]:
        """Return the names of the loggers to check now."""
        with self._taking:
            if not self._left:
                self._left = list(logging.getLogger().manager.loggerDict)
            taken, self._left = self._left[-LOOKED_AT_ONCE:], self._left[:-LOOKED_AT_ONCE]
        return taken

    def end(self) -> None:
        """Stop the protection after undoing current changes."""
        self.mend()
        root = logging.getLogger()
        root.handlers = list(root.handlers)


class OutputRouter:
    """Standard output, standard error and the root logger of one process."""

    def __init__(self) -> None:
        """Create a router; nothing is changed before `install`."""
        self._logs: dict[int, InstanceLog] = {}
        self._replaced: list[tuple[str, TextIO]] = []
        self._handler = _RoutingHandler(self._logs)
        self._filtered: list[logging.Handler] = []
        self._guard: LoggingGuard | None = None

    def install(self) -> None:
        """Start routing."""
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
        """Undo changes made by functions to the process's logging."""
        if self._guard is not None:
            self._guard.mend()

    def remove(self) -> None:
        """Stop routing."""
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
        """Route the calling thread's output to an instance's log."""
        self._logs[threading.get_ident()] = instance_log

    def leave(self) -> None:
        """Route the calling thread's output back to the worker."""
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
    """Replaces sys.stdout or sys.stderr."""

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
        """Only flush, as the stream is shared and a function must not close it."""
        self.flush()
