"""Shows the progress of a session's jobs in one line on a terminal or below a notebook cell.

Spark's own progress bar is written by the JVM. It ends up in the session's log file and is not shown in notebooks.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, Any, Literal, Protocol

Wanted = Literal["auto"] | bool
POLL_S = 0.2
DELAY_S = 0.5
"""Jobs that finish within this time show no progress."""
LINE_PERIOD_S = 5.0
"""Minimum interval between progress lines that cannot be overwritten."""
_STOP_TIMEOUT_S = 2.0
_BAR_WIDTH = 24
_EMPTY_POLLS = 2
"""Polls without a running stage until a job counts as finished: there may be a short gap between two stages."""


class StageInfo(Protocol):
    """Information about a stage, such as a ``SparkStageInfo``."""

    numTasks: int
    numActiveTasks: int
    numCompletedTasks: int
    numFailedTasks: int


class Tracker(Protocol):
    """Provider of stage information, such as a ``StatusTracker``."""

    def getActiveStageIds(self) -> list[int]:
        """Return the ids of running stages."""

    def getStageInfo(self, stage: int) -> StageInfo | None:
        """Return information about a stage."""


class Place(Protocol):
    """Output that shows a progress line."""

    def show(self, line: str) -> None:
        """Replace the current line."""

    def end(self, line: str) -> None:
        """Erase the current line, or replace it with a permanent ``line``; the next `show` starts a new line."""


class TerminalLine:
    """Progress line on a terminal, which is overwritten and finally erased."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def show(self, line: str) -> None:
        """Write the line and return the cursor to its start, so that the program's next output overwrites it."""
        width = shutil.get_terminal_size().columns - 1
        self._write(f"\r\x1b[K{line[:width]}\r")

    def end(self, line: str) -> None:
        """Erase the line."""
        self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()


class PlainLines:
    """Progress lines in a file or pipe, at least `LINE_PERIOD_S` apart."""

    def __init__(self, file: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._next_s = clock()

    def show(self, line: str) -> None:
        """Write a line unless the previous one was written less than `LINE_PERIOD_S` ago."""
        now_s = self._clock()
        if now_s >= self._next_s:
            self._next_s = now_s + LINE_PERIOD_S
            print(line, file=self._file, flush=True)

    def end(self, line: str) -> None:
        """Write the final line; the next `show` writes immediately."""
        print(line, file=self._file, flush=True)
        self._next_s = self._clock()


class NotebookLine:
    """Progress line below the running notebook cell."""

    def __init__(self) -> None:
        self._display = importlib.import_module("IPython.display").display
        self._handle: Any = None

    def show(self, line: str) -> None:
        """Show or replace the line below the cell."""
        data = {"text/plain": line}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def end(self, line: str) -> None:
        """Keep ``line`` below the cell permanently."""
        self.show(line)
        self._handle = None


def in_notebook() -> bool:
    """Whether this process is a notebook kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def place_for(wanted: Wanted, file: IO[str] | None = None) -> Place | None:
    """Return the output for progress lines, or None for no output.

    Args:
        wanted: True, False, or ``auto`` to show progress only in notebooks and on terminals.
        file: replaces standard error.
    """
    if wanted is False:
        return None
    if in_notebook():
        return NotebookLine()
    file = file or sys.stderr
    if file is not None and file.isatty() and os.environ.get("TERM") != "dumb":
        return TerminalLine(file)
    return None if wanted == "auto" or file is None else PlainLines(file)


def line_of(stages: dict[int, StageInfo], elapsed_s: float) -> str:
    """Return a line that describes the progress of stages."""
    done, total, running, failed = (
        sum(getattr(stage, name) for stage in stages.values())
        for name in ("numCompletedTasks", "numTasks", "numActiveTasks", "numFailedTasks")
    )
    filled = _BAR_WIDTH * done // total if total else 0
    bar = ("=" * filled + ">" * (filled < _BAR_WIDTH)).ljust(_BAR_WIDTH)
    named = f"stage{'s' * (len(stages) > 1)} {', '.join(map(str, sorted(stages)))}"
    failures = f", {failed} failed" if failed else ""
    return f"[{bar}] {done:,}/{total:,} tasks, {running:,} running{failures}, {named}, {elapsed_s:.0f} s"


class JobProgress:
    """Thread that watches running stages and shows their progress."""

    def __init__(self, tracker: Tracker, place: Place, clock: Callable[[], float] = time.monotonic) -> None:
        """Create the thread, which shows the stages of ``tracker`` in ``place`` once started."""
        self._tracker = tracker
        self._place = place
        self._clock = clock
        self._since_s: float | None = None
        self._is_shown = False
        self._empty_polls = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="magnetar-spark-progress", daemon=True)

    def start(self) -> JobProgress:
        """Start watching and return this object."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop the thread and remove the line."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT_S)

    def look(self) -> None:
        """Check the stages once and show changes.

        Raises:
            Py4JError, OSError: the JVM does not answer.
        """
        now_s = self._clock()
        stages = {
            stage: info
            for stage in self._tracker.getActiveStageIds()
            if (info := self._tracker.getStageInfo(stage)) is not None
        }
        if not stages:
            self._empty_polls += 1
            if self._empty_polls >= _EMPTY_POLLS:
                self._end(now_s)
            return
        self._empty_polls = 0
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s >= DELAY_S:
            self._is_shown = True
            self._place.show(line_of(stages, now_s - self._since_s))

    def _end(self, now_s: float) -> None:
        since_s, is_shown = self._since_s, self._is_shown
        self._since_s, self._is_shown = None, False
        if is_shown and since_s is not None:
            self._place.end(f"all tasks finished after {now_s - since_s:.0f} s")

    def _run(self) -> None:
        from py4j.protocol import Py4JError

        # A dead JVM or a closed stream only ends the progress display; the program itself handles the error.
        with contextlib.suppress(Py4JError, OSError, ValueError):
            while not self._stopped.wait(POLL_S):
                self.look()
        with contextlib.suppress(OSError, ValueError):
            self._end(self._clock())
