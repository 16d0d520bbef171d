"""`kill -9` of the broker under producers that bring new schemas: what was answered is there, and is one schema."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random

import httpx
import pytest
from magnetar.broker.schemas.model import version_number
from magnetar.wire import pulsar_api_pb2 as pb
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from tests.broker.raw import Raw
from tests.support.servers import Server

TOPIC = "persistent://public/default/schemas"
REST = "admin/v2/schemas/public/default/schemas"
PRODUCERS = 4
PROGRESS = 40
"""New versions between two kills."""
PROGRESS_TIMEOUT_S = 60
KILL_WITHIN_S = 0.1


class Registered:
    """What the broker has answered, by version; a version that is answered as two schemas fails."""

    def __init__(self) -> None:
        self.by_version: dict[int, bytes] = {}
        self.answers = 0

    def add(self, version: int, data: bytes) -> None:
        assert self.by_version.setdefault(version, data) == data, f"version {version} is two schemas"
        self.answers += 1


def definition(number: int) -> bytes:
    field = {"name": f"f{number}", "type": ["null", "int"], "default": None}
    return json.dumps({"type": "record", "name": "R", "fields": [field]}).encode()


async def register(port: int, numbers: list[int], index: int, registered: Registered) -> None:
    """Bring schemas one after the other, each of which somebody else brings too, until the broker goes away."""
    with contextlib.suppress(OSError, TimeoutError):
        raw = await Raw.open(port)
        try:
            raw.send("CONNECT", client_version="raw", protocol_version=21)
            if await raw.receive_or_end() is not None:
                await bring(raw, numbers, index, registered)
        finally:
            await raw.close()


async def bring(raw: Raw, numbers: list[int], index: int, registered: Registered) -> None:
    producer_id = index * 1_000_000
    for number in numbers:
        producer_id += 1
        data = definition(number)
        schema = pb.Schema(name="", schema_data=data, type=4)  # type: ignore[arg-type]
        raw.send("PRODUCER", topic=TOPIC, producer_id=producer_id, request_id=producer_id, schema=schema)
        answer = await raw.receive_or_end()
        if answer is None:
            return
        if answer.command.type == BaseCommand.PRODUCER_SUCCESS:
            registered.add(version_number(answer.command.producer_success.schema_version), data)
            raw.send("CLOSE_PRODUCER", producer_id=producer_id, request_id=producer_id + 500_000)
            if await raw.receive_or_end() is None:
                return


async def check(broker: Server, registered: Registered) -> None:
    async with httpx.AsyncClient(base_url=broker.web_url, timeout=60) as http:
        answer = await http.get(f"{REST}/schemas")
        held = {one["version"]: one["data"].encode() for one in answer.json()["getSchemaResponses"]}
    lost = {version for version, data in registered.by_version.items() if held.get(version) != data}
    assert not lost, f"answered, but not there: {sorted(lost)[:20]}"
    assert sorted(held) == list(range(len(held))), "numbers are left out"
    assert len(set(held.values())) == len(held), "a schema has two versions"


async def rounds(broker: Server, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    registered = Registered()
    begun = 0
    for _ in range(kills):
        numbers = [*range(begun), *range(begun, begun + 20 * PROGRESS)]
        known = len(registered.by_version)
        port = int(broker.service_url.rsplit(":", 1)[1])
        tasks = [
            asyncio.create_task(register(port, numbers[max(0, begun - 5) :], index, registered))
            for index in range(PRODUCERS)
        ]
        async with asyncio.timeout(PROGRESS_TIMEOUT_S):
            while len(registered.by_version) < known + PROGRESS:
                assert not all(task.done() for task in tasks), "nobody brings schemas any more"
                await asyncio.sleep(0.01)
        await asyncio.sleep(rng.uniform(0, KILL_WITHIN_S))  # the random moment, not a wait for anything
        await asyncio.to_thread(broker.kill)
        await asyncio.gather(*tasks)
        await asyncio.to_thread(broker.restart)
        await check(broker, registered)
        begun = len(registered.by_version)
    assert registered.answers > len(registered.by_version), "no schema was brought twice: nothing was tested"
    print(f"seed {seed}: {len(registered.by_version)} versions, {registered.answers} answers")


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_two_kills_lose_no_version(broker: Server) -> None:
    await rounds(broker, kills=2, seed=20261123)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
async def test_ten_kills_lose_no_version(broker: Server, seed: int) -> None:
    await rounds(broker, kills=10, seed=seed)
