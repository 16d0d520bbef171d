"""Tasks that outlive the request that started them.

Design: a task that is never awaited fails silently, and its work stops without an error. Every task therefore has an
owner, the `TaskSet` of the object for which it works, and a failure handler:

- `TaskSet.start` runs a piece of work once. A failure is logged or passed to a handler.
- `TaskSet.keep` is for work that runs as long as its owner (timers, watches, listeners). A failure is logged, and the
  work is restarted after a pause, which doubles each time.
- `TaskSet.close` cancels running tasks and waits until they have ended.

Within a single coroutine, `asyncio.TaskGroup` does the same and is preferable; `race` waits for the first of several
coroutines. `tests/test_architecture.py` fails if a task is created elsewhere.

Invariant: no exception of a task is lost. It is logged, handled, or raised where the task is awaited.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .retry import Backoff

T = TypeVar("T")
OnFailure = Callable[[BaseException], None]

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0

log = logging.getLogger(__name__)


def log_failure(name: str) -> OnFailure:
    """Return a failure handler that logs an error with the traceback and the task's name."""

    def handle(failure: BaseException) -> None:
        log.error("task %r failed: %s", name, failure, exc_info=failure)

    return handle


def awaited_elsewhere(failure: BaseException) -> None:
    """Failure handler that does nothing, for a task that is always awaited and raises there."""


class TaskSet:
    """The tasks of one owner, bound to the event loop of the first task.

    Args:
        owner: name of the owner in log lines, such as ``broker`` or ``worker w-1``.
    """

    def __init__(self, owner: str):
        self.owner = owner
        self._tasks: dict[asyncio.Task[Any], None] = {}  # ordered, so that seeded tests are reproducible

    def __repr__(self) -> str:
        return f"TaskSet({self.owner!r}, running={sorted(task.get_name() for task in self._tasks)})"

    def __len__(self) -> int:
        """Return the number of tasks that have not ended."""
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, T], name: str, on_failure: OnFailure | None = None) -> asyncio.Task[T]:
        """Run a piece of work in a new task.

        Args:
            work: the coroutine.
            name: description of the work, for logs and `repr`.
            on_failure: called once, in the event loop, with the exception that ended the task, but not for a
                cancellation. By default the failure is logged. An exception of the handler itself is also logged.
        """
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        handle = on_failure or log_failure(f"{self.owner}: {name}")

        def ended(task: asyncio.Task[T]) -> None:
            self._tasks.pop(task, None)
            if task.cancelled():
                return
            failure = task.exception()
            if failure is not None:
                _handle(handle, failure, name)

        task.add_done_callback(ended)
        return task

    def keep(
        self,
        make_work: Callable[[], Coroutine[Any, Any, None]],
        name: str,
        *,
        first_pause_s: float = FIRST_PAUSE_S,
        longest_pause_s: float = LONGEST_PAUSE_S,
        on_failure: OnFailure | None = None,
    ) -> asyncio.Task[None]:
        """Run work as long as its owner exists, restarting it after a failure but not after it returns.

        Args:
            make_work: creates the coroutine, once per start.
            name: description of the work, for logs and `repr`.
            first_pause_s: pause before the first restart, in seconds. It doubles with each failure within
                ``longest_pause_s`` of the start, and is reset if the work ran longer.
            longest_pause_s: longest pause, in seconds.
            on_failure: called with each failure; by default it is logged.
        """
        handle = on_failure or log_failure(f"{self.owner}: {name}")

        async def kept() -> None:
            loop = asyncio.get_running_loop()
            backoff = Backoff(first_pause_s, longest_pause_s)
            while True:
                began_s = loop.time()
                try:
                    return await make_work()
                except Exception as failure:  # noqa: BLE001 - every failure is handled, and the work continues
                    _handle(handle, failure, name)
                await asyncio.sleep(backoff.after(loop.time() - began_s))

        return self.start(kept(), name, on_failure)

    def cancel(self) -> None:
        """Cancel all tasks without waiting for them to end."""
        for task in tuple(self._tasks):
            task.cancel()

    async def idle(self) -> None:
        """Wait until all currently running tasks have ended, except for the calling task.

        Cancellation: safe; the tasks continue.
        """
        if others := [task for task in self._tasks if task is not asyncio.current_task()]:
            await asyncio.wait(others)

    async def close(self) -> None:
        """Cancel all tasks, including any that they start meanwhile, and wait until they have ended.

        If a task of the set calls this, it is not cancelled itself.

        Cancellation: the tasks are still cancelled; call again to wait for them.
        """
        while others := [task for task in self._tasks if task is not asyncio.current_task()]:
            for task in others:
                task.cancel()
            await asyncio.wait(others)


def _handle(handle: OnFailure, failure: BaseException, name: str) -> None:
    try:
        handle(failure)
    except Exception:
        log.exception("the failure handler of task %r raised while handling %r", name, failure)


async def race(*works: Coroutine[Any, Any, T]) -> T:
    """Return the result, or raise the exception, of the first coroutine that ends.

    The others are cancelled and awaited before this returns, and any exceptions they raise are logged. If several end
    at the same time, the first in argument order counts.

    Cancellation: safe; all coroutines are cancelled and awaited.
    """
    tasks = [asyncio.get_running_loop().create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        winner = next(task for task in tasks if task.done())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if task is not winner and not task.cancelled() and (failure := task.exception()) is not None:
            log_failure(task.get_name())(failure)
    return winner.result()
