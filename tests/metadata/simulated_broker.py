"""An in-memory broker for the workers' logs and their election, with random delays and faults.

It keeps the contract that the real broker keeps: one exclusive producer per topic, gone with its connection, fenced by
a successor's epoch; records of a connection land in their order, and one whose receipt was lost is sent again after a
reconnection; compaction keeps the last record of each key at its own position; the consumers of a failover
subscription hear in order who is active, later than it is so.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from magnetar.client.config import ProducerConfig, ReaderConfig
from magnetar.errors import (
    ClosedError,
    ConnectionLost,
    OperationTimeout,
    PersistenceError,
    ProducerBusy,
    ProducerFenced,
)
from magnetar.membership.manager import SUBSCRIPTION, Member
from magnetar.wire.message_id import MessageId

if TYPE_CHECKING:
    from magnetar.client.client import AsyncClient
    from magnetar.membership.manager import Participation

Position = tuple[int, int]
Hear = Callable[[bool], None]
"""Told whether a worker is the active one."""

Spawn = Callable[[Coroutine[Any, Any, None]], object]
"""Runs something that dies with a worker."""

BEGINNING: Position = (-1, -1)

SEND_TIMEOUT_S = 2.0
KEEP_ALIVE_S = 2.0


class Record(NamedTuple):
    """One message of a topic."""

    position: Position
    key: str | None
    value: bytes
    properties: Mapping[str, str]

    @property
    def message_id(self) -> MessageId:
        """Position of the message, by which readers identify it."""
        return MessageId(*self.position)

    @property
    def data(self) -> bytes:
        """Payload of the message, under the attribute name of real messages."""
        return self.value


class Topic:
    """All records ever written, and the compacted view of the older ones."""

    def __init__(self, ledgers: Callable[[], int]) -> None:
        self.records: list[Record] = []
        self.owner: Producer | None = None
        self.epoch = 0
        self.changed = asyncio.Event()
        self._view: list[Record] = []
        self._horizon = BEGINNING
        self._ledgers = ledgers
        self._ledger = ledgers()
        self._entries = itertools.count()

    def add(self, key: str | None, value: bytes, properties: Mapping[str, str]) -> Position:
        """Write one record."""
        position = (self._ledger, next(self._entries))
        self.records.append(Record(position, key, value, dict(properties)))
        self.changed.set()
        self.changed = asyncio.Event()
        return position

    def roll(self) -> None:
        """Start a new ledger."""
        self._ledger, self._entries = self._ledgers(), itertools.count()

    def compact(self) -> None:
        """Retain the last record of each key, including deletions, and no record without a key."""
        if self.records:
            last = {record.key: record for record in self.records if record.key is not None}
            self._view = sorted(last.values())
            self._horizon = self.records[-1].position

    def after(self, position: Position) -> Record | None:
        """Return the next record for a reader of the compacted view."""
        if position < self._horizon:
            found = next((record for record in self._view if record.position > position), None)
            if found is not None:
                return found
        tail = max(position, self._horizon)
        return next((record for record in self.records if record.position > tail), None)

    def last(self) -> Position:
        """Return the last position available to a reader of the compacted view."""
        last = self.records[-1].position if self.records else BEGINNING
        if last <= self._horizon:
            return self._view[-1].position if self._view else BEGINNING
        return last


@dataclass
class Link:
    """A worker's connection.

    Attributes:
        member: the worker.
        chance: of its delays.
        generation: raised by each cut.
        is_dead: the worker was killed.
        is_mishap_free: nothing is refused or late beyond reason any more.
    """

    member: Member
    chance: random.Random
    generation: int = 0
    is_dead: bool = False
    is_mishap_free: bool = False
    thawed: asyncio.Event = field(default_factory=asyncio.Event)
    heard: asyncio.Queue[tuple[int, bool]] = field(default_factory=asyncio.Queue)

    async def to_broker(self) -> None:
        """Wait for the delay of data to the broker; continues only while the worker is neither frozen nor dead."""
        await self.thawed.wait()
        self._check()
        await asyncio.sleep(self.chance.expovariate(100))

    async def to_worker(self) -> None:
        """Wait for the delay of data from the broker."""
        await asyncio.sleep(self.chance.expovariate(100))
        await self.thawed.wait()
        self._check()

    def _check(self) -> None:
        if self.is_dead:
            raise asyncio.CancelledError


class Broker:
    """Topics, connections and the active consumer."""

    def __init__(self, chance: random.Random, log: str) -> None:
        """Begin empty.

        Args:
            chance: of every delay and mishap.
            log: the topic whose records are looked at.
        """
        self.chance = chance
        self._ledgers = itertools.count(1)
        self._topics: dict[str, Topic] = {}
        self._turns = 0
        self.participants: list[Link] = []
        self._active: Link | None = None
        self._log = self.topic(log)
        self.records = self._log.records

    async def look(self) -> None:
        """Return immediately: `records` is always complete."""

    def junk(self, key: str | None, value: bytes) -> None:
        """Write to the log as an unrelated client."""
        self._log.add(key, value, {})

    def topic(self, name: str) -> Topic:
        """Return a topic, created on first use."""
        if name not in self._topics:
            self._topics[name] = Topic(lambda: next(self._ledgers))
        return self._topics[name]

    def roll(self) -> None:
        """Start new ledgers in all topics, as a broker does after a crash."""
        for topic in self._topics.values():
            topic.roll()

    def compact(self) -> None:
        """Compact every topic."""
        for topic in self._topics.values():
            topic.compact()

    def cut(self, link: Link) -> None:
        """Close a connection from the broker's side."""
        link.heard.put_nowait((link.generation, False))
        link.generation += 1
        for topic in self._topics.values():
            if topic.owner is not None and topic.owner.link is link:
                topic.owner = None
        if link in self.participants:
            self.participants.remove(link)
            self.elect()

    def join(self, link: Link) -> None:
        """Remove a consumer from the failover subscription."""
        self.participants.append(link)
        self.elect(link)

    def turn(self) -> None:
        """Make another participant the active consumer, as a join may do."""
        self._turns += 1
        self.elect()

    def elect(self, newcomer: Link | None = None) -> None:
        """Notify all consumers of a change; a new consumer is always notified."""
        before = self._active
        count = len(self.participants)
        self._active = self.participants[self._turns % count] if count else None
        told = self.participants if self._active is not before else [one for one in (newcomer,) if one]
        for link in told:
            link.heard.put_nowait((link.generation, link is self._active))

    def client(self, link: Link) -> tuple[AsyncClient, Client]:
        """Return a worker's client, and a function that kills it."""
        client = Client(self, link)
        return cast("AsyncClient", client), client

    async def enter(self, link: Link, client: AsyncClient, hear: Hear, spawn: Spawn) -> Participation:
        """Take part in the election."""
        spawn(participate(self, link, hear))
        return cast("Participation", client)

    async def read_stats(self, link: Link) -> Mapping[str, Any]:
        """Return the statistics of the coordination topic."""
        await link.to_broker()
        stats = self._stats()
        await link.to_worker()
        return stats

    def _stats(self) -> dict[str, Any]:
        """Return the topic statistics from which a roster is read."""
        names = [{"consumerName": link.member.consumer_name} for link in self.participants]
        active = self._active.member.consumer_name if self._active else ""
        return {"subscriptions": {SUBSCRIPTION: {"activeConsumerName": active, "consumers": names}}}


