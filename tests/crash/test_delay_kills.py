"""`kill -9` of the broker under messages that are to be delivered later: none comes early, none is lost.

Two subscriptions, Shared and Key_Shared, of one deduplicated topic. Some messages have no delay, most one of up to
seconds, a few one of an hour: these must not come at all while delayed delivery is on. Some are acknowledged, by id,
before their time. What waits is kept in memory only, so each restart has to find it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import pytest
from magnetar.client import EARLIEST, AsyncClient, ConsumerConfig, MessageId, ProducerConfig
from magnetar.client.config import ReaderConfig, SubscriptionType
from magnetar.client.consumers.consumer import Consumer
from magnetar.client.consumers.merged import MergedConsumer
from magnetar.client.consumers.received import Message
from magnetar.errors import MagnetarError

from tests.support.eventually import eventually
from tests.support.servers import Server

TOPIC = "persistent://public/default/later"
REST = "admin/v2/persistent/public/default/later"
SUBSCRIPTIONS: tuple[SubscriptionType, ...] = ("Shared", "Key_Shared")
CONSUMERS = 2
KEYS = 50
BURST = 10
PAUSE_S = 0.004
PENDING = 400
SHORT_MS, LONG_MS, HOUR_MS = 1000, 3000, 3_600_000
CANCELLED_SHARE = 0.1
"""Of the messages with a delay: acknowledged before their time, as soon as there is a receipt."""
HELD_SHARE = 0.1
"""Neither acknowledged nor asked for again, until the end or until their consumer has left."""
REFUSED_SHARE = 0.02
PROGRESS = 150
"""First deliveries of messages with a delay between two kills, on each subscription."""
PROGRESS_TIMEOUT_S = 60
KILL_WITHIN_S = 0.5

AnyConsumer = Consumer | MergedConsumer


def now_ms() -> int:
    """The broker's clock: both are of this machine."""
    return time.time_ns() // 1_000_000


def delay_ms(rng: random.Random) -> int:
    """Return how long after now a message is to come: 0 for no delay, below 0 for a time that has passed."""
    kind = rng.random()
    if kind < 0.3:
        return 0
    if kind < 0.35:
        return -rng.randint(1, LONG_MS)
    if kind < 0.85:
        return rng.randint(1, SHORT_MS)
    return rng.randint(SHORT_MS, LONG_MS) if kind < 0.98 else HOUR_MS


@dataclass
class Messages:
    """What was published, by number.

    Attributes:
        due_ms: when each is to come; 0 for at once.
        far: those that are to come in an hour.
        cancelled: those that were acknowledged before their time, whether or not the broker got it.
        session: how often the broker was restarted.
        served_ms: since when it runs, about.
    """

    due_ms: list[int] = field(default_factory=list)
    far: set[int] = field(default_factory=set)
    cancelled: set[int] = field(default_factory=set)
    session: int = 0
    served_ms: int = field(default_factory=now_ms)

    def near(self) -> set[int]:
        """Those that must come: not in an hour, and not acknowledged before their time."""
        return set(range(len(self.due_ms))) - self.far - self.cancelled

    def due(self) -> set[int]:
        """Those of them whose time has come."""
        return {number for number in self.near() if self.due_ms[number] <= now_ms()}


