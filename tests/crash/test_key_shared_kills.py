"""`kill -9` of the broker under Key_Shared consumers that come, go and refuse messages: each key stays in order.

The topic is deduplicated: what a producer sends again is stored once. Then of each key the messages are given out for
the first time in the order in which they were published, whatever comes again, and in the end all are acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections import defaultdict

import httpx
import pytest
from magnetar.client import AsyncClient, ConsumerConfig, ProducerConfig
from magnetar.client.consumers.consumer import Consumer
from magnetar.client.consumers.merged import MergedConsumer

from tests.support.servers import Server

TOPIC = "persistent://public/default/keys"
STATS = "admin/v2/persistent/public/default/keys/stats"
NAMESPACE = "admin/v2/namespaces/public/default"
KEYS = 50
BURST = 40
PAUSE_S = 0.004
MOST_CONSUMERS = 4
REFUSED_SHARE = 0.02
SLOW_SHARE = 0.05
SLOW_S = 0.02
"""So that a key that moves leaves messages behind which its old consumer has not looked at."""
MOVES_PER_S = 4
"""How often a consumer joins or leaves, about."""
PROGRESS = 400
"""First deliveries between two kills."""
PROGRESS_TIMEOUT_S = 60
KILL_WITHIN_S = 0.5


class Keys:
    """What was published and given out, by key."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.published: dict[int, int] = defaultdict(int)  # messages of a key; each has its number as content
        self.seen: dict[int, int] = defaultdict(int)  # how many of a key were given out for the first time
        self.first = 0
        self.again = 0

    def on_delivery(self, key: int, number: int) -> None:
        expected = self.seen[key]
        assert number <= expected, f"key {key}: {number} came while {expected} had not been given out"
        if number == expected:
            self.seen[key] += 1
            self.first += 1
        else:
            self.again += 1


class Crowd:
    """One producer, and consumers that come and go."""

    def __init__(self, client: AsyncClient, keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._names = itertools.count()
        self._members: dict[Consumer | MergedConsumer, asyncio.Task[None]] = {}
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for _ in range(2):
            await self._join()
        config = ProducerConfig(
            name="p", batching_type="KeyBased", batch_max_messages=20, batch_max_delay_ms=2, send_timeout_ms=0
        )
        producer = await self._client.create_producer(TOPIC, config)

        async def publish() -> None:
            keys = self._keys
            sends: set[asyncio.Future[object]] = set()
            while not self._stopping.is_set():
                await producer.ready()
                for _ in range(BURST):
                    key = keys.rng.randrange(KEYS)
                    sends.add(asyncio.ensure_future(producer.send(b"%d" % keys.published[key], key=f"{key}")))
                    keys.published[key] += 1
                sends = {send for send in sends if not send.done() or send.result() is None}
                if len(sends) > 10 * BURST:
                    await asyncio.wait(sends, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(PAUSE_S)
            await producer.flush()
            await asyncio.gather(*sends)

        self._tasks = [asyncio.create_task(publish()), asyncio.create_task(self._move())]

    async def _join(self) -> None:
        config = ConsumerConfig(
            type="Key_Shared", name=f"c{next(self._names)}", initial_position="Earliest", receiver_queue_size=100,
            negative_ack_delay_ms=50, ack_receipts=True,
        )  # fmt: skip
        consumer = await self._client.subscribe(TOPIC, "s", config)
        self._members[consumer] = asyncio.create_task(self._consume(consumer))

    async def _leave(self) -> None:
        consumer = self._keys.rng.choice(list(self._members))
        task = self._members.pop(consumer)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await consumer.close()

    async def _move(self) -> None:
        rng = self._keys.rng
        while not self._stopping.is_set():
            await asyncio.sleep(rng.uniform(0, 2 / MOVES_PER_S))
            if len(self._members) < 2 or (len(self._members) < MOST_CONSUMERS and rng.random() < 0.5):
                await self._join()
            else:
                await self._leave()

    async def _consume(self, consumer: Consumer | MergedConsumer) -> None:
        keys = self._keys
        while True:
            message = await consumer.receive()
            if keys.rng.random() < SLOW_SHARE:
                await asyncio.sleep(SLOW_S)
            assert message.key is not None
            key, number = int(message.key), int(message.data)
            keys.on_delivery(key, number)
            if keys.rng.random() < REFUSED_SHARE:
                consumer.negative_ack(message)
                continue
            consumer.ack(message)

    def check(self) -> None:
        """Raise what a task died of."""
        for task in (*self._tasks, *self._members.values()):
            if task.done() and not task.cancelled():
                task.result()

    async def progress(self) -> None:
        """Return once so many more messages were given out for the first time."""
        wanted = self._keys.first + PROGRESS
        async with asyncio.timeout(PROGRESS_TIMEOUT_S):
            while self._keys.first < wanted:
                self.check()
                await asyncio.sleep(0.01)

    async def finish(self, http: httpx.AsyncClient) -> None:
        """Stop publishing, and wait until all that was published has been given out and acknowledged.

        The broker says what is acknowledged: a receipt may be lost with the connection of what it confirms.
        """
        self._stopping.set()
        keys = self._keys
        try:
            async with asyncio.timeout(PROGRESS_TIMEOUT_S):
                await asyncio.gather(*self._tasks)
                while dict(keys.seen) != dict(keys.published) or await _backlog(http):
                    self.check()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            stats = (await http.get(STATS)).text
            behind = {key: (seen, keys.published[key]) for key, seen in keys.seen.items() if seen < keys.published[key]}
            raise AssertionError(
                f"not all is given out and acknowledged: by key {behind}; the broker: {stats}"
            ) from None

    async def cancel(self) -> None:
        for task in (*self._tasks, *self._members.values()):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._members.values(), return_exceptions=True)


async def _backlog(http: httpx.AsyncClient) -> int:
    answer = await http.get(STATS)
    return int(answer.json()["subscriptions"]["s"]["msgBacklog"])


async def rounds(broker: Server, kills: int, seed: int) -> None:
    keys = Keys(seed)
    rng = random.Random(seed + 1)
    async with httpx.AsyncClient(base_url=broker.web_url, timeout=60) as http:
        assert (await http.post(f"{NAMESPACE}/deduplication", json=True)).status_code == 204
    async with (
        AsyncClient(broker.service_url) as client,
        httpx.AsyncClient(base_url=broker.web_url, timeout=60) as http,
    ):
        crowd = Crowd(client, keys)
        await crowd.start()
        try:
            for _ in range(kills):
                await crowd.progress()
                await asyncio.sleep(rng.uniform(0, KILL_WITHIN_S))  # the random moment, not a wait for anything
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.restart)
            await crowd.progress()
            await crowd.finish(http)
        finally:
            await crowd.cancel()
    assert dict(keys.seen) == dict(keys.published)
    assert keys.again, "nothing came again: nothing was tested"
    print(f"seed {seed}: {keys.first} messages, {keys.again} deliveries more")


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_two_kills_keep_each_key_in_order(broker: Server) -> None:
    await rounds(broker, kills=2, seed=20261123)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
async def test_ten_kills_keep_each_key_in_order(broker: Server, seed: int) -> None:
    await rounds(broker, kills=10, seed=seed)
