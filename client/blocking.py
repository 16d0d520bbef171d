"""The blocking client: the same calls for code without an event loop.

Design: one thread runs an event loop with an `AsyncClient`; every call hands a coroutine to it and waits. So a call
costs two thread hops: whoever needs more than some ten thousand calls a second uses `Producer.send_async`, which
collects what is handed over and crosses once for many, `Consumer.batch_receive`, or the asyncio client.

All objects may be used from several threads. Callbacks run on the client's thread: they must not block, and must not
call back into blocking methods.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import re
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, Unpack

import uvloop

from ..errors import ClosedError, InvalidConfig, MagnetarError, OperationTimeout, QueueFull
from ..tasks.supervised import TaskSet
from ..wire.message_id import MessageId
from .checks import as_bytes, check_options
from .client import AsyncClient
from .config import ClientConfig, ConsumerConfig, ProducerConfig, ReaderConfig
from .consumers.consumer import Consumer as AsyncConsumer
from .consumers.merged import MergedConsumer
from .consumers.reader import Reader as AsyncReader
from .consumers.received import Message
from .listener_threads import Lane, ListenerThreads, deliver_on
from .outgoing_message import NO_VALUE, SendOptions
from .producers.partitioned import PartitionedProducer
from .producers.producer import Producer as AsyncProducer
from .schemas.schema import Schema, SchemaInfo
from .statistics import ConsumerStatistics, ProducerStatistics
from .table_view import OnChange
from .table_view import TableView as AsyncTableView
from .typed.consumer import TypedConsumer, TypedReader
from .typed.producer import encode

if TYPE_CHECKING:
    from .deploy.functions import Functions

_A = TypeVar(
    "_A",
    bound=AsyncProducer
    | PartitionedProducer
    | AsyncConsumer
    | MergedConsumer
    | AsyncReader
    | TypedConsumer[Any]
    | TypedReader[Any],
)
_T = TypeVar("_T")
_Callback = Callable[[MagnetarError | None, MessageId | None], None]

log = logging.getLogger(__name__)


class _LoopThread:
    """A thread that runs an event loop until it is stopped."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="magnetar-client", daemon=True)
        self._is_stopped = False
        self._handing_over = threading.Lock()  # what is handed over before the stop is run before it
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        # Calls of other threads that are under way: they end here, or those threads would wait for ever.
        calls = asyncio.all_tasks(self.loop)
        for call in calls:
            call.cancel()
        self.loop.run_until_complete(asyncio.gather(*calls, return_exceptions=True))
        self.loop.close()

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop and return its result."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a blocking call from the client's own thread would wait for ever; use another thread")
        with self._handing_over:
            if self._is_stopped:
                coroutine.close()
                raise ClosedError("the client is closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            if self._is_stopped:
                raise ClosedError("the client was closed during the call") from None
            raise
        except BaseException:
            future.cancel()  # KeyboardInterrupt: its result is not needed any more
            raise

    def soon(self, call: Callable[[], None]) -> None:
        """Run a function on the loop without waiting."""
        with self._handing_over:
            if self._is_stopped:
                raise ClosedError("the client is closed")
            self.loop.call_soon_threadsafe(call)

    def stop(self) -> None:
        """End the thread."""
        with self._handing_over:
            is_first = not self._is_stopped
            self._is_stopped = True
            if is_first:
                self.loop.call_soon_threadsafe(self.loop.stop)
        if is_first:
            self._thread.join()


class Client:
    """A client of a cluster, for blocking code."""

    def __init__(self, service_url: str, config: ClientConfig | None = None, *, admin_url: str | None = None):
        """Start the client's thread; the first connection is made when it is needed.

        Args:
            service_url: ``pulsar://host:port``, several hosts separated by commas.
            config: settings.
            admin_url: ``http://host:port`` of the REST interface, for `functions`; None: port 8080 beside a broker on
                port 6650.
        """
        self._listeners = ListenerThreads((config or ClientConfig()).message_listener_threads)
        self._thread = _LoopThread()
        try:
            self._client = self._thread.call(_make_client(service_url, config, admin_url))
        except BaseException:
            self._thread.stop()
            raise

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client stays with its thread and its connections")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def functions(self) -> Functions:
        """The cluster's functions: deploy them from here, ask for them, remove them."""
        from .deploy.functions import Functions  # with it come httpx and cloudpickle

        return Functions(self._thread, self._client.functions)

    def create_producer(
        self, topic: str, config: ProducerConfig | None = None, *, schema: Schema[Any] | None = None
    ) -> Producer:
        """Return a producer, with a schema one that sends values; raises as `AsyncClient.create_producer`."""
        if schema is None:
            return Producer(self._thread, self._thread.call(self._client.create_producer(topic, config)))
        typed = self._thread.call(self._client.create_producer(topic, config, schema=schema))
        return Producer(self._thread, typed.producer, typed.schema)

    def subscribe(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        subscription_name: str,
        config: ConsumerConfig | None = None,
        *,
        message_listener: Callable[[Consumer, Message], object] | None = None,
        schema: Schema[Any] | None = None,
    ) -> Consumer:
        """Return a consumer; raises as `AsyncClient.subscribe`.

        Args:
            topic: name, or several, or a pattern of names.
            subscription_name: name.
            config: settings.
            message_listener: is given the consumer and each message, one after the other, on a thread of the client's
                listeners; it may use every call of the client. `Consumer.receive` is refused then.
            schema: decodes messages, which have a `value` then.
        """
        inner: AsyncConsumer | MergedConsumer | TypedConsumer[Any]
        if schema is None:
            inner = self._thread.call(self._client.subscribe(topic, subscription_name, config))
        else:
            inner = self._thread.call(self._client.subscribe(topic, subscription_name, config, schema=schema))
        consumer = Consumer(self._thread, inner)
        if message_listener is not None:
            consumer.listen(self._client, self._listeners.lane(), message_listener)
        return consumer

    def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        config: ReaderConfig | None = None,
        *,
        schema: Schema[Any] | None = None,
    ) -> Reader:
        """Return a reader, with a schema one whose messages have a `value`; raises as `AsyncClient.create_reader`."""
        call = self._thread.call
        if schema is None:
            return Reader(self._thread, call(self._client.create_reader(topic, start_message_id, config)))
        return Reader(self._thread, call(self._client.create_reader(topic, start_message_id, config, schema=schema)))

    def create_table_view(
        self, topic: str, subscription_name: str | None = None, *, schema: Schema[Any] | None = None
    ) -> TableView:
        """Return a view of a topic as a table; raises as `AsyncClient.create_table_view`."""
        inner = self._thread.call(self._client.create_table_view(topic, subscription_name, schema=schema))
        return TableView(self._thread, inner, self._listeners)

    def get_topic_partitions(self, topic: str) -> list[str]:
        """Return the full names of a topic's partitions, or of the topic itself if it has none."""
        return self._thread.call(self._client.partitions(topic))

    def get_schema_info(self, topic: str, version: bytes | None = None) -> SchemaInfo:
        """Return the schema of a topic in one version, None for its newest; raises as `AsyncClient.topic_schema`."""
        return self._thread.call(self._client.topic_schema(topic, version))

    def close(self) -> None:
        """Close everything that this client made, its connections and its thread; a second call does nothing."""
        try:
            self._thread.call(self._client.close())
        except ClosedError:
            return
        finally:
            self._thread.stop()
            self._listeners.stop()


