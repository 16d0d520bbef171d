"""Bounds what a producer has taken and the broker has not stored: by messages and bytes, with a queue of callers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from ..config import ProducerConfig
from .open_batch import OpenBatch
from .pending_queue import PendingQueue


class Admission:
    """The limits of one producer, and the callers that wait until it is below them.

    Invariant: no more callers are let on than there is room for beside those that were let on and have not run yet.

    Attributes:
        waiting: callers, in the order in which they came.
        admitted: callers that were let on but have not run yet, so that their messages are not pending yet.
    """

    __slots__ = ("_batch", "_loop", "_max_bytes", "_max_messages", "_pending", "admitted", "waiting")

    def __init__(self, config: ProducerConfig, pending: PendingQueue, batch: OpenBatch):
        self._max_messages = config.max_pending_messages
        self._max_bytes = config.max_pending_bytes
        self._pending = pending
        self._batch = batch
        self._loop = asyncio.get_running_loop()
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.admitted = 0

    @property
    def room(self) -> int:
        """How many more messages there is room for."""
        pending, batch = self._pending, self._batch
        if pending.bytes + batch.bytes >= self._max_bytes:
            return 0
        return self._max_messages - pending.messages - len(batch.payloads)

    async def wait(self, check_open: Callable[[], None]) -> None:
        """Wait for room behind those who wait already; `Producer.ready` calls it when there is none.

        Cancellation: safe.

        Args:
            check_open: raises when the producer has ended.
        """
        while True:
            waiter = self._loop.create_future()
            self.waiting.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self.admitted -= 1
                    self.admit()  # the turn that was given to this caller goes to the next one
                raise
            self.admitted -= 1
            check_open()
            if self.room > 0:
                return

    def admit(self) -> None:
        """Let as many waiting callers go on as there is room for, in the order in which they came."""
        while self.waiting and self.room > self.admitted:
            self._let_on(self.waiting.popleft())

    def admit_all(self) -> None:
        """Let all go on, to find that the producer has ended."""
        while self.waiting:
            self._let_on(self.waiting.popleft())

    def _let_on(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_result(None)
            self.admitted += 1
