"""A storage without threads: the test does all work of its lanes by steps, and looks at what it holds."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from magnetar.broker.storage import Position, Storage, StoredEntry, TopicLog
from magnetar.broker.storage.disk.lanes import Task

T = TypeVar("T")


class Stepper:
    """All lanes on the calling thread: tasks wait until `step` or `run` is called.

    Args:
        hand_over: as for ThreadLanes.
        write_turn: as for ThreadLanes.
        rng: draws which lane goes next.
    """

    def __init__(self, hand_over: Task, write_turn: Task, rng: random.Random) -> None:
        self._hand_over = hand_over
        self._write_turn = write_turn
        self._rng = rng
        self._loop_tasks: deque[Task] = deque()
        self._background_tasks: deque[Task] = deque()
        self._is_writer_awake = False

    def on_loop(self, task: Task) -> None:
        """See `Lanes`."""
        self._loop_tasks.append(task)

    def later_on_loop(self, delay_s: float, task: Task) -> None:
        """See `Lanes`; there is no time here: what waits for it is done by the test's own calls."""

    def wake_writer(self) -> None:
        """See `Lanes`."""
        self._is_writer_awake = True

    def in_background(self, task: Task) -> None:
        """See `Lanes`."""
        self._background_tasks.append(task)

    def reading(self, job: Callable[[], T]) -> Future[T]:
        """See `Lanes`; an error is raised here already."""
        result: Future[T] = Future()
        result.set_result(job())
        return result

    def stop(self) -> None:
        """See `Lanes`."""
        self.run()

    def step(self) -> bool:
        """Run one task of one lane; False if all lanes are empty."""
        choices: list[Task] = []
        if self._loop_tasks:
            choices.append(lambda: self._loop_tasks.popleft()())
        if self._is_writer_awake:
            choices.append(self._write_once)
        if self._background_tasks:
            choices.append(lambda: self._background_tasks.popleft()())
        if not choices:
            return False
        self._rng.choice(choices)()
        return True

    def _write_once(self) -> None:
        self._is_writer_awake = False
        self._hand_over()
        self._write_turn()

    def run(self) -> None:
        """Run until all lanes are empty."""
        while self.step():
            pass


def step_by_hand(storage: Storage, rng: random.Random) -> Stepper:
    """Run a storage without threads and loop: the caller's steps do all work, in an order that ``rng`` draws."""
    journal = storage._core.journal
    stepper = Stepper(journal.hand_over, journal.write_turn, rng)
    storage.use(stepper)
    return stepper


def load_now(log: TopicLog, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
    """Do what `TopicLog.load` does on the calling thread; for a storage without threads."""
    found = log.read(start, max_entries, max_bytes)
    if found is not None:
        return found
    reading = log._reading(start, max_entries, max_bytes)
    assert reading is not None
    return log._keep_read(reading[1](), max_entries, max_bytes)