async def _make_client(service_url: str, config: ClientConfig | None, admin_url: str | None) -> AsyncClient:
    return AsyncClient(service_url, config, admin_url=admin_url)


class _Blocking(Generic[_A]):
    """A producer, consumer or reader of a blocking client, which has the asyncio one on the client's thread."""

    def __init__(self, thread: _LoopThread, inner: _A):
        self._thread = thread
        self._inner = inner

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def topic(self) -> str:
        """Full name of the topic; of several, all names, separated by commas."""
        return self._inner.topic

    @property
    def is_connected(self) -> bool:
        """Whether a broker is serving this one now."""
        return self._inner.is_connected

    def close(self) -> None:
        """Close it; a consumer sends its acknowledgements before, a reader is forgotten by the broker."""
        self._thread.call(self._inner.close())


class Producer(_Blocking[AsyncProducer | PartitionedProducer]):
    """Sends messages; made by `Client.create_producer`."""

    def __init__(
        self, thread: _LoopThread, inner: AsyncProducer | PartitionedProducer, schema: Schema[Any] | None = None
    ):
        super().__init__(thread, inner)
        self._schema = schema
        self._handed_over: deque[tuple[bytes, SendOptions, _Callback | None]] = deque()
        self._lock = threading.Lock()
        self._tasks = TaskSet("blocking producer")
        self._waiting_for_room: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """Name of the producer."""
        return self._inner.name

    @property
    def last_sequence_id(self) -> int:
        """Sequence id of the last message that the broker has stored, -1 before the first."""
        return self._inner.last_sequence_id

    def send(self, content: Any, **options: Unpack[SendOptions]) -> MessageId:
        """Send a message and return its id once the broker has stored it; raises as the asyncio `Producer.send`.

        Args:
            content: of the message: bytes, or a value where the producer has a schema.
            **options: ``key``, ``ordering_key``, ``properties``, ``event_time_ms``, ``sequence_id``, ``deliver_at_ms``.

        Raises:
            SchemaSerializationError: the value does not fit the schema; nothing was sent.
        """
        if self._schema is not None:
            content, options = encode(self._schema, content, options)
        return self._thread.call(self._inner.send(content, **options))

    def send_async(self, content: Any, callback: _Callback | None = None, **options: Unpack[SendOptions]) -> None:
        """Hand a message over and return.

        Args:
            content: as of `send`; a value is encoded on the thread that calls.
            callback: gets the error or the id, on the client's thread.
            **options: as of `send`.

        Raises:
            QueueFull: too much is pending and ``block_if_queue_full`` is off; otherwise the call waits for room.
            ClosedError: the client is closed.
            InvalidConfig: the protocol cannot carry what is given; says what and why.
            SchemaSerializationError: as `send`.
        """
        if self._schema is not None:
            content, options = encode(self._schema, content, options)
        if type(content) is not bytes and content is not NO_VALUE:
            content = as_bytes(content)
        if options:
            check_options(**options)
        waiting = self._handed_over
        if len(waiting) + self._inner.pending_messages >= self._inner.max_pending_messages:
            if not self._inner.blocks_if_full:
                raise QueueFull(
                    f"{len(waiting) + self._inner.pending_messages} messages of producer {self.name} are pending,"
                    f" the limit is max_pending_messages={self._inner.max_pending_messages};"
                    " wait for callbacks or set block_if_queue_full"
                )
            self._thread.call(self._inner.ready())
        with self._lock:
            waiting.append((content, options, callback))
            is_first = len(waiting) == 1
        if is_first:
            # Only the first one wakes the loop; what follows until it looks is taken along.
            self._thread.soon(self._take_over)

    def _take_over(self) -> None:
        """Send what was handed over (on the client's thread)."""
        waiting = self._handed_over
        while waiting:
            content, options, callback = waiting[0]
            try:
                future = self._inner.send_nowait(content, **options)
            except Exception as error:  # noqa: BLE001  of a router of the user's, too; what follows is sent all the same
                if isinstance(error, QueueFull) and self._inner.blocks_if_full:
                    # Several threads saw the same last places: what is too much waits here, in order.
                    self._waiting_for_room = self._tasks.start(self._take_over_later(), "wait for room")
                    return
                _call_back(callback, error if isinstance(error, MagnetarError) else MagnetarError(repr(error)), None)
            else:
                future.add_done_callback(partial(_report, callback))
            # Last, so that whoever hands over meanwhile sees the queue in use; the loop then takes that along too.
            waiting.popleft()

    async def _take_over_later(self) -> None:
        with contextlib.suppress(MagnetarError):  # of a closed producer: sending says it to each message's callback
            await self._inner.ready()
        self._waiting_for_room = None
        self._take_over()

    async def _when_all_taken_over(self, call: Callable[[], Awaitable[None]]) -> None:
        while self._waiting_for_room is not None:
            await asyncio.shield(self._waiting_for_room)
        await call()

    def statistics(self) -> ProducerStatistics | list[ProducerStatistics]:
        """Return what the producer has done; of a partitioned topic, that of each partition.

        Raises:
            InvalidConfig: the client does not count.
        """
        return self._inner.statistics()

    def flush(self) -> None:
        """Send what is open and wait until everything handed over before is stored."""
        self._thread.call(self._when_all_taken_over(self._inner.flush))

    def close(self) -> None:
        """Close the producer; as the asyncio `Producer.close`."""
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
    """Call user code and log what it raises."""
    if callback is None:
        return
    try:
        callback(error, message_id)
    except Exception:
        log.exception("the callback of send_async raised")


