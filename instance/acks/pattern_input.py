"""An input that is a topic pattern: new topics are added, and operations on deleted topics are skipped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from ...client.consumers.merged import MergedConsumer
from ...client.consumers.received import ReceivedEntry
from ...errors import ClosedError
from ...wire.message_id import MessageId
from ..ports import Input

_T = TypeVar("_T")


class PatternInput:
    """An `Input` that skips acknowledgements of deleted topics.

    Attributes:
        opened: the wrapped input.
    """

    def __init__(self, opened: Input, consumers: MergedConsumer) -> None:
        """Wrap an input.

        Args:
            opened: input to wrap.
            consumers: consumer of all matching topics.
        """
        self.opened = opened
        self._consumers = consumers
        self.receive_entry = opened.receive_entry
        self.poll_entry = opened.poll_entry
        self.arrival = opened.arrival
        self.ack = opened.ack
        self.close = opened.close

    def _is_there(self, entry: ReceivedEntry) -> bool:
        return entry.topic in self._consumers.consumers

    def claim_entries(self, entries: Sequence[ReceivedEntry]) -> asyncio.Future[list[ReceivedEntry]]:
        """Acknowledge entries before they are processed, and return those whose acknowledgement is durable."""
        there = [entry for entry in entries if self._is_there(entry)]
        return self.opened.claim_entries(there) if there else _done([])

    def ack_entries(self, entries: Sequence[ReceivedEntry]) -> asyncio.Future[None]:
        """Acknowledge entries immediately."""
        there = [entry for entry in entries if self._is_there(entry)]
        return self.opened.ack_entries(there) if there else _done(None)

    def ack_entry(self, entry: ReceivedEntry) -> asyncio.Future[None]:
        """Acknowledge an entry soon, together with others."""
        return self.opened.ack_entry(entry) if self._is_there(entry) else _done(None)

    def ack_batch_indexes(self, entry: ReceivedEntry, still_wanted: Sequence[int]) -> asyncio.Future[None]:
        """Acknowledge the messages of an entry that are not in an ack set."""
        return self.opened.ack_batch_indexes(entry, still_wanted) if self._is_there(entry) else _done(None)

    def negative_ack(self, message: ReceivedEntry) -> None:
        """Request redelivery of an entry's unacknowledged messages, after a delay."""
        if self._is_there(message):
            self.opened.negative_ack(message)

    async def flush_acks(self) -> None:
        """Wait until acknowledgements have been sent."""
        with suppress(ClosedError):  # the topic was deleted
            await self.opened.flush_acks()

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the subscription; the next entry is the first one after ``target``."""
        await self.opened.seek(target, inclusive=inclusive)


def _done(result: _T) -> asyncio.Future[_T]:
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future
