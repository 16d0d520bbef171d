"""An event loop whose clock jumps to the next timer instead of waiting, so that long timeouts take no time.

Only for code that waits for nothing but its own loop: sockets would be overtaken. A thread's work runs at once.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class _Jump(selectors.DefaultSelector):
    """A selector that polls for events without blocking, and records how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the events that are ready."""
        if timeout is None:
            raise RuntimeError("every task waits for another, and no timer is left: a deadlock")
        self.skipped_s += max(timeout, 0.0)
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """See the module; `time` begins at 0."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        """Return the virtual seconds since the start."""
        return self._jump.skipped_s

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run a function in this thread; return a future with its result or exception."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  whoever waits for it gets it
            future.set_exception(error)
        return future


def run(work: Any) -> None:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(work)
