"""Partitioned topics and several topics at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import pytest
from magnetar.client import (
    EARLIEST,
    AsyncClient,
    ConsumerConfig,
    MergedConsumer,
    Message,
    OutgoingMessage,
    PartitionedProducer,
    ProducerConfig,
    ProducerInterceptor,
    ReaderConfig,
    encode_entry,
)
from magnetar.errors import ClosedError, InvalidConfig, OperationTimeout, TopicNotFound
from magnetar.wire.hashing import java_string_hash

from tests.client.clusters import Cluster
from tests.client.test_consumer import publish, until

pytestmark = pytest.mark.slow

PARTITIONS = 3


@pytest.fixture
def partitioned(cluster: Cluster, topic: str) -> str:
    cluster.create_partitioned(topic, PARTITIONS)
    return topic


async def producing(client: AsyncClient, topic: str, **settings: Any) -> PartitionedProducer:
    made = await client.create_producer(topic, ProducerConfig(**settings))
    assert isinstance(made, PartitionedProducer)
    return made


async def merged(client: AsyncClient, topic: str | list[str], **settings: Any) -> MergedConsumer:
    made = await client.subscribe(topic, "s", ConsumerConfig(**settings))
    assert isinstance(made, MergedConsumer)
    return made


async def take(consumer: MergedConsumer, count: int) -> list[Message]:
    return [await consumer.receive(30) for _ in range(count)]


async def test_partitions_have_the_names_that_everybody_uses(client: AsyncClient, partitioned: str) -> None:
    assert await client.partitions(partitioned) == [f"{partitioned}-partition-{index}" for index in range(PARTITIONS)]
    assert await client.partitions(f"{partitioned}-partition-1") == [f"{partitioned}-partition-1"]
    address = await client.lookup(partitioned)
    assert address.logical.port > 0


async def test_messages_without_key_go_round_robin(client: AsyncClient, partitioned: str) -> None:
    producer = await producing(client, partitioned, batching=False)
    ids = [await producer.send(b"%d" % index) for index in range(6)]
    order = [i.partition for i in ids]
    assert sorted(order[:3]) == [0, 1, 2]
    assert order[3:] == order[:3]
    consumer = await merged(client, partitioned, initial_position="Earliest")
    assert sorted(m.data for m in await take(consumer, 6)) == [b"%d" % index for index in range(6)]


async def test_round_robin_does_not_tear_batches(client: AsyncClient, partitioned: str) -> None:
    producer = await producing(client, partitioned, batch_max_messages=10, batch_max_delay_ms=60_000)
    ids = await asyncio.gather(*(producer.send(b"x") for _ in range(30)))
    assert Counter(i.partition for i in ids) == {0: 10, 1: 10, 2: 10}
    assert {i.batch_size for i in ids} == {10}
    entries = await asyncio.gather(*(producer.send_entry([b"x"] * 10) for _ in range(3)))
    assert {i.partition for i in entries} == {0, 1, 2}


async def test_a_key_always_goes_to_its_partition(client: AsyncClient, partitioned: str) -> None:
    producer = await producing(client, partitioned, hashing="JavaStringHash", batch_max_delay_ms=5)
    keys = [f"key-{index % 7}" for index in range(21)]
    ids = await asyncio.gather(*(producer.send(b"x", key=key) for key in keys))
    assert [i.partition for i in ids] == [java_string_hash(key) % PARTITIONS for key in keys]
    entry = await producer.send_entry(encode_entry([b"x", b"y"], key="key-1"))
    assert entry.partition == java_string_hash("key-1") % PARTITIONS


async def test_single_partition_and_custom_routing(client: AsyncClient, partitioned: str) -> None:
    single = await producing(client, partitioned, routing="SinglePartition", batching=False)
    assert len({(await single.send(b"x")).partition for _ in range(6)}) == 1

    def by_length(message: OutgoingMessage, partitions: int) -> int:
        return len(message.payload) % partitions

    custom = await producing(client, partitioned, routing=by_length, batching=False)
    assert [(await custom.send(b"x" * size, key="k")).partition for size in range(5)] == [0, 1, 2, 0, 1]
    wrong = await producing(client, partitioned, routing=lambda _message, _partitions: 3)
    with pytest.raises(InvalidConfig, match="routing function returned 3; expected an index from 0 to 2"):
        await wrong.send(b"x")


async def test_a_partitioned_producer_flushes_and_closes_all_partitions(client: AsyncClient, partitioned: str) -> None:
    producer = await producing(client, partitioned, batch_max_delay_ms=60_000, name="p1")
    futures = [producer.send_nowait(b"x", key=f"{index}") for index in range(10)]
    assert producer.pending_messages == 10
    await producer.flush()
    assert all(future.done() for future in futures)
    assert (producer.name, producer.is_connected, producer.has_room) == ("p1", True, True)
    assert producer.last_sequence_id == max(p.last_sequence_id for p in producer.producers)
    last = producer.send_nowait(b"y")
    await producer.ready()
    await producer.close()
    assert await last
    with pytest.raises(ClosedError):
        await producer.send(b"late")


@pytest.mark.parametrize("is_lazy", [False, True])
@pytest.mark.parametrize("interceptors", [(), (ProducerInterceptor(),)])
async def test_awaited_messages_do_not_wait_for_batches_of_partitions(
    client: AsyncClient, partitioned: str, is_lazy: bool, interceptors: tuple[ProducerInterceptor, ...]
) -> None:
    producer = await producing(
        client,
        partitioned,
        batch_max_delay_ms=600_000,
        lazy_start_partitioned_producers=is_lazy,
        interceptors=interceptors,
    )
    keys = [f"key-{index}" for index in range(8)]
    ids = await asyncio.wait_for(asyncio.gather(*(producer.send(b"x", key=key) for key in keys)), 60)
    assert len({i.partition for i in ids}) > 1
    assert len(set(ids)) == len(keys)


async def test_all_partitions_are_acknowledged_where_they_came_from(
    cluster: Cluster, client: AsyncClient, partitioned: str
) -> None:
    consumer = await merged(client, partitioned, type="Shared", ack_receipts=True)
    producer = await producing(client, partitioned, batching=False)
    for index in range(12):
        await producer.send(b"%d" % index)
    await until(lambda: consumer.queued_messages == 12, "all have arrived")
    messages = await take(consumer, 6)
    entries = [await consumer.receive_entry() for _ in range(6)]
    assert {m.topic for m in messages} == {f"{partitioned}-partition-{index}" for index in range(PARTITIONS)}
    futures = [consumer.ack(messages[0]), consumer.ack(messages[1].message_id)]
    futures += [consumer.ack_entry(messages[2].entry), consumer.ack_entry(messages[3].message_id)]
    futures += [consumer.ack_entries(entries), consumer.ack_batch_indexes(messages[4].entry, ())]
    await asyncio.wait_for(asyncio.gather(*futures), 30)
    consumer.redeliver_unacknowledged()
    again = await consumer.receive(30)
    assert again.data == messages[5].data
    consumer.negative_ack(again)
    consumer.ack(again)
    await consumer.flush_acks()

    def is_done(name: str) -> bool:
        return cluster.backlog(name, "s") == 0

    for index in range(PARTITIONS):
        name = f"{partitioned}-partition-{index}"
        await until(partial(is_done, name), f"{name} is done")


async def test_cumulative_acknowledgement_is_per_partition(client: AsyncClient, partitioned: str) -> None:
    consumer = await merged(client, partitioned, type="Failover")
    await until(lambda: consumer.is_active, "active everywhere")
    producer = await producing(client, partitioned, batching=False)
    for index in range(6):
        await producer.send(b"%d" % index)
    messages = await take(consumer, 6)
    done = messages[0].topic
    consumer.ack_cumulative([m for m in messages if m.topic == done][-1])
    await consumer.close()
    consumer = await merged(client, partitioned, type="Failover")
    assert {m.topic for m in await take(consumer, 4)} == {m.topic for m in messages} - {done}
    with pytest.raises(OperationTimeout):
        await consumer.receive(0.2)


async def test_seeking_moves_all_partitions_or_one(client: AsyncClient, partitioned: str) -> None:
    consumer = await merged(client, partitioned)
    producer = await producing(client, partitioned, batching=False)
    ids = [await producer.send(b"%d" % index) for index in range(6)]
    await take(consumer, 6)
    await consumer.seek(EARLIEST)
    assert sorted(m.data for m in await take(consumer, 6)) == [b"%d" % index for index in range(6)]
    await consumer.seek(ids[0])
    assert [m.message_id for m in await take(consumer, 1)] == [ids[3]]
    last = await consumer.last_message_ids()
    assert sorted(last.values()) == sorted(ids[3:])
    with pytest.raises(InvalidConfig, match="use last_message_ids"):
        await consumer.last_message_id()
    await consumer.seek(0)
    await take(consumer, 6)
    await consumer.unsubscribe()
    with pytest.raises(ClosedError):
        consumer.poll()


async def test_queues_of_partitions_share_one_limit(client: AsyncClient, partitioned: str) -> None:
    consumer = await merged(client, partitioned, receiver_queue_size=100, max_receiver_queue_size_across_partitions=6)
    producer = await producing(client, partitioned, batching=False)
    await asyncio.gather(*(producer.send(b"x") for _ in range(60)))
    await until(lambda: consumer.queued_messages == 6, "two messages for each partition")
    await asyncio.sleep(0.2)
    assert consumer.queued_messages == 6
    assert len(await take(consumer, 60)) == 60


async def test_new_partitions_are_consumed_too(cluster: Cluster, client: AsyncClient, partitioned: str) -> None:
    consumer = await merged(client, partitioned, partition_update_s=0.1, initial_position="Earliest")
    await asyncio.to_thread(cluster.add_partitions, partitioned, 5)
    await until(lambda: len(consumer.consumers) == 5, "the new partitions are found")
    await publish(client, f"{partitioned}-partition-4", b"x")
    assert (await consumer.receive(30)).message_id.partition == 4


async def test_a_busy_partition_does_not_starve_the_others(client: AsyncClient, partitioned: str) -> None:
    consumer = await merged(client, partitioned)
    await publish(client, f"{partitioned}-partition-0", *([b"busy"] * 50))
    await publish(client, f"{partitioned}-partition-1", b"rare")
    await until(lambda: consumer.queued_messages == 51, "all have arrived")
    assert b"rare" in [m.data for m in await take(consumer, 3)]


async def test_several_topics_are_merged(cluster: Cluster, client: AsyncClient) -> None:
    topics = [cluster.topic() for _ in range(3)]
    cluster.create_partitioned(topics[2], 2)
    consumer = await merged(client, topics, type="Shared")
    assert len(consumer.consumers) == 4
    for topic in topics[:2]:
        await publish(client, topic, topic.encode())
    await (await producing(client, topics[2])).send(topics[2].encode())
    messages = await take(consumer, 3)
    assert sorted(m.data.decode() for m in messages) == sorted(topics)
    with pytest.raises(InvalidConfig, match="matches 2 topics"):
        consumer.ack(next(m for m in messages if m.topic in topics[:2]).message_id)
    for message in messages:
        consumer.ack(message)
    waiting = asyncio.ensure_future(consumer.receive())
    await asyncio.sleep(0)
    await consumer.close()
    with pytest.raises(ClosedError):
        await waiting


async def test_one_refused_partition_refuses_the_whole_consumer(client: AsyncClient, partitioned: str) -> None:
    taken = await client.subscribe(f"{partitioned}-partition-2", "s")
    with pytest.raises(Exception, match="Exclusive consumer is already connected"):
        await merged(client, partitioned)
    await taken.close()
    await merged(client, partitioned)  # the other partitions were given back


async def test_a_failed_partition_is_seen_each_time(cluster: Cluster, client: AsyncClient, partitioned: str) -> None:
    consumer = await merged(client, partitioned)
    failed = consumer.consumers[f"{partitioned}-partition-1"]
    failed.fail(TopicNotFound("gone"))
    for poll in (consumer.poll, consumer.poll_entry, consumer.poll_entry):
        with pytest.raises(TopicNotFound, match="gone"):
            poll()
    with pytest.raises(TopicNotFound, match="gone"):
        await consumer.receive(1)


async def test_readers_take_one_partition(client: AsyncClient, partitioned: str) -> None:
    with pytest.raises(InvalidConfig, match="has 3 partitions: read a single partition"):
        await client.create_reader(partitioned, EARLIEST)
    (first,) = await publish(client, f"{partitioned}-partition-1", b"x")
    assert first.partition == 1
    reader = await client.create_reader(f"{partitioned}-partition-1", first, ReaderConfig(start_inclusive=True))
    assert (await reader.read_next(30)).message_id == first
