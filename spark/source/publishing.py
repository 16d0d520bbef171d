"""Publishes the entries of a task attempt, whose sequence ids are the same in every attempt.

The broker drops entries whose id is not higher than the highest id of the producer name. No entry may therefore be
stored after a failed entry, which the broker would otherwise drop as a duplicate when the task is retried.

If ids are derived from input positions, each segment of a ledger has its own producer name (`wire.position_sequence`).
Only one producer is open per topic at a time, and the next one is opened once all earlier entries are stored, so that
the order is preserved.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ...client import AsyncClient
from ...client.config import ProducerConfig
from ...client.deduplication import memory_guard
from ...client.producers.producer import Producer
from ...client.schemas.schema import Schema
from ...errors import ConnectionLost, MagnetarError, OperationTimeout, ProducerBusy
from ...security.client_credentials import ClientCredentials
from ...security.credentials.client_security import ClientSecurity
from ...wire.message_id import MessageId
from ...wire.position import Position
from ...wire.position_sequence import FIRST_SEGMENT, Segment
from ...wire.topic_name import parse_topic_name
from .options import MAX_PENDING_MESSAGES

BUSY_TIMEOUT_S = 90.0
"""Time during which a lost attempt may still occupy its producer name; longer than brokers keep an idle connection."""
_BUSY_PAUSE_S = 0.5

Receipt = asyncio.Future[MessageId]


class PublishedBefore(MagnetarError):
    """The broker has stored sequence ids of a producer that should not have been used yet."""


class _Opened(NamedTuple):
    """The current producer of a topic and its segment."""

    producer: Producer
    segment: Segment


class TaskPublisher:
    """The producers of one attempt, one per topic.

    Attributes:
        stored: number of messages stored by this attempt.
        duplicates: number of messages already stored by an earlier attempt.
    """

    def __init__(  # noqa: PLR0913  all are settings of the producers
        self,
        name: str,
        send_timeout_ms: int,
        admin_url: str,
        *,
        start: Position | None = None,
        security: ClientSecurity | None = None,
        encryption: Mapping[str, Any] | None = None,
        max_pending_messages: int = MAX_PENDING_MESSAGES,
        schema: Schema[bytes] | None = None,
    ) -> None:
        """Create the publisher.

        Args:
            name: producer name, followed by a suffix for segments after the first.
            send_timeout_ms: time limit for storing an entry.
            admin_url: URL of the REST interface, used to verify that the broker remembers stored sequence ids; empty if
                unknown.
            start: input position from which nothing has been published yet under these producer names; None if an
                earlier attempt may have published something.
            security: credentials and TLS settings for the REST interface; None for neither.
            encryption: producer settings for encryption; None for no encryption.
            max_pending_messages: maximum number of pending messages per producer.
            schema: schema of the messages, whose payloads are already encoded; None for no schema.
        """
        self.stored = 0
        self.duplicates = 0
        self._name = name
        self._config = ProducerConfig(
            max_pending_messages=max_pending_messages, send_timeout_ms=send_timeout_ms, **(encryption or {})
        )
        self._admin_url = admin_url
        self._credentials = ClientCredentials(security)
        self._start = start
        self._schema = schema
        self._opened: dict[str, _Opened] = {}
        self._used: set[tuple[str, Segment]] = set()  # topics and segments that had a producer
        self._newest: dict[str, Receipt] = {}
        self._failure: BaseException | None = None

    async def send(
        self,
        client: AsyncClient,
        topic: str,
        messages: int,
        send: Callable[[Producer], Receipt],
        segment: Segment = FIRST_SEGMENT,
    ) -> None:
        """Send an entry, waiting while too many messages are pending.

        Args:
            client: creates the producer.
            topic: full topic name; of a partition if the topic is partitioned.
            messages: number of messages in the entry.
            send: function that passes the entry to the producer.
            segment: segment of the input position from which the id is derived.

        Raises:
            MagnetarError: this entry or an earlier one cannot be stored.
        """
        opened = self._opened.get(topic)
        if opened is None or opened.segment != segment:
            opened = await self._open(client, topic, segment)
        producer = opened.producer
        await producer.ready()
        self._check(self._newest.get(topic))
        receipt = self._newest[topic] = send(producer)
        receipt.add_done_callback(lambda done: self._take(done, messages))

    async def open(self, client: AsyncClient, topic: str) -> int:
        """Open the producer of a topic, and return the last sequence id that the broker has stored for it, or -1.

        Raises:
            MagnetarError: the producer cannot be opened.
        """
        return (await self._open(client, topic, FIRST_SEGMENT)).producer.last_sequence_id

    async def finish(self) -> None:
        """Wait until all entries are stored, and close the producers; raises the same errors as `send`."""
        for producer, _ in self._opened.values():
            await producer.flush()
        self.check()
        for producer, _ in self._opened.values():
            await producer.close()

    def check(self) -> None:
        """Raise the error of a failed entry, if any."""
        self._check(*self._newest.values())

    def _check(self, *newest: Receipt | None) -> None:
        if self._failure is not None:
            raise self._failure
        for receipt in newest:
            # The entry may have failed in this loop iteration, before its callback runs. Earlier entries have failed
            # together with it, or their callbacks have run.
            if receipt is not None and receipt.done() and not receipt.cancelled() and (error := receipt.exception()):
                raise error

    def _take(self, receipt: Receipt, messages: int) -> None:
        if receipt.cancelled():
            return
        error = receipt.exception()
        if error is not None:
            self._failure = self._failure or error
        elif receipt.result().ledger_id < 0:
            self.duplicates += messages
        else:
            self.stored += messages

    async def _open(self, client: AsyncClient, topic: str, segment: Segment) -> _Opened:
        """Return the producer of a topic for a segment, once all entries of the previous producer are stored."""
        before = self._opened.get(topic)
        if before is not None:
            await before.producer.flush()
            self._check(self._newest.get(topic))
            await before.producer.close()
        # A task may wait for an unavailable broker between two producer names as long as an entry may.
        retry_s = 0.0 if before is None else self._config.send_timeout_ms / 1000
        producer = await self._create(client, topic, segment.producer_name(self._name), retry_s)
        if self._start is not None and (topic, segment) not in self._used:
            first = segment.first_number(self._start)
            if producer.last_sequence_id >= first:
                raise PublishedBefore(
                    f"producer {producer.name} has already published sequence id {producer.last_sequence_id} to"
                    f" {topic}, but the next one would be {first}"
                )
        self._used.add((topic, segment))
        opened = self._opened[topic] = _Opened(producer, segment)
        return opened

    async def _create(self, client: AsyncClient, topic: str, name: str, retry_s: float) -> Producer:
        config = replace(self._config, name=name)
        if self._admin_url:
            config = replace(config, guard=memory_guard(self._admin_url, topic, credentials=self._credentials))
        began_s = time.monotonic()
        while True:
            try:
                if self._schema is None:
                    producer = await client.create_producer(topic, config)
                else:
                    producer = (await client.create_producer(topic, config, schema=self._schema)).producer
            except (ProducerBusy, ConnectionLost, OperationTimeout) as error:
                # Busy: the broker has not dropped the connection of a lost attempt yet.
                if time.monotonic() - began_s >= (BUSY_TIMEOUT_S if isinstance(error, ProducerBusy) else retry_s):
                    raise
                await asyncio.sleep(_BUSY_PAUSE_S)
            else:
                assert isinstance(producer, Producer)
                return producer


def partition_names(topic: str, partitions: int) -> list[str]:
    """Return the full names of a topic's partitions, or the topic's name if it is not partitioned."""
    name = parse_topic_name(topic)
    return [name.partition_name(index).text for index in range(partitions)] or [name.text]
