"""Ports of an instance: where its entries come from, where its outputs go, and what settles them.

A topic is one kind of input and output: a client's consumers and producers are `Input` and `Output` as they are, and
the client itself is `Endpoints`, so that nothing stands between them and the pipeline.

A `Settlement` decides what the outcome of processing does:

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
    """Hands out entries with their position, and takes what became of them; used on the event loop.

    What is acknowledged never comes again; what is neither acknowledged nor asked for again comes after a reconnection.
    """

    async def receive_entry(self) -> ReceivedEntry:
        """Return the next entry, waiting for it. Cancellation: safe; nothing is lost."""

    def poll_entry(self) -> ReceivedEntry | None:
        """Return the next entry if one is there."""

    async def arrival(self) -> None:
        """Wait until `poll_entry` may return an entry. Cancellation: safe."""

    def claim_entries(self, entries: Sequence[ReceivedEntry]) -> asyncio.Future[list[ReceivedEntry]]:
        """Acknowledge entries before they are processed; those whose acknowledgement is durable are the result."""

    def ack_entries(self, entries: Sequence[ReceivedEntry]) -> asyncio.Future[None]:
        """Acknowledge entries at once."""

    def ack_entry(self, entry: ReceivedEntry) -> asyncio.Future[None]:
        """Acknowledge an entry, soon: together with others."""

    def ack_batch_indexes(self, entry: ReceivedEntry, still_wanted: Sequence[int]) -> asyncio.Future[None]:
        """Acknowledge the messages of an entry that are not in an ack set."""

    def ack(self, message: MessageId) -> asyncio.Future[None]:
        """Acknowledge one message."""

    def negative_ack(self, message: ReceivedEntry) -> None:
        """Ask for what is not acknowledged of an entry again, later."""

    async def flush_acks(self) -> None:
        """Wait until what was acknowledged is on its way."""

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the subscription: what comes next is the first entry after ``target``; as `Consumer.seek`."""

    async def close(self) -> None:
        """Take nothing any more."""


class OrderedInput(Protocol):
    """Hands out entries in the order of their positions to one reader at a time, and is acknowledged in that order.

    Attributes:
        topic: its full name.
    """

    topic: str

    @property
    def is_connected(self) -> bool:
        """Whether acknowledgements reach it."""

    def poll_entry(self) -> ReceivedEntry | None:
        """Return the next entry if one is there."""

    async def arrival(self) -> None:
        """Wait until `poll_entry` returns an entry. Cancellation: safe."""

    async def last_and_mark_delete(self) -> tuple[MessageId, MessageId | None]:
        """Return the last position there is, and the one up to which everything is acknowledged."""

    def ack_cumulative(self, message: MessageId) -> asyncio.Future[None]:
        """Acknowledge everything up to a position; done when that is durable."""

    async def flush_acks(self) -> None:
        """Wait until what was acknowledged is on its way."""

    async def close(self) -> None:
        """Take nothing any more."""


class Output(Protocol):
    """Takes encoded entries, and says when each is durable."""

    def send_entry(self, entry: OutgoingEntry) -> asyncio.Future[MessageId]:
        """Send an entry; done when it is durable, or never will be.

        Raises:
            MessageTooLarge: the entry is.
            MagnetarError: it is closed for good.
        """

    async def close(self) -> None:
        """Send nothing any more."""


class NumberedOutput(Protocol):
    """Takes entries under rising numbers, and drops what it has had under a number already.

    Attributes:
        last_sequence_id: the highest number that it had when it was opened, -1 if none.
    """

    last_sequence_id: int

    def send_sealed(self, payload: bytes, sequence_id: int, num_messages: int) -> asyncio.Future[MessageId]:
        """Send an entry that has its metadata; done when it is durable, or never will be."""

    async def close(self) -> None:
        """Send nothing any more."""


class Endpoints(Protocol):
    """Opens inputs and outputs; an `AsyncClient` does it for topics.

    Consumers of type Failover are `OrderedInput` too, producers with a name are `NumberedOutput`.
    """

    async def partitions(self, topic: str) -> Sequence[str]:
        """Return the full names of a topic's partitions; its own if it has none."""

    async def subscribe(self, topic: str, subscription: str, config: ConsumerConfig) -> Input:
        """Open an input."""

    async def create_producer(self, topic: str, config: ProducerConfig) -> Output:
        """Open an output."""


class Settlement(Outside, Protocol):
    """What the outcome of processing does to inputs and outputs, from opening them to closing them.

    Everything runs on the event loop but `session`, `publish` and `acknowledge`, which the function's thread calls, and
    the `maker`, which works on it: it makes units of entries, and outcomes of their results.
    """

    @property
    def maker(self) -> Maker:
        """What works on the function's thread."""

    def session(self) -> StateSession | None:
        """Return the function's state, None without a state store; called once, if the function takes a context."""

    async def open(self, calls: Calls) -> None:
        """Open inputs and outputs, saying in `InstanceCore.opening` what is being opened.

        Raises:
            MagnetarError: one of them is refused.
        """

    def start(self, process: Callable[[Item], None]) -> None:
        """Begin to take input; ``process`` gives an entry to the function's thread."""

    def trouble(self) -> str:
        """Return what keeps the instance from going on, empty if nothing does (from any thread)."""

    def tick(self) -> None:
        """Do what is due every second."""

    def request_stop(self) -> None:
        """Let the function's thread wait for nothing any more."""

    async def settle(self, unprocessed: Sequence[Item]) -> None:
        """Wait until what was made is durable and acknowledged. Cancellation: safe.

        Args:
            unprocessed: entries that nothing was made of; they come again.
        """

    async def close(self) -> None:
        """Give up what is under way, and close inputs and outputs."""
