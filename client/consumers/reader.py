"""Reads a topic from a chosen position, without a durable subscription."""

from __future__ import annotations

from ...wire.message_id import EARLIEST, LATEST, MessageId
from ..receiving import Receiving
from .consumer import Consumer
from .received import Message, ReceivedEntry
from .start import StartPosition


class Reader(Receiving[Message]):
    """A reader of one topic; created by `AsyncClient.create_reader` and used on its event loop.

    Attributes:
        topic: full name.
    """

    def __init__(self, consumer: Consumer, start: StartPosition):
        self.topic = consumer.topic
        self._consumer = consumer
        # The last message read, or the start position.
        self._read = start

    def __repr__(self) -> str:
        return f"Reader(topic={self.topic!r}, read={self._read.message_id})"

    @property
    def is_connected(self) -> bool:
        """Whether the reader is currently connected to a broker."""
        return self._consumer.is_connected

    @property
    def is_closed(self) -> bool:
        """Whether the application has closed the reader."""
        return self._consumer.is_closed

    @property
    def has_reached_end(self) -> bool:
        """Whether the topic is terminated and all messages were delivered."""
        return self._consumer.has_reached_end

    def poll_entry(self) -> ReceivedEntry | None:
        """Return the next entry if one is queued; see `Consumer.poll_entry`."""
        entry = self._consumer.poll_entry()
        if entry is not None:
            self._passed(entry.message_id)
        return entry

    async def read_entry(self) -> ReceivedEntry:
        """Return the next entry, waiting for it; see `Consumer.receive_entry`."""
        entry = await self._consumer.receive_entry()
        self._passed(entry.message_id)
        return entry

    def poll(self) -> Message | None:
        """Return the next message if one is queued; see `Consumer.poll`."""
        message = self._consumer.poll()
        if message is not None:
            self._passed(message.message_id)
        return message

    async def receive(self, timeout_s: float | None = None, *, timeout_millis: float | None = None) -> Message:
        """Return the next message, waiting for it; alias of `read_next`, for compatibility with consumers."""
        return await self.read_next(timeout_s, timeout_millis=timeout_millis)

    async def arrival(self) -> None:
        """Wait until a message may be available, or the reader is closed or failed; see `Consumer.arrival`."""
        await self._consumer.arrival()

    async def read_next(self, timeout_s: float | None = None, *, timeout_millis: float | None = None) -> Message:
        """Return the next message, waiting for it; see `Consumer.receive`."""
        message = await self._consumer.receive(timeout_s, timeout_millis=timeout_millis)
        self._passed(message.message_id)
        return message

    def _passed(self, message_id: MessageId) -> None:
        self._read = StartPosition(message_id, inclusive=False)
        if message_id.batch_index < 0 or message_id.batch_index == message_id.batch_size - 1:
            # Lets the broker report the reader's position and delete messages that it has read.
            self._consumer.ack_cumulative(message_id)

    async def has_message_available(self) -> bool:
        """Return whether the topic has a message that the reader has not read yet.

        Cancellation: safe.
        """
        if self._consumer.queued_messages:
            return True
        last, mark_delete = await self._consumer.last_and_mark_delete()
        if last.entry_id < 0:
            return False
        read = self._read
        if read.message_id == EARLIEST:
            return True
        if read.message_id == LATEST:
            if mark_delete is None or read.inclusive:
                return read.inclusive
            return last[:2] > mark_delete[:2]
        if last[:2] != read.message_id[:2]:
            return last[:2] > read.message_id[:2]
        if read.inclusive:
            return True
        # Within one entry, an id without a batch index means that the whole entry was read.
        return read.message_id.batch_index >= 0 and last.batch_index > read.message_id.batch_index

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the reader; see `Consumer.seek`."""
        await self._consumer.seek(target, inclusive=inclusive)
        if isinstance(target, MessageId):
            self._read = StartPosition(target, inclusive)
            return
        _, mark_delete = await self._consumer.last_and_mark_delete()
        self._read = StartPosition(mark_delete if mark_delete is not None else EARLIEST, inclusive=False)

    async def last_message_id(self) -> MessageId:
        """Return the id of the newest message of the topic; see `Consumer.last_message_id`."""
        return await self._consumer.last_message_id()

    async def close(self) -> None:
        """Close the reader; the broker deletes its subscription."""
        await self._consumer.close()
