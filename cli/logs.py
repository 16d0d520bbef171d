"""The log of a server: one line an event, on standard error.

What clients send (names, paths, reasons) comes into the log; control characters in it are escaped here, for all lines.
"""

from __future__ import annotations

import logging
import sys
import time

from ..wire.printable import printable

QUIET_LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "httpx", "httpcore", "asyncio")
"""Libraries that report every request or start: only their warnings are events."""


class LineFormatter(logging.Formatter):
    """``2026-11-21 09:34:12.123 INFO  broker: text``; with a traceback for unexpected errors only."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one event."""
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        text = printable(" ".join(record.getMessage().splitlines()))
        line = f"{moment}.{int(record.msecs):03d} {record.levelname:<7} {self.process}: {text}"
        if record.exc_info:
            trace = self.formatException(record.exc_info).split("\n")
            line += "".join("\n" + printable(one.expandtabs()) for one in trace)
        return line


def log_to_stderr(process: str, level: int = logging.INFO) -> None:
    """Send the log of this process to standard error, every line with the name of the process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
