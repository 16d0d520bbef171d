"""Publishes the entries of one attempt of a task, whose sequence ids are the same in every attempt.

The broker drops an entry whose id is not higher than the highest one of the producer's name. So nothing may be stored
after a failed entry: when the task is retried, the broker would consider that entry a duplicate.

If ids are made from input positions, each segment of a ledger has its own producer name (`wire.position_sequence`). On
a topic one producer is open at a time, and the next one is opened when everything before is stored: so names do not
change the order.
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
"""How long the name of a lost attempt may stay in use: longer than brokers keep a silent connection."""
_BUSY_PAUSE_S = 0.5

Receipt = asyncio.Future[MessageId]


class PublishedBefore(MagnetarError):
    """The broker has stored sequence ids of a producer that cannot have been used."""


class _Opened(NamedTuple):
    """The current producer of a topic, and its segment."""

    producer: Producer
    segment: Segment


class TaskPublisher:
    """The producers of one attempt, one per topic.

    Attributes:
        stored: messages stored by this attempt.
        duplicates: messages stored by an earlier attempt.
    """

    def __init__(  # noqa: PLR0913  each is a setting of its producers
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
        """Prepare.

        Args:
            name: producer name; a suffix for those of segments after the first.
            send_timeout_ms: time limit for the broker to store an entry.
            admin_url: the broker's REST interface, which tells whether the broker remembers what it has stored; empty
                if unknown.
            start: input position; nothing made from it or later positions has been published under these names. None if
                an earlier attempt may have.
            security: credentials for that interface, and how it is verified; None for none.
            encryption: settings of producers that encrypt; None for none.
            max_pending_messages: for each producer.
            schema: schema of all messages, whose payloads are encoded already; None for none.
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
        """Send an entry once there is room for it.

        Args:
            client: creates the producer.
            topic: full name, of a partition if there are any.
            messages: number of messages in the entry.
            send: passes the entry to the producer.
            segment: segment of the input position that its id is made from.

        Raises:
            MagnetarError: why this entry, or an earlier one, cannot be stored.
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
        """Open the producer of a topic, and return the broker's last sequence id of its name, -1 for none.

        Raises:
            MagnetarError: it cannot be opened.
        """
        return (await self._open(client, topic, FIRST_SEGMENT)).producer.last_sequence_id

    async def finish(self) -> None:
        """Wait until everything is stored, and close the producers; raises as `send`."""
        for producer, _ in self._opened.values():
            await producer.flush()
        self.check()
        for producer, _ in self._opened.values():
            await producer.close()

    def check(self) -> None:
        """Raise if an entry has failed."""
        self._check(*self._newest.values())

    def _check(self, *newest: Receipt | None) -> None:
        if self._failure is not None:
            raise self._failure
        for receipt in newest:
            # It may have failed in this very turn of the loop, before callbacks run; the entries before it failed
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
        """Return the producer of a topic for a segment, once the previous one's entries are all stored."""
        before = self._opened.get(topic)
        if before is not None:
            await before.producer.flush()
            self._check(self._newest.get(topic))
            await before.producer.close()
        # An entry may wait this long for an unavailable broker; so may a task between two producer names.
        retry_s = 0.0 if before is None else self._config.send_timeout_ms / 1000
        producer = await self._create(client, topic, segment.producer_name(self._name), retry_s)
        if self._start is not None and (topic, segment) not in self._used:
            first = segment.first_number(self._start)
            if producer.last_sequence_id >= first:
                raise PublishedBefore(
                    f"producer {producer.name} has published number {producer.last_sequence_id} to {topic} already,"
                    f" {first} would be the next"
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
                # Busy: a lost attempt whose connection the broker has not dropped yet.
                if time.monotonic() - began_s >= (BUSY_TIMEOUT_S if isinstance(error, ProducerBusy) else retry_s):
                    raise
                await asyncio.sleep(_BUSY_PAUSE_S)
            else:
                assert isinstance(producer, Producer)
                return producer


def partition_names(topic: str, partitions: int) -> list[str]:
    """Return the full names of a topic's partitions, or the topic's own if it is not partitioned."""
    name = parse_topic_name(topic)
    return [name.partition_name(index).text for index in range(partitions)] or [name.text]
