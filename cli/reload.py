"""`--reload`: runs in a child process that is replaced whenever a watched file is saved.

Design: the child is a fork of this process, which has imported the libraries but started no threads. So a new child
starts within milliseconds, and imports the function's modules afresh. The old child first shuts down gracefully: it
finishes its current message and returns other received messages to the broker.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

import click

from ..errors import MagnetarError
from ..runtime.process.forked import die_with
from ..wire.printable import one_line

POLL_S = 0.1
"""Interval at which files are checked, in seconds."""
STOP_S = 10.0
"""How long a child may take to exit, in seconds; longer than it waits for its function."""

_ENVIRONMENT = "pyvenv.cfg"
"""File that identifies a virtual environment's directory."""

Stamp = dict[Path, tuple[int, int]]


def run_reloading(run: Callable[[], int], watched: Sequence[Path]) -> int:
    """Run in a child process until interrupted, restarting it after each change; returns the exit code.

    Args:
        run: the work; returns an exit code. It ends on SIGTERM and SIGINT.
        watched: files, and directories whose Python files are watched, except hidden ones and virtual environments.
    """
    is_over = False

    def end(_: int, __: FrameType | None) -> None:
        nonlocal is_over
        is_over = True

    for which in (signal.SIGINT, signal.SIGTERM):
        signal.signal(which, end)
    child = _Child(run)
    seen = stamp(watched)
    while not is_over:
        time.sleep(POLL_S)
        child.look()
        now = stamp(watched)
        if now == seen:
            continue
        while (later := stamp(watched)) != now:  # files are still being written
            now = later
            time.sleep(POLL_S / 2)
        seen = now
        click.echo("magnetar: file changed, restarting", err=True)
        child.stop()
        child = _Child(run)
    child.stop()
    return 0


def stamp(watched: Sequence[Path]) -> Stamp:
    """Return the modification time and size of each existing watched file."""
    files = [file for path in watched for file in (_modules_of(path) if path.is_dir() else (path,))]
    stamps: Stamp = {}
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue  # it is being replaced
        stamps[file] = (status.st_mtime_ns, status.st_size)
    return stamps


def _modules_of(directory: Path) -> Iterator[Path]:
    """Yield the Python files of a project, except in hidden directories and virtual environments."""
    for root, directories, files in os.walk(directory):  # skips directories that are being removed
        if _ENVIRONMENT in files and root != str(directory):
            directories.clear()
            continue
        directories[:] = [name for name in directories if not name.startswith(".")]
        yield from (Path(root, name) for name in files if name.endswith(".py"))


class _Child:
    """A child process."""

    def __init__(self, run: Callable[[], int]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        self._pid = os.fork()
        if not self._pid:
            _work(run, parent)

    def look(self) -> None:
        """Report once if the process has exited."""
        if self._pid and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = 0
            click.echo("magnetar: process exited, restarting when a file is saved", err=True)

    def stop(self) -> None:
        """Stop the process, gracefully if possible."""
        if not self._pid:
            return
        os.kill(self._pid, signal.SIGTERM)
        until_s = time.monotonic() + STOP_S
        while not os.waitpid(self._pid, os.WNOHANG)[0]:
            if time.monotonic() > until_s:
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                break
            time.sleep(POLL_S / 10)
        self._pid = 0


def _work(run: Callable[[], int], parent: int) -> None:
    """Run in the child process, and exit."""
    code = 1
    try:
        if sys.platform == "linux":
            die_with(parent)
        sys.dont_write_bytecode = True  # the cache does not distinguish versions with equal time and size
        for which in (signal.SIGINT, signal.SIGTERM):
            signal.signal(which, signal.SIG_DFL)
        code = run()
    except (click.ClickException, MagnetarError) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        click.echo(f"magnetar: {one_line(text)}", err=True)
    except BaseException as error:  # noqa: BLE001  the child must not return into the parent's frames
        click.echo(f"magnetar: {one_line(f'{type(error).__name__}: {error}')}", err=True)
    finally:
        with suppress(OSError, ValueError):  # the pipe has no reader, or is closed
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
