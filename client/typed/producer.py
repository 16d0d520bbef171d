"""Producer with a schema that encodes the values to send."""

from __future__ import annotations

import base64
from asyncio import Future
from typing import Generic, TypeVar, Unpack

from ...errors import InvalidConfig
from ...wire.message_id import MessageId
from ..outgoing_message import NO_VALUE, Base64Key, SendOptions
from ..producers.partitioned import PartitionedProducer
from ..producers.producer import Producer
from ..receiving import Closing
from ..schemas.schema import Schema
from ..statistics import ProducerStatistics

T = TypeVar("T")


class TypedProducer(Closing, Generic[T]):
    """A producer with a schema; created by `AsyncClient.create_producer` and used on its event loop.

    Attributes:
        schema: encodes the values.
        producer: the underlying producer of encoded messages.
    """

    def __init__(self, producer: Producer | PartitionedProducer, schema: Schema[T]):
        self.producer = producer
        self.schema = schema

    def __repr__(self) -> str:
        return f"TypedProducer({self.producer!r}, schema={self.schema!r})"

    async def send(self, value: T | None, **options: Unpack[SendOptions]) -> MessageId:
        """Send a value and return the message's id once the broker has stored it; see `Producer.send`.

        Args:
            value: the value; None sends a message without a value, which deletes its key from a compacted topic.
            **options: ``key``, ``ordering_key``, ``properties``, ``event_time_ms``, ``sequence_id``, ``deliver_at_ms``,
                ``deliver_after``.

        Raises:
            SchemaSerializationError: the value does not fit the schema; nothing was sent.
            MagnetarError: see `Producer.send`.
        """
        payload, given = encode(self.schema, value, options)
        return await self.producer.send(payload, **given)

    def send_nowait(self, value: T | None, **options: Unpack[SendOptions]) -> Future[MessageId]:
        """Send a value without waiting and return the future of the message's id; raises the same errors as `send`."""
        payload, given = encode(self.schema, value, options)
        return self.producer.send_nowait(payload, **given)

    @property
    def topic(self) -> str:
        """Full name of the topic."""
        return self.producer.topic

    @property
    def name(self) -> str:
        """Producer name."""
        return self.producer.name

    @property
    def last_sequence_id(self) -> int:
        """Sequence id of the last message stored by the broker, or -1 before the first."""
        return self.producer.last_sequence_id

    @property
    def is_connected(self) -> bool:
        """Whether the producer is currently connected to a broker."""
        return self.producer.is_connected

    @property
    def pending_messages(self) -> int:
        """Number of messages sent but not yet stored."""
        return self.producer.pending_messages

    @property
    def max_pending_messages(self) -> int:
        """Limit of `pending_messages`."""
        return self.producer.max_pending_messages

    @property
    def blocks_if_full(self) -> bool:
        """Whether `send` waits for room."""
        return self.producer.blocks_if_full

    @property
    def has_room(self) -> bool:
        """Whether `send_nowait` currently accepts another message."""
        return self.producer.has_room

    async def ready(self) -> None:
        """Wait until there is room for another message; see `Producer.ready`."""
        await self.producer.ready()

    async def flush(self) -> None:
        """Send the open batch and wait until all messages are stored; see `Producer.flush`."""
        await self.producer.flush()

    def statistics(self) -> ProducerStatistics | list[ProducerStatistics]:
        """Return the producer's statistics; see `Producer.statistics`."""
        return self.producer.statistics()

    async def close(self) -> None:
        """Send the open batch and close; see `Producer.close`."""
        await self.producer.close()


def encode(schema: Schema[T], value: T | None, options: SendOptions) -> tuple[bytes, SendOptions]:
    """Return the payload and the message options for a value.

    Raises:
        SchemaSerializationError: the value does not fit the schema.
        InvalidConfig: a key is set although the value contains one.
    """
    if value is None or value is NO_VALUE:
        return NO_VALUE, options
    payload, key = schema.encode_message(value)
    if payload is None:
        payload = NO_VALUE
    if key is None:
        return payload, options
    if options.get("key") is not None:
        raise InvalidConfig(f"invalid key {options.get('key')!a}: {schema} takes the key from the value")
    return payload, {**options, "key": Base64Key(base64.b64encode(key).decode())}
