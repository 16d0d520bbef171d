"""The internal logs of the workers, compacted: whoever reads them knows the same, deletions included."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing

import httpx
from magnetar.client.client import AsyncClient
from magnetar.errors import ConnectionLost
from magnetar.metadata.replicated_log import LogRecord, ReplicatedLog
from magnetar.worker.cluster.broker_admin import BrokerAdmin
from magnetar.worker.cluster.internal_topic import TopicLog, keep_compacted

from tests.support.eventually import eventually
from tests.support.pulsar import Broker, own_name


class Table:
    """What a worker makes of a log: the last record of each key."""

    def __init__(self, client: AsyncClient, topic: str) -> None:
        self.held: dict[str | None, bytes] = {}
        self.records = 0
        self.log = ReplicatedLog(TopicLog(client, topic, "tailer"), self._apply, "test")

    def _apply(self, key: str | None, value: bytes, properties: Mapping[str, str]) -> None:
        self.records += 1
        if value:
            self.held[key] = value
        else:
            self.held.pop(key, None)


async def compacted(admin: BrokerAdmin, http: httpx.AsyncClient, topic: str) -> None:
    await admin.compact(topic)
    path = f"/admin/v2/{topic.replace('://', '/')}/compaction"

    async def is_done() -> bool:
        return bool((await http.get(path)).json()["status"] == "SUCCESS")

    await eventually(is_done, "end of the compaction")


async def test_a_compacted_log_tells_a_new_reader_and_a_late_one_the_same(broker: Broker) -> None:
    topic = f"persistent://public/default/{own_name('worker-log')}"
    async with (
        AsyncClient(broker.service_url) as client,
        aclosing(BrokerAdmin(broker.web_url)) as admin,
        httpx.AsyncClient(base_url=broker.web_url, timeout=60) as http,
    ):
        writer = await TopicLog(client, topic, "tailer").open_writer("leader")
        late = Table(client, topic)
        for number in range(60):
            await writer.append([LogRecord(f"k{number % 4}", b"%d" % number)])
        tailing = asyncio.create_task(late.log.run())
        await late.log.catch_up()
        tailing.cancel()  # away, as a frozen worker is
        await asyncio.gather(tailing, return_exceptions=True)
        assert set(late.held) == {"k0", "k1", "k2", "k3"}
        await writer.append([LogRecord("k1", b"")])
        await writer.append([LogRecord("k2", b"new")])
        await compacted(admin, http, topic)
        await writer.append([LogRecord("k3", b"newer")])

        early = Table(client, topic)
        tasks = [asyncio.create_task(table.log.run()) for table in (early, late)]
        await asyncio.gather(early.log.catch_up(), late.log.catch_up())
        assert early.held == late.held == {"k0": b"56", "k2": b"new", "k3": b"newer"}
        assert early.records == 5, "one of each key, and one since"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await writer.close()


async def test_only_the_leader_asks_and_a_broker_that_is_away_is_asked_again() -> None:
    asked: list[str] = []
    is_leading = False
    twice = asyncio.Event()

    async def compact(topic: str) -> None:
        assert is_leading
        asked.append(topic)
        if len(asked) == 4:
            twice.set()
        raise ConnectionLost("no broker")

    running = asyncio.create_task(keep_compacted(compact, ["a", "b"], lambda: is_leading, 0.01))
    await asyncio.sleep(0.05)
    is_leading = True
    await asyncio.wait_for(twice.wait(), 30)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert asked[:4] == ["a", "b", "a", "b"]
