"""A storage without threads: the test runs all work of its lanes step by step, and inspects the state between steps."""

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
    """Runs all lanes on the calling thread: tasks wait until `step` or `run` is called.

    Args:
        hand_over: as for ThreadLanes.
        write_turn: as for ThreadLanes.
        rng: selects the next lane.
    """

    def __init__(self, hand_over: Task, write_turn: Task, rng: random.Random) -> None:
        self._hand_over = hand_over
        self._write_turn = write_turn
        self._rng = rng
        self._loop_tasks: deque[Task] = deque()
        self._background_tasks: deque[Task] = deque()
        self._is_writer_awake = False

    def on_loop(self, task: Task) -> None:
        """Queue a task of the loop."""
        self._loop_tasks.append(task)

    def later_on_loop(self, delay_s: float, task: Task) -> None:
        """Do nothing: there is no time, and tests call delayed work themselves."""

    def wake_writer(self) -> None:
        """Wake the writer, which runs in a later step."""
        self._is_writer_awake = True

    def in_background(self, task: Task) -> None:
        """Queue a background task."""
        self._background_tasks.append(task)

    def reading(self, job: Callable[[], T]) -> Future[T]:
        """Run a job immediately, and raise its error here."""
        result: Future[T] = Future()
        result.set_result(job())
        return result

    def stop(self) -> None:
        """Run all remaining tasks."""
        self.run()

    def step(self) -> bool:
        """Run one task of one lane; return False if all lanes are empty."""
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
        """Run tasks until all lanes are empty."""
        while self.step():
            pass


def step_by_hand(storage: Storage, rng: random.Random) -> Stepper:
    """Run a storage without threads and loop: calls of `step` do all work, in an order selected by ``rng``."""
    journal = storage._core.journal
    stepper = Stepper(journal.hand_over, journal.write_turn, rng)
    storage.use(stepper)
    return stepper


def load_now(log: TopicLog, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
    """Do what `TopicLog.load` does, on the calling thread, for a storage without threads."""
    found = log.read(start, max_entries, max_bytes)
    if found is not None:
        return found
    reading = log._reading(start, max_entries, max_bytes)
    assert reading is not None
    return log._keep_read(reading[1](), max_entries, max_bytes)
