"""Sends messages to a partitioned topic: one producer per partition, and a router that chooses between them.

Partitions added later get a producer when they are discovered, which moves keys to other partitions, as in all Pulsar
clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Unpack

from ...errors import MagnetarError
from ...tasks import TaskSet
from ...wire.message_id import MessageId
from ...wire.pulsar_api_pb2 import MessageMetadata
from ..checks import check_options
from ..config import ProducerConfig
from ..outgoing_message import OutgoingMessage, SendOptions, with_time
from ..receiving import Closing
from ..statistics import ProducerStatistics
from .lazy import LazyProducer
from .outgoing import OutgoingEntry, encode_entry
from .producer import Producer
from .routing import make_router

log = logging.getLogger(__name__)


class PartitionedProducer(Closing):
    """A producer of a partitioned topic, with the methods of `Producer`.

    The limits of pending messages apply to each partition.

    Attributes:
        topic: full name of the partitioned topic.
        producers: one producer per partition.
    """

    def __init__(
        self,
        topic: str,
        producers: Sequence[Producer],
        config: ProducerConfig,
        rng: Random,
        clock: Callable[[], float],
    ):
        self.topic = topic
        self.producers = list(producers)
        self._config = config
        self._router = make_router(config, rng)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._lazy: dict[Producer, LazyProducer] = {}  # unopened producers
        self._tasks = TaskSet(f"producer of {topic}")
        self._is_closed = False

    def __repr__(self) -> str:
        return f"PartitionedProducer(topic={self.topic!r}, partitions={len(self.producers)})"

    @property
    def name(self) -> str:
        """Name of the first partition's producer; a name chosen by the user applies to all partitions."""
        return next((producer.name for producer in self.producers if producer.name), "")

    @property
    def last_sequence_id(self) -> int:
        """Highest of the partitions' last sequence ids."""
        return max(producer.last_sequence_id for producer in self.producers)

    @property
    def is_connected(self) -> bool:
        """Whether the producers of all partitions are currently connected."""
        return all(producer.is_connected for producer in self.producers if producer not in self._lazy)

    @property
    def pending_messages(self) -> int:
        """Number of messages sent but not yet stored, across all partitions."""
        held = sum(lazy.pending_messages for lazy in self._lazy.values())
        return held + sum(producer.pending_messages for producer in self.producers)

    @property
    def max_pending_messages(self) -> int:
        """Limit of `pending_messages`, which is that of one partition, as the router may always choose the same one."""
        return self._config.max_pending_messages

    @property
    def blocks_if_full(self) -> bool:
        """Whether `send` waits for room."""
        return self._config.block_if_queue_full

    @property
    def has_room(self) -> bool:
        """Whether every partition currently accepts another message."""
        return all(producer.has_room for producer in self.producers) and all(
            lazy.has_room for lazy in self._lazy.values()
        )

    async def ready(self) -> None:
        """Wait until every partition has room; see `Producer.ready`."""
        while not self.has_room:
            for lazy in list(self._lazy.values()):
                if not lazy.has_room:
                    await lazy.settled()
            for producer in self.producers:
                await producer.ready()
        for producer in self.producers:
            await producer.ready()

    def _choose(self, message: OutgoingMessage) -> Producer:
        if message.key is not None or message.properties or message.ordering_key is not None or message.event_time_ms:
            check_options(message.key, message.ordering_key, message.properties, message.event_time_ms)
        return self.producers[self._router.choose(message, len(self.producers), self._loop.time())]

    async def send(self, payload: bytes, **options: Unpack[SendOptions]) -> MessageId:
        """Send a message to the partition chosen by the router; see `Producer.send`."""
        options = with_time(options, self._clock)
        message = OutgoingMessage.of(payload, options)
        chosen = self._choose(message)
        if self._lazy and (lazy := self._lazy.get(chosen)) is not None:
            while self._config.block_if_queue_full and not lazy.has_room:
                await lazy.settled()
            if not lazy.is_open:
                return await lazy.hold(_sender(message, is_awaited=True), len(payload))
        return await chosen.send(payload, **options)

    def send_awaited(self, payload: bytes, **options: Unpack[SendOptions]) -> asyncio.Future[MessageId]:
        """Send a message whose caller awaits the receipt; see `Producer.send_awaited`."""
        return self._take(payload, options, is_awaited=True)

    def send_nowait(self, payload: bytes, **options: Unpack[SendOptions]) -> asyncio.Future[MessageId]:
        """Send a message to the partition chosen by the router; see `Producer.send_nowait`."""
        return self._take(payload, options, is_awaited=False)

    def _take(self, payload: bytes, options: SendOptions, *, is_awaited: bool) -> asyncio.Future[MessageId]:
        options = with_time(options, self._clock)
        message = OutgoingMessage.of(payload, options)
        chosen = self._choose(message)
        if self._lazy and (lazy := self._lazy.get(chosen)) is not None:
            return lazy.hold(_sender(message, is_awaited=is_awaited), len(payload))
        return chosen.send_awaited(payload, **options) if is_awaited else chosen.send_nowait(payload, **options)

    def send_entry(self, entry: OutgoingEntry | Sequence[bytes]) -> asyncio.Future[MessageId]:
        """Send a whole entry to the partition chosen by the router; see `Producer.send_entry`."""
        if not isinstance(entry, OutgoingEntry):
            entry = encode_entry(entry, compression=self._config.compression)
        chosen = self.producers[self._router.choose_entry(entry, len(self.producers))]
        if self._lazy and (lazy := self._lazy.get(chosen)) is not None:
            return lazy.hold(lambda producer: producer.send_entry(entry), len(entry.body))
        return chosen.send_entry(entry)

    def send_alone(self, metadata: MessageMetadata, payload: bytes) -> asyncio.Future[MessageId]:
        """Send a message unbatched to the partition chosen by the router; see `Producer.send_alone`."""
        key = metadata.partition_key if metadata.HasField("partition_key") else None
        message = OutgoingMessage(payload, key, metadata.ordering_key or None)
        chosen = self._choose(message)
        if self._lazy and (lazy := self._lazy.get(chosen)) is not None:
            return lazy.hold(lambda producer: producer.send_alone(metadata, payload), len(payload))
        return chosen.send_alone(metadata, payload)

    def statistics(self) -> list[ProducerStatistics]:
        """Return the statistics of each partition's producer; see `Producer.statistics`."""
        return [producer.statistics() for producer in self.producers]

    async def flush(self) -> None:
        """Send the open batches and wait until all messages are stored; see `Producer.flush`."""
        for lazy in list(self._lazy.values()):
            await lazy.settled()
        await asyncio.gather(*(producer.flush() for producer in self.producers if producer not in self._lazy))

    # -- partitions -----------------------------------------------------------------------------------------------

    def be_lazy(self, open_it: Callable[[Producer], Awaitable[None]]) -> None:
        """Defer creating each producer on the broker until its first message (called by the client before any message).

        Args:
            open_it: creates a producer on the broker.
        """
        for producer in self.producers:
            self._add_lazy(producer, open_it)

    def _add_lazy(self, producer: Producer, open_it: Callable[[Producer], Awaitable[None]]) -> None:
        async def opened() -> None:
            await open_it(producer)

        self._lazy[producer] = LazyProducer(producer, self._config, opened, lambda: self._opened(producer))

    def _opened(self, producer: Producer) -> None:
        self._lazy.pop(producer, None)

    async def open_one(self) -> None:
        """Create one of the lazy producers on the broker, so that a rejection is detected early."""
        message = OutgoingMessage(b"")
        index = 0 if callable(self._config.routing) else self._router.choose(message, len(self.producers), 0.0)
        lazy = self._lazy.get(self.producers[index])
        if lazy is not None:
            await asyncio.shield(lazy.begin())

    def keep_updated(
        self,
        interval_s: float,
        find_new: Callable[[int], Awaitable[Sequence[Producer]]],
        open_it: Callable[[Producer], Awaitable[None]] | None = None,
    ) -> None:
        """Discover new partitions periodically.

        Args:
            interval_s: interval in seconds.
            find_new: takes the number of known partitions; returns the producers of new ones.
            open_it: creates a lazy producer on the broker; None if the producers are open already.
        """
        work = self._update
        self._tasks.keep(lambda: work(interval_s, find_new, open_it), "look for partitions", longest_pause_s=interval_s)

    async def _update(
        self,
        interval_s: float,
        find_new: Callable[[int], Awaitable[Sequence[Producer]]],
        open_it: Callable[[Producer], Awaitable[None]] | None,
    ) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                new = await find_new(len(self.producers))
            except MagnetarError as error:
                log.warning("%s: cannot check for new partitions, retrying in %s s: %s", self.topic, interval_s, error)
                continue
            for producer in new:
                log.info("%s: added new partition %s", self.topic, producer.topic)
                if open_it is not None:
                    self._add_lazy(producer, open_it)
                self.producers.append(producer)

    async def close(self) -> None:
        """Close the producers of all partitions; see `Producer.close`."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._tasks.close()
        await asyncio.gather(*(lazy.close() for lazy in list(self._lazy.values())))
        await asyncio.gather(*(producer.close() for producer in self.producers))


def _sender(message: OutgoingMessage, *, is_awaited: bool) -> Callable[[Producer], asyncio.Future[MessageId]]:
    """Return a function that sends a message to a producer."""
    options = message.options()
    if is_awaited:
        return lambda producer: producer.send_awaited(message.payload, **options)
    return lambda producer: producer.send_nowait(message.payload, **options)
