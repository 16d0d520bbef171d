"""The blocking client's thread, which runs its event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import uvloop

from ...errors import ClosedError

_T = TypeVar("_T")


class LoopThread:
    """A thread that runs an event loop until it is stopped."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="magnetar-client", daemon=True)
        self._is_stopped = False
        self._handing_over = threading.Lock()  # previously submitted calls still run
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        # Cancel pending calls of other threads, which would otherwise wait forever.
        calls = asyncio.all_tasks(self.loop)
        for call in calls:
            call.cancel()
        self.loop.run_until_complete(asyncio.gather(*calls, return_exceptions=True))
        self.loop.close()

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop and return its result."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a blocking call in the client's own thread would deadlock: call from another thread")
        with self._handing_over:
            if self._is_stopped:
                coroutine.close()
                raise ClosedError("the client is closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if self._is_stopped:
                raise ClosedError("the client was closed during the call") from None
            raise
        except BaseException:
            future.cancel()  # KeyboardInterrupt: the result is unused
            raise

    def run(self, call: Callable[[], None]) -> None:
        """Call a function on the loop and wait until it returns."""
        self.call(_called(call))

    def wait(self, call: Callable[[], Awaitable[None]]) -> None:
        """Call a function on the loop and wait for the awaitable that it returns."""
        self.call(_awaited(call))

    def soon(self, call: Callable[[], None]) -> None:
        """Schedule a function on the loop without waiting for it."""
        with self._handing_over:
            if self._is_stopped:
                raise ClosedError("the client is closed")
            self.loop.call_soon_threadsafe(call)

    def stop(self) -> None:
        """Stop the thread."""
        with self._handing_over:
            is_first = not self._is_stopped
            self._is_stopped = True
            if is_first:
                self.loop.call_soon_threadsafe(self.loop.stop)
        if is_first:
            self._thread.join()


async def _awaited(call: Callable[[], Awaitable[None]]) -> None:
    await call()


async def _called(call: Callable[[], None]) -> None:
    call()