class Subscription:
    """One subscription, its consumers, and what they got."""

    def __init__(self, client: AsyncClient, kind: SubscriptionType, messages: Messages, seed: int) -> None:
        self.kind = kind
        self.seen: set[int] = set()
        self.delayed_seen = 0
        self.again = 0
        self.worst_late_ms = 0
        self.is_delaying = True
        self._client = client
        self._messages = messages
        self._rng = random.Random(seed)
        self._confirmed: dict[int, int] = {}  # the last session in which it may come, as one may be on its way
        self._consumers: dict[AnyConsumer, asyncio.Task[None]] = {}
        self._is_ending = False
        self._joined_ms = 0

    async def join(self) -> None:
        """Have all consumers."""
        config = ConsumerConfig(
            type=self.kind, initial_position="Earliest", receiver_queue_size=100, negative_ack_delay_ms=50,
            ack_receipts=True,
        )  # fmt: skip
        for _ in range(CONSUMERS):
            consumer = await self._client.subscribe(TOPIC, self.kind, config)
            self._consumers[consumer] = asyncio.create_task(self._consume(consumer))
        self._joined_ms = now_ms()

    async def leave(self) -> None:
        """Have no consumer: what they held is to be given out again, what waits is to be found again."""
        consumers, self._consumers = self._consumers, {}
        for task in consumers.values():
            task.cancel()
        for consumer, task in consumers.items():
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await consumer.close()

    def end(self) -> None:
        """Acknowledge everything from now on, what was held until now too."""
        self._is_ending = True
        for consumer in self._consumers:
            consumer.redeliver_unacknowledged()

    async def _consume(self, consumer: AnyConsumer) -> None:
        while True:
            message = await consumer.receive()
            at_ms = now_ms()
            number = int(message.data)
            self._note(number, at_ms, message)
            choice = self._rng.random()
            if self._is_ending or choice >= HELD_SHARE + REFUSED_SHARE:
                self.acknowledge(consumer, number, message)
            elif choice < REFUSED_SHARE:
                consumer.negative_ack(message)

    def _note(self, number: int, at_ms: int, message: Message) -> None:
        due_ms = self._messages.due_ms[number]
        session = self._messages.session
        if self.is_delaying:
            assert at_ms >= due_ms, f"{self.kind}: {number} came {due_ms - at_ms} ms early"
        confirmed_in = self._confirmed.get(number, session)
        assert confirmed_in >= session, (
            f"{self.kind}: {number} at {message.message_id} came in session {session}, its acknowledgement was"
            f" confirmed in {confirmed_in}, or before its time"
        )
        if number in self.seen:
            self.again += 1
            return
        self.seen.add(number)
        if due_ms:
            self.delayed_seen += 1
            since_ms = max(due_ms, self._messages.served_ms, self._joined_ms)
            self.worst_late_ms = max(self.worst_late_ms, at_ms - since_ms)

    def cancel_delivery(self, number: int, message_id: MessageId) -> None:
        """Acknowledge a message before its time."""
        if self._consumers:
            self.acknowledge(self._rng.choice(list(self._consumers)), number, message_id)

    def acknowledge(self, consumer: AnyConsumer, number: int, message: Message | MessageId) -> None:
        """Acknowledge; what has no confirmation when its connection ends is sent again on the next one."""
        consumer.ack(message).add_done_callback(partial(self._on_confirmation, number))

    def _on_confirmation(self, number: int, done: asyncio.Future[None]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        session = self._messages.session
        is_waiting = self._messages.due_ms[number] > now_ms()
        self._confirmed.setdefault(number, session - 1 if is_waiting else session)

    def unconfirmed(self, numbers: set[int]) -> set[int]:
        """Return those of which no acknowledgement was confirmed."""
        return numbers - self._confirmed.keys()

    def check(self) -> None:
        """Raise what a consumer found wrong."""
        for task in self._consumers.values():
            if task.done() and not task.cancelled():
                task.result()

    def missing(self, expected: set[int]) -> str:
        """Name what of some messages has not come."""
        left = sorted(expected - self.seen)
        late = [(number, now_ms() - self._messages.due_ms[number]) for number in left[:5]]
        return f"{self.kind}: {len(left)} have not come, first (number, ms late) {late}"


class Publisher:
    """The producer of the topic."""

    def __init__(self, client: AsyncClient, messages: Messages, subscriptions: list[Subscription], seed: int) -> None:
        self._client = client
        self._messages = messages
        self._subscriptions = subscriptions
        self._rng = random.Random(seed)
        self._is_ending = False
        self.receipts = 0
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        config = ProducerConfig(
            name="p", batching_type="KeyBased", batch_max_messages=10, batch_max_delay_ms=2, send_timeout_ms=0
        )
        producer = await self._client.create_producer(TOPIC, config)
        pending: set[asyncio.Future[MessageId]] = set()
        while not self._is_ending:
            await producer.ready()
            for _ in range(BURST):
                pending.add(self._send(producer.send_nowait))
            pending = {one for one in pending if not one.done() or one.result() is None}
            if len(pending) > PENDING:
                await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(PAUSE_S)
        await producer.flush()
        await asyncio.gather(*pending)
        await producer.close()

    def _send(self, send: Any) -> asyncio.Future[MessageId]:
        messages = self._messages
        number = len(messages.due_ms)
        wait_ms = delay_ms(self._rng)
        due_ms = now_ms() + wait_ms if wait_ms else 0
        messages.due_ms.append(due_ms)
        if wait_ms == HOUR_MS:
            messages.far.add(number)
        sent: asyncio.Future[MessageId] = send(b"%d" % number, key=f"{number % KEYS}", deliver_at_ms=due_ms)
        sent.add_done_callback(partial(self._on_receipt, number))
        return sent

    def _on_receipt(self, number: int, done: asyncio.Future[MessageId]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        self.receipts += 1
        message_id = done.result()
        is_stored_now = message_id.ledger_id >= 0  # else it had been stored, and where is not known
        is_waiting = self._messages.due_ms[number] > now_ms()
        if is_stored_now and is_waiting and self._rng.random() < CANCELLED_SHARE:
            self._messages.cancelled.add(number)
            for subscription in self._subscriptions:
                subscription.cancel_delivery(number, message_id)

    async def finish(self) -> None:
        """Stop; return once everything has a receipt."""
        self._is_ending = True
        async with asyncio.timeout(PROGRESS_TIMEOUT_S):
            await self.task

    def check(self) -> None:
        """Raise what the producer died of."""
        if self.task.done():
            self.task.result()


async def stats(http: httpx.AsyncClient) -> dict[str, Any]:
    """Return what the broker says of each subscription."""
    answer = (await http.get(f"{REST}/stats")).raise_for_status()
    subscriptions: dict[str, Any] = answer.json()["subscriptions"]
    return subscriptions


async def progress(messages: Messages, publisher: Publisher, subscriptions: list[Subscription]) -> None:
    """Return once more messages with a delay have come on each subscription."""
    aims = [each.delayed_seen + PROGRESS for each in subscriptions]
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while any(each.delayed_seen < aim for each, aim in zip(subscriptions, aims, strict=True)):
        publisher.check()
        for each in subscriptions:
            each.check()
            assert time.monotonic() < deadline, f"{each.missing(messages.due())}, {publisher.receipts} receipts"
        await asyncio.sleep(0.01)


async def settle(http: httpx.AsyncClient, subscriptions: list[Subscription], expected: set[int]) -> dict[str, int]:
    """Wait until messages have come and nothing but what waits is left; return how many wait, by subscription."""

    async def is_settled() -> dict[str, int] | None:
        for each in subscriptions:
            each.check()
        said = await stats(http)
        if any(expected - each.seen for each in subscriptions):
            return None
        if any(one["msgBacklog"] != one["msgDelayed"] for one in said.values()):
            return None
        return {name: one["msgDelayed"] for name, one in said.items()} or None

    try:
        return await eventually(is_settled, "settled state", PROGRESS_TIMEOUT_S)
    except AssertionError:
        lines = [each.missing(expected) for each in subscriptions]
        raise AssertionError("; ".join([*lines, f"the broker: {await stats(http)}"])) from None


async def kill_and_restart(broker: Server, messages: Messages) -> None:
    await asyncio.to_thread(broker.kill)
    messages.session += 1
    await asyncio.to_thread(broker.restart)
    messages.served_ms = now_ms()


async def rounds(broker: Server, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    messages = Messages()
    policy = {"active": True, "tickTime": rng.choice((1, 100, 1000))}
    async with (
        AsyncClient(broker.service_url) as client,
        httpx.AsyncClient(base_url=broker.web_url, timeout=60) as http,
    ):
        (await http.put(REST)).raise_for_status()
        (await http.post(f"{REST}/deduplicationEnabled", json=True)).raise_for_status()
        (await http.post(f"{REST}/delayedDelivery", json=policy)).raise_for_status()
        subscriptions = [Subscription(client, kind, messages, seed + index) for index, kind in enumerate(SUBSCRIPTIONS)]
        for each in subscriptions:
            await each.join()
        publisher = Publisher(client, messages, subscriptions, seed)
        try:
            for _ in range(kills):
                await progress(messages, publisher, subscriptions)
                if rng.random() < 0.5:
                    each = rng.choice(subscriptions)
                    await each.leave()
                    await each.join()
                await asyncio.sleep(rng.uniform(0, KILL_WITHIN_S))  # the random moment, not a wait for anything
                await kill_and_restart(broker, messages)
            await progress(messages, publisher, subscriptions)
            await publisher.finish()
            for each in subscriptions:
                each.end()
            await check_the_end(broker, http, messages, subscriptions)
        finally:
            publisher.task.cancel()
            await asyncio.gather(publisher.task, return_exceptions=True)
            for each in subscriptions:
                with contextlib.suppress(MagnetarError, AssertionError):
                    await each.leave()
        await check_log(client, len(messages.due_ms))
    assert messages.cancelled
    for each in subscriptions:
        assert each.again, f"{each.kind}: nothing came again: nothing was tested"
    worst = {each.kind: each.worst_late_ms for each in subscriptions}
    print(f"seed {seed}: {len(messages.due_ms)} messages, tick {policy['tickTime']} ms, at worst late {worst} ms")


async def check_the_end(
    broker: Server, http: httpx.AsyncClient, messages: Messages, subscriptions: list[Subscription]
) -> None:
    """All but what is to come in an hour comes; then that is what waits, after one more kill too, and comes at last."""
    near, far = messages.near(), messages.far
    await settle(http, subscriptions, near)
    most: dict[str, int] = {each.kind: len(each.unconfirmed(far)) for each in subscriptions}
    await kill_and_restart(broker, messages)
    after = await settle(http, subscriptions, near)
    least = len(far - messages.cancelled)
    assert least, "everything was acknowledged before its time: nothing was tested"
    for name, waiting in after.items():
        # What was acknowledged before its time without a confirmation is open, until the client sends that again.
        assert least <= waiting <= most[name], f"{name}: {waiting} wait, not {least} to {most[name]}"
    (await http.post(f"{REST}/delayedDelivery", json={"active": False})).raise_for_status()
    for each in subscriptions:
        each.is_delaying = False
    seen = {each.kind: set(each.seen) for each in subscriptions}
    await kill_and_restart(broker, messages)  # it would obey within 10 seconds; from a start on it does at once
    left = await settle(http, subscriptions, near | (far - messages.cancelled))
    assert set(left.values()) == {0}
    for each in subscriptions:
        came = each.seen - seen[each.kind]
        assert len(came) <= after[each.kind], f"{each.kind}: {after[each.kind]} waited, {len(came)} came"
        assert came <= far


async def check_log(client: AsyncClient, published: int) -> None:
    """The topic has each message once, those of each key in order."""
    by_key: dict[int, list[int]] = defaultdict(list)
    reader = await client.create_reader(TOPIC, EARLIEST, ReaderConfig())
    while await reader.has_message_available():
        number = int((await reader.read_next(timeout_s=30)).data)
        by_key[number % KEYS].append(number)
    await reader.close()
    stored = Counter(number for numbers in by_key.values() for number in numbers)
    lost = sorted(set(range(published)) - stored.keys())
    assert not lost, f"{len(lost)} of {published} messages lost, first {lost[:5]}"
    twice = [number for number, count in stored.items() if count > 1]
    assert not twice, f"{len(twice)} messages stored twice, first {twice[:5]}"
    for key, numbers in by_key.items():
        assert numbers == sorted(numbers), f"key {key} is stored out of order"


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_two_kills_deliver_nothing_early(broker: Server) -> None:
    await rounds(broker, kills=2, seed=20261123)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
async def test_ten_kills_deliver_nothing_early(broker: Server, seed: int) -> None:
    await rounds(broker, kills=10, seed=seed)
