"""Where other threads leave work for an event loop, waking it once per burst."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable


class Mailbox:
    """Actions for one event loop, in the order in which they were left."""

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        """Prepare, on the event loop.

        Args:
            on_error: told what an action raised; those behind it are done all the same.
        """
        self._loop = asyncio.get_running_loop()
        self._on_error = on_error
        self._actions: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def post(self, action: Callable[[], None]) -> None:
        """Leave something for the event loop to do (from any thread)."""
        self._actions.append(action)
        if not self._is_woken:
            self._is_woken = True
            # A loop that is closed has nobody any more who could be told.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._is_woken = False  # first: what is left from now on wakes the loop again
        while self._actions:
            try:
                self._actions.popleft()()
            except Exception as error:  # noqa: BLE001  the boundary of whoever owns the mailbox
                self._on_error(error)
