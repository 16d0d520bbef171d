"""Topics and namespaces unloaded at random moments, `kill -9` between: nothing is lost or doubled, order is kept.

Two topics in a namespace with deduplication. One has a producer of single messages and one of batches, and is read by
an exclusive consumer, a failover pair and a shared pair; what must be in order there are the messages of a producer.
The other has a producer that batches by key, and is read by three consumers by key and by an exclusive one; what must
be in order there are the messages of a key.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from magnetar.client import EARLIEST, AsyncClient, ConsumerConfig, MessageId, ProducerConfig
from magnetar.client.config import ReaderConfig, SubscriptionType
from magnetar.client.consumers.consumer import Consumer
from magnetar.client.consumers.merged import MergedConsumer

from tests.support.eventually import eventually
from tests.support.servers import Server

SETTINGS = ""
"""Lines of `broker.conf` that the broker is started with."""
NAMESPACE = "public/unloaded"
KEYS = 20
BURST = 10
PAUSE_S = 0.02
PENDING = 300
REFUSED_SHARE = 0.02
SLOW_SHARE = 0.02
SLOW_S = 0.02
"""So that there is always something that consumers hold when a topic is unloaded."""
PROGRESS = 150
"""First deliveries between two acts, on each subscription."""
PROGRESS_TIMEOUT_S = 60
ACT_WITHIN_S = 0.3
ACTS = ("topic", "topic", "namespace", "bundle", "twice", "all", "kill", "unload and kill", "topic", "namespace")
"""Of ten rounds, in an order of the seed."""

AnyConsumer = Consumer | MergedConsumer
Plan = dict[SubscriptionType, int]
"""Consumers by type; each type has one subscription."""


@dataclass
class Seen:
    """What a subscription was given of each stream: of each producer, or of each key.

    Attributes:
        is_ordered: whether each stream is to come in order.
        numbers: of each stream, those that came; in order it is as many as the next one's number.
    """

    is_ordered: bool
    numbers: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    first: int = 0
    again: int = 0

    def on_delivery(self, subscription: str, stream: str, number: int) -> None:
        """Note a message."""
        numbers = self.numbers[stream]
        if number in numbers:
            self.again += 1
            return
        assert not self.is_ordered or number == len(numbers), (
            f"{subscription}, stream {stream}: {number} came while {len(numbers)} had not been given out"
        )
        numbers.add(number)
        self.first += 1


class Topic:
    """One topic with its producers and consumers."""

    def __init__(self, client: AsyncClient, local: str, producers: dict[str, ProducerConfig], plan: Plan, seed: int):
        """Begin with `start`.

        Args:
            client: of all of them.
            local: last part of the topic's name.
            producers: their settings by name; one that batches by key has a stream of each key, others have one.
            plan: consumers.
            seed: of what is random here.
        """
        self.name = f"persistent://{NAMESPACE}/{local}"
        self.path = f"persistent/{NAMESPACE}/{local}"
        self.published: dict[str, int] = defaultdict(int)  # messages of a stream; each has its number as content
        self.seen: dict[str, Seen] = {kind: Seen(kind != "Shared") for kind in plan}
        self.receipts = 0
        self.losses = 0  # how often the exclusive consumer lost the topic
        self._client = client
        self._configs = producers
        self._plan = plan
        self._rng = random.Random(seed)
        self._is_ending = False
        self._consumers: list[asyncio.Task[None]] = []
        self._producers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Subscribe, then publish."""
        for kind, count in self._plan.items():
            for index in range(count):
                config = ConsumerConfig(
                    type=kind, name=f"c{index}", initial_position="Earliest", receiver_queue_size=100,
                    negative_ack_delay_ms=50, on_active_change=self._count_loss if kind == "Exclusive" else None,
                )  # fmt: skip
                consumer = await self._client.subscribe(self.name, kind, config)
                self._consumers.append(asyncio.create_task(self._consume(kind, consumer)))
        self._producers = [asyncio.create_task(self._publish(name)) for name in self._configs]

    async def _publish(self, name: str) -> None:
        config = self._configs[name]
        producer = await self._client.create_producer(self.name, config)
        pending: set[asyncio.Future[MessageId]] = set()
        while not self._is_ending:
            await producer.ready()
            for _ in range(BURST):
                key = f"{self._rng.randrange(KEYS)}" if config.batching_type == "KeyBased" else name
                future = producer.send_nowait(b"%d" % self.published[key], key=key)
                self.published[key] += 1
                future.add_done_callback(self._on_receipt)
                pending.add(future)
            pending = {one for one in pending if not one.done() or one.result() is None}
            if len(pending) > PENDING:
                await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(PAUSE_S)
        await producer.flush()
        await asyncio.gather(*pending)

    def _on_receipt(self, done: asyncio.Future[MessageId]) -> None:
        self.receipts += not done.cancelled() and done.exception() is None

    def _count_loss(self, is_active: bool) -> None:
        self.losses += not is_active

    async def _consume(self, kind: SubscriptionType, consumer: AnyConsumer) -> None:
        rng, seen = self._rng, self.seen[kind]
        refuses = kind in ("Shared", "Key_Shared")
        while True:
            message = await consumer.receive()
            if rng.random() < SLOW_SHARE:
                await asyncio.sleep(SLOW_S)
            assert message.key is not None
            seen.on_delivery(f"{self.path}, {kind}", message.key, int(message.data))
            if refuses and rng.random() < REFUSED_SHARE:
                consumer.negative_ack(message)
            else:
                consumer.ack(message)

    def check(self) -> None:
        """Raise what a producer or a consumer died of."""
        for task in (*self._producers, *self._consumers):
            if task.done() and not task.cancelled():
                task.result()

    def end(self) -> None:
        """Publish no more."""
        self._is_ending = True

    async def cancel(self) -> None:
        """End everything."""
        tasks = (*self._producers, *self._consumers)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def is_finished(self, http: httpx.AsyncClient) -> bool:
        """Return whether all that was published is stored, was given out on each subscription, and is acknowledged."""
        self.check()
        return (
            all(task.done() for task in self._producers)
            and not any(self.missing().values())
            and not any(one["msgBacklog"] for one in (await self.stats(http)).values())
        )

    def missing(self) -> dict[str, dict[str, list[int]]]:
        """Return what has not come: by subscription and stream the first few numbers, and how many."""
        return {
            kind: {
                name: [*left[:3], len(left)]
                for name, published in self.published.items()
                if (left := sorted(set(range(published)) - seen.numbers[name]))
            }
            for kind, seen in self.seen.items()
        }

    async def stats(self, http: httpx.AsyncClient) -> dict[str, Any]:
        """Return what the broker says of each subscription."""
        answer = (await http.get(f"{self.path}/stats")).raise_for_status()
        subscriptions: dict[str, Any] = answer.json()["subscriptions"]
        return subscriptions

    async def check_log(self) -> None:
        """The topic has each message once, those of each stream in order."""
        stored: dict[str, list[int]] = defaultdict(list)
        reader = await self._client.create_reader(self.name, EARLIEST, ReaderConfig())
        while await reader.has_message_available():
            message = await reader.read_next(timeout_s=30)
            assert message.key is not None
            stored[message.key].append(int(message.data))
        await reader.close()
        for name, published in self.published.items():
            numbers = stored[name]
            lost = sorted(set(range(published)) - set(numbers))
            assert not lost, f"{self.path}, stream {name}: {len(lost)} lost, first {lost[:5]}"
            twice = [number for number, count in Counter(numbers).items() if count > 1]
            assert not twice, f"{self.path}, stream {name}: {len(twice)} stored twice, first {twice[:5]}"
            assert numbers == sorted(numbers), f"{self.path}, stream {name} is stored out of order"


