"""Messages in chunks: sent and received by our client and by the official one, on Shared subscriptions, too."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pulsar
import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.dispatch.chunks import ChunkOwners, chunk_of
from magnetar.client import AsyncClient, Client, ConsumerConfig, InvalidConfig, MessageTooLarge, ProducerConfig
from magnetar.client.consumers.chunks import ChunkJoiner
from magnetar.client.consumers.received import ReceivedEntry
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import MessageMetadata

from tests.client.clusters import Cluster

LARGE_BYTES = 12_000_000
CHUNKING = ProducerConfig(batching=False, chunking_enabled=True)


def section(uuid: str, number: int, count: int, body: bytes = b"x") -> bytes:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, uuid=uuid, num_chunks_from_msg=count, chunk_id=number
    )
    return seal(metadata, body)


def chunk(uuid: str, number: int, count: int, position: int, body: bytes = b"x", sent_ms: int = 1) -> ReceivedEntry:
    metadata = MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=sent_ms,
        uuid=uuid,
        num_chunks_from_msg=count,
        chunk_id=number,
        uncompressed_size=count,
    )
    return ReceivedEntry((7, position), "t", metadata, 0, 1, (body, 0, 100))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what it is about tells nobody
            await asyncio.sleep(0.01)


@pytest.fixture
def official(cluster: Cluster) -> Iterator[pulsar.Client]:
    it = pulsar.Client(cluster.service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
    yield it
    it.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
@pytest.mark.parametrize("compression", ["NONE", "LZ4"])
async def test_large_message_goes_in_chunks(
    client: AsyncClient, cluster: Cluster, topic: str, kind: Any, compression: Any
) -> None:
    payload = random.Random(1).randbytes(LARGE_BYTES)
    consumer = await client.subscribe(topic, "s", ConsumerConfig(type=kind, negative_ack_delay_ms=20))
    config = ProducerConfig(batching=False, chunking_enabled=True, compression=compression)
    producer = await client.create_producer(topic, config)
    before = await producer.send(b"small")
    sent = await producer.send(payload, key="k", properties={"a": "b"}, event_time_ms=3)
    assert sent.entry_id == before.entry_id + 3
    small, large = await consumer.receive(20), await consumer.receive(20)
    assert small.data == b"small"
    assert large.data == payload
    assert (large.message_id, large.key, large.properties, large.event_time_ms) == (sent, "k", {"a": "b"}, 3)
    await consumer.ack(small)
    consumer.negative_ack(large)
    again = await consumer.receive(20)
    assert again.data == payload
    await consumer.ack(again)
    await until(lambda: not cluster.backlog(topic, "s"))
    assert len(consumer._acks.tracker.companions) == 0  # type: ignore[union-attr]


@pytest.mark.slow
async def test_chunks_of_a_message_go_to_one_consumer_of_a_shared_subscription(
    client: AsyncClient, cluster: Cluster, topic: str
) -> None:
    config = ConsumerConfig(type="Shared", receiver_queue_size=3)
    consumers = [await client.subscribe(topic, "s", config) for _ in range(2)]
    producers = [await client.create_producer(topic, CHUNKING) for _ in range(3)]
    payloads = [bytes([number]) * LARGE_BYTES for number in range(9)]
    found: list[bytes] = []

    async def take(consumer: Any) -> None:
        while len(found) < len(payloads):
            message = await consumer.receive(20)
            found.append(message.data)
            await consumer.ack(message)

    takers = [asyncio.ensure_future(take(consumer)) for consumer in consumers]
    # The third consumer comes in the middle of messages, and leaves again.
    await asyncio.gather(*(producers[number % 3].send(payload) for number, payload in enumerate(payloads[:3])))
    third = await client.subscribe(topic, "s", config)
    await asyncio.gather(*(producers[number % 3].send(payload) for number, payload in enumerate(payloads[3:6])))
    await third.close()
    await asyncio.gather(*(producers[number % 3].send(payload) for number, payload in enumerate(payloads[6:])))
    await until(lambda: len(found) == len(payloads))
    for taker in takers:
        taker.cancel()
    assert sorted(found) == payloads


@pytest.mark.slow
def test_chunks_of_the_official_client_are_put_together_by_ours_and_the_other_way_round(
    cluster: Cluster, official: pulsar.Client, topic: str
) -> None:
    payload = os.urandom(LARGE_BYTES)
    with Client(cluster.service_url) as ours:
        for kind, theirs in (("Exclusive", pulsar.ConsumerType.Exclusive), ("Shared", pulsar.ConsumerType.Shared)):
            name = f"{topic}-{kind}"
            our_consumer = ours.subscribe(name, "ours", ConsumerConfig(type=kind))  # type: ignore[arg-type]
            their_consumer = official.subscribe(name, "theirs", consumer_type=theirs)
            official.create_producer(name, batching_enabled=False, chunking_enabled=True).send(payload)
            ours.create_producer(name, CHUNKING).send(payload[::-1])
            assert [our_consumer.receive(20_000).data for _ in range(2)] == [payload, payload[::-1]]
            assert [their_consumer.receive(20_000).data() for _ in range(2)] == [payload, payload[::-1]]


@pytest.mark.slow
async def test_too_many_properties_leave_no_room_for_chunks(client: AsyncClient, topic: str) -> None:
    producer = await client.create_producer(topic, CHUNKING)
    with pytest.raises(MessageTooLarge, match="shorten them"):
        await producer.send(bytes(LARGE_BYTES), properties={"a": "b" * 3_000_000})
    await producer.send(b"x")


def test_chunks_and_batches_exclude_each_other() -> None:
    with pytest.raises(InvalidConfig, match="chunking_enabled requires batching=False"):
        ProducerConfig(chunking_enabled=True)


@given(st.integers(1, 5), st.randoms(use_true_random=False))
def test_mixed_chunks_make_whole_messages(messages: int, rng: random.Random) -> None:
    counts = [rng.randint(2, 5) for _ in range(messages)]
    order = [number for number, count in enumerate(counts) for _ in range(count)]
    rng.shuffle(order)
    joiner = ChunkJoiner(10, 60, 1000, gives_up_oldest=False)
    given_out = [0] * messages
    positions: dict[int, list[tuple[int, int]]] = {}
    for position, message in enumerate(order):
        number = given_out[message]
        given_out[message] += 1
        entry = chunk(f"m{message}", number, counts[message], position, b"%d" % message)
        joined = joiner.add(entry, 0, 0)
        assert not joined.done
        assert not joined.again
        positions.setdefault(message, []).append((7, position))
        if number < counts[message] - 1:
            assert joined.entry is None
        else:
            assert joined.entry is not None
            assert joined.entry.payloads == [b"%d" % message * counts[message]]
            assert joined.entry.position == (7, position)
            assert list(joined.others) == positions[message][:-1]
    assert len(joiner) == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=40))
def test_every_chunk_is_used_given_up_or_asked_for_again(steps: list[tuple[int, int]]) -> None:
    joiner = ChunkJoiner(2, 0, 1000, gives_up_oldest=False)
    open_positions: set[tuple[int, int]] = set()
    for position, (message, number) in enumerate(steps):
        joined = joiner.add(chunk(f"m{message}", number, 4, position), 0, 0)
        open_positions.add((7, position))
        settled = [*joined.done, *joined.again]
        if joined.entry is not None:
            settled += [*joined.others, joined.entry.position]
        assert len(set(settled)) == len(settled)
        assert open_positions.issuperset(settled)
        open_positions.difference_update(settled)
        assert len(joiner) <= 2
        assert len(open_positions) <= 2 * 3


def test_chunks_that_came_again_or_never_end_are_acknowledged() -> None:
    joiner = ChunkJoiner(2, 60, 1000, gives_up_oldest=True)
    joiner.add(chunk("a", 0, 3, 0), 0, 0)
    joiner.add(chunk("a", 1, 3, 1), 0, 0)
    assert joiner.add(chunk("a", 1, 3, 1), 0, 0).done == []  # the same entry
    assert joiner.add(chunk("a", 1, 3, 2), 0, 0).done == [(7, 2)]  # stored twice
    assert joiner.add(chunk("a", 0, 3, 3), 0, 0).done == [(7, 0), (7, 1)]  # sent again from the beginning
    joiner.add(chunk("b", 0, 3, 4), 1, 0)
    assert joiner.add(chunk("c", 0, 3, 5), 2, 0).done == [(7, 3)]  # too many: the oldest
    assert joiner.add(chunk("d", 0, 3, 6), 61, 0).done == [(7, 4)]  # too old
    late = chunk("e", 1, 3, 7, sent_ms=1_000)
    assert joiner.add(late, 61, 2_000).again == [(7, 7)]
    assert joiner.add(late, 61, 100_000).done == [(7, 7)]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=40),
    st.sampled_from([None, 0, 1]),
)
def test_chunks_of_a_message_have_one_owner_until_it_leaves(
    steps: list[tuple[int, int, bool]], elder: int | None
) -> None:
    owners: ChunkOwners[int] = ChunkOwners()
    owners.elder = elder
    given_to: dict[int, int] = {}
    given_out = [0, 0, 0]
    for message, consumer, leaves in steps:
        if leaves:
            owners.remove(consumer)
            given_to = {known: owner for known, owner in given_to.items() if owner != consumer}
            if elder == consumer:
                elder = None
            continue
        number = given_out[message]
        payload = section(f"m{message}", number, 3)
        expected = given_to.get(message, elder if number else None)
        assert owners.owner(payload) == expected
        if owners.give(payload, consumer):
            assert expected in (None, consumer)
            given_to[message] = consumer
            given_out[message] += 1
            if given_out[message] == 3:
                given_out[message] = 0
                del given_to[message]
        else:
            assert expected not in (None, consumer)
    assert len(owners) == len(given_to)


def test_entry_without_chunks_is_nobodys() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    assert chunk_of(seal(metadata, b"\xd8\x01" * 50)) is None
    metadata.partition_key = "\u0601\x01"  # has the tag's bytes in it
    assert b"\xd8\x81" in seal(metadata, b"")
    assert chunk_of(seal(metadata, b"x")) is None
    assert chunk_of(b"") is None
    found = chunk_of(section("u", 2, 3))
    assert found is not None
    assert (found.uuid, found.is_first, found.is_last) == ("u", False, True)
