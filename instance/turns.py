"""Turns of functions that share a process: while one call has the process to itself, no other recorded call starts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

WAIT_S = 2.0
"""How long a call waits for the others; any longer, and a call that does not end would stop other functions."""

Alone = Callable[[bool], None]
"""Called with true when a call gets the process to itself, with false when another call has waited too long for it."""


class Turns:
    """Lets calls run concurrently, or one alone; used by the threads of functions."""

    def __init__(self, wait_s: float = WAIT_S) -> None:
        """Start without calls; a call waits for the others for ``wait_s``."""
        self._wait_s = wait_s
        self._changed = threading.Condition(threading.Lock())
        self._running = 0
        self._waiting = 0
        self._alone: Alone | None = None

    def begin(self, alone: Alone | None) -> None:
        """Start a call, once it may run or has waited too long.

        Args:
            alone: callback of a call that must have the process to itself; None if others may run concurrently.
        """
        with self._changed:
            wants_alone = alone is not None
            self._waiting += wants_alone
            deadline_s = time.monotonic() + self._wait_s
            while self._alone is not None or (self._running if wants_alone else self._waiting):
                if not self._changed.wait(deadline_s - time.monotonic()):
                    break
            self._waiting -= wants_alone
            if self._alone is not None:
                self._alone(False)
                self._alone = None
            if alone is not None and not self._running:
                self._alone = alone
                alone(True)
            self._running += 1

    def end(self, alone: Alone | None) -> None:
        """End a call that started with that argument."""
        with self._changed:
            self._running -= 1
            if alone is not None and self._alone is alone:
                self._alone = None
            self._changed.notify_all()
