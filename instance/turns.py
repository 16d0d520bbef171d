"""Take turns in a shared process: while one call has the process to itself, no other recorded call starts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

WAIT_S = 2.0
"""Maximum time that a call waits for others, so that a call that does not end cannot block other functions."""

Alone = Callable[[bool], None]
"""Called with True when a call gets the process to itself, and with False when another call no longer waits for it."""


class Turns:
    """Lets calls run concurrently, or one alone; used by the functions' threads."""

    def __init__(self, wait_s: float = WAIT_S) -> None:
        """Create turns without calls; a call waits for others up to ``wait_s``."""
        self._wait_s = wait_s
        self._changed = threading.Condition(threading.Lock())
        self._running = 0
        self._waiting = 0
        self._alone: Alone | None = None

    def begin(self, alone: Alone | None) -> None:
        """Start a call once it may run, or has waited for the maximum time.

        Args:
            alone: callback of a call that should run alone; None if others may run concurrently.
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
        """End a call that was started with the same argument."""
        with self._changed:
            self._running -= 1
            if alone is not None and self._alone is alone:
                self._alone = None
            self._changed.notify_all()
