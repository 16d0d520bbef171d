"""The log of a server: one line an event, on standard error."""

from __future__ import annotations

import logging
import re
import sys
import time

QUIET_LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "httpx", "httpcore", "asyncio")
"""Libraries that report every request or start: only their warnings are events."""

_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What steers a terminal or changes how a line reads; names and texts of clients may hold it."""


class LineFormatter(logging.Formatter):
    """``2026-11-21 09:34:12.123 INFO  broker: text``; a traceback follows only for what nobody foresaw."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one event."""
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        text = " ".join(record.getMessage().splitlines())
        line = f"{moment}.{int(record.msecs):03d} {record.levelname:<7} {self.process}: {text}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), line)


def log_to_stderr(process: str, level: int = logging.INFO) -> None:
    """Send the log of this process to standard error, every line with the name of the process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
