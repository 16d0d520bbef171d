"""Hold work of the broker until a test releases it: the journal, other disk work, and the metadata store."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from magnetar.errors import BadVersion, MetadataUnavailable, StorageError
from magnetar.metadata.store.store import Change, Record

T = TypeVar("T")
Task = Callable[[], None]


class HeldLanes:
    """Lanes of a storage whose threads do one piece of work on request."""

    def __init__(self, loop: asyncio.AbstractEventLoop, hand_over: Task, write_turn: Task) -> None:
        self._loop = loop
        self._hand_over = hand_over
        self._write_turn = write_turn
        self._is_wake_planned = False
        self.wakes = 0
        self.background: deque[Task] = deque()
        self.reads: deque[Task] = deque()

    def on_loop(self, task: Task) -> None:
        self._loop.call_soon(task)

    def later_on_loop(self, delay_s: float, task: Task) -> None:
        self._loop.call_later(delay_s, task)

    def wake_writer(self) -> None:
        if not self._is_wake_planned:
            self._is_wake_planned = True
            self._loop.call_soon(self._send_wake)

    def _send_wake(self) -> None:
        self._is_wake_planned = False
        self._hand_over()
        self.wakes += 1

    def in_background(self, task: Task) -> None:
        self.background.append(task)

    def reading(self, job: Callable[[], T]) -> Future[T]:
        result: Future[T] = Future()

        def read() -> None:
            if not result.set_running_or_notify_cancel():
                return
            try:
                result.set_result(job())
            except Exception as error:  # noqa: BLE001 - raised to who waits for it
                result.set_exception(error)

        self.reads.append(read)
        return result

    def stop(self) -> None:
        pass

    def write(self) -> None:
        """Run the writer once."""
        self.wakes -= 1
        self._write_turn()


class HeldWatch:
    """A watch on a `HeldStore`."""

    def __init__(self, prefix: str, callback: Callable[[Change], None], watches: list[HeldWatch]) -> None:
        self.prefix = prefix
        self.callback = callback
        self._watches = watches
        watches.append(self)

    def close(self) -> None:
        if self in self._watches:
            self._watches.remove(self)


class HeldStore:
    """An in-memory metadata store whose operations take effect in order, on request.

    Attributes:
        records: durable records.
        queue: pending operations.
        fails: returns whether an operation fails; None if none fails.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, records: dict[str, Record] | None = None) -> None:
        self._loop = loop
        self.records = dict(records or {})
        self.queue: deque[Task] = deque()
        self.fails: Callable[[], bool] | None = None
        self._watches: list[HeldWatch] = []

    async def get(self, path: str) -> Record | None:
        return await self._held(lambda: self.records.get(path))

    async def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        def act() -> int:
            held = self.records.get(path)
            version = -1 if held is None else held.version
            if expected_version is not None and expected_version != version:
                raise BadVersion(f"{path} has version {version}, not {expected_version}")
            self.records[path] = Record(value, version + 1)
            self._tell(Change(path, version + 1))
            return version + 1

        return await self._held(act)

    async def delete(self, path: str, expected_version: int | None = None) -> bool:
        def act() -> bool:
            held = self.records.get(path)
            if expected_version is not None and (held is None or held.version != expected_version):
                raise BadVersion(f"{path} has another version than {expected_version}")
            if held is None:
                return False
            del self.records[path]
            self._tell(Change(path, None))
            return True

        return await self._held(act)

    async def children(self, path: str) -> list[str]:
        below = path.rstrip("/") + "/"
        return await self._held(
            lambda: sorted({name[len(below) :].partition("/")[0] for name in self.records if name.startswith(below)})
        )

    def watch(self, prefix: str, callback: Callable[[Change], None]) -> HeldWatch:
        return HeldWatch(prefix, callback, self._watches)

    async def close(self) -> None:
        pass

    def release(self) -> None:
        """Execute and answer the next operation."""
        self.queue.popleft()()

    async def _held(self, act: Callable[[], T]) -> T:
        answer: asyncio.Future[T] = self._loop.create_future()

        def run() -> None:
            try:
                if self.fails is not None and self.fails():
                    raise MetadataUnavailable("the metadata store is away, says the test")
                result = act()
            except (BadVersion, StorageError) as error:
                self._loop.call_soon(_answer, answer, None, error)
            else:
                self._loop.call_soon(_answer, answer, result, None)

        self.queue.append(run)
        return await answer

    def _tell(self, change: Change) -> None:
        for watch in tuple(self._watches):
            if change.path == watch.prefix or change.path.startswith(watch.prefix + "/"):
                self._loop.call_soon(watch.callback, change)


def _answer(answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