@dataclass
class _Pending:
    key: str
    value: bytes
    properties: Mapping[str, str]
    receipt: asyncio.Future[MessageId]


class Producer:
    """An exclusive producer that writes its records in order."""

    def __init__(self, topic: Topic, link: Link) -> None:
        self.link = link
        self._topic = topic
        self._epoch = topic.epoch
        self._generation = link.generation
        self._pending: deque[_Pending] = deque()
        self._has_pending = asyncio.Event()
        self._failure: Exception | None = None
        self.pump: asyncio.Task[None] = asyncio.create_task(self._run())

    async def send(self, value: bytes, *, key: str, properties: Mapping[str, str] | None = None) -> MessageId:
        """Write one record and wait for its receipt, with a timeout."""
        return await self.send_nowait(value, key=key, properties=properties)

    def send_nowait(
        self, value: bytes, *, key: str, properties: Mapping[str, str] | None = None
    ) -> asyncio.Future[MessageId]:
        """Write one record."""
        receipt: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        if self._failure is not None:
            receipt.set_exception(self._failure)
            return receipt
        self._pending.append(_Pending(key, value, properties or {}, receipt))
        self._has_pending.set()
        asyncio.get_running_loop().call_later(SEND_TIMEOUT_S, _give_up, receipt)
        return receipt

    async def _run(self) -> None:
        chance = self.link.chance
        while True:
            while not self._pending:
                self._has_pending.clear()
                await self._has_pending.wait()
            item = self._pending[0]
            await self.link.to_broker()
            if not self.link.is_mishap_free and chance.random() < 0.05:
                await asyncio.sleep(chance.uniform(0, 2 * SEND_TIMEOUT_S))  # a disk that is slow to sync
            if self._generation != self.link.generation and not await self._reconnect():
                return
            if item.receipt.done() and self._topic.owner is not self:
                self._pending.popleft()
                continue
            if not self.link.is_mishap_free and chance.random() < 0.02:
                await self.link.to_worker()
                _settle(item.receipt, PersistenceError("the broker could not write"))
                self._pending.popleft()
                continue
            position = self._topic.add(item.key, item.value, item.properties)
            await self.link.to_worker()
            if self._generation != self.link.generation:
                if item.receipt.done():
                    self._pending.popleft()
                continue  # the receipt is lost: the record is sent again
            self._pending.popleft()
            _settle(item.receipt, MessageId(*position))

    async def _reconnect(self) -> bool:
        """Reconnect after a cut; return False if another producer has taken over."""
        while self._generation != self.link.generation:
            await asyncio.sleep(self.link.chance.uniform(0.01, 0.3))
            generation = self.link.generation
            await self.link.to_broker()
            if generation != self.link.generation:
                continue
            if self._topic.epoch != self._epoch or self._topic.owner not in (None, self):
                self._fail(ProducerFenced("another producer has taken the topic"))
                return False
            self._topic.owner = self
            self._generation = generation
        return True

    def _fail(self, error: Exception) -> None:
        self._failure = error
        for item in self._pending:
            _settle(item.receipt, error)

    async def close(self) -> None:
        """Release the topic."""
        self._fail(ClosedError("the producer is closed"))
        self.pump.cancel()
        await self.link.to_broker()
        if self._topic.owner is self:
            self._topic.owner = None


