"""The threads on which the blocking client calls listeners.

Design: a consumer (or table view) belongs to one thread, so its listener is called for one message after the other, in
order, and may use every blocking call of the client. Consumers take the threads in turn; with one thread, the default,
no two listeners of a client ever run at the same time. These are the promises of Pulsar's C++ and Python clients.
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
    """One thread, which runs what is handed to it in order."""

    def __init__(self, name: str):
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except Exception:
                log.exception("a listener raised")

    def submit(self, call: Callable[[], object]) -> None:
        """Run a function behind all others."""
        self._calls.put(call)

    def stop(self) -> None:
        """End the thread behind all functions that were handed over."""
        self._calls.put(None)


class ListenerThreads:
    """The threads of one client; each starts when it is first needed."""

    def __init__(self, number: int):
        self._number = number
        self._lanes: list[Lane] = []
        self._given = 0
        self._lock = threading.Lock()

    def lane(self) -> Lane:
        """Return the thread for another consumer."""
        with self._lock:
            index = self._given % self._number
            self._given += 1
            if index == len(self._lanes):
                self._lanes.append(Lane(f"magnetar-listener-{index}"))
            return self._lanes[index]

    def stop(self) -> None:
        """End the threads; listeners that run go on to their end."""
        with self._lock:
            for lane in self._lanes:
                lane.stop()
            self._lanes.clear()


def deliver_on(lane: Lane, call: Callable[[M], object], is_stopped: Callable[[], bool]) -> Deliver[M]:
    """Return what calls a listener on a thread, message by message.

    Args:
        lane: the thread.
        call: calls the listener with a message.
        is_stopped: whether it is not to be called any more; asked on the thread, before each message.
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
                    log.exception("a message listener raised")
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it who waits
                loop.call_soon_threadsafe(settle, done, count)

        lane.submit(run)
        return await done

    return deliver
