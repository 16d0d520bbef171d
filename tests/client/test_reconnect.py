"""What survives when connections break, through a proxy that breaks them."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Protocol

import pytest
from magnetar.client import EARLIEST, LATEST, AsyncClient, ClientConfig, ConsumerConfig, ProducerConfig, ReaderConfig
from magnetar.errors import ClosedError, ConnectionLost, MagnetarError, OperationTimeout
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from tests.client.clusters import Cluster
from tests.client.proxy import Proxy
from tests.client.test_consumer import data, producing, publish, publish_batch, subscribe, take, until
from tests.client.test_producer import read_all

pytestmark = pytest.mark.slow

QUICK = ClientConfig(operation_timeout_s=1, connection_timeout_s=1, backoff_initial_ms=10, backoff_max_ms=50)


class Attached(Protocol):
    @property
    def is_connected(self) -> bool: ...


async def detached(what: Attached) -> None:
    """Wait until a producer, consumer or reader has noticed; it is back after some 20 ms."""
    deadline = time.monotonic() + 30
    while what.is_connected:
        assert time.monotonic() < deadline, f"{what} is still connected"
        await asyncio.sleep(0.001)


async def cut(proxy: Proxy, what: Attached) -> None:
    proxy.cut()
    await detached(what)


def first_occurrences(values: list[bytes]) -> list[bytes]:
    return list(dict.fromkeys(values))


@pytest.mark.parametrize("batching", [True, False])
async def test_sends_survive_cut_connections_in_order(
    client: AsyncClient, proxied: AsyncClient, proxy: Proxy, topic: str, batching: bool
) -> None:
    producer = await producing(
        proxied, topic, batching=batching, batch_max_messages=7, batch_max_delay_ms=1, block_if_queue_full=True
    )
    rng = random.Random(7)
    sends = []
    for index in range(600):
        sends.append(asyncio.ensure_future(producer.send(b"%d" % index)))
        if index % 100 == 50:
            proxy.cut_after_sends = rng.randrange(5)
        if index % 20 == 0:
            await asyncio.sleep(0.002)
    ids = await asyncio.wait_for(asyncio.gather(*sends), 30)
    assert proxy.connections > 3
    stored = await read_all(client, topic)
    expected = [b"%d" % index for index in range(600)]
    assert first_occurrences([m.data for m in stored]) == expected
    by_id = {m.message_id: m.data for m in stored}
    assert [by_id[i] for i in ids] == expected


async def test_only_what_had_no_receipt_is_sent_again_and_byte_by_byte(
    client: AsyncClient, proxied: AsyncClient, proxy: Proxy, topic: str
) -> None:
    producer = await producing(proxied, topic, batching=False)
    await producer.send(b"receipted")
    proxy.lose_receipts = True
    lost = [producer.send_nowait(b"%d" % index) for index in range(3)]
    await until(lambda: proxy.count(BaseCommand.SEND) == 4, "all have been sent")
    # The broker has stored them, only the client does not know.
    consumer = await subscribe(client, topic, initial_position="Earliest")
    assert await data(consumer, 4) == [b"receipted", b"0", b"1", b"2"]
    proxy.lose_receipts = False
    proxy.cut()
    await asyncio.wait_for(asyncio.gather(*lost), 30)
    assert Counter(m.data for m in await read_all(client, topic)) == {b"receipted": 1, b"0": 2, b"1": 2, b"2": 2}
    first, second = (
        [c.send.SerializeToString() for c in proxy.sent if c.type == BaseCommand.SEND][start : start + 3]
        for start in (1, 4)
    )
    assert first == second


async def test_what_is_sent_while_detached_follows_what_was_pending(
    client: AsyncClient, proxied: AsyncClient, proxy: Proxy, topic: str
) -> None:
    producer = await producing(proxied, topic, batching=False)
    await producer.send(b"0")
    proxy.refuses = True
    await cut(proxy, producer)
    sends = [producer.send_nowait(b"%d" % index) for index in range(1, 4)]
    entry = producer.send_entry([b"4", b"5"])
    proxy.refuses = False
    await asyncio.wait_for(asyncio.gather(*sends, entry), 30)
    assert [m.data for m in await read_all(client, topic)] == [b"%d" % index for index in range(6)]


async def test_a_generated_name_is_kept_over_a_reconnection(proxied: AsyncClient, proxy: Proxy, topic: str) -> None:
    producer = await producing(proxied, topic)
    name = producer.name
    proxy.cut()
    await producer.send(b"x")
    assert producer.name == name
    again = [c.producer for c in proxy.sent if c.type == BaseCommand.PRODUCER][-1]
    assert (again.producer_name, again.user_provided_producer_name, again.epoch) == (name, False, 1)


async def test_pending_sends_fail_together_when_the_oldest_is_too_old(
    proxied: AsyncClient, proxy: Proxy, topic: str
) -> None:
    producer = await producing(proxied, topic, send_timeout_ms=4000, batch_max_delay_ms=200)
    await producer.send(b"fine")
    proxy.refuses = True
    proxy.cut()
    first = producer.send_nowait(b"0")
    await asyncio.sleep(0.5)  # so much younger; a busy machine has seconds for it
    later = producer.send_nowait(b"1")
    flushed = asyncio.ensure_future(producer.flush())
    for result in await asyncio.wait_for(asyncio.gather(first, later, flushed, return_exceptions=True), 30):
        assert isinstance(result, OperationTimeout)
        assert "2 messages for" in str(result)
        assert "send_timeout_ms" in str(result)
    assert producer.pending_messages == 0
    proxy.refuses = False
    await asyncio.wait_for(producer.send(b"fine again"), 30)


async def test_closing_a_detached_producer_fails_what_is_pending(
    proxied: AsyncClient, proxy: Proxy, topic: str
) -> None:
    producer = await producing(proxied, topic)
    proxy.refuses = True
    await cut(proxy, producer)
    pending = producer.send_nowait(b"x")
    await producer.close()
    with pytest.raises(ClosedError, match="closed before this was stored"):
        await pending


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Shared"])
async def test_a_consumer_gets_everything_unacknowledged_again_and_nothing_else(
    client: AsyncClient, proxied: AsyncClient, proxy: Proxy, topic: str, kind: str
) -> None:
    consumer = await subscribe(proxied, topic, type=kind, ack_grouping_ms=60_000)
    await publish(client, topic, *(b"%d" % index for index in range(6)))
    messages = await take(consumer, 4)  # two stay in the queue
    consumer.ack(messages[0])
    await consumer.flush_acks()
    await consumer.last_message_id()  # answered after what was sent before it
    consumer.ack(messages[2])  # grouped: the cut comes before it is sent
    await cut(proxy, consumer)
    assert await data(consumer, 4) == [b"1", b"3", b"4", b"5"]
    assert consumer.queued_messages == 0
    await publish(client, topic, b"new")
    assert await data(consumer, 1) == [b"new"]


async def test_acknowledgements_are_confirmed_over_a_reconnection(
    client: AsyncClient, proxied: AsyncClient, proxy: Proxy, topic: str
) -> None:
    consumer = await subscribe(proxied, topic, ack_receipts=True, ack_grouping_ms=0)
    await publish(client, topic, b"0", b"1", b"2")
    messages = await take(consumer, 3)
    proxy.hold()  # neither the acknowledgement nor its answer arrives
    confirmed = [consumer.ack(messages[0]), consumer.ack_entries([messages[1].message_id])]
    await asyncio.sleep(0.05)
    assert not any(future.done() for future in confirmed)
    proxy.cut()
    proxy.resume()
    await asyncio.wait_for(asyncio.gather(*confirmed), 30)
    await consumer.close()
    assert await data(await subscribe(client, topic), 1) == [b"2"]


async def test_acknowledgements_of_detached_consumers_are_sent_with_the_next_connection(
    client: AsyncClient, proxied: AsyncClient, proxy: Proxy, topic: str
) -> None:
    consumer = await subscribe(proxied, topic, type="Shared")
    await publish(client, topic, *(b"%d" % index for index in range(4)))
    messages = await take(consumer, 4)
    proxy.refuses = True
    await cut(proxy, consumer)
    consumer.ack_entries([messages[0].message_id, messages[2].message_id])
    consumer.ack_entry(messages[3].message_id)
    proxy.refuses = False
    assert await data(consumer, 1) == [b"1"]
    with pytest.raises(OperationTimeout):
        await consumer.receive(0.2)


async def test_permits_begin_anew_with_each_connection(
    client: AsyncClient, proxied: AsyncClient, proxy: Proxy, topic: str
) -> None:
    consumer = await subscribe(proxied, topic, type="Shared", receiver_queue_size=10)
    await publish(client, topic, *(b"%d" % index for index in range(30)))
    for _ in range(5):
        await until(lambda: consumer.queued_messages == 10, "the queue is full")
        for message in await take(consumer, 3):
            consumer.ack(message)
        await cut(proxy, consumer)
    got = {m.data for m in await take(consumer, 15)}
    assert len(got) == 15


async def test_activity_ends_with_the_connection_and_comes_back(proxied: AsyncClient, proxy: Proxy, topic: str) -> None:
    changes: list[bool] = []
    consumer = await subscribe(proxied, topic, type="Failover", on_active_change=changes.append)
    await until(lambda: consumer.is_active, "the only one is active")
    proxy.cut()
    await until(lambda: len(changes) >= 2, "it hears that it is not")
    await until(lambda: consumer.is_active, "it is active again")
    assert changes == [True, False, True]


async def test_a_reader_goes_on_where_it_was(
    client: AsyncClient, proxied: AsyncClient, proxy: Proxy, topic: str
) -> None:
    await publish(client, topic, b"0", b"1")
    await publish_batch(client, topic, b"2", b"3", b"4")
    reader = await proxied.create_reader(topic, EARLIEST)
    got = []
    for _ in range(5):
        got.append((await reader.read_next(30)).data)
        await cut(proxy, reader)
    await publish(client, topic, b"5")
    got.append((await reader.read_next(30)).data)
    assert got == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert not await reader.has_message_available()


async def test_a_reader_of_latest_loses_nothing_while_it_is_detached(
    client: AsyncClient, proxied: AsyncClient, proxy: Proxy, topic: str
) -> None:
    await publish(client, topic, b"old")
    reader = await proxied.create_reader(topic, LATEST)
    proxy.refuses = True
    await cut(proxy, reader)
    await publish(client, topic, b"meanwhile")
    proxy.refuses = False
    assert (await reader.read_next(30)).data == b"meanwhile"


async def test_a_reader_that_was_moved_goes_on_there(
    client: AsyncClient, proxied: AsyncClient, proxy: Proxy, topic: str
) -> None:
    ids = await publish(client, topic, *(b"%d" % index for index in range(5)))
    reader = await proxied.create_reader(topic, EARLIEST, ReaderConfig(receiver_queue_size=1))
    await reader.read_next(30)
    await reader.seek(ids[2])
    await cut(proxy, reader)
    assert [(await reader.read_next(30)).data for _ in range(2)] == [b"3", b"4"]
    await reader.seek(0)
    await cut(proxy, reader)
    assert [(await reader.read_next(30)).data for _ in range(5)] == [b"%d" % index for index in range(5)]


@pytest.mark.slow
async def test_a_silent_connection_is_taken_for_dead(cluster: Cluster, proxy: Proxy, topic: str) -> None:
    config = ClientConfig(keep_alive_s=2, backoff_initial_ms=10, operation_timeout_s=60)
    async with AsyncClient(proxy.service_url, config) as it:
        producer = await producing(it, topic)
        await producer.send(b"x")
        before = proxy.connections
        await until(lambda: proxy.count(BaseCommand.PING) >= 2, "the second sign of life is asked for")
        assert proxy.connections == before  # the first answer kept it alive
        proxy.hold()
        await detached(producer)
        proxy.resume()
        await asyncio.wait_for(producer.send(b"y"), 30)


async def test_nobody_there_is_said_once_the_time_is_over() -> None:
    async with AsyncClient("pulsar://127.0.0.1:1", QUICK) as it:
        with pytest.raises(ConnectionLost, match=r"cannot connect to 127\.0\.0\.1:1: "):
            await it.create_producer("t")


async def test_a_silent_server_is_given_up(proxy: Proxy) -> None:
    proxy.hold()
    async with AsyncClient(proxy.service_url, ClientConfig(operation_timeout_s=1.5, connection_timeout_s=0.3)) as it:
        with pytest.raises(OperationTimeout, match=r"handshake with .* timed out after 0\.3 s"):
            await it.subscribe("t", "s")


async def test_the_next_host_is_tried(cluster: Cluster, topic: str) -> None:
    url = cluster.service_url.replace("pulsar://", "pulsar://127.0.0.1:1,")
    async with AsyncClient(url, ClientConfig(operation_timeout_s=60, backoff_initial_ms=10)) as it:
        await (await it.create_producer(topic)).send(b"x")


async def test_a_broker_that_comes_late_is_waited_for(proxy: Proxy, proxied: AsyncClient, topic: str) -> None:
    proxy.refuses = True
    creating = asyncio.ensure_future(proxied.create_producer(topic))
    await asyncio.sleep(0.1)
    assert not creating.done()
    proxy.refuses = False
    await (await asyncio.wait_for(creating, 30)).send(b"x")


async def test_requests_fail_with_their_connection(proxied: AsyncClient, proxy: Proxy, topic: str) -> None:
    consumer = await subscribe(proxied, topic)
    proxy.hold()
    asking = [asyncio.ensure_future(consumer.last_message_id()), asyncio.ensure_future(consumer.unsubscribe())]
    await asyncio.sleep(0.05)
    proxy.cut()
    proxy.resume()
    for result in await asyncio.gather(*asking, return_exceptions=True):
        assert isinstance(result, ConnectionLost)


async def test_an_interrupted_seek_says_so_and_the_consumer_goes_on(
    client: AsyncClient, proxied: AsyncClient, proxy: Proxy, topic: str
) -> None:
    consumer = await subscribe(proxied, topic)
    await publish(client, topic, b"0", b"1")
    await take(consumer, 2)
    proxy.hold()
    seeking = asyncio.ensure_future(consumer.seek(EARLIEST))
    await asyncio.sleep(0.05)
    proxy.cut()
    proxy.resume()
    with pytest.raises(MagnetarError):
        await seeking
    assert await data(consumer, 2) == [b"0", b"1"]


async def test_a_cancelled_creation_leaves_nothing_behind(proxied: AsyncClient, proxy: Proxy, topic: str) -> None:
    await (await proxied.create_producer(topic, ProducerConfig(access_mode="Exclusive", name="first"))).close()
    proxy.hold()
    creating = asyncio.ensure_future(
        proxied.create_producer(topic, ProducerConfig(access_mode="Exclusive", name="second"))
    )
    await asyncio.sleep(0.05)
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    proxy.resume()
    third = await proxied.create_producer(topic, ProducerConfig(access_mode="Exclusive", name="third"))
    await third.send(b"x")


async def test_a_closed_client_refuses_everything(cluster: Cluster, topic: str) -> None:
    it = AsyncClient(cluster.service_url)
    producer = await it.create_producer(topic)
    consumer = await it.subscribe(topic, "s", ConsumerConfig())
    waiting = asyncio.ensure_future(consumer.receive())
    await asyncio.sleep(0)
    await it.close()
    with pytest.raises(ClosedError):
        await waiting
    with pytest.raises(ClosedError):
        await producer.send(b"x")
    with pytest.raises(ClosedError, match="the client is closed"):
        await it.create_producer(topic)
    await it.close()
