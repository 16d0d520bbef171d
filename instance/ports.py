"""Ports of an instance: where its entries come from, where its outputs go, and what settles them.

A topic is one kind of input and output: a client's consumers and producers are `Input` and `Output` as they are, and
the client itself is `Endpoints`, so that no layer is needed between them and the pipeline.

A `Settlement` implements the effect of processing:

| settlement | an input entry is acknowledged | results |
| --- | --- | --- |
| at least once | when its outputs are durable | are sent |
| at most once | before it is processed | are sent |
| manual | by the function | are sent |
| effectively once, direct | when its outputs and all before are durable | are sent, numbered by positions |
| effectively once, outbox | the same | are committed with position and state, then sent the same way |
| sink | when its records are written, or stored in the dead-letter topic | there are none |
| sink, at most once | before they are written | there are none |
| sink, effectively once | as of a sink, with all before | there are none |
| source | there are none | are sent; its position is kept when they are durable |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from ..client.config import ConsumerConfig, ProducerConfig
from ..client.consumers.received import ReceivedEntry
from ..client.producers.outgoing import OutgoingEntry
from ..wire.message_id import MessageId
from .function_context import Outside
from .function_thread import Calls, Item, Maker
from .state.session import StateSession


class Input(Protocol):
    """Delivers entries with their positions, and takes acknowledgements; used on the event loop.

    Acknowledged entries are never redelivered; entries neither acknowledged nor requested again are redelivered after a
    reconnection.
    """

    async def receive_entry(self) -> ReceivedEntry:
        """Return the next entry, waiting for it. Cancellation: safe; nothing is lost."""

    def poll_entry(self) -> ReceivedEntry | None:
        """Return the next entry, or None if none is available."""

    async def arrival(self) -> None:
        """Wait until `poll_entry` may return an entry. Cancellation: safe."""

    def claim_entries(self, entries: Sequence[ReceivedEntry]) -> asyncio.Future[list[ReceivedEntry]]:
        """Acknowledge entries before they are processed; the result has those whose acknowledgement is durable."""

    def ack_entries(self, entries: Sequence[ReceivedEntry]) -> asyncio.Future[None]:
        """Acknowledge entries immediately."""

    def ack_entry(self, entry: ReceivedEntry) -> asyncio.Future[None]:
        """Acknowledge an entry soon, together with others."""

    def ack_batch_indexes(self, entry: ReceivedEntry, still_wanted: Sequence[int]) -> asyncio.Future[None]:
        """Acknowledge the messages of an entry that are not in an ack set."""

    def ack(self, message: MessageId) -> asyncio.Future[None]:
        """Acknowledge one message."""

    def negative_ack(self, message: ReceivedEntry) -> None:
        """Request redelivery of an entry's unacknowledged messages, after a delay."""

    async def flush_acks(self) -> None:
        """Wait until acknowledgements have been sent."""

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the subscription: the next entry is the first one after ``target``; as `Consumer.seek`."""

    async def close(self) -> None:
        """Stop receiving."""


class OrderedInput(Protocol):
    """Delivers entries in the order of their positions to one reader at a time, and is acknowledged in that order.

    Attributes:
        topic: full name.
    """

    topic: str

    @property
    def is_connected(self) -> bool:
        """Whether acknowledgements can be sent."""

    def poll_entry(self) -> ReceivedEntry | None:
        """Return the next entry, or None if none is available."""

    async def arrival(self) -> None:
        """Wait until `poll_entry` returns an entry. Cancellation: safe."""

    async def last_and_mark_delete(self) -> tuple[MessageId, MessageId | None]:
        """Return the last position, and the one up to which everything is acknowledged."""

    def ack_cumulative(self, message: MessageId) -> asyncio.Future[None]:
        """Acknowledge everything up to a position; done when that is durable."""

    async def flush_acks(self) -> None:
        """Wait until acknowledgements have been sent."""

    async def close(self) -> None:
        """Stop receiving."""


class Output(Protocol):
    """Takes encoded entries, and reports when each is durable."""

    def send_entry(self, entry: OutgoingEntry) -> asyncio.Future[MessageId]:
        """Send an entry; done when it is durable, or has failed permanently.

        Raises:
            MessageTooLarge: the entry is too large.
            MagnetarError: the output is permanently closed.
        """

    async def close(self) -> None:
        """Stop sending."""


class NumberedOutput(Protocol):
    """Takes entries with increasing sequence ids, and drops duplicates.

    Attributes:
        last_sequence_id: highest sequence id when it was opened, -1 if none.
    """

    last_sequence_id: int

    def send_sealed(self, payload: bytes, sequence_id: int, num_messages: int) -> asyncio.Future[MessageId]:
        """Send an entry that includes its metadata; done when it is durable, or has failed permanently."""

    async def close(self) -> None:
        """Stop sending."""


class Endpoints(Protocol):
    """Opens inputs and outputs; an `AsyncClient` does it for topics.

    Consumers of type Failover are `OrderedInput`, too; named producers are `NumberedOutput`.
    """

    async def partitions(self, topic: str) -> Sequence[str]:
        """Return the full names of a topic's partitions, or its own if it is not partitioned."""

    async def subscribe(self, topic: str, subscription: str, config: ConsumerConfig) -> Input:
        """Open an input."""

    async def create_producer(self, topic: str, config: ProducerConfig) -> Output:
        """Open an output."""


class Settlement(Outside, Protocol):
    """Applies the outcome of processing to inputs and outputs, from opening them to closing them.

    Everything runs on the event loop except `session`, `publish` and `acknowledge`, which the function's thread calls,
    and the `maker`, which works on it: it creates units from entries, and outcomes from results.
    """

    @property
    def maker(self) -> Maker:
        """The part that works on the function's thread."""

    def session(self) -> StateSession | None:
        """Return the function's state, None without a state store; called once, if the function takes a context."""

    async def open(self, calls: Calls) -> None:
        """Open inputs and outputs, recording in `InstanceCore.opening` what is being opened.

        Raises:
            MagnetarError: one of them is rejected.
        """

    def start(self, process: Callable[[Item], None]) -> None:
        """Start taking input; ``process`` passes an entry to the function's thread."""

    def trouble(self) -> str:
        """Return what prevents the instance from continuing, empty if nothing does (from any thread)."""

    def tick(self) -> None:
        """Do periodic work; called every second."""

    def request_stop(self) -> None:
        """End all waits of the function's thread."""

    async def settle(self, unprocessed: Sequence[Item]) -> None:
        """Wait until results are durable and acknowledged. Cancellation: safe.

        Args:
            unprocessed: entries without results; they are redelivered.
        """

    async def close(self) -> None:
        """Give up work in progress, and close inputs and outputs."""
