"""`receive` and `read_next` with a timeout: in both units, of every kind of consumer, and without losing a message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from magnetar import client as client_package
from magnetar.client import EARLIEST, AsyncClient, Client, ConsumerConfig, ProducerConfig, StringSchema
from magnetar.errors import InvalidConfig, OperationTimeout, Timeout

from tests.client.clusters import Cluster

pytestmark = pytest.mark.slow

Opened = Callable[[AsyncClient, str], Awaitable[Any]]


async def consumer(client: AsyncClient, topic: str) -> Any:
    return await client.subscribe(topic, "s")


async def one_by_one(client: AsyncClient, topic: str) -> Any:
    return await client.subscribe(topic, "s", ConsumerConfig(receiver_queue_size=0))


async def merged(client: AsyncClient, topic: str) -> Any:
    return await client.subscribe([topic, f"{topic}-other"], "s")


async def typed(client: AsyncClient, topic: str) -> Any:
    return await client.subscribe(topic, "s", schema=StringSchema())


async def reader(client: AsyncClient, topic: str) -> Any:
    return await client.create_reader(topic, EARLIEST)


async def typed_reader(client: AsyncClient, topic: str) -> Any:
    return await client.create_reader(topic, EARLIEST, schema=StringSchema())


KINDS = [consumer, one_by_one, merged, typed, reader, typed_reader]


@pytest.mark.parametrize("open_it", KINDS)
async def test_a_timeout_raises_and_the_next_message_is_still_received(
    client: AsyncClient, topic: str, open_it: Opened
) -> None:
    receiving = await open_it(client, topic)
    with pytest.raises(OperationTimeout, match=r"within 0\.02 s"):
        await receiving.receive(timeout_millis=20)
    schema: Any = StringSchema() if "typed" in open_it.__name__ else None
    producer: Any = await client.create_producer(topic, schema=schema)
    await producer.send("later" if schema else b"later")
    assert (await receiving.receive(timeout_millis=30_000)).data == b"later"


@pytest.mark.parametrize("open_it", [reader, typed_reader])
async def test_read_next_takes_the_same_timeouts(client: AsyncClient, topic: str, open_it: Opened) -> None:
    reading = await open_it(client, topic)
    with pytest.raises(Timeout, match=r"within 0\.02 s"):
        await reading.read_next(timeout_millis=20)
    with pytest.raises(Timeout, match=r"within 0\.01 s"):
        await reading.read_next(0.01)


@pytest.mark.parametrize("open_it", KINDS)
async def test_a_timeout_must_be_given_once_and_be_a_number_from_0(
    client: AsyncClient, topic: str, open_it: Opened
) -> None:
    receiving = await open_it(client, topic)
    with pytest.raises(InvalidConfig, match="timeout_s=1 and timeout_millis=1000 are mutually exclusive"):
        await receiving.receive(1, timeout_millis=1000)
    with pytest.raises(InvalidConfig, match="invalid timeout_millis -1"):
        await receiving.receive(timeout_millis=-1)
    with pytest.raises(InvalidConfig, match="invalid timeout_millis '1'"):
        await receiving.receive(timeout_millis="1")


@pytest.mark.parametrize("open_it", KINDS)
async def test_no_message_is_lost_to_timeouts(client: AsyncClient, topic: str, open_it: Opened) -> None:
    receiving = await open_it(client, topic)
    schema: Any = StringSchema() if "typed" in open_it.__name__ else None
    producer: Any = await client.create_producer(topic, ProducerConfig(batching=False), schema=schema)
    count = 200

    async def publish() -> None:
        for number in range(count):
            await producer.send(str(number) if schema else b"%d" % number)

    publishing = asyncio.create_task(publish())
    found: list[bytes] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            try:
                found.append((await receiving.receive(timeout_millis=len(found) % 3)).data)
            except Timeout:
                await asyncio.sleep(0)
    await publishing
    assert found == [b"%d" % number for number in range(count)]


def test_blocking_consumers_and_readers_take_timeouts_in_milliseconds(cluster: Cluster, topic: str) -> None:
    assert client_package.Timeout is OperationTimeout
    with Client(cluster.service_url) as blocking:
        receiving = blocking.subscribe(topic, "s")
        reading = blocking.create_reader(topic, EARLIEST)
        with pytest.raises(Timeout):
            receiving.receive(timeout_millis=10)
        with pytest.raises(Timeout):
            reading.read_next(timeout_millis=10)
        assert receiving.batch_receive(timeout_millis=10) == []
        with pytest.raises(InvalidConfig, match="invalid timeout_millis -5"):
            receiving.receive(timeout_millis=-5)
        blocking.create_producer(topic).send(b"later")
        assert receiving.receive(timeout_millis=30_000).data == b"later"
        assert reading.read_next(timeout_millis=30_000).data == b"later"
