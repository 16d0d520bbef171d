"""An event loop in which a test decides what happens next: no sockets, no threads, a clock that it sets.

Design: callbacks run in the order in which they were given, one for each `step`, as asyncio promises. What comes from
outside (bytes of a peer, the disk, the metadata store) is put in by the test between any two of them, which is all that
threads and sockets can do to a real loop. So each order that is possible here is possible there, and every await is
held as long as the test does not release what it waits for.
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
    """The loop; it counts as running as long as it is open.

    Attributes:
        accept: makes the protocol of a new connection, once somebody listens.
        failures: what asyncio would have logged: exceptions that nobody took.
        jobs: what was given to threads; the test runs it.
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
        """Whether a callback can run."""
        while self._ready and self._ready[0]._cancelled:
            self._ready.popleft()
        return bool(self._ready)

    def step(self) -> None:
        """Run the next callback."""
        self._ready.popleft()._run()

    @property
    def next_timer_s(self) -> float | None:
        """When the next timer is due; None without timers."""
        while self._scheduled and self._scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(self._scheduled)._scheduled = False
        return self._scheduled[0].when() if self._scheduled else None

    def advance(self) -> None:
        """Set the clock to the next timer and make what is due then ready."""
        due_s = self.next_timer_s
        assert due_s is not None
        self._now_s = max(self._now_s, due_s)
        while (due_s := self.next_timer_s) is not None and due_s <= self._now_s:
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
            self._ready.append(handle)

    def end(self) -> None:
        """Cancel every task, run what is left, and close."""
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
