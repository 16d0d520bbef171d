"""Producers of one activation of an input partition: one per output topic, with the partition's producer name.

The broker's deduplication identifies a producer by its name and admits one producer per name at a time. So opening one
also waits until the partition's previous owner has closed its producer, or the broker has timed out its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

from ...client.config import ProducerConfig
from ...client.deduplication import memory_guard
from ...client.producers.partitioned import PartitionedProducer
from ...errors import ClosedError, ConnectionLost, MagnetarError, OperationTimeout, ProducerBusy
from ...security.client_credentials import ClientCredentials
from ...state.values import OutboxEntry
from ...tasks.supervised import TaskSet
from ...wire.message_id import MessageId
from ...wire.position_sequence import FIRST_SEGMENT, Segment, segment_of
from ..ports import Endpoints, NumberedOutput

BUSY_PAUSE_S = 0.1
PRODUCERS_MAX = 1000  # output topic partitions per input partition

Stored = Callable[[BaseException | None], None]


class _Output:
    """An output topic partition.

    Attributes:
        producer: producer of the segment; None while it is being opened.
        segment: segment of the producer.
        pending: number of entries sent without a reply.
        queued: entries that wait for the producer, in order.
        drained: set while no entries are pending.
    """

    __slots__ = ("drained", "pending", "producer", "queued", "segment")

    def __init__(self) -> None:
        self.producer: NumberedOutput | None = None
        self.segment = FIRST_SEGMENT
        self.pending = 0
        self.queued: deque[tuple[OutboxEntry, Stored]] = deque()
        self.drained = asyncio.Event()
        self.drained.set()

    @property
    def is_idle(self) -> bool:
        """Whether the producer can be closed without affecting entries."""
        return self.producer is not None and not self.pending and not self.queued


class Outputs:
    """Sends output entries of each topic in the order of `send` calls.

    At most `PRODUCERS_MAX` producers are open: beyond that the least recently used one without pending entries is
    closed.

    Attributes:
        waits_for: why a producer cannot be opened, or an empty string.
    """

    def __init__(
        self, endpoints: Endpoints, name: str, config: ProducerConfig, admin_url: str, credentials: ClientCredentials
    ) -> None:
        """Create the outputs without opening a producer.

        Args:
            endpoints: opens outputs.
            name: producer name of all outputs.
            config: config of all outputs.
            admin_url: REST interface to check that the broker has deduplication data; empty for no check.
            credentials: credentials for it.
        """
        self.waits_for = ""
        self._endpoints = endpoints
        self._name = name
        self._config = config
        self._admin_url = admin_url
        self._credentials = credentials
        self._outputs: OrderedDict[str, _Output] = OrderedDict()  # least recently used first
        self._opening = 0
        self._drained = asyncio.Event()  # set when an output has no more pending entries
        self._tasks = TaskSet(f"outputs of {name}")
        self._is_closed = False

    async def open(self, topic: str, segment: Segment = FIRST_SEGMENT) -> NumberedOutput:
        """Return the producer of a topic partition for a segment, waiting while its name is in use.

        A producer of another segment is closed once all its entries are stored.

        Cancellation: safe.

        Raises:
            MagnetarError: the broker permanently rejects the producer.
        """
        output = self._outputs.get(topic)
        if output is None:
            output = self._outputs[topic] = _Output()
        while output.producer is not None and output.segment != segment:
            if output.pending:
                await output.drained.wait()
                continue
            before, output.producer = output.producer, None
            await _close(before)
        if output.producer is None:
            await self._make_room()
            self._opening += 1
            try:
                output.producer = await self._create(topic, segment)
            finally:
                self._opening -= 1
                self._drained.set()
            output.segment = segment
        return output.producer

    async def _make_room(self) -> None:
        while self._opening + sum(one.producer is not None for one in self._outputs.values()) >= PRODUCERS_MAX:
            idle = next((topic for topic, output in self._outputs.items() if output.is_idle), None)
            if idle is None:
                self._drained.clear()
                await self._drained.wait()
                continue
            producer = self._outputs.pop(idle).producer
            if producer is not None:
                await _close(producer)

    async def _create(self, topic: str, segment: Segment) -> NumberedOutput:
        config = replace(self._config, name=segment.producer_name(self._name))
        if self._admin_url:
            guard = memory_guard(self._admin_url, topic, config.guard, credentials=self._credentials)
            config = replace(config, guard=guard)
        while True:
            try:
                made = await self._endpoints.create_producer(topic, config)
            except (ProducerBusy, ConnectionLost, OperationTimeout) as error:
                self.waits_for = str(error)
                await asyncio.sleep(BUSY_PAUSE_S)
                continue
            self.waits_for = ""
            if self._is_closed or isinstance(made, PartitionedProducer):
                await made.close()
                raise ClosedError(f"producers of {self._name} are closed, or {topic} has become partitioned")
            return cast(NumberedOutput, made)

    def send(self, row: OutboxEntry, stored: Stored) -> None:
        """Send an output entry; ``stored`` is called once, with the error if it was not stored."""
        output = self._outputs.get(row.topic)
        if output is None:
            output = self._outputs[row.topic] = _Output()
        if output.queued or output.producer is None or output.segment != segment_of(row.position):
            if not output.queued:
                self._tasks.start(self._send_queued(row.topic, output), f"open {row.topic}")
            output.queued.append((row, stored))
        else:
            self._send(output.producer, output, row, stored)

    def _send(self, producer: NumberedOutput, output: _Output, row: OutboxEntry, stored: Stored) -> None:
        self._outputs.move_to_end(row.topic)
        try:
            future = producer.send_sealed(row.payload, row.sequence_id, row.messages)
        except MagnetarError as error:
            stored(error)
            return
        output.pending += 1
        output.drained.clear()
        future.add_done_callback(partial(self._answered, output, stored))

    def _answered(self, output: _Output, stored: Stored, future: asyncio.Future[MessageId]) -> None:
        output.pending -= 1
        if not output.pending:
            output.drained.set()
            self._drained.set()
        cancelled = ClosedError("the producer was closed before the entry was stored")
        stored(cancelled if future.cancelled() else future.exception())

    async def _send_queued(self, topic: str, output: _Output) -> None:
        """Send queued entries in order, opening a producer for each segment."""
        error: BaseException = ClosedError(f"the producer of {topic} was closed before the entry was stored")
        queued = output.queued
        try:
            while queued:
                segment = segment_of(queued[0][0].position)
                producer = await self.open(topic, segment)
                while queued and segment_of(queued[0][0].position) == segment:
                    self._send(producer, output, *queued.popleft())
        except Exception as refused:  # noqa: BLE001  any error must be reported to the instance
            error = refused
        finally:
            while queued:
                queued.popleft()[1](error)

    async def close(self) -> None:
        """Close the producers; sends of unstored entries fail.

        Cancellation: producers are still closed.
        """
        self._is_closed = True
        await self._tasks.close()
        producers = [output.producer for output in self._outputs.values() if output.producer is not None]
        await asyncio.gather(*map(_close, producers))


async def _close(producer: NumberedOutput) -> None:
    with contextlib.suppress(MagnetarError):
        await producer.close()
