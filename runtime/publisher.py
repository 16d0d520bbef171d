"""Publishes what functions send through their context: one producer per topic, made when it is first needed.

Design: the function's thread leaves requests in a queue and wakes the event loop once per burst. A gate bounds what is
on its way; a function that publishes faster than the broker stores waits in `publish`. Callbacks are user code
and never run on the event loop: they get a thread of their own, made when the first one is due.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial

from ..client.client import AsyncClient
from ..client.config import Guard, ProducerConfig
from ..errors import BrokerError, ClosedError, MagnetarError, OperationTimeout, TopicNotFound, TopicTerminated
from ..wire.message_id import MessageId
from .callbacks import Callbacks
from .gate import Gate
from .publish_request import PublishRequest, Result

ON_THE_WAY_MAX = 10_000  # messages
ON_THE_WAY_BYTES_MAX = 64 * 1024 * 1024
TOPICS_MAX = 1000  # producers of one instance

_RESULTS: dict[type[Exception], Result] = {
    OperationTimeout: Result.Timeout,
    ClosedError: Result.AlreadyClosed,
    TopicNotFound: Result.TopicNotFound,
    TopicTerminated: Result.TopicTerminated,
}


class Ticket:
    """One published message until the broker has answered.

    Attributes:
        error: why it was not stored.
        is_done: whether the broker has answered.
        on_done: called on the event loop when it has.
    """

    __slots__ = ("error", "is_done", "on_done")

    def __init__(self) -> None:
        self.error: MagnetarError | None = None
        self.is_done = False
        self.on_done: Callable[[], None] | None = None


class Publisher:
    """All topics that one instance publishes to."""

    def __init__(
        self,
        client: AsyncClient,
        loop: asyncio.AbstractEventLoop,
        on_callback_error: Callable[[Exception], None],
        guard: Guard | None = None,
    ):
        """Prepare; nothing is opened yet.

        Args:
            client: makes producers.
            loop: its event loop.
            on_callback_error: told what a callback raised, on the callbacks' thread.
            guard: of the producers.
        """
        self._client = client
        self._loop = loop
        self._guard = guard
        self._gate = Gate(ON_THE_WAY_MAX, ON_THE_WAY_BYTES_MAX)
        self._requests: deque[tuple[PublishRequest, Ticket]] = deque()
        self._is_woken = False
        self._is_closed = False
        self._topics: dict[str, asyncio.Queue[tuple[PublishRequest, Ticket]]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._callbacks = Callbacks(on_callback_error)

    def publish(self, request: PublishRequest) -> Ticket:
        """Take a message (from any thread but the event loop's), waiting while too many are on their way.

        Raises:
            ClosedError: the instance is stopping.
        """
        if not self._gate.enter(1, len(request.payload)):
            raise ClosedError("the instance is stopping; nothing more can be published")
        ticket = Ticket()
        self._requests.append((request, ticket))
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._distribute)
        return ticket

    def _distribute(self) -> None:
        # First the flag: what is appended from now on wakes the loop again.
        self._is_woken = False
        while self._requests:
            request, ticket = self._requests.popleft()
            topic = self._topics.get(request.topic)
            if topic is None:
                if self._is_closed or len(self._topics) >= TOPICS_MAX:
                    why = f"the instance publishes to {TOPICS_MAX} topics already; use fewer topics"
                    error = ClosedError("the instance is stopping") if self._is_closed else MagnetarError(why)
                    self._finish(request, ticket, error)
                    continue
                topic = self._topics[request.topic] = asyncio.Queue()
                config = ProducerConfig(compression=request.compression, send_timeout_ms=0, guard=self._guard)
                self._tasks.append(self._loop.create_task(self._serve(request.topic, topic, config)))
            topic.put_nowait((request, ticket))

    async def _serve(
        self, topic: str, requests: asyncio.Queue[tuple[PublishRequest, Ticket]], config: ProducerConfig
    ) -> None:
        """Send what is published to one topic, in order."""
        producer = None
        try:
            while True:
                request, ticket = await requests.get()
                try:
                    if producer is None:
                        producer = await self._client.create_producer(topic, config)
                    await producer.ready()
                    future = producer.send_nowait(request.payload, **request.options)
                except MagnetarError as error:
                    self._finish(request, ticket, error)
                    continue
                future.add_done_callback(partial(self._answered, request, ticket))
        finally:
            while not requests.empty():
                self._finish(*requests.get_nowait(), ClosedError("the instance was stopped"))
            if producer is not None:
                with contextlib.suppress(MagnetarError):
                    await producer.close()

    def _answered(self, request: PublishRequest, ticket: Ticket, future: asyncio.Future[MessageId]) -> None:
        error: MagnetarError | None = None
        if future.cancelled():
            error = ClosedError("the instance was stopped")
        elif (raised := future.exception()) is not None:
            error = raised if isinstance(raised, MagnetarError) else MagnetarError(repr(raised))
        self._finish(request, ticket, error)

    def _finish(self, request: PublishRequest, ticket: Ticket, error: MagnetarError | None) -> None:
        ticket.error = error
        ticket.is_done = True
        self._gate.leave(1, len(request.payload))
        if ticket.on_done is not None:
            ticket.on_done()
        self._callbacks.call(request, result_of(error))

    async def close(self) -> None:
        """Give up what is not stored yet and close the producers."""
        self._is_closed = True
        self._gate.close()
        self._distribute()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._callbacks.close()


def result_of(error: MagnetarError | None) -> Result:
    """Return what a callback is told."""
    if error is None:
        return Result.Ok
    if isinstance(error, BrokerError) and error.code == 7:
        return Result.ProducerBlockedQuotaExceededError
    return _RESULTS.get(type(error), Result.UnknownError)
