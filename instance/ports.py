"""Ports of an instance: its inputs, its outputs, and the settlement between them.

A topic is one kind of input and output: a client's consumers and producers directly implement `Input` and `Output`, and
the client itself implements `Endpoints`, so that no layer is needed between them and the pipeline.

A `Settlement` determines the effect of processing:

| settlement | an input entry is acknowledged | results |
| --- | --- | --- |
| at least once | when its outputs are durable | are sent |
| at most once | before it is processed | are sent |
| manual | by the function | are sent |
| effectively once, direct | when its outputs and all earlier ones are durable | are sent, numbered by positions |
| sink | when its records are written, or stored in the dead-letter topic | none |
| sink, at most once | before its records are written | none |
| sink, effectively once | as for a sink, with all earlier entries | none |
| source | no input | are sent; the position is saved when they are durable |
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
    """Delivers entries and accepts acknowledgements; used on the event loop.

    Acknowledged entries are never redelivered. Entries that are not acknowledged are redelivered after a reconnection,
    or on request.
    """

    async def receive_entry(self) -> ReceivedEntry:
        """Return the next entry, waiting for it. Cancellation: safe; no entry is lost."""

    def poll_entry(self) -> ReceivedEntry | None:
        """Return the next entry, or None if none is available."""

    async def arrival(self) -> None:
        """Wait until `poll_entry` may return an entry. Cancellation: safe."""

    def claim_entries(self, entries: Sequence[ReceivedEntry]) -> asyncio.Future[list[ReceivedEntry]]:
        """Acknowledge entries before they are processed, and return those whose acknowledgement is durable."""

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
        """Move the subscription, as `Consumer.seek`: the next entry is the first one after ``target``."""

    async def close(self) -> None:
        """Stop receiving."""


class OrderedInput(Protocol):
    """An input that delivers entries to one reader at a time, in the order of positions.

    Attributes:
        topic: full topic name.
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
        """Return the last position, and the position up to which all entries are acknowledged, or None."""

    def ack_cumulative(self, message: MessageId) -> asyncio.Future[None]:
        """Acknowledge all entries up to a position; done when that is durable."""

    async def flush_acks(self) -> None:
        """Wait until acknowledgements have been sent."""

    async def close(self) -> None:
        """Stop receiving."""


class Output(Protocol):
    """Sends encoded entries, and reports when each is durable."""

    def send_entry(self, entry: OutgoingEntry) -> asyncio.Future[MessageId]:
        """Send an entry; done when it is durable, or has failed permanently.

        Raises:
            MessageTooLarge: the entry is too large.
            MagnetarError: the output is permanently closed.
        """

    async def close(self) -> None:
        """Stop sending."""


class NumberedOutput(Protocol):
    """An output for entries with increasing sequence ids, which drops duplicates.

    Attributes:
        last_sequence_id: highest stored sequence id when the output was opened, or -1.
    """

    last_sequence_id: int

    def send_sealed(self, payload: bytes, sequence_id: int, num_messages: int) -> asyncio.Future[MessageId]:
        """Send an entry with its metadata; done when it is durable, or has failed permanently."""

    async def close(self) -> None:
        """Stop sending."""


class Endpoints(Protocol):
    """Opens inputs and outputs; `AsyncClient` implements it for topics.

    Failover consumers also implement `OrderedInput`; named producers implement `NumberedOutput`.
    """

    async def partitions(self, topic: str) -> Sequence[str]:
        """Return the full names of a topic's partitions, or its own full name if it is not partitioned."""

    async def subscribe(self, topic: str, subscription: str, config: ConsumerConfig) -> Input:
        """Open an input."""

    async def create_producer(self, topic: str, config: ProducerConfig) -> Output:
        """Open an output."""


class Settlement(Outside, Protocol):
    """Opens inputs and outputs, applies the outcome of processing to them, and closes them.

    All methods run on the event loop except `session`, `publish` and `acknowledge`, which the function's thread calls,
    and the `maker`, which that thread uses: it creates units from entries, and outcomes from results.
    """

    @property
    def maker(self) -> Maker:
        """The component that runs on the function's thread."""

    def session(self) -> StateSession | None:
        """Return the function's state, or None without a state store; called once, for functions with a context."""

    async def open(self, calls: Calls) -> None:
        """Open inputs and outputs, setting `InstanceCore.opening` to the current one.

        Raises:
            MagnetarError: the broker rejects an input or output.
        """

    def start(self, process: Callable[[Item], None]) -> None:
        """Start taking input; ``process`` passes an entry to the function's thread."""

    def trouble(self) -> str:
        """Return what prevents the instance from continuing, or an empty string (from any thread)."""

    def tick(self) -> None:
        """Do periodic work; called every second."""

    def request_stop(self) -> None:
        """End all waits of the function's thread."""

    async def settle(self, unprocessed: Sequence[Item]) -> None:
        """Wait until results are durable and acknowledged. Cancellation: safe.

        Args:
            unprocessed: entries without results, which are redelivered.
        """

    async def close(self) -> None:
        """Abandon work in progress, and close inputs and outputs."""
