"""Let the function's thread wait for work on the event loop, unless the instance is stopping."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Coroutine
from typing import Any, TypeVar

from .stopping import InstanceStopping

_T = TypeVar("_T")


class LoopCalls:
    """Runs coroutines on the event loop on which it was created, and waits for them on other threads."""

    def __init__(self) -> None:
        """Use the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._stopping: concurrent.futures.Future[None] = concurrent.futures.Future()

    def wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of a coroutine that runs on the event loop (from another thread).

        Raises:
            InstanceStopping: the instance is stopping; the coroutine is cancelled.
            Exception: raised by the coroutine.
        """
        try:
            asked = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:  # the loop is closed, so the thread was abandoned
            work.close()
            raise InstanceStopping from error
        both: tuple[concurrent.futures.Future[Any], ...] = (asked, self._stopping)
        concurrent.futures.wait(both, return_when=concurrent.futures.FIRST_COMPLETED)
        if not asked.done():
            asked.cancel()
            raise InstanceStopping
        return asked.result()

    def stop(self) -> None:
        """End all waits (from any thread)."""
        if not self._stopping.done():
            self._stopping.set_result(None)