async def progress(topics: list[Topic]) -> None:
    """Return once each subscription was given more."""
    aims = {(topic.path, kind): seen.first + PROGRESS for topic in topics for kind, seen in topic.seen.items()}
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while True:
        behind = {
            (topic.path, kind): (seen.first, topic.receipts)
            for topic in topics
            for kind, seen in topic.seen.items()
            if seen.first < aims[topic.path, kind]
        }
        if not behind:
            return
        for topic in topics:
            topic.check()
        assert time.monotonic() < deadline, f"no progress (given out, of so many stored): {behind}"
        await asyncio.sleep(0.01)


async def act(what: str, broker: Server, http: httpx.AsyncClient, topics: list[Topic], rng: random.Random) -> None:
    """Unload something, or kill the broker; return once the consumers know.

    Args:
        what: one of `ACTS`.
        broker: to be killed.
        http: to the broker.
        topics: to be unloaded.
        rng: chooses.
    """
    by_topic = [f"{topic.path}/unload" for topic in topics]
    whole = f"namespaces/{NAMESPACE}/unload"
    chosen = rng.choice(topics)
    one = f"{chosen.path}/unload"
    concerned = [chosen] if what in ("topic", "twice") else topics
    before = [topic.losses for topic in concerned]
    match what:
        case "topic":
            await unload(http, one)
        case "namespace":
            await unload(http, whole)
        case "bundle":
            answer = await http.get(f"namespaces/{NAMESPACE}/bundles")
            boundaries = answer.raise_for_status().json()["boundaries"]
            for low, high in itertools.pairwise(boundaries):
                await unload(http, f"namespaces/{NAMESPACE}/{low}_{high}/unload")
        case "twice":  # while its clients come back
            await unload(http, one)
            await asyncio.sleep(rng.uniform(0, 0.1))
            await unload(http, one)
        case "all":
            await asyncio.gather(*(unload(http, path) for path in (*by_topic, whole, one)))
        case "kill":
            await kill_and_restart(broker)
        case _:
            unloads = [asyncio.create_task(unload(http, path)) for path in by_topic]
            await asyncio.sleep(rng.uniform(0, 0.05))
            await kill_and_restart(broker)
            for ended in await asyncio.gather(*unloads, return_exceptions=True):
                assert ended is None or isinstance(ended, httpx.TransportError), repr(ended)

    async def have_lost() -> bool:
        return all(topic.losses > known for topic, known in zip(concerned, before, strict=True))

    await eventually(have_lost, f"loss of {[topic.path for topic in concerned]} to {what!r}", PROGRESS_TIMEOUT_S)


