"""One input partition of an instance as the broker gives and takes it, by itself: the test feeds its consumer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from magnetar.client.config import ConsumerConfig, ProducerConfig
from magnetar.client.connections.attachment import Attachment
from magnetar.client.consumers.consumer import Consumer
from magnetar.client.consumers.received import ReceivedEntry
from magnetar.errors import ClosedError, MagnetarError
from magnetar.instance.exact.activation import Activation
from magnetar.instance.exact.effectively_once import EffectivelyOnce
from magnetar.instance.exact.partition import InputPartition, open_all
from magnetar.instance.unit import HeldEntries
from magnetar.security.client_credentials import ClientCredentials
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import CommandMessage, MessageMetadata
from magnetar.wire.topic_name import parse_topic_name

TOPIC = parse_topic_name("persistent://public/default/in")


class Detached(Attachment):
    """The way to no broker at all."""

    def __init__(self) -> None:
        """Prepare nothing."""

    async def close(self) -> None:
        """Do nothing."""


@dataclass
class Broker:
    """What the instance's client would be: gives one consumer, and no producer when told so."""

    refusal: MagnetarError | None = None
    consumer: Consumer | None = None
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    async def subscribe(self, topic: str, subscription: str, config: ConsumerConfig) -> Consumer:
        if topic != TOPIC.text:
            raise self.refusal or AssertionError(topic)
        self.consumer = Consumer(TOPIC, subscription, 1, config, Detached())
        return self.consumer

    async def create_producer(self, topic: str, config: object) -> object:
        self.asked.set()
        await self.answers.wait()
        assert self.refusal is not None
        raise self.refusal


@dataclass
class Work:
    """The instance."""

    endpoints: Broker = field(default_factory=Broker)
    direct_topic: str = ""
    admin_url: str = ""
    credentials: ClientCredentials = field(default_factory=ClientCredentials)
    held: HeldEntries = field(default_factory=HeldEntries)
    committer: Any = None
    processed: list[int] = field(default_factory=list)
    has_processed: asyncio.Event = field(default_factory=asyncio.Event)
    inbox: list[tuple[Activation, ReceivedEntry]] = field(default_factory=list)
    has_entry: asyncio.Event = field(default_factory=asyncio.Event)
    is_busy: bool = False

    def output_config(self) -> ProducerConfig:
        """Return nothing in particular."""
        return ProducerConfig()

    def create_lock(self, producer_name: str) -> None:
        """Have no lock."""

    def resumed(self, topic: str) -> asyncio.Event:
        """Pause nothing."""
        never_paused = asyncio.Event()
        never_paused.set()
        return never_paused

    def process(self, item: tuple[Activation, ReceivedEntry]) -> None:
        """Do what the function's thread does, a little later."""
        self.inbox.append(item)
        self.has_entry.set()
        if not self.is_busy:
            asyncio.get_running_loop().call_soon(self.go_on)

    def go_on(self) -> None:
        """Let the function finish what it is busy with."""
        self.is_busy = False
        inbox, self.inbox = self.inbox, []
        for source, entry in inbox:
            if source.is_over:
                source.skipped(entry)
            else:
                self.processed.append(entry.message_id.entry_id)
                self.has_processed.set()

    async def wait_for(self, running: asyncio.Future[None], count: int) -> list[int]:
        """Return the entries that were processed, once they are so many."""
        async with asyncio.timeout(30):
            while len(self.processed) < count and not running.done():
                waiting = asyncio.ensure_future(self.has_processed.wait())
                await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                self.has_processed.clear()
        return self.processed


async def subscribed(work: Work) -> tuple[InputPartition, Consumer]:
    partition = InputPartition(cast(EffectivelyOnce, work), TOPIC.text, cast(Any, None), "name")
    await partition.open("sub", ConsumerConfig(type="Failover"))
    assert work.endpoints.consumer is not None
    return partition, work.endpoints.consumer


def feed(consumer: Consumer, entry_id: int) -> None:
    message = CommandMessage(consumer_id=1)
    message.message_id.ledgerId, message.message_id.entryId = 1, entry_id
    consumer.handle_message(message, seal(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"x"))


async def end(running: asyncio.Future[None]) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_partition_that_is_lost_and_given_back_at_once_is_begun_anew() -> None:
    work = Work()
    partition, consumer = await subscribed(work)
    consumer.handle_active_change(True)
    running = asyncio.ensure_future(partition.run())
    await asyncio.sleep(0)  # the first activity has begun, what it waits for has not
    consumer.handle_active_change(False)
    consumer.handle_active_change(True)
    feed(consumer, 0)
    assert await work.wait_for(running, 1) == [0]
    await end(running)


async def test_what_came_before_the_partition_was_lost_is_not_taken_for_what_comes_afterwards() -> None:
    """The broker begins again at the first entry that is not acknowledged; what is behind it must not come first."""
    work = Work()
    partition, consumer = await subscribed(work)
    consumer.handle_active_change(True)
    running = asyncio.ensure_future(partition.run())
    work.is_busy = True
    for entry_id in (0, 1):
        feed(consumer, entry_id)
    await work.has_entry.wait()
    work.held.room.clear()  # so much is in work that the rest stays in the consumer's queue
    for entry_id in (2, 3):
        feed(consumer, entry_id)
    consumer.handle_active_change(False)
    consumer.handle_active_change(True)
    work.go_on()
    for entry_id in (0, 1, 2, 3):
        feed(consumer, entry_id)
    assert await work.wait_for(running, 4) == [0, 1, 2, 3]
    await end(running)


async def test_what_fails_because_the_partition_is_lost_ends_no_instance() -> None:
    work = Work(Broker(refusal=MagnetarError("the connection of the request has ended")), direct_topic="out")
    partition, consumer = await subscribed(work)
    consumer.handle_active_change(True)
    running = asyncio.ensure_future(partition.run())
    await work.endpoints.asked.wait()
    consumer.handle_active_change(False)
    work.endpoints.answers.set()
    work.direct_topic = ""
    consumer.handle_active_change(True)
    feed(consumer, 0)
    assert await work.wait_for(running, 1) == [0]
    assert not running.done()
    await end(running)


async def test_what_fails_while_the_partition_is_ours_ends_the_instance() -> None:
    work = Work(Broker(refusal=MagnetarError("no producers here")), direct_topic="out")
    partition, consumer = await subscribed(work)
    consumer.handle_active_change(True)
    work.endpoints.answers.set()
    with pytest.raises(MagnetarError, match="no producers here"):
        async with asyncio.timeout(30):
            await partition.run()


async def test_all_partitions_are_subscribed_to_or_none() -> None:
    """Those that were left half open would be known, and never processed."""
    work = Work(Broker(refusal=MagnetarError("no consumers here")))
    topics = (TOPIC.text, "persistent://public/default/refused")
    partitions = [InputPartition(cast(EffectivelyOnce, work), topic, cast(Any, None), "name") for topic in topics]
    with pytest.raises(MagnetarError, match="no consumers here"):
        await open_all(partitions, "sub", ConsumerConfig(type="Failover"))
    assert work.endpoints.consumer is not None
    with pytest.raises(ClosedError):
        work.endpoints.consumer.poll_entry()
