"""Periodic work looks at topics that changed, or whose time has come, and at no others."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from magnetar.broker.service import BrokerService
from magnetar.broker.storage import Storage
from magnetar.broker.storage.topic_log import TopicLog
from magnetar.broker.topics.maintenance import Work
from magnetar.broker.topics.topic import Topic
from magnetar.wire.topic_name import parse_topic_name

from .brokers import running_broker

IDLE = 40
HOUR_MS = 3600 * 1000


async def taken(broker: BrokerService, work: Work, now_ms: int = 0) -> set[str]:
    return {topic.name.local async for topic in broker.maintenance.take(work, now_ms)}


async def topics_of(broker: BrokerService) -> list[Topic]:
    names = [parse_topic_name(f"persistent://public/wire/idle-{number}") for number in range(IDLE)]
    return [await broker.topic(name) for name in names]


async def test_idle_topics_are_looked_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        topics = await topics_of(broker)
        for work in Work:
            assert len(await taken(broker, work)) == IDLE
            assert await taken(broker, work) == set()
        await topics[7].publish(b"x", 1, 1)
        await topics[8].create_subscription("s")
        for work in Work:
            assert await taken(broker, work) == {"idle-7", "idle-8"}
            assert await taken(broker, work) == set()
        for work in Work:
            broker.maintenance.again(work, topics[3])
            assert await taken(broker, work) == {"idle-3"}


async def test_change_of_policies_has_every_topic_looked_at(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await topics_of(broker)
        await taken(broker, Work.TRIM)
        await broker.namespaces.change_policies(
            "public/wire", lambda policies: policies | {"deduplicationEnabled": True}
        )
        assert len(await taken(broker, Work.TRIM)) == IDLE


async def test_time_comes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        topics = await topics_of(broker)
        await taken(broker, Work.TRIM)
        broker.maintenance.at(Work.TRIM, topics[1], 200)
        broker.maintenance.at(Work.TRIM, topics[2], 100)
        assert await taken(broker, Work.TRIM, 99) == set()
        assert await taken(broker, Work.TRIM, 100) == {"idle-2"}
        assert await taken(broker, Work.TRIM, 300) == {"idle-1"}
        await broker.unload_topic(topics[3].name)
        broker.maintenance.again(Work.TRIM, topics[3])
        assert await taken(broker, Work.TRIM) == set()


async def test_ledger_goes_when_it_is_old_enough_though_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path, unread_retention_s=3600) as broker:
        topics = await topics_of(broker)
        await topics[0].publish(b"x", 1, 1)
        topics[0].log.close_ledger()
        await broker.trim_topics()
        trims: list[str] = []
        trim = TopicLog.trim

        async def noted(self: TopicLog, retention_ms: int, retention_bytes: int) -> list[int]:
            trims.append(self.name)
            return await trim(self, retention_ms, retention_bytes)

        monkeypatch.setattr(TopicLog, "trim", noted)
        await broker.trim_topics()
        assert trims == []
        assert topics[0].log.entry_count == 1
        later = broker.now_ms() + HOUR_MS
        monkeypatch.setattr(broker, "now_ms", lambda: later)
        monkeypatch.setattr(cast(Storage, broker.storage)._core, "now_ms", lambda: later)
        await broker.trim_topics()
        assert trims == [str(topics[0].name)]
        assert topics[0].log.entry_count == 0


async def test_rates_end_where_nothing_moves_any_more(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        topics = await topics_of(broker)
        await broker.rates.update(await broker._busy_topics(), 1.0)
        for _ in range(3):
            await topics[5].publish(b"x", 1, 1)
        assert await broker._busy_topics() == {topics[5]}
        await broker.rates.update({topics[5]}, 1.0)
        assert topics[5].meter.rates[0] == 3.0
        await broker.rates.update(await broker._busy_topics(), 1.0)
        assert topics[5].meter.rates[0] == 0.0
