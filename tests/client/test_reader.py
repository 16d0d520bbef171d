from __future__ import annotations

import asyncio

import pytest
from magnetar.client import EARLIEST, LATEST, AsyncClient, ReaderConfig
from magnetar.errors import ClosedError, OperationTimeout

from tests.client.clusters import Cluster
from tests.client.test_consumer import publish, publish_batch

pytestmark = pytest.mark.slow

INCLUSIVE = ReaderConfig(start_inclusive=True)


async def test_a_reader_begins_where_it_is_told(client: AsyncClient, topic: str) -> None:
    reader = await client.create_reader(topic, EARLIEST)
    assert not await reader.has_message_available()
    ids = await publish(client, topic, b"m0", b"m1", b"m2")
    assert await reader.has_message_available()
    assert (await reader.read_next(30)).data == b"m0"
    latest = await client.create_reader(topic, LATEST)
    assert not await latest.has_message_available()
    ids += await publish(client, topic, b"m3")
    assert await latest.has_message_available()
    assert (await latest.read_next(30)).data == b"m3"
    assert not await latest.has_message_available()
    behind = await client.create_reader(topic, ids[1])
    assert (await behind.read_next(30)).data == b"m2"
    at = await client.create_reader(topic, ids[1], INCLUSIVE)
    assert (await at.read_next(30)).data == b"m1"
    newest = await client.create_reader(topic, LATEST, INCLUSIVE)
    assert await newest.has_message_available()
    assert (await newest.read_next(30)).data == b"m3"
    end = await client.create_reader(topic, ids[3])
    assert not await end.has_message_available()
    with pytest.raises(OperationTimeout):
        await end.read_next(0.2)


async def test_a_reader_begins_inside_a_batch(client: AsyncClient, topic: str) -> None:
    ids = await publish_batch(client, topic, *(b"%d" % index for index in range(5)))
    behind = await client.create_reader(topic, ids[2])
    assert await behind.has_message_available()
    assert [(await behind.read_next(30)).data for _ in range(2)] == [b"3", b"4"]
    assert not await behind.has_message_available()
    at = await client.create_reader(topic, ids[2], INCLUSIVE)
    assert [(await at.read_next(30)).data for _ in range(3)] == [b"2", b"3", b"4"]
    last = await client.create_reader(topic, ids[4])
    assert not await last.has_message_available()
    newest = await client.create_reader(topic, LATEST, INCLUSIVE)
    assert (await newest.read_next(30)).data == b"4"
    ids += await publish(client, topic, b"5")
    assert (await last.read_next(30)).data == b"5"


async def test_readers_are_independent_and_leave_nothing_behind(client: AsyncClient, topic: str) -> None:
    await publish(client, topic, b"0", b"1")
    readers = [await client.create_reader(topic, EARLIEST) for _ in range(2)]
    for reader in readers:
        assert [(await reader.read_next(30)).data for _ in range(2)] == [b"0", b"1"]
        await reader.close()
        with pytest.raises(ClosedError):
            await reader.read_next(1)


async def test_a_reader_reads_entries_and_polls(client: AsyncClient, topic: str) -> None:
    reader = await client.create_reader(topic, EARLIEST)
    assert (reader.poll(), reader.poll_entry()) == (None, None)
    await publish_batch(client, topic, b"0", b"1")
    await publish(client, topic, b"2")
    entry = await reader.read_entry()
    assert entry.payloads == [b"0", b"1"]
    message = await reader.read_next(30)
    assert (message.data, message.sequence_id) == (b"2", 0)
    assert not await reader.has_message_available()


async def test_a_reader_is_moved(client: AsyncClient, topic: str) -> None:
    ids = await publish(client, topic, *(b"%d" % index for index in range(4)))
    reader = await client.create_reader(topic, LATEST)
    await reader.seek(ids[1])
    assert await reader.has_message_available()
    assert (await reader.read_next(30)).data == b"2"
    await reader.seek(ids[3])
    assert not await reader.has_message_available()
    await reader.seek(0)
    assert await reader.has_message_available()
    assert [(await reader.read_next(30)).data for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    await reader.seek(EARLIEST)
    assert (await reader.read_next(30)).data == b"0"
    assert await reader.last_message_id() == ids[3]


async def test_a_long_topic_is_read_to_its_end(cluster: Cluster, client: AsyncClient, topic: str) -> None:
    producer = await client.create_producer(topic)
    for _ in range(30):
        await producer.ready()
        producer.send_entry([b"x" * 10] * 999)
    await producer.flush()
    reader = await client.create_reader(topic, EARLIEST, ReaderConfig(receiver_queue_size=10, name="r"))
    count = 0
    while await asyncio.wait_for(reader.has_message_available(), 30):
        count += len((await reader.read_entry()).payloads)
    assert count == 30 * 999
