"""The blocking client's producer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Unpack

from ...errors import MagnetarError, QueueFull
from ...tasks.supervised import TaskSet
from ...wire.message_id import MessageId
from ..checks import as_bytes, check_options
from ..outgoing_message import NO_VALUE, SendOptions, with_time
from ..producers.partitioned import PartitionedProducer
from ..producers.producer import Producer as AsyncProducer
from ..schemas.schema import Schema
from ..statistics import ProducerStatistics
from ..typed.producer import encode
from .loop_thread import LoopThread
from .part import Part

_Callback = Callable[[MagnetarError | None, MessageId | None], None]

log = logging.getLogger(__name__)


class Producer(Part[AsyncProducer | PartitionedProducer]):
    """Sends messages; created by `Client.create_producer`."""

    def __init__(
        self, thread: LoopThread, inner: AsyncProducer | PartitionedProducer, schema: Schema[Any] | None = None
    ):
        super().__init__(thread, inner)
        self._schema = schema
        self._handed_over: deque[tuple[bytes, SendOptions, _Callback | None]] = deque()
        self._lock = threading.Lock()
        self._tasks = TaskSet("blocking producer")
        self._waiting_for_room: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """Producer name."""
        return self._inner.name

    @property
    def last_sequence_id(self) -> int:
        """Sequence id of the last message that the broker has stored, or -1 before the first."""
        return self._inner.last_sequence_id

    def send(self, content: Any, **options: Unpack[SendOptions]) -> MessageId:
        """Send a message and return its id once the broker has stored it.

        Args:
            content: the payload as bytes, or a value if the producer has a schema.
            **options: ``key``, ``ordering_key``, ``properties``, ``event_time_ms``, ``sequence_id``, ``deliver_at_ms``,
                ``deliver_after``.

        Raises:
            SchemaSerializationError: the value does not fit the schema; nothing was sent.
            QueueFull: too many messages are pending and ``block_if_queue_full`` is off.
            MessageTooLarge: the message exceeds the broker's size limit.
            OperationTimeout: the message was not stored within ``send_timeout_ms``, but may still be stored later.
            ClosedError: the producer is closed, or was closed before the message was stored.
            BrokerError: the broker permanently rejected the message or the producer.
            InvalidConfig: an option is invalid, or both delivery times are set.
        """
        if self._schema is not None:
            content, options = encode(self._schema, content, options)
        return self._thread.call(self._inner.send(content, **options))

    def send_async(self, content: Any, callback: _Callback | None = None, **options: Unpack[SendOptions]) -> None:
        """Submit a message and return without waiting for the broker.

        Args:
            content: as for `send`; a value is encoded on the calling thread.
            callback: called with the error or the id, on the client's thread.
            **options: as for `send`.

        Raises:
            QueueFull: too many messages are pending and ``block_if_queue_full`` is off; otherwise the call waits.
            ClosedError: the client is closed.
            InvalidConfig: an option is invalid.
            SchemaSerializationError: see `send`.
        """
        if self._schema is not None:
            content, options = encode(self._schema, content, options)
        if type(content) is not bytes and content is not NO_VALUE:
            content = as_bytes(content)
        if options:
            options = with_time(options, time.time)
            check_options(**options)
        waiting = self._handed_over
        if len(waiting) + self._inner.pending_messages >= self._inner.max_pending_messages:
            if not self._inner.blocks_if_full:
                raise QueueFull(
                    f"{len(waiting) + self._inner.pending_messages} messages of producer {self.name} are pending,"
                    f" the limit is max_pending_messages={self._inner.max_pending_messages}:"
                    " wait for callbacks or set block_if_queue_full"
                )
            self._thread.call(self._inner.ready())
        with self._lock:
            waiting.append((content, options, callback))
            is_first = len(waiting) == 1
        if is_first:
            # Only the first message wakes the loop, which then sends all messages submitted meanwhile.
            self._thread.soon(self._take_over)

    def _take_over(self) -> None:
        """Send submitted messages (on the client's thread)."""
        waiting = self._handed_over
        while waiting:
            content, options, callback = waiting[0]
            try:
                future = self._inner.send_nowait(content, **options)
            except Exception as error:  # noqa: BLE001  may come from a user's router; later messages are still sent
                if isinstance(error, QueueFull) and self._inner.blocks_if_full:
                    # Several threads may have seen the same free slots: excess messages wait here, in order.
                    self._waiting_for_room = self._tasks.start(self._take_over_later(), "wait for room")
                    return
                _call_back(callback, error if isinstance(error, MagnetarError) else MagnetarError(repr(error)), None)
            else:
                future.add_done_callback(partial(_report, callback))
            # Popped last: a message submitted meanwhile sees a non-empty queue, and is sent by this loop.
            waiting.popleft()

    async def _take_over_later(self) -> None:
        with contextlib.suppress(MagnetarError):  # the producer is closed: sending reports it to each callback
            await self._inner.ready()
        self._waiting_for_room = None
        self._take_over()

    async def _when_all_taken_over(self, call: Callable[[], Awaitable[None]]) -> None:
        while self._waiting_for_room is not None:
            await asyncio.shield(self._waiting_for_room)
        await call()

    def statistics(self) -> ProducerStatistics | list[ProducerStatistics]:
        """Return the producer's statistics, separately for each partition of a partitioned topic.

        Raises:
            InvalidConfig: the client does not collect statistics.
        """
        return self._inner.statistics()

    def flush(self) -> None:
        """Send the open batch and wait until all previously submitted messages are stored."""
        self._thread.call(self._when_all_taken_over(self._inner.flush))

    def close(self) -> None:
        """Send the open batch, wait until it is stored, and close; a second call does nothing."""
        self._thread.call(self._when_all_taken_over(self._inner.close))


def _report(callback: _Callback | None, done: asyncio.Future[MessageId]) -> None:
    if done.cancelled():
        return
    error = done.exception()
    if error is None:
        _call_back(callback, None, done.result())
    else:
        assert isinstance(error, MagnetarError)
        _call_back(callback, error, None)


def _call_back(callback: _Callback | None, error: MagnetarError | None, message_id: MessageId | None) -> None:
    """Call user code and log exceptions."""
    if callback is None:
        return
    try:
        callback(error, message_id)
    except Exception:
        log.exception("send_async callback raised")