class Consumer(_Blocking[AsyncConsumer | MergedConsumer | TypedConsumer[Any]]):
    """Receives messages; made by `Client.subscribe`."""

    @property
    def subscription_name(self) -> str:
        """Name of the subscription."""
        return self._inner.subscription

    @property
    def is_active(self) -> bool:
        """Whether the broker delivers to this consumer now."""
        return self._inner.is_active

    def __iter__(self) -> Iterator[Message]:
        """Take messages until the consumer is closed."""
        while True:
            try:
                yield self.receive()
            except ClosedError:
                return

    def listen(self, client: AsyncClient, lane: Lane, listener: Callable[[Consumer, Message], object]) -> None:
        """Give all messages to a listener (called by the client)."""
        inner = self._inner
        deliver = deliver_on(lane, partial(listener, self), lambda: inner.is_closed or inner.is_listener_paused)
        self._thread.call(_called(lambda: client.listen(inner, deliver)))

    def pause_message_listener(self) -> None:
        """Call the listener no more until `resume_message_listener`; a call that runs ends first.

        Raises:
            InvalidConfig: there is no listener.
        """
        self._thread.call(_called(self._inner.pause_message_listener))

    def resume_message_listener(self) -> None:
        """Call the listener again; raises as `pause_message_listener`."""
        self._thread.call(_called(self._inner.resume_message_listener))

    def statistics(self) -> ConsumerStatistics | dict[str, ConsumerStatistics]:
        """Return what the consumer has done; of several topics or partitions, that of each.

        Raises:
            InvalidConfig: the client does not count.
        """
        return self._inner.statistics()

    def receive(self, timeout_millis: int | None = None) -> Message:
        """Return the next message.

        Raises:
            OperationTimeout: none came within ``timeout_millis``.
            InvalidConfig: the consumer has a listener.
            MagnetarError: as the asyncio `Consumer.receive`.
        """
        if self._inner.has_listener:
            raise InvalidConfig(f"the messages of {self.topic} go to its listener; subscribe without message_listener")
        return self._thread.call(self._inner.receive(None if timeout_millis is None else timeout_millis / 1000))

    def batch_receive(self, max_messages: int = 1000, timeout_millis: int | None = None) -> list[Message]:
        """Return up to ``max_messages``: what is there, waiting only for the first.

        Returns: an empty list if none came within ``timeout_millis``.

        Raises:
            InvalidConfig: as `receive`.
        """
        if self._inner.has_listener:
            raise InvalidConfig(f"the messages of {self.topic} go to its listener; subscribe without message_listener")
        return self._thread.call(self._batch(max_messages, timeout_millis))

    async def _batch(self, max_messages: int, timeout_millis: int | None) -> list[Message]:
        try:
            messages = [await self._inner.receive(None if timeout_millis is None else timeout_millis / 1000)]
        except OperationTimeout:
            return []
        while len(messages) < max_messages and (message := self._inner.poll()) is not None:
            messages.append(message)
        return messages

    def acknowledge(self, message: Message | MessageId) -> None:
        """Acknowledge a message; waits for the broker if ``ack_receipts`` is on."""
        self._thread.call(_awaited(lambda: self._inner.ack(message)))

    def acknowledge_all(self, messages: Sequence[Message]) -> None:
        """Acknowledge many messages at once; waits for the broker if ``ack_receipts`` is on."""
        self._thread.call(self._ack_all(messages))

    async def _ack_all(self, messages: Sequence[Message]) -> None:
        await asyncio.gather(*map(self._inner.ack, messages))

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge everything up to a message; waits for the broker if ``ack_receipts`` is on."""
        self._thread.call(_awaited(lambda: self._inner.ack_cumulative(message)))

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Ask for a message again after ``negative_ack_delay_ms``."""
        self._thread.call(_called(lambda: self._inner.negative_ack(message)))

    def reconsume_later(
        self, message: Message, delay_millis: int = 0, properties: Mapping[str, str] | None = None
    ) -> None:
        """Have a message come again by way of the retry letter topic; as the asyncio `Consumer.reconsume_later`."""
        self._thread.call(self._inner.reconsume_later(message, delay_millis, properties))

    def redeliver_unacknowledged_messages(self) -> None:
        """Have everything delivered again that is not acknowledged."""
        self._thread.call(_called(self._inner.redeliver_unacknowledged))

    def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the subscription to a message or a publish time in milliseconds; as the asyncio `Consumer.seek`."""
        self._thread.call(self._inner.seek(target, inclusive=inclusive))

    def get_last_message_id(self) -> MessageId:
        """Return the id of the newest message of the topic, which must be a single one."""
        return self._thread.call(self._inner.last_message_id())

    def unsubscribe(self) -> None:
        """Delete the subscription and close the consumer."""
        self._thread.call(self._inner.unsubscribe())


async def _awaited(call: Callable[[], asyncio.Future[None]]) -> None:
    await call()


async def _called(call: Callable[[], None]) -> None:
    call()


class Reader(_Blocking[AsyncReader | TypedReader[Any]]):
    """Reads a topic from a chosen place; made by `Client.create_reader`."""

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """Return the next message.

        Raises:
            OperationTimeout: none came within ``timeout_millis``.
            MagnetarError: as the asyncio `Consumer.receive`.
        """
        return self._thread.call(self._inner.read_next(None if timeout_millis is None else timeout_millis / 1000))

    def has_message_available(self) -> bool:
        """Return whether there is a message that was not read yet."""
        return self._thread.call(self._inner.has_message_available())

    def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Go on reading elsewhere; as the asyncio `Consumer.seek`."""
        self._thread.call(self._inner.seek(target, inclusive=inclusive))


