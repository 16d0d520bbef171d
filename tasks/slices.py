"""Slicing of long work, so that the event loop can run other tasks after each slice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

SLICE_S = 0.005
"""Maximum time that a slice of work may occupy the event loop."""


class Slices:
    """Slices of a piece of work, which calls `pause` after each small step."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Start the first slice.

        Args:
            monotonic: clock in seconds that, unlike uvloop's, advances within an event loop iteration.
        """
        self._monotonic = monotonic
        self._end_s = monotonic() + SLICE_S

    async def pause(self) -> None:
        """Yield to the event loop if the slice is over. Cancellation: safe."""
        if self._monotonic() >= self._end_s:
            await asyncio.sleep(0)
            self._end_s = self._monotonic() + SLICE_S
