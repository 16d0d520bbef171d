"""The lanes on which storage work runs: the event loop, a writer thread, a background thread, and reader threads.

Design: the *loop* lane owns the state of all logs and cursors and never accesses files. The *writer* lane writes the
journal's queue in groups. The *background* lane performs slow work, such as moving entries to ledgers and removing
files. Reads for consumers with a backlog use separate threads. A lane receives callables and runs them in sequence, and
lanes interact in no other way. So tests can run all lanes on one thread, in a reproducible order derived from a seed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Protocol, TypeVar

from ....tasks import call_in

T = TypeVar("T")
Task = Callable[[], None]

_READERS = 3
logger = logging.getLogger(__name__)


class Lanes(Protocol):
    """Schedules work on the lanes."""

    def on_loop(self, task: Task) -> None:
        """Run ``task`` on the loop lane; may be called from any lane."""

    def later_on_loop(self, delay_s: float, task: Task) -> None:
        """Run ``task`` on the loop lane after ``delay_s``; must be called on the loop lane."""

    def wake_writer(self) -> None:
        """Wake the writer to process its queue; must be called on the loop lane."""

    def in_background(self, task: Task) -> None:
        """Run ``task`` on the background lane, after all earlier tasks."""

    def reading(self, job: Callable[[], T]) -> Future[T]:
        """Run ``job``, which reads files, in parallel with all other work."""

    def stop(self) -> None:
        """Finish the queued work of the writer and background lanes, then stop the threads. Blocks."""


class ThreadLanes:
    """The lanes of a running broker: its event loop, a writer thread, a background thread, and a few readers.

    Args:
        loop: event loop of the broker.
        hand_over: called on the loop to pass queued records to the writer.
        write_turn: called on the writer thread to write the records passed to it.
        died: called on the loop if a thread fails with an unexpected error.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        hand_over: Task,
        write_turn: Task,
        died: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._hand_over = hand_over
        self._write_turn = write_turn
        self._died = died
        self._wakes: SimpleQueue[bool] = SimpleQueue()
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._is_wake_planned = False
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="storage-read")
        self._threads = [
            threading.Thread(target=self._write, name="storage-journal", daemon=True),
            threading.Thread(target=self._work, name="storage-background", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def on_loop(self, task: Task) -> None:
        """Run the task on the loop, or drop it if the loop is closed."""
        call_in(self._loop, task)

    def later_on_loop(self, delay_s: float, task: Task) -> None:
        """Run the task on the loop after ``delay_s``."""
        self._loop.call_later(delay_s, task)

    def wake_writer(self) -> None:
        """Wake the writer after the current loop iteration, so that its records are written in one group."""
        if not self._is_wake_planned:
            self._is_wake_planned = True
            self._loop.call_soon(self._send_wake)

    def _send_wake(self) -> None:
        self._is_wake_planned = False
        self._hand_over()
        self._wakes.put(True)

    def in_background(self, task: Task) -> None:
        """Queue the task for the background thread."""
        self._tasks.put(task)

    def reading(self, job: Callable[[], T]) -> Future[T]:
        """Run the job in the reader pool."""
        return self._readers.submit(job)

    def stop(self) -> None:
        """Finish all queued work, then stop the threads."""
        self._send_wake()
        self._wakes.put(False)
        self._tasks.put(None)
        for thread in self._threads:
            thread.join()
        self._readers.shutdown()

    def _write(self) -> None:
        with self._watched():
            while self._wakes.get():
                self._write_turn()

    def _work(self) -> None:
        with self._watched():
            while (task := self._tasks.get()) is not None:
                try:
                    task()
                except Exception:  # a failing task must not stop the thread
                    logger.exception("storage background task failed")

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except BaseException as exc:
            self.on_loop(partial(self._died, exc))
            raise
