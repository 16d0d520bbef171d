"""`kill -9` of the broker under producers that send again: with deduplication each message is stored once, in order."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict

import httpx
import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ProducerConfig, ReaderConfig
from magnetar.client.producers.producer import Producer
from magnetar.errors import MagnetarError
from magnetar.wire.message_id import EARLIEST, MessageId

from tests.support.servers import Server

TOPIC = "persistent://public/default/once"
REST = "admin/v2/persistent/public/default/once"
PAUSE_S = 0.003
BURST = 20
PENDING = 400
BACK = 600
"""How far before the last message a program begins again: further than what may be without receipt."""
PROGRESS = 300
PROGRESS_TIMEOUT_S = 60


class Sender:
    """A program that sends numbers under one name; each number is its own sequence id."""

    def __init__(self, name: str, batching: bool) -> None:
        self.name = name
        self.config = ProducerConfig(
            name=name, batching=batching, batch_max_messages=7, batch_max_delay_ms=2, send_timeout_ms=0
        )
        self.sent = 0
        self.receipts = 0
        self.repeated = 0
        self.task: asyncio.Task[None] | None = None
        self.is_ending = False

    async def run(self, client: AsyncClient, begin: int) -> None:
        producer = await client.create_producer(TOPIC, self.config)
        assert isinstance(producer, Producer)
        waiting: list[asyncio.Future[MessageId]] = []
        number = begin
        while not self.is_ending or number < self.sent:
            for _ in range(BURST):
                future = producer.send_nowait(b"%s %d" % (self.name.encode(), number), sequence_id=number)
                future.add_done_callback(self._on_receipt)
                waiting.append(future)
                number += 1
            self.sent = max(self.sent, number)
            await asyncio.sleep(PAUSE_S)
            waiting = [future for future in waiting if not future.done()]
            if len(waiting) > PENDING:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*waiting)
        await producer.close()

    def _on_receipt(self, done: asyncio.Future[MessageId]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        self.receipts += 1
        self.repeated += done.result().ledger_id == -1


async def progress(senders: list[Sender]) -> None:
    """Return once each has some more receipts."""
    aims = [sender.receipts + PROGRESS for sender in senders]
    async with asyncio.timeout(PROGRESS_TIMEOUT_S):
        while any(sender.receipts < aim for sender, aim in zip(senders, aims, strict=True)):
            for sender in senders:
                assert sender.task is not None
                if sender.task.done():
                    sender.task.result()
            await asyncio.sleep(0.01)


async def rounds(broker: Server, kills: int, seed: int) -> None:
    """Half of the programs live through the kills, half of them begin again a little before where they were."""
    rng = random.Random(seed)
    async with httpx.AsyncClient(base_url=broker.web_url, timeout=60) as http:
        (await http.put(REST)).raise_for_status()
        (await http.post(f"{REST}/deduplicationEnabled", json=True)).raise_for_status()
    staying = [Sender("stays", False), Sender("stays-batched", True)]
    returning = [Sender("returns", False), Sender("returns-batched", True)]
    async with AsyncClient(broker.service_url) as client:
        for sender in staying:
            sender.task = asyncio.create_task(sender.run(client, 0))
        for _ in range(kills):
            async with AsyncClient(broker.service_url) as other:
                for sender in returning:
                    # A batch is judged by its first id: one that began before the end and passes it would be dropped.
                    begin = max(0, (sender.sent - BACK) // BURST * BURST)
                    sender.task = asyncio.create_task(sender.run(other, begin))
                await progress(staying + returning)
                await asyncio.sleep(rng.uniform(0, 0.3))  # the random moment, not a wait for anything
                await asyncio.to_thread(broker.kill)
                for sender in returning:
                    await cancelled(sender)
            await asyncio.to_thread(broker.restart)
        async with AsyncClient(broker.service_url) as other:
            for sender in returning:
                begin = max(0, (sender.sent - BACK) // BURST * BURST)
                sender.task = asyncio.create_task(sender.run(other, begin))
            await progress(staying + returning)
            for sender in staying + returning:
                sender.is_ending = True
                assert sender.task is not None
                await sender.task
        stored = await read_all(client)
    for sender in staying + returning:
        found, numbers = stored[sender.name], range(sender.sent)
        missing, twice = sorted(set(numbers) - set(found)), sorted(n for n in set(found) if found.count(n) > 1)
        assert found == [*numbers], f"{sender.name}: missing {missing[:20]}, twice {twice[:20]}, of {sender.sent}"
        assert sender.sent > kills * PROGRESS
    assert all(sender.repeated for sender in returning), "nothing was sent twice: nothing was tested"
    print({sender.name: (sender.sent, sender.repeated) for sender in staying + returning})


async def cancelled(sender: Sender) -> None:
    assert sender.task is not None
    sender.task.cancel()
    with contextlib.suppress(asyncio.CancelledError, MagnetarError):
        await sender.task


async def read_all(client: AsyncClient) -> dict[str, list[int]]:
    """The numbers of each program, in the order of the topic."""
    stored: dict[str, list[int]] = defaultdict(list)
    reader = await client.create_reader(TOPIC, EARLIEST, ReaderConfig())
    while await reader.has_message_available():
        name, number = (await reader.read_next(timeout_s=30)).data.split()
        stored[name.decode()].append(int(number))
    await reader.close()
    return stored


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_two_kills_store_nothing_twice(broker: Server) -> None:
    await rounds(broker, kills=2, seed=20261121)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
async def test_fifteen_kills_store_nothing_twice(broker: Server, seed: int) -> None:
    await rounds(broker, kills=15, seed=seed)
