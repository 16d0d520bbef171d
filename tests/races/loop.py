"""An event loop whose next event is selected by a test, without sockets and threads, and with a settable clock.

Design: callbacks run in the order in which they were scheduled, one per `step`, as asyncio promises. The test injects
external events (bytes of a peer, the disk, the metadata store) between any two callbacks, as threads and sockets can do
in a real loop. So each order that is possible here is possible there, and an await is held until the test releases the
event that it waits for.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable
from typing import Any


class _Socket:
    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 6650


class _Server:
    sockets = (_Socket(),)

    def close(self) -> None:
        pass

    async def wait_closed(self) -> None:
        pass


class SteppedLoop(asyncio.BaseEventLoop):
    """An event loop, which counts as running while it is open.

    Attributes:
        accept: creates the protocol of a new connection, once a server is listening.
        failures: exceptions that were never retrieved, which asyncio would log.
        jobs: work for threads, which the test runs.
    """

    _ready: Any
    _scheduled: Any
    _timer_cancelled_count: int

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self.accept: Callable[[], Any] | None = None
        self.failures: list[str] = []
        self.jobs: deque[Callable[[], None]] = deque()
        self.set_exception_handler(self._failed)
        events._set_running_loop(self)

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(f"{context.get('message')}: {context.get('exception')!r} in {context.get('task')!r}")

    def time(self) -> float:
        return self._now_s

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        result: asyncio.Future[Any] = self.create_future()

        def run() -> None:
            if not result.done():
                try:
                    result.set_result(func(*args))
                except Exception as error:  # noqa: BLE001 - raised to who waits for it
                    result.set_exception(error)

        self.jobs.append(run)
        return result

    async def create_server(self, protocol_factory: Any, *args: Any, **kwargs: Any) -> Any:
        self.accept = protocol_factory
        return _Server()

    @property
    def is_ready(self) -> bool:
        """Return whether a callback is ready."""
        while self._ready and self._ready[0]._cancelled:
            self._ready.popleft()
        return bool(self._ready)

    def step(self) -> None:
        """Run the next callback."""
        self._ready.popleft()._run()

    @property
    def next_timer_s(self) -> float | None:
        """Return the time of the next timer, or None."""
        while self._scheduled and self._scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(self._scheduled)._scheduled = False
        return self._scheduled[0].when() if self._scheduled else None

    def advance(self) -> None:
        """Advance the clock to the next timer, and make due callbacks ready."""
        due_s = self.next_timer_s
        assert due_s is not None
        self._now_s = max(self._now_s, due_s)
        while (due_s := self.next_timer_s) is not None and due_s <= self._now_s:
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
            self._ready.append(handle)

    def end(self) -> None:
        """Cancel all tasks, run remaining callbacks, and close the loop."""
        for _ in range(100):
            tasks = asyncio.all_tasks(self)
            for task in tasks:
                task.cancel()
            while self.is_ready:
                self.step()
            if not tasks:
                break
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        events._set_running_loop(None)
        self.close()