async def unload(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.put(path)
    assert answer.status_code == 204, f"{path}: {answer.status_code} {answer.text}"


async def kill_and_restart(broker: Server) -> None:
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.restart)


async def finish(http: httpx.AsyncClient, topics: list[Topic]) -> None:
    """Publish no more, and wait until everything has come and is acknowledged.

    The broker says what is acknowledged: a receipt may be lost with the connection of what it confirms.
    """
    for topic in topics:
        topic.end()
    for topic in topics:
        try:
            await eventually(lambda topic=topic: topic.is_finished(http), "end", PROGRESS_TIMEOUT_S)  # type: ignore[misc]
        except AssertionError:
            for each in topics:
                each.check()
            left = {kind: streams for kind, streams in topic.missing().items() if streams}
            said = await topic.stats(http)
            raise AssertionError(
                f"{topic.path} is not finished: {topic.receipts} receipts; not given out (first ones and how many):"
                f" {left}; the broker: {said}"
            ) from None


async def rounds(broker: Server, acts: list[str], seed: int) -> None:
    rng = random.Random(seed)
    common: dict[str, Any] = {"batch_max_messages": 10, "batch_max_delay_ms": 2, "send_timeout_ms": 0}
    async with (
        AsyncClient(broker.service_url) as client,
        httpx.AsyncClient(base_url=f"{broker.web_url}/admin/v2/", timeout=60) as http,
    ):
        (await http.put(f"namespaces/{NAMESPACE}", json={"deduplicationEnabled": True})).raise_for_status()
        alone = ProducerConfig(name="alone", batching=False, send_timeout_ms=0)
        batched = ProducerConfig(name="batched", **common)
        by_key = ProducerConfig(name="by-key", batching_type="KeyBased", **common)
        topics = [
            Topic(
                client, "ordered", {"alone": alone, "batched": batched},
                {"Exclusive": 1, "Failover": 2, "Shared": 2}, seed,
            ),
            Topic(client, "keys", {"by-key": by_key}, {"Key_Shared": 3, "Exclusive": 1}, seed + 1),
        ]  # fmt: skip
        try:
            for topic in topics:
                await topic.start()
            for what in acts:
                await progress(topics)
                await asyncio.sleep(rng.uniform(0, ACT_WITHIN_S))  # the random moment, not a wait for anything
                await act(what, broker, http, topics, rng)
            await progress(topics)
            await finish(http, topics)
        finally:
            for topic in topics:
                await topic.cancel()
        for topic in topics:
            await topic.check_log()
    for topic in topics:
        assert any(seen.again for seen in topic.seen.values()), f"{topic.path}: nothing came again: nothing was tested"
        print(f"seed {seed}: {topic.path}: {topic.receipts} messages, again {[s.again for s in topic.seen.values()]}")


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_unloads_and_a_kill_lose_and_double_nothing(broker: Server) -> None:
    await rounds(broker, ["topic", "namespace", "unload and kill"], seed=20261123)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
async def test_ten_unloads_and_kills_lose_and_double_nothing(broker: Server, seed: int) -> None:
    await rounds(broker, random.Random(seed).sample(ACTS, len(ACTS)), seed)
