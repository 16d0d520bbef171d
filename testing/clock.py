"""A clock controlled by the test, and the event loop that uses it.

Design: the loop's time is the machine's monotonic clock plus the time by which the test has advanced it, so timers on
the loop (delays, retry pauses, expiry) work unchanged. The clock advances from timer to timer: it jumps to the next due
timer only when the loop is idle, so that consecutive pauses start where the previous one ended. The selector detects
idleness, because the loop only waits in it when idle, and advances the clock.

Unless the test advances it, the clock runs at normal speed.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ..errors import OperationTimeout

QUIET_S = 0.005
"""The loop must have been idle for this time after socket activity before the clock is advanced."""


class MovableClock:
    """The time of a loop, in seconds; readable from any thread, advanced by `advance`."""

    def __init__(self) -> None:
        """Create a clock that starts at the machine's time."""
        self.moved_s = 0.0

    def time(self) -> float:
        """Return the wall-clock time, in seconds since 1970."""
        return time.time() + self.moved_s

    def monotonic(self) -> float:
        """Return monotonic seconds, the same as the loop's `time`."""
        return time.monotonic() + self.moved_s


class _Selector(selectors.DefaultSelector):
    """Advances the clock instead of waiting, while an advance is pending."""

    def __init__(self, clock: MovableClock) -> None:
        super().__init__()
        self.is_busy: Callable[[], bool] = lambda: False
        self._clock = clock
        self._target_s: float | None = None
        self._arrived: Callable[[], None]
        self._has_moved_something = False

    def move(self, by_s: float, arrived: Callable[[], None]) -> None:
        """Start advancing the clock; ``arrived`` is called when all work due until then is done."""
        self._target_s = self._clock.moved_s + by_s
        self._arrived = arrived
        self._has_moved_something = True

    def stop(self) -> None:
        """Stop advancing the clock."""
        self._target_s = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return ready file objects."""
        if self._target_s is None:
            return super().select(timeout)
        is_idle = timeout is None or timeout > 0
        events = super().select(QUIET_S if is_idle and self._has_moved_something else 0)
        if events or not is_idle:
            self._has_moved_something = self._has_moved_something or bool(events)
            return events
        if self.is_busy():
            self._has_moved_something = True
            return super().select(QUIET_S)
        left_s = self._target_s - self._clock.moved_s
        if left_s <= 0:
            self._target_s = None
            self._arrived()
            return []
        self._clock.moved_s += left_s if timeout is None else min(timeout, left_s)
        self._has_moved_something = False
        return []


class MovableLoop(asyncio.SelectorEventLoop):
    """An event loop whose time a test controls.

    Attributes:
        clock: the loop's clock.
    """

    def __init__(self, clock: MovableClock) -> None:
        """Create the loop.

        Args:
            clock: the loop's clock, which must not be shared with other loops.
        """
        self.clock = clock
        self._waits = _Selector(clock)
        self._jobs = 0
        self._workers: list[Callable[[], bool]] = []
        self._waits.is_busy = self._is_busy
        super().__init__(self._waits)

    def time(self) -> float:
        """Return the loop's time in seconds."""
        return self.clock.monotonic()

    def watch(self, is_busy: Callable[[], bool]) -> Callable[[], None]:
        """Stop the clock while ``is_busy`` returns true; return a function that cancels this."""
        self._workers.append(is_busy)
        return lambda: self._workers.remove(is_busy)

    def _is_busy(self) -> bool:
        return self._jobs > 0 or any(is_busy() for is_busy in self._workers)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run a function on a thread; the clock does not advance meanwhile."""
        future = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        future.add_done_callback(self._job_done)
        return future

    def _job_done(self, _: object) -> None:
        self._jobs -= 1

    def advance(self, seconds: float, timeout_s: float) -> None:
        """Advance the clock, and return when all due work is done. Must be called from another thread than the loop's.

        Args:
            seconds: number of seconds, 0 or more; 0 waits until the loop is idle.
            timeout_s: timeout in seconds of real time.

        Raises:
            OperationTimeout: work was still running at the timeout.
        """
        arrived: Future[None] = Future()

        def finish() -> None:
            if not arrived.done():
                arrived.set_result(None)

        self.call_soon_threadsafe(self._waits.move, seconds, finish)
        try:
            arrived.result(timeout_s)
        except TimeoutError:
            self.call_soon_threadsafe(self._waits.stop)
            raise OperationTimeout(
                f"cannot advance the clock by {seconds:g} s: a function was still running after {timeout_s:g} s:"
                " check what the function waits for"
            ) from None


class LoopThread:
    """An event loop on its own thread, so that the test may block."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, timeout_s: float = 60.0) -> None:
        """Start the thread.

        Args:
            loop: the loop to run.
            name: thread name.
            timeout_s: timeout of each `call`.
        """
        self.loop = loop
        self._timeout_s = timeout_s
        self._thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def call(self, coroutine: Any, timeout_s: float | None = None) -> Any:
        """Run a coroutine on the loop and return its result."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        return future.result(self._timeout_s if timeout_s is None else timeout_s)