class TableView:
    """The last value of each key of a topic; made by `Client.create_table_view`."""

    def __init__(self, thread: _LoopThread, inner: AsyncTableView, listeners: ListenerThreads):
        self._thread = thread
        self._inner = inner
        self._listeners = listeners

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def topic(self) -> str:
        """Full name of the topic."""
        return self._inner.topic

    def get(self, key: str) -> Any:
        """Return the value of a key, None if it has none; raises as the asyncio `TableView.get`."""
        return self._inner.get(key)

    def __getitem__(self, key: str) -> Any:
        return self._inner[key]

    def __contains__(self, key: object) -> bool:
        return key in self._inner

    def __len__(self) -> int:
        return len(self._inner)

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner.snapshot())

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of the table."""
        return self._inner.snapshot()

    def for_each(self, callback: OnChange) -> None:
        """Call a function with each key and its value, on this thread."""
        for key, value in self._inner.snapshot().items():
            callback(key, value)

    def for_each_and_listen(self, callback: OnChange) -> None:
        """Call a function with each key and its value, then with each that changes, on a thread for listeners.

        Returns when it was called with what is there.
        """
        lane = self._listeners.lane()
        told = threading.Event()
        listen = self._inner.for_each_and_listen
        self._thread.call(_called(lambda: listen(lambda key, value: lane.submit(partial(callback, key, value)))))
        lane.submit(told.set)
        told.wait()

    def refresh(self) -> None:
        """Wait until the table has everything that was published before this call."""
        self._thread.call(self._inner.refresh())

    def close(self) -> None:
        """Stop reading."""
        self._thread.call(self._inner.close())
