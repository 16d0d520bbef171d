"""Internal topics that store a replicated log: all workers tail the log, and the leader appends to it.

The leader triggers compaction of the logs, and readers use the compacted view, because the last record of each key is
sufficient. This includes deletions, which the leader writes in a form that survives compaction (`KEPT_TOMBSTONE`;
Apache Pulsar up to 4.0.7 keeps them because they have no uncompressed size). A reader that was disconnected while a key
was deleted and the log was compacted therefore still receives the deletion.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NoReturn

from ...client.client import AsyncClient
from ...client.config import ProducerConfig, ReaderConfig
from ...client.consumers.reader import Reader
from ...client.producers.partitioned import PartitionedProducer
from ...client.producers.producer import Producer
from ...errors import ConnectionLost, MagnetarError, NotAllowed
from ...metadata.replicated_log import Apply, LogRecord, Position
from ...tasks import Backoff, Retry
from ...wire.message_id import EARLIEST, MessageId
from ...wire.message_properties import KEPT_TOMBSTONE

_RETRY_S = 1.0
_BURST = 500
"""Maximum number of records in flight; less than the client's limit of pending messages."""

_log = logging.getLogger(__name__)


def position_of(message_id: MessageId) -> Position:
    """Return a message's position in the log; internal topics have one message per entry."""
    return message_id.ledger_id, message_id.entry_id


async def keep_compacted(
    compact: Callable[[str], Awaitable[None]], topics: Sequence[str], is_leading: Callable[[], bool], period_s: float
) -> None:
    """Trigger compaction of internal topics periodically, so that starting workers need not read the entire history.

    Runs until cancelled. Duplicate triggers, for example after a leader change, are harmless; failures are retried in
    the next period.

    Args:
        compact: triggers compaction of a topic.
        topics: full topic names.
        is_leading: returns whether this worker is the leader, which triggers compaction.
        period_s: interval in seconds; 0 or less disables compaction.
    """
    if period_s <= 0:
        await asyncio.Event().wait()
    while True:
        await asyncio.sleep(period_s)
        for topic in topics if is_leading() else ():
            try:
                await compact(topic)
            except MagnetarError as exc:
                _log.warning("cannot compact %s: %s", topic, exc)


class TopicLog:
    """A topic that is read continuously from its start and written by a single exclusive producer."""

    def __init__(self, client: AsyncClient, topic: str, reader_name: str) -> None:
        self.topic = topic
        self._client = client
        self._reader_name = reader_name
        self._reader: Reader | None = None
        self._is_open = asyncio.Event()
        self._has_moved = asyncio.Condition()
        self._position: Position = (-1, -1)

    async def tail(self, apply: Apply) -> None:
        """Pass each record to ``apply`` until cancelled; log errors and then resume at the same position."""

        def stopped(failure: Exception) -> None:
            _log.warning("reading %s failed at %d:%d; retrying: %s", self.topic, *self._position, failure)

        retry = Retry((MagnetarError,), Backoff(_RETRY_S, _RETRY_S), is_final=lambda _: False, on_failure=stopped)
        await retry.call(lambda: self._read(apply))

    async def _read(self, apply: Apply) -> NoReturn:
        start = MessageId(*self._position) if self._position > (-1, -1) else EARLIEST
        config = ReaderConfig(name=self._reader_name, read_compacted=True)
        reader = await self._client.create_reader(self.topic, start, config)
        self._reader = reader
        self._is_open.set()
        try:
            while True:
                message = await reader.read_next()
                position = position_of(message.message_id)
                apply(position, message.key, message.data, message.properties)
                async with self._has_moved:
                    self._position = max(self._position, position)
                    self._has_moved.notify_all()
        finally:
            self._is_open.clear()
            self._reader = None
            await reader.close()

    async def catch_up(self) -> None:
        """Return once all records that the topic contained at the time of the call have been applied.

        Compaction may remove an unread last record if it has no key, so the end of the topic is looked up again while
        waiting.
        """
        end: Position = (sys.maxsize, 0)
        while True:
            await self._is_open.wait()
            reader = self._reader
            if reader is None:
                raise ConnectionLost(f"the reader of {self.topic} was closed: retry")
            last = position_of(await reader.last_message_id())
            end = min(end, last)
            if last[1] < 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETRY_S), self._has_moved:
                    await self._has_moved.wait_for(lambda end=end: self._position >= end)  # type: ignore[misc]
                    return

    async def open_writer(self, name: str) -> TopicWriter:
        """Acquire exclusive write access to the topic.

        Raises:
            ProducerBusy, ProducerFenced: another leader is writing to it.
            NotAllowed: the broker does not allow exclusive producers, without which two leaders could write.
        """
        config = ProducerConfig(
            name=name, access_mode="Exclusive", batching=False, empty_deletes=False, block_if_queue_full=True
        )
        try:
            return TopicWriter(await self._client.create_producer(self.topic, config))
        except NotAllowed as exc:
            raise NotAllowed(
                f"cannot get exclusive write access to {self.topic}, without which two leaders could write to it:"
                f" {exc}; use a broker that supports the producer access mode Exclusive (Apache Pulsar 2.8 or newer)"
            ) from exc


def _properties(record: LogRecord) -> Mapping[str, str]:
    return record.properties if record.value else {**record.properties, KEPT_TOMBSTONE: "true"}


class TopicWriter:
    """The leader's exclusive producer on an internal topic."""

    def __init__(self, producer: Producer | PartitionedProducer) -> None:
        self._producer = producer

    async def append(self, records: Sequence[LogRecord]) -> Position:
        """Write records in order, and return the position of the last record once all are durable."""
        send = self._producer.send_nowait
        last = MessageId(-1, -1)
        for begin in range(0, len(records), _BURST):
            burst = records[begin : begin + _BURST]
            sent = [send(record.value, key=record.key, properties=_properties(record)) for record in burst]
            last = (await asyncio.gather(*sent))[-1]
        return position_of(last)

    async def close(self) -> None:
        """Release the topic for the next leader."""
        await self._producer.close()
