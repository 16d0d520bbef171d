"""An exclusive producer that has been told of its success sees, at the topic's end, all that came before it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ProducerConfig, ReaderConfig
from magnetar.errors import MagnetarError
from magnetar.wire.message_id import EARLIEST

from tests.support.eventually import eventually

from .brokers import running_broker
from .disks import MoodyDisk

pytestmark = pytest.mark.slow
TOPIC = "persistent://public/wire/owned"
EXCLUSIVE = ProducerConfig(access_mode="Exclusive", batching=False)


async def test_next_owner_waits_until_what_the_last_one_sent_is_stored(tmp_path: Path) -> None:
    disk = MoodyDisk()
    async with running_broker(tmp_path, disk) as broker, AsyncClient(broker.broker_url) as second:
        first = AsyncClient(broker.broker_url)
        reader = await second.create_reader(TOPIC, EARLIEST, ReaderConfig())
        before = await first.create_producer(TOPIC, EXCLUSIVE)
        await before.send(b"stored")
        disk.may_sync.clear()
        on_its_way = before.send_nowait(b"on its way")
        (producer,) = broker.topics[TOPIC].producers.values()
        await eventually(lambda: asyncio.sleep(0, producer.pending_entries), "entry on its way")
        next(each for each in broker.connections if each.producers).abort()
        await first.close()
        with pytest.raises(MagnetarError):
            await on_its_way
        taking = asyncio.create_task(second.create_producer(TOPIC, EXCLUSIVE))
        # The epoch is stored elsewhere, on a disk that syncs: without waiting the new owner would be there by now.
        done, _ = await asyncio.wait([taking], timeout=0.5)
        disk.may_sync.set()
        assert not done
        await taking
        assert (await reader.last_message_id()).entry_id == 1
