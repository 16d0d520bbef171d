"""Listeners, interceptors, table views, the memory limit, partitions that come later, statistics, loops and blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from magnetar.client import (
    NO_VALUE,
    AsyncClient,
    Client,
    ClientConfig,
    ClosedError,
    ConsumerConfig,
    ConsumerDeadLetterPolicy,
    ConsumerInterceptor,
    InvalidConfig,
    MagnetarError,
    MessageId,
    OutgoingMessage,
    PartitionedProducer,
    Producer,
    ProducerConfig,
    ProducerInterceptor,
    QueueFull,
)
from magnetar.client.producers.memory import MemoryLimit
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from tests.client.clusters import Cluster
from tests.client.scripted import ScriptedBroker
from tests.support.waiting import wait_for

EARLIEST_CONFIG = ConsumerConfig(initial_position="Earliest")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what it is about tells nobody
            await asyncio.sleep(0.005)


@pytest.fixture
def blocking(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.service_url, ClientConfig(operation_timeout_s=60)) as it:
        yield it


# -- loops and blocks --------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_async_for_takes_messages_until_the_consumer_is_closed(client: AsyncClient, topic: str) -> None:
    async with await client.subscribe(topic, "s") as consumer, await client.create_producer(topic) as producer:
        for number in range(3):
            await producer.send(b"%d" % number)
        taken = []
        async for message in consumer:
            taken.append(message.data)
            await consumer.ack(message)
            if len(taken) == 3:
                await consumer.close()
        assert taken == [b"0", b"1", b"2"]
    assert not producer.is_connected
    with pytest.raises(ClosedError):
        await consumer.receive()


@pytest.mark.slow
def test_for_takes_messages_until_the_blocking_consumer_is_closed(blocking: Client, topic: str) -> None:
    taken = []
    with blocking.subscribe(topic, "s") as consumer, blocking.create_producer(topic) as producer:
        for number in range(3):
            producer.send(b"%d" % number)
        for message in consumer:
            taken.append(message.data)
            if len(taken) == 3:
                consumer.close()
    assert taken == [b"0", b"1", b"2"]


# -- listeners ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_listener_gets_messages_one_after_the_other(
    client: AsyncClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[bytes] = []
    running = 0

    async def listen(consumer: Any, message: Any) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        taken.append(message.data)
        await consumer.ack(message)
        running -= 1
        if message.data == b"3":
            raise ValueError("of the listener")

    consumer = await client.subscribe(topic, "s", message_listener=listen)
    producer = await client.create_producer(topic)
    for number in range(10):
        producer.send_nowait(b"%d" % number)
    await until(lambda: len(taken) == 10)
    assert taken == [b"%d" % number for number in range(10)]
    assert "of the listener" in caplog.text
    consumer.pause_message_listener()
    other = await client.subscribe(topic, "other")
    await producer.send(b"later")
    assert (await other.receive(8)).data == b"later"
    assert len(taken) == 10
    consumer.resume_message_listener()
    await until(lambda: taken[-1] == b"later")


@pytest.mark.slow
def test_blocking_listener_has_a_thread_of_its_own_and_may_block(blocking: Client, topic: str) -> None:
    taken: list[bytes] = []
    threads: set[str] = set()
    answers = blocking.create_producer(f"{topic}-answers")
    read = blocking.subscribe(f"{topic}-answers", "s")
    other = blocking.subscribe(topic, "other")

    def listen(consumer: Any, message: Any) -> None:
        threads.add(threading.current_thread().name)
        answers.send(message.data)
        taken.append(message.data)
        consumer.acknowledge(message)

    consumer = blocking.subscribe(topic, "s", message_listener=listen)
    producer = blocking.create_producer(topic)
    for number in range(5):
        producer.send_async(b"%d" % number)
    assert [read.receive(8000).data for _ in range(5)] == [b"%d" % number for number in range(5)]
    wait_for(lambda: len(taken) == 5, "all messages")
    assert threads == {"magnetar-listener-0"}
    with pytest.raises(InvalidConfig, match="cannot be used on a consumer with a message_listener"):
        consumer.receive()
    with pytest.raises(InvalidConfig, match="the consumer has no listener"):
        read.pause_message_listener()
    consumer.pause_message_listener()
    for _ in range(5):
        other.receive(8000)
    producer.send(b"later")
    assert other.receive(8000).data == b"later"
    assert len(taken) == 5
    consumer.resume_message_listener()
    assert read.receive(8000).data == b"later"


@pytest.mark.slow
def test_listeners_of_several_consumers_share_the_threads(cluster: Cluster, topic: str) -> None:
    both = threading.Barrier(2)
    met: list[str] = []

    def listen(consumer: Any, message: Any) -> None:
        both.wait(20)
        met.append(threading.current_thread().name)
        consumer.close()

    with Client(cluster.service_url, ClientConfig(message_listener_threads=2)) as client:
        for subscription in ("a", "b"):
            client.subscribe(topic, subscription, message_listener=listen)
        client.create_producer(topic).send(b"x")
        wait_for(lambda: len(met) == 2, "both listeners at the same time")
    assert set(met) == {"magnetar-listener-0", "magnetar-listener-1"}


# -- interceptors ------------------------------------------------------------------------------------------------------


class Stamp(ProducerInterceptor):
    def __init__(self) -> None:
        self.results: list[tuple[bytes, MessageId | None, MagnetarError | None]] = []
        self.closed = 0

    def before_send(self, producer: Any, message: OutgoingMessage) -> OutgoingMessage:
        if message.payload == b"raise":
            raise ValueError("of the interceptor")
        return replace(message, payload=message.payload.upper(), properties={**message.properties, "stamp": "1"})

    def on_send_acknowledgement(
        self, producer: Any, message: OutgoingMessage, message_id: MessageId | None, error: MagnetarError | None
    ) -> None:
        self.results.append((message.payload, message_id, error))

    def close(self) -> None:
        self.closed += 1


class Watch(ConsumerInterceptor):
    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def before_consume(self, consumer: Any, message: Any) -> Any:
        self.events.append(("consume", message.data))
        return message

    def on_acknowledge(self, consumer: Any, message_id: MessageId, error: MagnetarError | None) -> None:
        self.events.append(("ack", message_id))

    def on_acknowledge_cumulative(self, consumer: Any, message_id: MessageId, error: MagnetarError | None) -> None:
        self.events.append(("up to", message_id))

    def on_negative_acks_send(self, consumer: Any, message_ids: Any) -> None:
        self.events.append(("refused", tuple(message_ids)))

    def on_ack_timeout_send(self, consumer: Any, message_ids: Any) -> None:
        self.events.append(("late", tuple(message_ids)))

    def close(self) -> None:
        self.events.append(("closed", None))


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [0, 2])
async def test_producer_interceptor_changes_messages_and_hears_of_results(
    client: AsyncClient, cluster: Cluster, topic: str, partitions: int, caplog: pytest.LogCaptureFixture
) -> None:
    if partitions:
        cluster.create_partitioned(topic, partitions)
    stamp = Stamp()
    producer = await client.create_producer(topic, ProducerConfig(interceptors=[stamp], max_pending_messages=3))
    consumer = await client.subscribe(topic, "s", EARLIEST_CONFIG)
    sent = await producer.send(b"a", key="k", properties={"x": "y"})
    raised = await producer.send(b"raise", key="k")
    first, second = await consumer.receive(8), await consumer.receive(8)
    assert (first.data, first.key, first.properties) == (b"A", "k", {"x": "y", "stamp": "1"})
    assert (second.data, second.properties) == (b"raise", {})
    assert "of the interceptor" in caplog.text
    await until(lambda: len(stamp.results) == 2)
    assert [(payload, message_id) for payload, message_id, _ in stamp.results] == [(b"A", sent), (b"raise", raised)]
    for _ in range(3):
        producer.send_nowait(b"b", key="k")
    with pytest.raises(QueueFull):
        producer.send_nowait(b"b", key="k")
    assert isinstance(stamp.results[2][2], QueueFull)
    with pytest.raises(InvalidConfig, match="interceptors do not support encoded entries"):
        producer.send_entry([b"x"])
    await producer.close()
    await producer.close()
    assert stamp.closed == 1


@pytest.mark.slow
async def test_consumer_interceptor_sees_what_becomes_of_messages(client: AsyncClient, topic: str) -> None:
    watch = Watch()
    config = ConsumerConfig(
        type="Shared",
        negative_ack_delay_ms=20,
        unacked_messages_timeout_ms=60,
        ack_timeout_tick_ms=20,
        interceptors=[watch],
    )
    consumer = await client.subscribe(topic, "s", config)
    sent = await (await client.create_producer(topic, ProducerConfig(batching=False))).send(b"x")
    consumer.negative_ack(await consumer.receive(8))
    await consumer.receive(8)  # and forgets it
    await consumer.ack(await consumer.receive(8))
    with pytest.raises(InvalidConfig, match="interceptors, which do not support entries"):
        consumer.poll_entry()
    await consumer.close()
    taken = ("consume", b"x")
    expected = [taken, ("refused", (sent,)), taken, ("late", (sent,)), taken, ("ack", sent), ("closed", None)]
    assert watch.events == expected


# -- table view --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [0, 2])
async def test_table_view_has_the_last_value_of_each_key(
    client: AsyncClient, cluster: Cluster, topic: str, partitions: int
) -> None:
    if partitions:
        cluster.create_partitioned(topic, partitions)
    producer = await client.create_producer(topic)
    for number in range(30):
        producer.send_nowait(b"%d" % number, key=f"k{number % 10}")
    producer.send_nowait(b"", key="k3")
    producer.send_nowait(NO_VALUE, key="k4")
    producer.send_nowait(b"without a key")
    await producer.flush()
    view = await client.create_table_view(topic, partition_update_s=0.05)
    expected = {f"k{number}": b"%d" % (20 + number) for number in range(10) if number not in (3, 4)}
    assert view.snapshot() == expected
    assert (len(view), "k3" in view, view.get("k3"), view["k5"]) == (8, False, None, b"25")
    changes: list[tuple[str, bytes | None]] = []
    view.for_each_and_listen(lambda key, value: changes.append((key, value)))
    assert dict(changes) == expected
    del changes[:]
    await producer.send(b"new", key="k5")
    await producer.send(NO_VALUE, key="k5")
    await view.refresh()
    assert changes == [("k5", b"new"), ("k5", None)]
    assert view.get("k5") is None
    if partitions:
        cluster.add_partitions(topic, 3)
        added = await client.create_producer(f"{topic}-partition-2")
        await added.send(b"z", key="of the new partition")
        await until(lambda: view.get("of the new partition") == b"z")
    await view.close()
    with pytest.raises(ClosedError):
        view.get("k5")


@pytest.mark.slow
def test_blocking_table_view_calls_listeners_on_their_thread(blocking: Client, topic: str) -> None:
    producer = blocking.create_producer(topic)
    producer.send(b"1", key="a")
    with blocking.create_table_view(topic, "view") as view:
        changes: list[tuple[str, bytes | None, str]] = []
        view.for_each_and_listen(lambda key, value: changes.append((key, value, threading.current_thread().name)))
        assert [change[:2] for change in changes] == [("a", b"1")]
        producer.send(b"2", key="a")
        view.refresh()
        wait_for(lambda: len(changes) == 2, "the change")
        assert changes[1] == ("a", b"2", "magnetar-listener-0")
        assert (list(view), len(view), view["a"], "b" in view) == (["a"], 1, b"2", False)


# -- memory limit ------------------------------------------------------------------------------------------------------


async def test_memory_limit_is_shared_by_the_producers_of_a_client() -> None:
    async with ScriptedBroker() as broker:
        broker.answers[BaseCommand.SEND] = lambda _c, _p: []
        async with AsyncClient(broker.service_url, ClientConfig(memory_limit_bytes=1000)) as client:
            one = await client.create_producer("one", ProducerConfig(batching=False))
            two = await client.create_producer("two", ProducerConfig(block_if_queue_full=True))
            pending = [one.send_nowait(b"x" * 600), two.send_nowait(b"y" * 600)]
            assert not one.has_room
            assert not two.has_room
            with pytest.raises(QueueFull, match="bytes pending, the limit is memory_limit_bytes=1000"):
                one.send_nowait(b"z")
            blocked = asyncio.ensure_future(two.send(b"w" * 10))
            await until(lambda: broker.commands(BaseCommand.SEND))
            await asyncio.sleep(0)
            assert not blocked.done()
            await one.close()  # what it had is given up
            await until(lambda: two.pending_messages == 2)
            shared: Any = client._producers.shared
            await two.close()
            assert shared.memory.used_bytes == 0
            results = await asyncio.gather(*pending, blocked, return_exceptions=True)
            assert all(isinstance(result, MagnetarError) for result in results)


@pytest.mark.slow
def test_blocking_producers_stay_within_the_memory_limit(cluster: Cluster, topic: str) -> None:
    config = ClientConfig(memory_limit_bytes=10_000)
    with Client(cluster.service_url, config) as client:
        producers = [
            client.create_producer(topic, ProducerConfig(block_if_queue_full=True, batch_max_delay_ms=1))
            for _ in range(3)
        ]
        errors: list[MagnetarError | None] = []
        for number in range(600):
            producers[number % 3].send_async(b"x" * 500, lambda error, _: errors.append(error))
        for producer in producers:
            producer.flush()
        assert errors == [None] * 600


async def test_memory_is_counted_back_whatever_becomes_of_messages() -> None:
    memory = MemoryLimit(10)
    memory.add(7)
    memory.release(7)
    assert (memory.used_bytes, repr(memory)) == (0, "MemoryLimit(0 of 10 bytes, waiting=0)")


# -- partitions --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("is_lazy", [False, True])
async def test_producer_picks_up_new_partitions(
    client: AsyncClient, cluster: Cluster, topic: str, is_lazy: bool
) -> None:
    cluster.create_partitioned(topic, 1)
    config = ProducerConfig(
        partition_update_s=0.05,
        batching=False,
        lazy_start_partitioned_producers=is_lazy,
        routing=lambda message, partitions: int(message.key or 0) % partitions,
    )
    producer = await client.create_producer(topic, config)
    assert isinstance(producer, PartitionedProducer)
    assert (await producer.send(b"x", key="2")).partition == 0
    cluster.add_partitions(topic, 3)
    await until(lambda: len(producer.producers) == 3)
    assert (await producer.send(b"x", key="2")).partition == 2
    await producer.close()


@pytest.mark.slow
async def test_lazy_producer_creates_partitions_with_their_first_message(
    client: AsyncClient, cluster: Cluster, topic: str
) -> None:
    cluster.create_partitioned(topic, 4)
    config = ProducerConfig(
        lazy_start_partitioned_producers=True,
        batching=False,
        max_pending_messages=50,
        block_if_queue_full=True,
        routing=lambda message, partitions: int(message.key or 0) % partitions,
    )
    producer = await client.create_producer(topic, config)
    assert isinstance(producer, PartitionedProducer)
    assert [one.is_connected for one in producer.producers] == [True, False, False, False]
    futures = [producer.send_nowait(b"%d" % number, key="2") for number in range(20)]
    ids = await asyncio.gather(*futures)
    assert ids == sorted(ids)
    assert {message_id.partition for message_id in ids} == {2}
    assert [one.is_connected for one in producer.producers] == [True, False, True, False]
    more = [asyncio.ensure_future(producer.send(b"%d" % number, key="3")) for number in range(200)]
    assert {message_id.partition for message_id in await asyncio.gather(*more)} == {3}
    await producer.flush()
    assert (await producer.send_entry([b"a", b"b"])).partition == 0
    last = producer.send_nowait(b"last", key="1")
    await producer.close()
    assert last.done()
    with pytest.raises(ClosedError):
        producer.send_nowait(b"x", key="1")


def test_lazy_producers_are_for_shared_access_only() -> None:
    with pytest.raises(InvalidConfig, match="requires access_mode 'Shared', not 'Exclusive'"):
        ProducerConfig(lazy_start_partitioned_producers=True, access_mode="Exclusive")


# -- statistics --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_statistics_count_what_producers_and_consumers_do(cluster: Cluster, topic: str) -> None:
    async with AsyncClient(cluster.service_url, ClientConfig(stats_interval_s=0.05)) as client:
        policy = ConsumerDeadLetterPolicy(max_redeliver_count=1)
        config = ConsumerConfig(type="Shared", negative_ack_delay_ms=10, dead_letter_policy=policy)
        consumer = await client.subscribe(topic, "s", config)
        producer = await client.create_producer(topic, ProducerConfig(batching=False))
        assert isinstance(producer, Producer)
        for number in range(10):
            await producer.send(b"%010d" % number)
        found = producer.statistics()
        assert (found.messages_sent, found.messages_stored, found.messages_failed, found.messages_pending) == (
            10, 10, 0, 0,
        )  # fmt: skip
        assert found.bytes_sent > 100
        messages = [await consumer.receive(8) for _ in range(10)]
        for message in messages[1:]:
            await consumer.ack(message)
        consumer.negative_ack(messages[0])
        consumer.negative_ack(await consumer.receive(8))
        await until(lambda: consumer.statistics().dead_letters == 1)  # type: ignore[union-attr]
        seen: Any = consumer.statistics()
        assert (seen.messages_received, seen.acknowledged, seen.refused, seen.messages_queued) == (11, 9, 2, 0)
        assert seen.bytes_received == 110
        async with asyncio.timeout(20):
            while not producer.statistics().messages_per_s:
                await producer.send(b"x")
        assert 0 < producer.statistics().latency_mean_ms <= producer.statistics().latency_max_ms
    async with AsyncClient(cluster.service_url) as client:
        with pytest.raises(InvalidConfig, match="stats_interval_s=60"):
            (await client.create_producer(topic)).statistics()
        with pytest.raises(InvalidConfig, match="stats_interval_s=60"):
            (await client.subscribe(topic, "s2")).statistics()
