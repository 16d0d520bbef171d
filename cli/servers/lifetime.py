"""Lifecycle of a server process: its log, signals, readiness, and ending with its parent.

The log has one line per event, on standard error. It contains strings sent by clients, such as names, paths and
reasons, so control characters are escaped in all lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

from ... import __version__
from ...compiled import variant
from ...runtime.process.forked import die_with
from ...security.audit import LOGGER as AUDIT_LOGGER
from ...security.audit import AuditLimit
from ...tasks.supervised import race
from ...wire.printable import printable
from ..failure import Failure

PARENT_VARIABLE = "MAGNETAR_PARENT_PID"
"""Environment variable set by the supervisor: the process must not outlive that parent."""
STOP_S = 10.0
"""How long a server may take to stop, in seconds; after that it is killed."""
_IMPORT_GC_THRESHOLDS = (5000, 1_000_000, 1_000_000)
QUIET_LOGGERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "httpx", "httpcore", "asyncio")
"""Loggers of libraries that log every request or start; only their warnings are shown."""

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Make garbage collection rare and limited to young objects while modules are imported, as most objects stay alive.

    Without any collection, garbage from class creation would leave holes, so more memory would not be shared.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(*_IMPORT_GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def die_with_parent() -> bool:
    """Make the kernel kill this process when its supervisor dies; return whether it has a supervisor."""
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is not None:
        die_with(int(parent))
    return parent is not None


def run(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run a server on uvloop; SIGTERM and SIGINT set the event passed to it."""
    import uvloop

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def stop_now(name: str) -> None:
            if not stop.is_set():
                logger.info("received %s, stopping", name)
                loop.call_later(STOP_S - 0.5, cut_off)
                signal.alarm(int(STOP_S))  # exits even if the loop hangs
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop_now, number.name)
        await serve(stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def until_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Wait until work completes, and raise its error, or cancel it on the stop event."""

    async def stopped() -> None:
        await stop.wait()

    await race(work, stopped())


def cut_off() -> None:
    """Exit immediately, without cleanup."""
    logger.error("did not stop within %g s, exiting immediately", STOP_S - 0.5)
    os._exit(1)


def announce(addresses: Mapping[str, str | int], ready_file: str | None, *, is_supervised: bool = False) -> None:
    """Log that the server is ready, and write its addresses as JSON to a file.

    Args:
        addresses: addresses by name.
        ready_file: file to write, ``-`` for standard output; None for none.
        is_supervised: whether this is a child of standalone, which logs the version for all processes.
    """
    if not is_supervised:
        logger.info("magnetar %s (%s)", __version__, variant())
    shown = ", ".join(f"{name} {value}" for name, value in addresses.items() if name != "pid")
    logger.info("ready: %s", shown)
    if ready_file is None:
        return
    text = json.dumps(dict(addresses)) + "\n"
    if ready_file == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    temporary = Path(f"{ready_file}.{os.getpid()}")
    try:
        temporary.write_text(text)
        temporary.replace(ready_file)  # readers never see a partial file
    except OSError as exc:
        raise Failure(f"--ready-file {ready_file} cannot be written: {exc.strerror}") from exc


def check_port(host: str, port: int, flag: str) -> None:
    """Check that a port can be opened, before anything else is opened.

    Raises:
        Failure: the port cannot be opened; the message contains the flag that sets it.
    """
    if not 0 <= port <= 65535:
        raise Failure(f"invalid {flag} {port}: expected 0 to 65535, 0 for a free port")
    if port == 0:
        return
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as exc:
        raise port_failure(exc, host, port, flag) from exc


def port_failure(error: OSError, host: str, port: int, flag: str) -> Failure:
    """Return the failure for an address that cannot be opened."""
    if error.errno == errno.EADDRINUSE:
        return Failure(
            f"port {port} on {host} is in use: stop the other program or set {flag} to another port (0: a free one)"
        )
    if error.errno == errno.EACCES:
        return Failure(f"no permission to use port {port} on {host}: set {flag} to a port above 1023")
    return Failure(f"cannot listen on {host}:{port}: {error.strerror or error}; change --host or {flag}")


class LineFormatter(logging.Formatter):
    """Formats lines as ``2026-11-21 09:34:12.123 INFO    broker magnetar.broker.service: text``.

    They contain the process and logger names. Tracebacks are only included for unexpected errors.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        """Return the line for a log record."""
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        text = printable(" ".join(record.getMessage().splitlines()))
        line = f"{moment}.{int(record.msecs):03d} {record.levelname:<7} {self.process} {printable(record.name)}: {text}"
        if record.exc_info:
            trace = self.formatException(record.exc_info).split("\n")
            line += "".join("\n" + printable(one.expandtabs()) for one in trace)
        return line


def log_to_stderr(process: str, level: int = logging.INFO) -> None:
    """Log to standard error, with the process name in every line.

    Args:
        process: name of the process.
        level: minimum level.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.getLogger(AUDIT_LOGGER).filters[:] = [AuditLimit()]
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
