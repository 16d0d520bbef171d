"""The consumers of a soak: each member of a subscription repeatedly opens a consumer, with pauses in between."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pulsar
from magnetar.client import AsyncClient, ClosedError, ConsumerConfig, ConsumerDeadLetterPolicy, JsonSchema

from .account import Account, Faults
from .topics import Body, Subscription, Topic, body_of

PAUSE_S_MAX = 2.0
SLOW_SHARE = 0.1
SLOW_S_MAX = 0.04
"""Maximum time per message of a slow consumer, in seconds; it keeps up on average, but lags after bursts."""
QUEUES = (1, 10, 100, 1000)
SLOW_QUEUES = (0, 1, 5)
REFUSED_TIMES_MAX = 2
REFUSED_MS = 500
CLOSE_S = 60.0
LETTERS = "letters"
"""Subscription of all dead letter topics."""

OFFICIAL_TYPES = {
    "Exclusive": pulsar.ConsumerType.Exclusive,
    "Failover": pulsar.ConsumerType.Failover,
    "Shared": pulsar.ConsumerType.Shared,
    "Key_Shared": pulsar.ConsumerType.KeyShared,
}


@dataclass
class Manner:
    """How consumers behave.

    Attributes:
        stay_s: average lifetime of a consumer.
        stays: whether current and new consumers remain until the end.
    """

    stay_s: float
    stays: bool = False


class Client(Protocol):
    """Creates consumers of one client library.

    Attributes:
        library: name of the library.
    """

    library: str

    async def consume(self, member: Member, until: float | None) -> None:
        """Consume until a time of the event loop's clock, or until cancelled; then close the consumer."""


class Member:
    """A member of a subscription, with one consumer at a time.

    Attributes:
        name: name of its consumers.
        account: account of the subscription.
        rng: random generator for the behaviour of its consumers.
        is_present: whether it currently has a consumer.
        joins: number of consumers opened so far.
    """

    def __init__(self, account: Account, number: int, client: Client, rng: random.Random, faults: Faults) -> None:
        self.account = account
        self.name = f"{client.library}-{number}"
        self.rng = rng
        self.is_present = False
        self.joins = 0
        self._client = client
        self._faults = faults

    @property
    def topic(self) -> Topic:
        """Return its topic."""
        return self.account.topic

    @property
    def subscription(self) -> Subscription:
        """Return its subscription."""
        return self.account.subscription

    async def run(self, manner: Manner) -> None:
        """Open and close consumers until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            stays = manner.stays or not self.topic.is_persistent
            until = None if stays else loop.time() + min(3 * manner.stay_s, self.rng.expovariate(1 / manner.stay_s))
            try:
                await self._client.consume(self, until)
            except Exception as error:  # noqa: BLE001  an unexpected end of a consumer is a finding
                self._faults.add("consumer ended unexpectedly", f"{self.name} of {self.account}: {error!r}")
            finally:
                self.is_present = False
            await asyncio.sleep(self.rng.uniform(0, PAUSE_S_MAX))

    def joined(self) -> None:
        """Record that a consumer was opened."""
        self.is_present = True
        self.joins += 1

    def confirmed(self, receipt: asyncio.Future[None]) -> None:
        """Record a failed acknowledgement, unless its consumer was closed first: then the message is redelivered."""
        error = None if receipt.cancelled() else receipt.exception()
        if error is not None and not isinstance(error, ClosedError):
            self._faults.add("acknowledgement not confirmed", f"{self.name} of {self.account}: {error!r}")


class OwnClient:
    """Creates consumers of our client."""

    library = "own"

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def consume(self, member: Member, until: float | None) -> None:
        """Same as `Client.consume`, for this library."""
        rng, topic = member.rng, member.topic
        is_slow = topic.is_persistent and rng.random() < SLOW_SHARE
        config = ConsumerConfig(
            type=member.subscription.type,
            name=member.name,
            initial_position="Earliest",
            receiver_queue_size=rng.choice(SLOW_QUEUES if is_slow else QUEUES) if topic.is_persistent else QUEUES[-1],
            ack_receipts=rng.random() < 0.5,
            negative_ack_delay_ms=REFUSED_MS,
            dead_letter_policy=ConsumerDeadLetterPolicy(
                max_redeliver_count=REFUSED_TIMES_MAX,
                dead_letter_topic=topic.dead_letters_of(member.subscription),
                initial_subscription_name=LETTERS,
            )
            if topic.is_failing
            else None,
        )
        schema: Any = {"schema": JsonSchema(Body)} if topic.has_schema else {}
        consumer: Any = await self._client.subscribe(topic.name, member.subscription.name, config, **schema)
        try:
            member.joined()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._take(consumer, member, rng.uniform(0, SLOW_S_MAX) if is_slow else 0.0)
        finally:
            async with asyncio.timeout(CLOSE_S):
                await consumer.close()

    async def _take(self, consumer: Any, member: Member, work_s: float) -> None:
        account, has_schema = member.account, member.topic.has_schema
        while True:
            message = await consumer.receive()
            body = message.value if has_schema else body_of(message.data)
            if not account.is_accepted(body, time.time() * 1000):
                consumer.negative_ack(message)
                continue
            if work_s:
                await asyncio.sleep(work_s)
            account.acknowledge(body)
            consumer.ack(message).add_done_callback(member.confirmed)


class OfficialClient:
    """Creates consumers of the official client, whose listeners run on a separate thread.

    They never reject messages: this client (4.2) may crash with a segmentation fault, or write freed memory to dead
    letters, if a consumer is closed while its dead letters are being sent.
    """

    library = "official"

    def __init__(self, client: pulsar.Client) -> None:
        self._client = client

    async def consume(self, member: Member, until: float | None) -> None:
        """Same as `Client.consume`, for this library."""
        consumer = await asyncio.to_thread(self._subscribe, member)
        try:
            member.joined()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await asyncio.Event().wait()
        finally:
            async with asyncio.timeout(CLOSE_S):
                await asyncio.to_thread(consumer.close)

    def _subscribe(self, member: Member) -> pulsar.Consumer:
        return self._client.subscribe(
            member.topic.name,
            member.subscription.name,
            consumer_type=OFFICIAL_TYPES[member.subscription.type],
            consumer_name=member.name,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=member.rng.choice(QUEUES),
            batch_index_ack_enabled=True,  # else it never acknowledges batches that others have partly acknowledged
            message_listener=listener_of(member.account),
        )


def listener_of(account: Account) -> Callable[[pulsar.Consumer, pulsar.Message], None]:
    """Return the listener for the messages of a subscription."""

    def take(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        body = body_of(message.data())
        account.is_accepted(body, time.time() * 1000)
        account.acknowledge(body)
        with contextlib.suppress(pulsar.AlreadyClosed):  # its pending messages are redelivered
            consumer.acknowledge(message)

    return take
