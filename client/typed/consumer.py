"""Consumer and reader with a schema that decodes message values."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Generic, TypeVar

from ...wire.message_id import MessageId
from ..consumers.consumer import Consumer
from ..consumers.merged import MergedConsumer
from ..consumers.reader import Reader
from ..consumers.received import Message, TypedMessage
from ..consumers.waiters import next_message, timeout_in_s
from ..receiving import Receiving
from ..schemas.schema import Schema
from ..statistics import ConsumerStatistics
from .decoding import Decoding
from .writers import WriterSchemas

T = TypeVar("T")


class _Typed(Receiving[TypedMessage[T]], Generic[T]):
    """Base class: receives messages from another object and adds values to them."""

    def __init__(self, inner: Consumer | MergedConsumer | Reader, schema: Schema[T], writers: WriterSchemas):
        self._from = inner
        self._decoding = Decoding(schema, writers, inner.topic)

    @property
    def schema(self) -> Schema[T]:
        """The schema that decodes the values."""
        return self._decoding.schema

    @property
    def topic(self) -> str:
        """Full name of the topic; several names are separated by commas."""
        return self._from.topic

    @property
    def is_connected(self) -> bool:
        """Whether it is currently connected to a broker."""
        return self._from.is_connected

    @property
    def is_closed(self) -> bool:
        """Whether the application has closed the object."""
        return self._from.is_closed

    @property
    def has_reached_end(self) -> bool:
        """Whether the topic is terminated and all messages were delivered."""
        return self._from.has_reached_end and not self._decoding.is_waiting

    def poll(self) -> TypedMessage[T] | None:
        """Return the next message if one is queued; see `Consumer.poll`."""
        return self._decoding.next(self._from.poll)

    async def receive(self, timeout_s: float | None = None, *, timeout_millis: float | None = None) -> TypedMessage[T]:
        """Return the next message, waiting for it; see `Consumer.receive`."""
        if timeout_millis is not None:
            timeout_s = timeout_in_s(timeout_s, timeout_millis)
        message = self.poll()
        return message if message is not None else await next_message(self.topic, timeout_s, self.arrival, self.poll)

    async def arrival(self) -> None:
        """Wait until a message may be available, or the consumer is closed or failed; see `Consumer.arrival`."""
        if self._decoding.is_waiting:
            await self._decoding.answered()
        else:
            await self._from.arrival()

    async def last_message_id(self) -> MessageId:
        """Return the id of the newest message of the topic; see `Consumer.last_message_id`."""
        return await self._from.last_message_id()

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the position; see `Consumer.seek`."""
        self._decoding.drop()
        try:
            await self._from.seek(target, inclusive=inclusive)
        finally:
            self._decoding.drop()  # messages received meanwhile

    async def close(self) -> None:
        """Close the object; see `Consumer.close`."""
        try:
            await self._from.close()
        finally:
            await self._decoding.close()


class TypedReader(_Typed[T]):
    """A reader with a schema; created by `AsyncClient.create_reader` and used on its event loop.

    Attributes:
        reader: the underlying reader of undecoded messages.
    """

    def __init__(self, reader: Reader, schema: Schema[T], writers: WriterSchemas):
        super().__init__(reader, schema, writers)
        self.reader = reader

    def __repr__(self) -> str:
        return f"TypedReader({self.reader!r}, schema={self.schema!r})"

    async def read_next(
        self, timeout_s: float | None = None, *, timeout_millis: float | None = None
    ) -> TypedMessage[T]:
        """Return the next message, waiting for it; see `Reader.read_next`."""
        return await self.receive(timeout_s, timeout_millis=timeout_millis)

    async def has_message_available(self) -> bool:
        """Return whether the topic has an unread message; see `Reader.has_message_available`."""
        return self._decoding.is_waiting or await self.reader.has_message_available()


class TypedConsumer(_Typed[T]):
    """A consumer with a schema; created by `AsyncClient.subscribe` and used on its event loop.

    Use ``consumer`` to receive whole entries, without values.

    Attributes:
        consumer: the underlying consumer of undecoded messages.
    """

    def __init__(self, consumer: Consumer | MergedConsumer, schema: Schema[T], writers: WriterSchemas):
        super().__init__(consumer, schema, writers)
        self.consumer = consumer

    def __repr__(self) -> str:
        return f"TypedConsumer({self.consumer!r}, schema={self.schema!r})"

    @property
    def subscription(self) -> str:
        """Subscription name."""
        return self.consumer.subscription

    @property
    def is_active(self) -> bool:
        """Whether the broker currently delivers to this consumer."""
        return self.consumer.is_active

    @property
    def queued_messages(self) -> int:
        """Number of messages that can be received without waiting for the broker."""
        return self.consumer.queued_messages + self._decoding.is_waiting

    def ack(self, message: Message | MessageId) -> asyncio.Future[None]:
        """Acknowledge one message; see `Consumer.ack`."""
        return self.consumer.ack(message)

    def ack_cumulative(self, message: Message | MessageId) -> asyncio.Future[None]:
        """Acknowledge everything up to a message; see `Consumer.ack_cumulative`."""
        return self.consumer.ack_cumulative(message)

    def negative_ack(self, message: Message | MessageId) -> None:
        """Request redelivery of a message later; see `Consumer.negative_ack`."""
        self.consumer.negative_ack(message)

    async def reconsume_later(
        self, message: Message, delay_ms: int = 0, properties: Mapping[str, str] | None = None
    ) -> None:
        """Send a message to the retry letter topic and acknowledge it; see `Consumer.reconsume_later`."""
        await self.consumer.reconsume_later(message, delay_ms, properties)

    def redeliver_unacknowledged(self) -> None:
        """Request redelivery of all unacknowledged messages; see `Consumer.redeliver_unacknowledged`."""
        self._decoding.drop()
        self.consumer.redeliver_unacknowledged()

    async def flush_acks(self) -> None:
        """Send all pending acknowledgements; see `Consumer.flush_acks`."""
        await self.consumer.flush_acks()

    def statistics(self) -> ConsumerStatistics | dict[str, ConsumerStatistics]:
        """Return the consumer's statistics; see `Consumer.statistics`."""
        return self.consumer.statistics()

    async def unsubscribe(self) -> None:
        """Delete the subscription and close; see `Consumer.unsubscribe`."""
        await self.consumer.unsubscribe()
        await self._decoding.close()
