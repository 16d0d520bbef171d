"""Detect a function that blocks its event loop, and report the line.

Design: code on the loop cannot notice that the loop is blocked, so another thread pings the loop every second. If the
last ping was not answered, the function's thread is inspected: the innermost frame outside installed libraries and
Magnetar shows where the function waits or computes.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FrameType

HELD_UP_S = 1.0
_OURS = (
    *(str(Path(__file__).parent.parent / ours) + os.sep for ours in ("instance", "client", "state", "tasks")),
    "<frozen",
)


class LoopWatch:
    """Watches one event loop."""

    def __init__(self, report: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """Create a watch without a loop.

        Args:
            report: called with one line each time the loop is blocked.
            clock: monotonic clock, in seconds.
        """
        self._report = report
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._asked_s = 0.0
        self._answered = True
        self._text = ""

    @contextmanager
    def watching(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Watch an event loop of this thread inside the with block."""
        self._thread, self._answered, self._loop = threading.get_ident(), True, loop
        try:
            yield
        finally:
            self._loop, self._text = None, ""

    def trouble(self) -> str:
        """Return what is blocking the loop, or an empty string (from any thread)."""
        return "" if self._answered else self._text

    def at(self) -> float | None:
        """Return the time at which the loop became blocked, or None (implements `run_time_limit.Watched`)."""
        return None if self._answered or self._loop is None else self._asked_s

    def tick(self) -> None:
        """Check the loop; called about every second on one other thread."""
        loop, now_s = self._loop, self._clock()
        if loop is None:
            return
        if self._answered:
            self._text = ""
            self._asked_s, self._answered = now_s, False
            with suppress(RuntimeError):  # closed meanwhile
                loop.call_soon_threadsafe(self._answer)
        elif now_s - self._asked_s >= HELD_UP_S:
            is_new = not self._text
            self._text = f"an async call has blocked the event loop for {now_s - self._asked_s:.0f} s: {self._where()}"
            if is_new:
                self._report(f"{self._text}; all other calls are waiting: use await or asyncio.to_thread")

    def _answer(self) -> None:
        self._answered = True

    def _where(self) -> str:
        frame = sys._current_frames().get(self._thread)
        innermost = frame
        while frame is not None and _is_foreign(frame):
            frame = frame.f_back
        found = frame or innermost
        if found is None:
            return "its thread has ended"
        return f"line {found.f_lineno} of {found.f_code.co_filename} ({found.f_code.co_name})"


def _is_foreign(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_foreign())


@cache
def _foreign() -> tuple[str, ...]:
    """Return path prefixes of files that do not belong to the function."""
    import sysconfig

    paths = sysconfig.get_paths()
    return (*(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if paths.get(name)), *_OURS)
