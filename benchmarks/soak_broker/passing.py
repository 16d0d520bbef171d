"""Topics that are repeatedly created and deleted under a few names, and a pattern that matches them all.

Each incarnation of a topic has a number, which is in its messages: no message of one incarnation may appear in the next
one with the same name. The topic's own subscription and the pattern's both consume all messages of an incarnation
before the topic is deleted.
"""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any

import httpx
from magnetar.client import AsyncClient, ConsumerConfig, ProducerConfig
from magnetar.client.config import SubscriptionType

from tests.support.eventually import until

from .account import Faults
from .topics import NAMESPACE, PREFIX
from .waiting import holds

NAMES = 5
MESSAGES = 20
PATTERN = re.compile(f"{NAMESPACE}/{PREFIX}-passing-.*")
WATCH, OWN = "watch", "own"
TYPES: tuple[SubscriptionType, ...] = ("Exclusive", "Failover", "Shared", "Key_Shared")
LIFE_S_MAX = 60.0
PAUSE_S = 0.5


class PassingTopics:
    """Creates and deletes topics.

    Attributes:
        lives: number of topics that were created, used and deleted.
    """

    def __init__(self, client: AsyncClient, admin: httpx.AsyncClient, rng: random.Random, faults: Faults) -> None:
        self.lives = 0
        self._client = client
        self._admin = admin
        self._rng = rng
        self._faults = faults
        self._seen: set[tuple[int, int]] = set()
        self._life = -1

    async def watch(self) -> None:
        """Consume the messages of all these topics with a pattern, until cancelled."""
        config = ConsumerConfig(type="Shared", initial_position="Earliest")
        consumer: Any = await self._client.subscribe(PATTERN, WATCH, config)
        while True:
            message = await consumer.receive()
            life, number = map(int, message.data.split())
            if life != self._life:
                self._faults.add(
                    "message of a deleted topic", f"{message.topic}: incarnation {life}, expected {self._life}"
                )
            self._seen.add((life, number))
            consumer.ack(message)

    async def run(self) -> None:
        """Run one incarnation after the other, until cancelled."""
        while True:
            self._life += 1
            self._seen.clear()
            name = f"{PREFIX}-passing-{self._life % NAMES}"
            try:
                async with asyncio.timeout(2 * LIFE_S_MAX):
                    await self._live(name)
                self.lives += 1
            except Exception as error:  # noqa: BLE001  any error is a finding
                self._faults.add("topic created and deleted", f"incarnation {self._life} of {name}: {error!r}")
            await asyncio.sleep(PAUSE_S)

    async def _live(self, name: str) -> None:
        path = f"persistent/{NAMESPACE}/{name}"
        (await self._admin.put(path)).raise_for_status()
        config = ConsumerConfig(type=self._rng.choice(TYPES), initial_position="Earliest")
        topic = f"persistent://{NAMESPACE}/{name}"
        consumer: Any = await self._client.subscribe(topic, OWN, config)
        # Messages acknowledged by all subscriptions are deleted, so the pattern's subscription must exist first.
        await until(lambda: self._is_watched(path), LIFE_S_MAX)
        producer = await self._client.create_producer(topic, ProducerConfig(batching=self._rng.random() < 0.5))
        expected = [(self._life, number) for number in range(MESSAGES)]
        for life, number in expected:
            producer.send_nowait(b"%d %d" % (life, number), key=str(number))
        await producer.close()
        found = []
        for _ in expected:
            message = await consumer.receive()
            found.append(tuple(map(int, message.data.split())))
            consumer.ack(message)
        if sorted(found) != expected:
            self._faults.add("messages of a passing topic", f"{name}: {found}, expected {expected}")
        if not await holds(lambda: self._seen.issuperset(expected), LIFE_S_MAX):
            self._faults.add("messages consumed by a pattern", f"{name}: {sorted(self._seen)}, expected {expected}")
        await consumer.close()
        (await self._admin.delete(path, params={"force": "true"})).raise_for_status()

    async def _is_watched(self, path: str) -> bool:
        return WATCH in (await self._admin.get(f"{path}/subscriptions")).raise_for_status().json()
