"""Names that brokers give to producers: never the same twice, over restarts and by brokers that start together."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from magnetar.broker.topics.producer_names import STARTS, ProducerNames
from magnetar.errors import StorageError
from magnetar.metadata.store.sqlite import SqliteStore
from magnetar.metadata.store.store import ABSENT


async def test_names_are_unique_over_restarts_and_brokers(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "metadata.db")
    try:
        brokers = [ProducerNames("standalone", store) for _ in range(5)]
        await brokers[0].start()
        first = brokers[0].next()
        assert first == "standalone-0-1"
        await asyncio.gather(*(names.start() for names in brokers))  # the first one again
        given = [names.next() for names in brokers for _ in range(3)]
        assert len({first, *given}) == 16
    finally:
        await store.close()


async def test_damaged_counter_is_reported_with_its_value(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "metadata.db")
    try:
        await store.put(STARTS, b"seven", ABSENT)
        with pytest.raises(StorageError, match=r"/counters/producer-name is b'seven', not a number: replace it with"):
            await ProducerNames("standalone", store).start()
    finally:
        await store.close()
