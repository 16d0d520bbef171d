"""Enforce the run-time limit: end an instance whose function takes too long for one message.

Design: the function cannot be interrupted from outside, so its process ends, and the message is redelivered. `Place.at`
identifies the current call and is checked a few times within the limit, without a cost per message. Only time in which
this process ran counts: after a late check, for example because the machine was suspended, at most two periods count.
An async call is cancelled instead (`AsyncCall`) and fails alone; one that blocks its event loop ends the process.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Protocol

from ..config.conversion import runtime_options
from .spec import InstanceSpec

LOOKS = 4
"""Checks within the limit: a call ends at most a quarter of the limit late."""
_LONGEST_PERIOD_S = 5.0
_SETTING = "runTimeLimitMs"


def run_time_limit_s(spec: InstanceSpec) -> float | None:
    """Return the time limit of a message in seconds, or None."""
    given: int | None = runtime_options(spec.details.customRuntimeOptions).get("run_time_limit_ms")
    return None if given is None else given / 1000


class Watched(Protocol):
    """Identifies the current call of a function."""

    def at(self) -> object | None:
        """Return a value that identifies the current call, or None between calls."""


class RunTimeLimit:
    """Watches the calls of one instance on its event loop."""

    def __init__(
        self,
        limit_s: float,
        place: Watched,
        thread_id: Callable[[], int | None],
        end: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a watch of an instance.

        Args:
            limit_s: time limit of a message.
            place: identifies the current call.
            thread_id: returns the id of the function's thread.
            end: ends the instance with a reason.
            clock: monotonic clock, in seconds.
        """
        self.period_s = min(limit_s / LOOKS, _LONGEST_PERIOD_S)
        self._limit_s = limit_s
        self._place = place
        self._thread_id = thread_id
        self._end = end
        self._clock = clock
        self._at: object | None = None
        self._looked_s = clock()
        self._passed_s = 0.0

    async def watch(self) -> None:
        """Check periodically until a call takes too long. Cancellation: safe."""
        while not self.look():  # noqa: ASYNC110  a running call sends no event
            await asyncio.sleep(self.period_s)

    def look(self) -> bool:
        """Return whether the current call has exceeded the limit, and end the instance if so."""
        at, now_s = self._place.at(), self._clock()
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        if at is None or at != self._at:
            self._at, self._passed_s = at, 0.0
            return False
        self._passed_s += min(passed_s, 2 * self.period_s)
        if self._passed_s < self._limit_s:
            return False
        self._end(
            f"the function has processed one message for {self._passed_s:.1f} s, beyond its limit of {self._limit_s:g}"
            f" s ({_SETTING}); {self._where()}; the message will be redelivered"
        )
        return True

    def _where(self) -> str:
        frame = sys._current_frames().get(self._thread_id() or 0)
        return "position unknown" if frame is None else f"now at line {frame.f_lineno} of {frame.f_code.co_filename}"
