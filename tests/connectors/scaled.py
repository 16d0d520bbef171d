"""Create, scale and watch a source on a real worker."""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import partial
from typing import Any

import httpx
from magnetar.client.client import AsyncClient
from magnetar.errors import OperationTimeout

from tests.support.eventually import eventually
from tests.support.function_topics import EARLIEST


class Scaled:
    """The source, and how often each of its values was published."""

    def __init__(self, http: httpx.AsyncClient, client: AsyncClient, topic: str, name: str) -> None:
        self.http, self.client, self.topic = http, client, topic
        self.path = f"/admin/v3/sources/public/default/{name}"
        self.found: Counter[bytes] = Counter()

    async def ask(self, method: str, config: dict[str, Any]) -> httpx.Response:
        parts = {"sourceConfig": (None, json.dumps(config), "application/json")}
        return await self.http.request(method, self.path, files=parts)

    async def send(self, method: str, config: dict[str, Any]) -> None:
        answer = await self.ask(method, config)
        assert answer.status_code == 204, answer.text

    async def restart(self) -> None:
        answer = await self.http.post(f"{self.path}/restart")
        assert answer.status_code == 204, answer.text

    async def scale(self, counts: tuple[int, ...], rng: random.Random) -> None:
        for count in counts:
            await self.receive(rng.randint(0, 3000), 5.0)
            await self.send("PUT", {"parallelism": count})
            if rng.random() < 0.7:
                await self.running(count)

    async def running(self, count: int) -> None:
        """Wait until a number of instances are running."""
        await eventually(partial(self.runs, count), f"{count} instances", 60)

    async def runs(self, count: int) -> bool:
        status = (await self.http.get(f"{self.path}/status")).json()
        return bool(status["numRunning"] == count)

    async def subscribe(self) -> None:
        self.consumer = await self.client.subscribe(self.topic, "test", EARLIEST)

    async def receive(self, count: int, timeout_s: float) -> None:
        """Receive a number of messages, or the messages before a pause of a given length."""
        try:
            for _ in range(count):
                self.found[(await self.consumer.receive(timeout_s)).data] += 1
        except OperationTimeout:
            pass

    async def receive_all(self, expected: set[bytes], timeout_s: float = 120) -> int:
        """Receive until every value has arrived, and no others; return how many arrived more than once."""

        async def is_all_there() -> bool:
            await self.receive(1 << 20, 1.0)
            return expected <= self.found.keys()

        await eventually(is_all_there, f"all {len(expected)} values", timeout_s)
        assert self.found.keys() == expected
        return self.found.total() - len(expected)
