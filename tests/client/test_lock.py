"""A lock has one holder, and whoever lost it sends nothing more, on our broker and on Apache Pulsar."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import pytest
import pytest_asyncio
from magnetar.client import EARLIEST, AsyncClient, ConsumerConfig, ProducerConfig
from magnetar.client.lock import Lock
from magnetar.errors import ClosedError

from tests.client.clusters import Cluster
from tests.client.proxy import Proxy
from tests.client.test_consumer import data, subscribe, until
from tests.client.test_producer import read_all

pytestmark = pytest.mark.slow

_T = TypeVar("_T")


@pytest_asyncio.fixture
async def other(cluster: Cluster) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(cluster.service_url) as it:
        yield it


@pytest.fixture
def locks(topic: str) -> str:
    return f"{topic}-locks"


async def texts(client: AsyncClient, topic: str) -> list[bytes]:
    return [message.data for message in await read_all(client, topic)]


async def soon(what: Awaitable[_T]) -> _T:
    async with asyncio.timeout(30):
        return await what


async def is_refused(lock: Lock) -> asyncio.Task[None]:
    """Ask for a lock that another has; returns the waiting task once the broker has said so."""
    asking = asyncio.create_task(lock.acquire())
    await until(lambda: "held by another client" in lock.waits_for, "refusal")
    assert not asking.done()
    return asking


async def test_lock_has_one_holder_and_passes_on_when_it_is_closed(
    client: AsyncClient, other: AsyncClient, locks: str
) -> None:
    first, second = client.create_lock(locks, "a/b/c:0", "w1"), other.create_lock(locks, "a/b/c:0", "w2")
    await soon(first.acquire())
    asking = await is_refused(second)
    free = other.create_lock(locks, "a/b/c:1", "w2")
    await soon(free.acquire())
    await first.close()
    await soon(asking)
    assert second.is_held
    with pytest.raises(ClosedError, match="was closed"):
        await first.acquire()


async def test_what_a_lock_covers_goes_on_after_a_broken_connection(
    proxied: AsyncClient, proxy: Proxy, client: AsyncClient, topic: str, locks: str
) -> None:
    lock = proxied.create_lock(locks, "x", "w1")
    await soon(lock.acquire())
    producer = await proxied.create_producer(topic, ProducerConfig(guard=lock.cover))
    consumer = await subscribe(proxied, topic, guard=lock.cover)
    for text in (b"1", b"2"):
        proxy.cut()
        await soon(producer.send(text))
    assert await data(consumer, 2) == [b"1", b"2"]
    assert lock.is_held
    assert await texts(client, topic) == [b"1", b"2"]


async def test_nothing_leaves_after_the_lock_is_lost_to_another(
    proxied: AsyncClient, proxy: Proxy, other: AsyncClient, topic: str, locks: str
) -> None:
    lost, successor = proxied.create_lock(locks, "x", "w1"), other.create_lock(locks, "x", "w2")
    await soon(lost.acquire())
    producer = await proxied.create_producer(topic, ProducerConfig(guard=lost.cover))
    await soon(producer.send(b"before"))
    asking = await is_refused(successor)
    proxy.refuses = True
    # The network takes the client away in the middle of a burst; some of it may have come through.
    sends = [asyncio.ensure_future(producer.send(b"late-%d" % number)) for number in range(100)]
    proxy.cut()
    await soon(asking)
    before = await texts(other, topic)
    heir = await other.create_producer(topic, ProducerConfig(guard=successor.cover))
    await soon(heir.send(b"heir"))
    proxy.refuses = False  # the old holder is back, its burst still pending
    await until(lambda: "held by another client" in lost.waits_for, "refusal")
    await soon(heir.send(b"heir again"))
    assert not any(send.done() and not send.exception() for send in sends[len(before) :])
    assert await texts(other, topic) == [*before, b"heir", b"heir again"]
    await producer.close()
    await asyncio.gather(*sends, return_exceptions=True)
    await lost.close()
    assert await texts(other, topic) == [*before, b"heir", b"heir again"]


async def test_old_holder_resumes_when_the_other_gives_the_lock_back(
    proxied: AsyncClient, proxy: Proxy, other: AsyncClient, topic: str, locks: str
) -> None:
    first, second = proxied.create_lock(locks, "x", "w1"), other.create_lock(locks, "x", "w2")
    await soon(first.acquire())
    consumer = await subscribe(proxied, topic, guard=first.cover)
    asking = await is_refused(second)
    proxy.refuses = True
    proxy.cut()
    await soon(asking)
    proxy.refuses = False
    await until(lambda: "held by another client" in first.waits_for, "refusal")
    assert not consumer.is_connected
    await second.close()
    await until(lambda: consumer.is_connected, "consumer that is back")
    assert first.is_held


async def test_a_lock_that_the_broker_takes_back_takes_the_connection_with_it(
    cluster: Cluster, client: AsyncClient, topic: str, locks: str
) -> None:
    lock = client.create_lock(locks, "x", "w1")
    await soon(lock.acquire())
    producer = await client.create_producer(topic, ProducerConfig(guard=lock.cover))
    before = lock._connection
    assert before is not None
    await asyncio.to_thread(cluster.unload, locks)
    await until(lambda: lock.is_held and lock._connection is not before, "lock on a new connection")
    await soon(producer.send(b"still here"))
    assert not before.is_open
    assert await texts(client, topic) == [b"still here"]


async def test_guard_is_asked_for_every_partition(
    cluster: Cluster, client: AsyncClient, other: AsyncClient, topic: str, locks: str
) -> None:
    await asyncio.to_thread(cluster.create_partitioned, topic, 3)
    first, second = client.create_lock(locks, "x", "w1"), other.create_lock(locks, "x", "w2")
    await soon(first.acquire())
    asking = await is_refused(second)
    config = ConsumerConfig(guard=second.cover, initial_position="Earliest")
    waiting = asyncio.create_task(other.subscribe(topic, "s", config))
    producing = asyncio.create_task(other.create_producer(topic, ProducerConfig(guard=second.cover)))
    probe = await client.create_reader(f"{topic}-partition-0", EARLIEST)
    await probe.close()
    assert not waiting.done()
    assert not producing.done()
    await first.close()
    await soon(asking)
    await (await soon(producing)).close()
    await (await soon(waiting)).close()