def _settle(receipt: asyncio.Future[MessageId], outcome: MessageId | Exception) -> None:
    if receipt.done():
        return
    if isinstance(outcome, Exception):
        receipt.set_exception(outcome)
        receipt.exception()  # whoever waits still gets it; a record that nobody waits for any more warns of nothing
    else:
        receipt.set_result(outcome)


def _give_up(receipt: asyncio.Future[MessageId]) -> None:
    _settle(receipt, OperationTimeout(f"not stored within {SEND_TIMEOUT_S:g} s; it may still be"))


class Reader:
    """Reads the compacted view from a position on, and then the records after it."""

    def __init__(self, topic: Topic, link: Link, position: Position) -> None:
        self._topic = topic
        self._link = link
        self._position = position
        self._is_closed = False

    async def read_next(self) -> Record:
        """Return the next record."""
        if not self._link.is_mishap_free and self._link.chance.random() < 0.01:
            raise ConnectionLost("the reader broke")
        while True:
            if (found := self._topic.after(self._position)) is not None:
                await self._link.to_worker()
                self._position = found.position
                return found
            await self._topic.changed.wait()

    async def last_message_id(self) -> MessageId:
        """Return the end position of the topic."""
        await self._link.to_broker()
        last = self._topic.last()
        await self._link.to_worker()
        return MessageId(*last)

    async def close(self) -> None:
        """Stop reading."""


class Client:
    """A worker's client."""

    def __init__(self, broker: Broker, link: Link) -> None:
        self._broker = broker
        self._link = link
        self._producers: list[Producer] = []

    async def create_producer(self, topic: str, config: ProducerConfig) -> Producer:
        """Open a topic for writing."""
        assert config.access_mode == "Exclusive"
        generation = self._link.generation
        await self._link.to_broker()
        found = self._broker.topic(topic)
        if generation != self._link.generation:
            raise ConnectionLost("cut while the producer was made")
        if found.owner is not None:
            raise ProducerBusy("the topic has an exclusive producer")
        found.epoch += 1
        producer = Producer(found, self._link)
        found.owner = producer
        self._producers.append(producer)
        await self._link.to_worker()
        return producer

    async def create_reader(self, topic: str, start: MessageId, config: ReaderConfig) -> Reader:
        """Read a topic after a position."""
        assert config.read_compacted
        await self._link.to_broker()
        await self._link.to_worker()
        return Reader(self._broker.topic(topic), self._link, (start.ledger_id, start.entry_id))

    def kill(self) -> None:
        """Stop the client's background tasks."""
        for producer in self._producers:
            producer.pump.cancel()


async def participate(broker: Broker, link: Link, on_active_change: Callable[[bool], None]) -> None:
    """Take part in the election, and rejoin after each cut, until cancelled."""
    while True:
        await link.to_broker()
        generation = link.generation
        broker.join(link)
        while generation == link.generation or not link.heard.empty():
            said_by, is_active = await link.heard.get()
            await link.to_worker()
            if said_by == generation:
                on_active_change(is_active)
        on_active_change(False)
