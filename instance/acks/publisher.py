"""Publish messages that functions send through their context, with one producer per topic, created on first use.

With `useThreadLocalProducers` there is one producer per topic and thread. At most `TOPICS_MAX` are open. Beyond that,
the least recently used one without messages in flight is closed; if all have messages in flight, the next topic waits.

Design: the function's thread queues requests and wakes the event loop once per burst. A gate limits the messages in
flight; a function that publishes faster than the broker stores waits in `publish`. Callbacks are user code and never
run on the event loop: they run on a separate thread, created when the first one is due.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import get_ident
from typing import cast

from ...client.config import ProducerConfig
from ...client.producers.partitioned import PartitionedProducer
from ...client.producers.producer import Producer
from ...errors import (
    AuthorizationError,
    BrokerError,
    ClosedError,
    InvalidConfig,
    MagnetarError,
    OperationTimeout,
    TopicNotFound,
    TopicTerminated,
)
from ...tasks.supervised import TaskSet
from ...wire.message_id import MessageId
from ..core import InstanceCore
from ..endpoint_settings import output_bounds, publishing_config, splits_keys
from ..gate import Gate
from ..publish_request import Callbacks, PublishRequest, Result

ON_THE_WAY_MAX = 10_000  # messages
ON_THE_WAY_BYTES_MAX = 64 * 1024 * 1024
TOPICS_MAX = 1000  # maximum number of producers per instance
_STOPPING = "cannot publish: the instance is stopping"

_RESULTS: dict[type[Exception], Result] = {
    OperationTimeout: Result.Timeout,
    ClosedError: Result.AlreadyClosed,
    TopicNotFound: Result.TopicNotFound,
    TopicTerminated: Result.TopicTerminated,
}


class Ticket:
    """A published message, or other outputs, whose receipt is pending.

    Attributes:
        error: why it was not stored, or None.
        is_done: whether the broker has replied.
        on_done: called on the event loop with the error or None when the broker replies.
    """

    __slots__ = ("error", "is_done", "on_done")

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.is_done = False
        self.on_done: Callable[[BaseException | None], None] | None = None

    def finish(self, error: BaseException | None) -> None:
        """Record the broker's reply (on the event loop)."""
        self.error = error
        self.is_done = True
        if self.on_done is not None:
            self.on_done(error)


_Key = tuple[str, int]
"""Topic, and id of the publishing thread if each thread has its own producers, else 0."""


class _Topic:
    """A topic that the instance publishes to.

    Attributes:
        requests: messages to send, in order.
        outstanding: number of messages queued or in flight.
        task: task that sends the messages.
    """

    __slots__ = ("outstanding", "requests", "task")

    def __init__(self) -> None:
        self.requests: asyncio.Queue[tuple[PublishRequest, Ticket]] = asyncio.Queue()
        self.outstanding = 0
        self.task: asyncio.Task[None] | None = None


