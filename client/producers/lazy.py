"""A producer of one partition that is created on the broker when the first message is sent.

Design: messages sent before the producer is open are held in order, then passed to it. If the broker rejects the
producer, all held messages fail with the broker's error, and the next message retries.

Invariant: no message is passed to the producer while others are held, which preserves the order.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from ...errors import ClosedError, MagnetarError, QueueFull
from ...tasks import TaskSet
from ...wire.message_id import MessageId
from ..config import ProducerConfig
from .producer import Producer


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A held message: how to send it, its size, and its future."""

    send: Callable[[Producer], Future[MessageId]]
    size: int
    future: Future[MessageId]


class LazyProducer:
    """Stand-in for a partition's producer until the producer is open.

    Attributes:
        producer: the actual producer; created on the broker with the first message.
        is_open: whether the broker has created it.
    """

    def __init__(
        self,
        producer: Producer,
        config: ProducerConfig,
        open_it: Callable[[], Awaitable[None]],
        opened: Callable[[], None],
    ):
        """Create a lazy producer; the broker is not contacted before the first message.

        Args:
            producer: not opened yet.
            config: the producer's settings.
            open_it: creates the producer on the broker.
            opened: called when all held messages have been passed to the producer.
        """
        self.producer = producer
        self.is_open = False
        self._config = config
        self._open_it = open_it
        self._opened = opened
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._loop = asyncio.get_running_loop()
        self._tasks = TaskSet(f"producer of {producer.topic}")
        self._opening: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def has_room(self) -> bool:
        """Whether `hold` currently accepts another message."""
        config = self._config
        return len(self._waiting) < config.max_pending_messages and self._bytes < config.max_pending_bytes

    @property
    def pending_messages(self) -> int:
        """Number of held messages."""
        return len(self._waiting)

    def hold(self, send: Callable[[Producer], Future[MessageId]], size: int) -> Future[MessageId]:
        """Hold a message until the producer is open, creating it if necessary; return the future of the message id.

        Args:
            send: passes the message to the producer.
            size: payload size in bytes.

        Raises:
            QueueFull: too many messages or bytes are held.
            ClosedError: the producer is closed.
        """
        if self._is_closed:
            raise ClosedError(f"producer of {self.producer.topic} is closed")
        if not self.has_room:
            raise QueueFull(
                f"{len(self._waiting)} messages ({self._bytes} bytes) are waiting for producer {self.producer.topic},"
                f" limits are max_pending_messages={self._config.max_pending_messages} and"
                f" max_pending_bytes={self._config.max_pending_bytes}: await ready() or set block_if_queue_full"
            )
        future: Future[MessageId] = self._loop.create_future()
        self._waiting.append(_Waiting(send, size, future))
        self._bytes += size
        self.begin()
        return future

    def begin(self) -> asyncio.Task[None]:
        """Start creating the producer on the broker, unless already in progress; return the task."""
        if self._opening is None:
            self._opening = self._tasks.start(self._open(), "open", self._fail)
        return self._opening

    async def _open(self) -> None:
        await self._open_it()
        self.is_open = True
        while self._waiting:
            one = self._waiting.popleft()
            self._bytes -= one.size
            try:
                sent = one.send(self.producer)
            except QueueFull:
                self._waiting.appendleft(one)
                self._bytes += one.size
                self.is_open = False
                await self.producer.ready()
                self.is_open = True
            except MagnetarError as error:
                if not one.future.done():
                    one.future.set_exception(error)
            else:
                sent.add_done_callback(partial(_pass_on, one.future))
        self._opened()

    def _fail(self, failure: BaseException) -> None:
        self._opening = None
        error = failure if isinstance(failure, MagnetarError) else MagnetarError(f"{self.producer.topic}: {failure!r}")
        waiting, self._waiting, self._bytes = self._waiting, deque(), 0
        for one in waiting:
            if not one.future.done():
                one.future.set_exception(error)

    async def settled(self) -> None:
        """Wait until all held messages have been passed on or have failed.

        Cancellation: safe.
        """
        if self._opening is not None and not self.is_open:
            await asyncio.wait([self._opening])

    async def close(self) -> None:
        """Wait until held messages are passed on, then close the producer.

        Cancellation: the producer is closed nevertheless.
        """
        self._is_closed = True
        try:
            await self.settled()
        finally:
            await self._tasks.close()
            self._fail(ClosedError(f"producer of {self.producer.topic} was closed before this was stored"))
            await self.producer.close()


def _pass_on(future: Future[MessageId], sent: Future[MessageId]) -> None:
    if future.done():
        return
    if sent.cancelled():
        future.cancel()
    elif (error := sent.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(sent.result())
