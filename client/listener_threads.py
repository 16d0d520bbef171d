"""The blocking client's listener threads.

Design: a consumer (or table view) is assigned to one thread, so its listener is called with one message at a time, in
order, and may call all blocking methods of the client. Consumers are assigned round-robin; with one thread, the
default, a client's listeners never run concurrently. Pulsar's C++ and Python clients give the same guarantees.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeVar

from ..tasks import settle
from .receiving import Deliver

log = logging.getLogger(__name__)

M = TypeVar("M")


class Lane:
    """A thread that runs submitted functions in order."""

    def __init__(self, name: str):
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception:
                log.exception("listener raised")

    def submit(self, call: Callable[[], object]) -> None:
        """Run a function after all previously submitted ones."""
        self._calls.put(call)

    def stop(self) -> None:
        """Stop the thread after all submitted functions have run."""
        self._calls.put(None)


class ListenerThreads:
    """A client's listener threads, each started on first use."""

    def __init__(self, number: int):
        self._number = number
        self._lanes: list[Lane] = []
        self._given = 0
        self._lock = threading.Lock()

    def lane(self) -> Lane:
        """Return the thread for a new consumer."""
        with self._lock:
            index = self._given % self._number
            self._given += 1
            if index == len(self._lanes):
                self._lanes.append(Lane(f"magnetar-listener-{index}"))
            return self._lanes[index]

    def stop(self) -> None:
        """Stop the threads; running listeners are not interrupted."""
        with self._lock:
            for lane in self._lanes:
                lane.stop()
            self._lanes.clear()


def deliver_on(lane: Lane, call: Callable[[M], object], is_stopped: Callable[[], bool]) -> Deliver[M]:
    """Return a `Deliver` that calls a listener on a thread, message by message.

    Args:
        lane: the thread.
        call: calls the listener with a message.
        is_stopped: whether to stop; called on the thread before each message.
    """

    async def deliver(messages: Sequence[M]) -> int:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()
        given = tuple(messages)

        def run() -> None:
            count = 0
            for message in given:
                if is_stopped():
                    break
                count += 1
                try:
                    call(message)
                except Exception:
                    log.exception("message listener raised")
            with contextlib.suppress(RuntimeError):  # the loop has ended, so no caller is waiting
                loop.call_soon_threadsafe(settle, done, count)

        lane.submit(run)
        return await done

    return deliver
