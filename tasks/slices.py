"""Long work in slices, between which the event loop can run other tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

SLICE_S = 0.005
"""How long work may occupy the event loop."""


class Slices:
    """The slices of one piece of work, which calls `pause` after each small step."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Start the first slice.

        Args:
            monotonic: a clock in seconds that advances within a loop iteration, unlike uvloop's.
        """
        self._monotonic = monotonic
        self._end_s = monotonic() + SLICE_S

    async def pause(self) -> None:
        """Yield to the event loop if the slice is over. Cancellation: safe."""
        if self._monotonic() >= self._end_s:
            await asyncio.sleep(0)
            self._end_s = self._monotonic() + SLICE_S
