"""The same calls as in the recordings of official clients, compared frame by frame (see `golden.py`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from magnetar.client import EARLIEST, LATEST, AsyncClient, ConsumerConfig, ProducerConfig, ReaderConfig
from magnetar.errors import MetadataError
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from tests.client.clusters import Cluster
from tests.client.golden import Conversation, recorded, sent
from tests.client.proxy import Proxy

pytestmark = pytest.mark.slow

Clients = tuple[AsyncClient, AsyncClient]
PLAIN: dict[str, Any] = {"batching": False}
BATCHED: dict[str, Any] = {"batching": True, "batch_max_delay_ms": 60_000.0}


@pytest_asyncio.fixture
async def clients(proxy: Proxy) -> AsyncIterator[Clients]:
    async with AsyncClient(proxy.service_url) as first, AsyncClient(proxy.service_url) as second:
        yield first, second


def compare(proxy: Proxy, topic: str, name: str, *, without: frozenset[str] = frozenset()) -> None:
    """The frames that went through the proxy must be those of the recording."""
    expected = Conversation(recorded(name), without=without)
    ours = Conversation(sent(proxy.frames), without=without)
    there = f"persistent://public/wire/{name}"
    requests = {
        connection: [_renamed(request, topic, there) for request in some] for connection, some in ours.requests.items()
    }
    assert requests.keys() == expected.requests.keys()
    for connection, theirs in expected.requests.items():
        for our, their in zip(requests[connection], theirs, strict=False):  # a missing one shows below
            assert our == their
        assert len(requests[connection]) == len(theirs)
    assert ours.flows == expected.flows
    assert ours.acks == expected.acks


def _renamed(value: Any, old: str, new: str) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(part, old, new) for key, part in value.items()}
    if isinstance(value, list):
        return [_renamed(part, old, new) for part in value]
    return value.replace(old, new) if isinstance(value, str) else value


async def producer(client: AsyncClient, topic: str, name: str | None = "p1", **settings: Any) -> Any:
    return await client.create_producer(topic, ProducerConfig(name=name, **settings))


async def consumer(client: AsyncClient, topic: str, name: str | None = "consumer-a", **settings: Any) -> Any:
    return await client.subscribe(topic, settings.pop("subscription", "s"), ConsumerConfig(name=name, **settings))


async def test_produce_one(proxy: Proxy, clients: Clients, topic: str) -> None:
    p = await producer(clients[0], topic, properties={"a": "b"}, **PLAIN)
    await p.send(b"hello", properties={"k": "v"}, key="key1", ordering_key=b"ord", event_time_ms=1600000000000)
    await p.send(b"")
    await p.close()
    p = await producer(clients[0], topic, None, **PLAIN)
    await p.send(b"generated producer name")
    await p.close()
    compare(proxy, topic, "produce-one")


async def test_produce_batch(proxy: Proxy, clients: Clients, topic: str) -> None:
    p = await producer(clients[0], topic, **BATCHED)
    for index in range(5):
        p.send_nowait(
            b"message-%d" % index,
            key=f"key{index}",
            properties={"i": str(index)},
            event_time_ms=1600000000000 + index,
        )
    await p.flush()
    p.send_nowait(b"alone")
    await p.flush()
    k = await consumer(clients[0], topic, None, initial_position="Earliest")
    for _ in range(6):
        k.ack(await k.receive(30))
    await k.close()
    await p.close()
    compare(proxy, topic, "produce-batch")


async def test_consume_exclusive(proxy: Proxy, clients: Clients, topic: str) -> None:
    s = await consumer(clients[0], topic, receiver_queue_size=4, properties={"m": "1"})
    p = await producer(clients[0], topic, **PLAIN)
    for index in range(6):
        await p.send(b"m%d" % index)
    m = [await s.receive(30) for _ in range(5)]
    s.ack(m[1])
    await s.flush_acks()
    s.ack_cumulative(m[3])
    await s.close()
    s = await consumer(clients[0], topic)
    assert [(await s.receive(30)).data for _ in range(2)] == [b"m4", b"m5"]
    await s.close()
    await p.close()
    compare(proxy, topic, "consume-exclusive")


async def test_shared_redeliver(proxy: Proxy, clients: Clients, topic: str) -> None:
    c, d = clients
    a = await consumer(c, topic, type="Shared", negative_ack_delay_ms=200)
    p = await producer(c, topic, **PLAIN)
    for index in range(3):
        await p.send(b"m%d" % index)
    for _ in range(3):
        await a.receive(30)
    a.redeliver_unacknowledged()
    m = [await a.receive(30) for _ in range(3)]
    a.negative_ack(m[0])
    a.ack(await a.receive(30))
    await a.flush_acks()
    b = await consumer(d, topic, "consumer-b", type="Shared")
    await a.close()
    assert [(await b.receive(30)).redelivery_count for _ in range(2)] == [1, 1]
    await b.close()
    await p.close()
    compare(proxy, topic, "shared-redeliver")


async def test_seek(proxy: Proxy, clients: Clients, topic: str) -> None:
    p = await producer(clients[0], topic, **PLAIN)
    s = await consumer(clients[0], topic)
    ids = [await p.send(b"m0")]
    await asyncio.sleep(0.01)
    between_ms = int(time.time() * 1000)
    await asyncio.sleep(0.01)
    ids += [await p.send(b"m%d" % index) for index in (1, 2, 3)]
    m = [await s.receive(30) for _ in range(4)]
    s.ack_cumulative(m[3])
    await s.flush_acks()
    await s.seek(ids[2])
    got = [(await s.receive(30)).data]
    await s.seek(between_ms)
    got.append((await s.receive(30)).data)
    await s.seek(EARLIEST)
    got.append((await s.receive(30)).data)
    await s.seek(LATEST)
    await p.send(b"after")
    got.append((await s.receive(30)).data)
    assert got == [b"m3", b"m1", b"m0", b"after"]
    await p.close()
    await s.close()
    for command in proxy.sent:
        if command.type == BaseCommand.SEEK and command.seek.message_publish_time:
            command.seek.message_publish_time = 0  # a time, as the recording has it
    compare(proxy, topic, "seek")


async def test_reader(proxy: Proxy, clients: Clients, topic: str) -> None:
    c, _ = clients
    r = await c.create_reader(topic, EARLIEST)
    got: list[Any] = [await r.has_message_available()]
    p = await producer(c, topic, **PLAIN)
    ids = [await p.send(b"m%d" % index) for index in range(3)]
    got += [await r.has_message_available(), (await r.read_next(30)).data]
    await r.close()
    r = await c.create_reader(topic, LATEST)
    got.append(await r.has_message_available())
    await p.send(b"m3")
    got.append((await r.read_next(30)).data)
    await r.close()
    inclusive = ReaderConfig(start_inclusive=True)
    for start, config in ((ids[1], ReaderConfig()), (ids[1], inclusive), (LATEST, inclusive)):
        r = await c.create_reader(topic, start, config)
        got.append((await r.read_next(30)).data)
        await r.close()
    assert got == [False, True, b"m0", False, b"m3", b"m2", b"m1", b"m3"]
    await p.close()
    # We ask for the last message id where C++ relies on what it has heard before.
    compare(proxy, topic, "reader", without=frozenset({"GET_LAST_MESSAGE_ID"}))


async def test_last_message_id(proxy: Proxy, clients: Clients, topic: str) -> None:
    s = await consumer(clients[0], topic)
    await s.last_message_id()
    p = await producer(clients[0], topic, **PLAIN)
    await p.send(b"m0")
    await s.last_message_id()
    q = await producer(clients[0], topic, "p2", **BATCHED)
    for index in range(3):
        q.send_nowait(b"b%d" % index)
    await q.flush()
    await s.last_message_id()
    s.ack(await s.receive(30))
    await s.flush_acks()
    await s.last_message_id()
    await q.close()
    await p.close()
    await s.close()
    compare(proxy, topic, "last-message-id")


async def test_unsubscribe(proxy: Proxy, clients: Clients, topic: str) -> None:
    c, d = clients
    s = await consumer(c, topic)
    await s.unsubscribe()
    a = await consumer(c, topic, subscription="t", type="Shared")
    b = await consumer(d, topic, "consumer-b", subscription="t", type="Shared")
    with pytest.raises(MetadataError):
        await a.unsubscribe()
    await b.close()
    await a.unsubscribe()
    compare(proxy, topic, "unsubscribe")


async def test_batch_index_ack(proxy: Proxy, cluster: Cluster, clients: Clients, topic: str) -> None:
    a = await consumer(clients[0], topic, type="Shared")
    p = await producer(clients[0], topic, **BATCHED)
    for index in range(4):
        p.send_nowait(b"m%d" % index)
    await p.flush()
    m = [await a.receive(30) for _ in range(4)]
    a.ack(m[0])
    a.ack(m[2])
    a.redeliver_unacknowledged()
    for _ in range(2):
        a.ack(await a.receive(30))
    a.redeliver_unacknowledged()
    await a.close()
    await p.close()
    compare(proxy, topic, "batch-index-ack")


@pytest.mark.parametrize("kind", ["lz4", "zlib", "zstd", "snappy"])
async def test_compression(proxy: Proxy, clients: Clients, topic: str, kind: str) -> None:
    compression = kind.upper()
    p = await producer(clients[0], topic, compression=compression, **PLAIN)
    await p.send(b"the quick brown fox jumps over the lazy dog, " * 4)
    await p.close()
    p = await producer(clients[0], topic, "p2", compression=compression, **BATCHED)
    for index in range(3):
        p.send_nowait(b"a" * 32 + b"%d" % index)
    await p.close()
    s = await consumer(clients[0], topic, None, initial_position="Earliest")
    for _ in range(4):
        await s.receive(30)
    await s.close()
    compare(proxy, topic, f"compression-{kind}")


async def test_producer_wait_exclusive(proxy: Proxy, clients: Clients, topic: str) -> None:
    c, d = clients
    p = await producer(c, topic, access_mode="Exclusive", **PLAIN)
    waiting = asyncio.ensure_future(producer(d, topic, "p2", access_mode="WaitForExclusive", **PLAIN))
    await _until(lambda: proxy.count(BaseCommand.PRODUCER) == 2)
    await p.close()
    w = await waiting
    await w.send(b"m0")
    await w.close()
    compare(proxy, topic, "producer-wait-exclusive")


async def test_partitioned(proxy: Proxy, cluster: Cluster, clients: Clients, topic: str) -> None:
    cluster.create_partitioned(topic, 3)
    p = await producer(clients[0], topic, **PLAIN)
    for index in range(3):
        await p.send(b"m%d" % index)
    s = await consumer(clients[0], topic, None, initial_position="Earliest")
    for _ in range(3):
        s.ack(await s.receive(30))
    await s.close()
    await p.close()
    # Partitions are opened side by side and the first one is chance: compare what is sent, not in which order.
    expected, ours = Conversation(recorded("partitioned")), Conversation(sent(proxy.frames))
    there = "persistent://public/wire/partitioned"
    for connection, requests in expected.requests.items():
        renamed = [_renamed(request, topic, there) for request in ours.requests[connection]]
        kinds = [sorted(map(_without_body, some)) for some in (renamed, requests)]
        if connection == 1:
            kinds = [sorted(set(some)) for some in kinds]  # C++ asks for the number of partitions once more at the end
        assert kinds[0] == kinds[1]
    assert ours.flows == expected.flows
    assert len(ours.acks) == len(expected.acks) == 3


def _without_body(request: list[Any]) -> str:
    return repr(request[:3])


async def test_java_ack_receipt(proxy: Proxy, clients: Clients, topic: str) -> None:
    k = await consumer(clients[0], topic, ack_receipts=True)
    p = await producer(clients[0], topic, **PLAIN)
    for index in range(3):
        await p.send(b"m%d" % index)
    await asyncio.wait_for(k.ack(await k.receive(30)), 30)
    await k.receive(30)
    last = k.ack_cumulative(await k.receive(30))
    await p.close()
    await k.close()
    await last
    compare(proxy, topic, "java-ack-receipt")


async def test_java_seek(proxy: Proxy, clients: Clients, topic: str) -> None:
    k = await consumer(clients[0], topic)
    p = await producer(clients[0], topic, **BATCHED)
    p.send_nowait(b"m0")
    await p.flush()
    for index in range(1, 5):
        p.send_nowait(b"m%d" % index)
    await p.flush()
    m = [await k.receive(30) for _ in range(5)]
    await k.seek(m[2].message_id)
    assert (await k.receive(30)).data == b"m3"
    (ours,) = [c.seek for c in proxy.sent if c.type == BaseCommand.SEEK]
    theirs = next(command.seek for _, command, _, _ in recorded("java-seek") if command.type == BaseCommand.SEEK)
    assert (ours.message_id.entryId, list(ours.message_id.ack_set)) == (1, list(theirs.message_id.ack_set))


async def _until(condition: Callable[[], bool], pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        await pause(0.005)
