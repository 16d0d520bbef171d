"""Sends messages to a partitioned topic: one producer per partition, and a router that chooses between them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from random import Random

from ...wire.message_id import MessageId
from ..checks import check_options
from ..config import ProducerConfig
from ..outgoing_message import OutgoingMessage
from .outgoing import OutgoingEntry, encode_entry
from .producer import Producer
from .routing import make_router


class PartitionedProducer:
    """A producer of a partitioned topic; with the methods of `Producer`.

    The limits of pending messages hold for each partition.

    Attributes:
        topic: full name, without partition.
        producers: one per partition.
    """

    def __init__(self, topic: str, producers: Sequence[Producer], config: ProducerConfig, rng: Random):
        self.topic = topic
        self.producers = list(producers)
        self._config = config
        self._router = make_router(config, rng)
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        return f"PartitionedProducer(topic={self.topic!r}, partitions={len(self.producers)})"

    @property
    def name(self) -> str:
        """Name of the first partition's producer; all have the same if the user chose it."""
        return self.producers[0].name

    @property
    def last_sequence_id(self) -> int:
        """Highest of the partitions' last sequence ids."""
        return max(producer.last_sequence_id for producer in self.producers)

    @property
    def is_connected(self) -> bool:
        """Whether all partitions are served by a broker now."""
        return all(producer.is_connected for producer in self.producers)

    @property
    def pending_messages(self) -> int:
        """Messages handed over but not yet stored, of all partitions."""
        return sum(producer.pending_messages for producer in self.producers)

    @property
    def max_pending_messages(self) -> int:
        """Limit of `pending_messages`: that of one partition, as the router may choose the same one each time."""
        return self._config.max_pending_messages

    @property
    def blocks_if_full(self) -> bool:
        """Whether `send` waits for room."""
        return self._config.block_if_queue_full

    @property
    def has_room(self) -> bool:
        """Whether every partition takes something more now."""
        return all(producer.has_room for producer in self.producers)

    async def ready(self) -> None:
        """Wait until every partition has room; as `Producer.ready`."""
        while not self.has_room:
            for producer in self.producers:
                await producer.ready()
        for producer in self.producers:
            await producer.ready()

    def _choose(self, message: OutgoingMessage) -> Producer:
        if message.key is not None or message.properties or message.ordering_key is not None or message.event_time_ms:
            check_options(message.key, message.ordering_key, message.properties, message.event_time_ms)
        return self.producers[self._router.choose(message, len(self.producers), self._loop.time())]

    async def send(
        self,
        payload: bytes,
        *,
        key: str | None = None,
        ordering_key: bytes | None = None,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int = 0,
        sequence_id: int | None = None,
    ) -> MessageId:
        """Send a message to the partition that the router chooses; as `Producer.send`."""
        message = OutgoingMessage(payload, key, ordering_key, properties or {}, event_time_ms, sequence_id)
        return await self._choose(message).send(
            payload,
            key=key,
            ordering_key=ordering_key,
            properties=properties,
            event_time_ms=event_time_ms,
            sequence_id=sequence_id,
        )

    def send_nowait(
        self,
        payload: bytes,
        *,
        key: str | None = None,
        ordering_key: bytes | None = None,
        properties: Mapping[str, str] | None = None,
        event_time_ms: int = 0,
        sequence_id: int | None = None,
    ) -> asyncio.Future[MessageId]:
        """Take a message for the partition that the router chooses; as `Producer.send_nowait`."""
        message = OutgoingMessage(payload, key, ordering_key, properties or {}, event_time_ms, sequence_id)
        return self._choose(message).send_nowait(
            payload,
            key=key,
            ordering_key=ordering_key,
            properties=properties,
            event_time_ms=event_time_ms,
            sequence_id=sequence_id,
        )

    def send_entry(self, entry: OutgoingEntry | Sequence[bytes]) -> asyncio.Future[MessageId]:
        """Send a whole entry to the partition that the router chooses; as `Producer.send_entry`."""
        if not isinstance(entry, OutgoingEntry):
            entry = encode_entry(entry, compression=self._config.compression)
        return self.producers[self._router.choose_entry(entry, len(self.producers))].send_entry(entry)

    async def flush(self) -> None:
        """Send what is open and wait until all is stored; as `Producer.flush`."""
        await asyncio.gather(*(producer.flush() for producer in self.producers))

    async def close(self) -> None:
        """Close the producers of all partitions; as `Producer.close`."""
        await asyncio.gather(*(producer.close() for producer in self.producers))
