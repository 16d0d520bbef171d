"""A source over its life: stop, start, restart and update keep its place, and only deleting it forgets that."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.consumers.consumer import Consumer
from magnetar.client.consumers.merged import MergedConsumer

from tests.support.eventually import eventually
from tests.support.function_topics import EARLIEST
from tests.support.instances import topic
from tests.support.servers import Server, running

__all__ = ["topic"]
pytestmark = pytest.mark.slow

COUNTING = """
import time
from magnetar import Record, Source

class Counting(Source):
    def open(self, config, context):
        self.number = context.position or 0

    def read(self):
        time.sleep(0.005)
        self.number += 1
        return Record(str(self.number))

    def snapshot(self):
        return self.number
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running("standalone", tmp_path_factory.mktemp("standalone")) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.service_url) as client:
        yield client


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.web_url, timeout=60) as http:
        yield http


async def read_until(consumer: Consumer | MergedConsumer, number: int) -> list[int]:
    """The numbers that come, up to one that is at least this."""
    numbers = [int((await consumer.receive(30)).data)]
    while numbers[-1] < number:
        numbers.append(int((await consumer.receive(30)).data))
    return numbers


async def test_only_deleting_a_source_forgets_its_place(
    server: Server, client: AsyncClient, http: httpx.AsyncClient, topic: str
) -> None:
    path = "/admin/v3/sources/public/default/counting"

    async def send(method: str, config: dict[str, Any], **files: Any) -> None:
        parts = {"sourceConfig": (None, json.dumps(config), "application/json"), **files}
        answer = await http.request(method, path, files=parts)
        assert answer.status_code == 204, answer.text

    async def is_running() -> bool:
        return bool((await http.get(f"{path}/status")).json()["numRunning"] == 1)

    code = ("counting.py", COUNTING.encode(), "application/octet-stream")
    await send("POST", {"topicName": topic, "runtimeEnv": "thread"}, data=code)
    consumer = await client.subscribe(topic, "test", EARLIEST)
    numbers = await read_until(consumer, 50)
    for change in ("stop", "restart", "update"):
        if change == "update":
            await send("PUT", {"configs": {"any": "field"}})
        else:
            assert (await http.post(f"{path}/{change}")).status_code == 204
        if change == "stop":
            assert (await http.post(f"{path}/start")).status_code == 204
        await eventually(is_running, f"source after {change}")
        numbers += await read_until(consumer, numbers[-1] + 100)
    assert numbers == list(range(1, len(numbers) + 1))  # a stop in order leaves nothing to be read again

    assert (await http.delete(path)).status_code == 204
    await send("POST", {"topicName": topic, "runtimeEnv": "thread"}, data=code)
    last = numbers[-1]
    while (number := int((await consumer.receive(30)).data)) != 1:
        assert number == last + 1  # of the one that is deleted, from before
        last = number