class Publisher:
    """Publishes messages to any topic for one instance."""

    def __init__(self, core: InstanceCore) -> None:
        """Create a publisher without opening a producer."""
        self._core = core
        self._loop = core.loop
        self._gate = Gate(output_bounds(core.spec).messages(ON_THE_WAY_MAX), ON_THE_WAY_BYTES_MAX)
        self._splits_keys = splits_keys(core.spec)
        self._of_threads = core.spec.details.sink.producerSpec.useThreadLocalProducers
        self._requests: deque[tuple[_Key, PublishRequest, Ticket]] = deque()
        self._is_woken = False
        self._is_closed = False
        self._is_blocked = False  # the next request waits for a topic to become idle
        self._topics: OrderedDict[_Key, _Topic] = OrderedDict()  # least recently used first
        self._tasks = TaskSet("publish")
        self._callbacks = Callbacks(core.callback_failed)

    def publish(self, request: PublishRequest) -> Ticket:
        """Queue a message (from any thread except the event loop's), waiting while too many are in flight.

        Raises:
            ClosedError: the instance is stopping.
            InvalidConfig: the message has a sequence id, but key-based batches number their messages.
        """
        if self._splits_keys and "sequence_id" in request.options:
            raise InvalidConfig(
                "message_conf key 'sequence_id' cannot be used with batchBuilder KEY_BASED, which numbers messages by"
                " key: remove one of them"
            )
        if self._is_closed or not self._gate.enter(1, len(request.payload)):
            raise ClosedError(_STOPPING)
        ticket = Ticket()
        key = (request.topic, get_ident() if self._of_threads else 0)
        self._requests.append((key, request, ticket))
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._distribute)
            except RuntimeError as error:  # the loop is closed, so the thread was abandoned
                raise ClosedError(_STOPPING) from error
        return ticket

    def _distribute(self) -> None:
        # Clear the flags first: requests added from now on wake the loop again.
        self._is_woken = self._is_blocked = False
        while self._requests:
            key, request, ticket = self._requests[0]
            if self._is_closed:
                self._requests.popleft()
                self._finish(None, request, ticket, ClosedError("the instance is stopping"))
                continue
            topic = self._topics.get(key) or self._open(key, request)
            if topic is None:
                self._is_blocked = True
                return
            self._requests.popleft()
            self._topics.move_to_end(key)
            topic.outstanding += 1
            topic.requests.put_nowait((request, ticket))

    def _open(self, key: _Key, request: PublishRequest) -> _Topic | None:
        """Open a topic, closing an idle one at the limit; return None if all have messages in flight."""
        if len(self._topics) >= TOPICS_MAX:
            idle = next((name for name, topic in self._topics.items() if not topic.outstanding), None)
            if idle is None:
                return None
            task = self._topics.pop(idle).task
            if task is not None:
                task.cancel()  # closes the producer, which has no pending messages
        topic = self._topics[key] = _Topic()
        config = replace(publishing_config(self._core.spec, request.compression), guard=self._core.guard)
        config = replace(self._core.encryption.writing(config), initial_subscription_name=request.subscription)
        name = f"publish to {request.topic}"
        topic.task = self._tasks.start(self._serve(request.topic, topic, config), name, self._core.failed)
        return topic

    async def _serve(self, name: str, topic: _Topic, config: ProducerConfig) -> None:
        """Send the messages for one topic in order."""
        producer: Producer | PartitionedProducer | None = None
        at_hand: tuple[PublishRequest, Ticket] | None = None
        try:
            while True:
                at_hand = await topic.requests.get()
                try:
                    if producer is None:
                        producer = await self._opened(name, config)
                    await producer.ready()
                    future = producer.send_nowait(at_hand[0].payload, **at_hand[0].options)
                except MagnetarError as error:
                    self._finish(topic, *at_hand, error)
                    at_hand = None
                    if isinstance(error, BrokerError | ClosedError) and producer is not None:
                        failed, producer = producer, None  # permanently closed; the next message opens another
                        await _close(failed)
                    continue
                future.add_done_callback(partial(self._answered, topic, *at_hand))
                at_hand = None
        finally:
            if at_hand is not None:
                self._finish(topic, *at_hand, ClosedError("the instance was stopped"))
            while not topic.requests.empty():
                self._finish(topic, *topic.requests.get_nowait(), ClosedError("the instance was stopped"))
            if producer is not None:
                await _close(producer)

    async def _opened(self, name: str, config: ProducerConfig) -> Producer | PartitionedProducer:
        """Return a producer, without an initial subscription if its role may not subscribe."""
        create = self._core.endpoints.create_producer
        try:
            opened = await create(name, config)
        except AuthorizationError:
            if config.initial_subscription_name is None:
                raise
            opened = await create(name, replace(config, initial_subscription_name=None))
        return cast("Producer | PartitionedProducer", opened)

    def _answered(
        self, topic: _Topic, request: PublishRequest, ticket: Ticket, future: asyncio.Future[MessageId]
    ) -> None:
        error: MagnetarError | None = None
        if future.cancelled():
            error = ClosedError("the instance was stopped")
        elif (raised := future.exception()) is not None:
            error = raised if isinstance(raised, MagnetarError) else MagnetarError(repr(raised))
        self._finish(topic, request, ticket, error)

    def _finish(
        self, topic: _Topic | None, request: PublishRequest, ticket: Ticket, error: MagnetarError | None
    ) -> None:
        self._gate.leave(1, len(request.payload))
        if topic is not None:
            topic.outstanding -= 1
            if self._is_blocked and not topic.outstanding:
                self._is_blocked = False
                self._loop.call_soon(self._distribute)
        ticket.finish(error)
        self._callbacks.call(request, result_of(error))

    async def close(self) -> None:
        """Drop unstored messages and close the producers."""
        self._is_closed = True
        self._gate.close()
        self._distribute()
        await self._tasks.close()
        self._callbacks.close()


async def _close(producer: Producer | PartitionedProducer) -> None:
    with contextlib.suppress(MagnetarError):
        await producer.close()


def result_of(error: MagnetarError | None) -> Result:
    """Return the result code for a callback."""
    if error is None:
        return Result.Ok
    if isinstance(error, BrokerError) and error.code == 7:
        return Result.ProducerBlockedQuotaExceededError
    return _RESULTS.get(type(error), Result.UnknownError)
