from __future__ import annotations

import asyncio
from typing import Any

import pytest
from magnetar.client import (
    EARLIEST,
    AsyncClient,
    ClientConfig,
    ConsumerConfig,
    MessageId,
    Producer,
    ProducerConfig,
    encode_entry,
)
from magnetar.client.producers.producer import Producer as ProducerClass
from magnetar.errors import (
    ClosedError,
    InvalidConfig,
    MessageTooLarge,
    ProducerBusy,
    ProducerFenced,
    QueueFull,
)
from magnetar.wire.pulsar_api_pb2 import KeyValue, SingleMessageMetadata

from tests.client.clusters import Cluster

pytestmark = pytest.mark.slow


async def read_all(client: AsyncClient, topic: str) -> list[Any]:
    """Every message of a topic, in order."""
    reader = await client.create_reader(topic, EARLIEST)
    messages = []
    while await reader.has_message_available():
        messages.append(await reader.read_next(30))
    await reader.close()
    return messages


async def producer_of(client: AsyncClient, topic: str, **settings: Any) -> Producer:
    made = await client.create_producer(topic, ProducerConfig(**settings))
    assert isinstance(made, ProducerClass)
    return made


async def test_send_returns_rising_ids_of_messages_that_can_be_read(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, batching=False)
    ids = [await producer.send(b"m%d" % index) for index in range(3)]
    assert ids == sorted(ids)
    assert [i.batch_index for i in ids] == [-1, -1, -1]
    messages = await read_all(client, topic)
    assert [m.data for m in messages] == [b"m0", b"m1", b"m2"]
    assert [m.message_id for m in messages] == ids
    assert producer.last_sequence_id == 2


@pytest.mark.parametrize("batching", [True, False])
@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"])
async def test_messages_keep_all_their_properties_in_every_compression(
    client: AsyncClient, topic: str, batching: bool, compression: Any
) -> None:
    producer = await producer_of(client, topic, name="p1", batching=batching, compression=compression)
    sent = [
        producer.send_nowait(
            b"the quick brown fox " * 9 + b"%d" % index,
            key=f"key{index}",
            ordering_key=b"order",
            properties={"i": str(index), "é": "ü"},
            event_time_ms=1_600_000_000_000 + index,
        )
        for index in range(3)
    ]
    sent.append(producer.send_nowait(b""))
    ids = await asyncio.gather(*sent)
    messages = await read_all(client, topic)
    assert [m.message_id for m in messages] == ids
    for index, message in enumerate(messages[:3]):
        assert message.data == b"the quick brown fox " * 9 + b"%d" % index
        assert (message.key, message.ordering_key) == (f"key{index}", b"order")
        assert message.properties == {"i": str(index), "é": "ü"}
        assert message.event_time_ms == 1_600_000_000_000 + index
        assert message.sequence_id == index
        assert message.producer_name == "p1"
        assert message.publish_time_ms > 1_600_000_000_000
    assert (messages[3].data, messages[3].key, messages[3].properties) == (b"", None, {})


async def test_a_batch_is_closed_by_the_number_of_its_messages(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, batch_max_messages=4, batch_max_delay_ms=60_000)
    ids = await asyncio.gather(*(producer.send(b"x") for _ in range(8)))
    assert [i.batch_index for i in ids] == [0, 1, 2, 3] * 2
    assert {i.batch_size for i in ids} == {4}
    assert len({i[:2] for i in ids}) == 2


async def test_a_batch_is_closed_by_its_bytes(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, batch_max_bytes=1000, batch_max_delay_ms=60_000)
    first = [producer.send_nowait(b"x" * 400) for _ in range(2)]
    third = producer.send_nowait(b"x" * 400)  # does not fit any more: the first two leave
    ids = await asyncio.gather(*first)
    assert [i.batch_size for i in ids] == [2, 2]
    assert not third.done()
    fourth = producer.send_nowait(b"x" * 600)  # fills the batch exactly
    assert (await third).batch_size == 2
    assert (await fourth).batch_index == 1


async def test_a_batch_is_closed_by_its_age(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, batch_max_delay_ms=20)
    assert (await asyncio.wait_for(producer.send(b"x"), 30)).batch_size == 1


async def test_an_awaited_message_does_not_wait_for_its_batch_to_fill(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, batch_max_delay_ms=600_000)
    for index in range(3):
        sent = await asyncio.wait_for(producer.send(b"%d" % index), 30)
        assert (sent.batch_index, sent.batch_size) == (0, 1)


async def test_awaited_messages_of_one_loop_turn_share_an_entry(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, batch_max_delay_ms=600_000)
    ids = await asyncio.wait_for(asyncio.gather(*(producer.send(b"x") for _ in range(50))), 30)
    assert {i.batch_size for i in ids} == {50}


async def test_messages_awaited_while_an_entry_is_in_flight_share_the_next_one(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, batch_max_delay_ms=600_000)
    full = producer.send_entry([b"in flight"])
    waiting = [asyncio.ensure_future(producer.send(b"%d" % index)) for index in range(3)]
    await asyncio.sleep(0)
    later = [asyncio.ensure_future(producer.send(b"%d" % index)) for index in range(3)]
    ids = await asyncio.wait_for(asyncio.gather(*waiting, *later), 30)
    assert full.done()
    assert {i.batch_size for i in ids} == {6}


async def test_concurrent_senders_fill_entries_in_every_round(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, batch_max_delay_ms=600_000)

    async def send_some() -> set[int]:
        return {(await producer.send(b"x")).batch_size for _ in range(5)}

    sizes = await asyncio.wait_for(asyncio.gather(*(send_some() for _ in range(40))), 60)
    assert set().union(*sizes) == {40}


async def test_messages_that_are_not_awaited_leave_with_an_awaited_one(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, batch_max_delay_ms=600_000)
    first = producer.send_nowait(b"not awaited")
    await asyncio.sleep(0)
    assert producer.pending_messages == 1
    assert not first.done()
    sent = await asyncio.wait_for(producer.send(b"awaited"), 30)
    assert (sent.batch_index, sent.batch_size) == (1, 2)
    assert (await first)[:2] == sent[:2]


async def test_an_awaited_message_leaves_at_once_in_key_based_batches(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, batching_type="KeyBased", batch_max_delay_ms=600_000)
    ids = await asyncio.wait_for(asyncio.gather(*(producer.send(b"x", key=key) for key in "abab")), 30)
    assert [i.batch_size for i in ids] == [2, 2, 2, 2]
    assert len({i[:2] for i in ids}) == 2


async def test_waiting_for_room_sends_the_open_batch(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, max_pending_messages=3, batch_max_delay_ms=600_000)
    for index in range(3):
        producer.send_nowait(b"%d" % index)
    await asyncio.wait_for(producer.ready(), 30)
    assert producer.has_room


async def test_flush_sends_the_open_batch_and_waits_for_everything_before(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, batch_max_delay_ms=60_000)
    futures = [producer.send_nowait(b"%d" % index) for index in range(10)]
    await producer.flush()
    assert all(future.done() for future in futures)
    assert producer.pending_messages == 0
    await producer.flush()


async def test_entries_and_messages_keep_their_order(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, batch_max_delay_ms=60_000)
    futures = [producer.send_nowait(b"0"), producer.send_entry([b"1", b"2"]), producer.send_nowait(b"3")]
    header = SingleMessageMetadata(partition_key="k", properties=[KeyValue(key="a", value="b")])
    futures.append(producer.send_entry(encode_entry([b"4", b"5"], [header, None], compression="ZSTD")))
    ids = await asyncio.gather(*futures)
    assert [i.batch_index for i in ids] == [0, -1, 0, -1]
    messages = await read_all(client, topic)
    assert [m.data for m in messages] == [b"%d" % index for index in range(6)]
    assert [m.sequence_id for m in messages] == list(range(6))
    assert (messages[4].key, messages[4].properties, messages[5].key) == ("k", {"a": "b"}, None)


async def test_sequence_ids_begin_where_they_are_told_and_must_rise(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, initial_sequence_id=100, batching=False)
    await producer.send(b"a")
    assert producer.last_sequence_id == 100
    await producer.send(b"b", sequence_id=200)
    await producer.send_entry(encode_entry([b"c", b"d"], sequence_id=300))
    assert producer.last_sequence_id == 301
    with pytest.raises(InvalidConfig, match=r"invalid sequence_id 301: .* already used 301"):
        producer.send_nowait(b"e", sequence_id=301)
    assert [m.sequence_id for m in await read_all(client, topic)] == [100, 200, 300, 301]


async def test_a_full_queue_is_refused_or_waited_for(client: AsyncClient, topic: str) -> None:
    refusing = await producer_of(client, topic, max_pending_messages=3, batch_max_delay_ms=60_000)
    futures = [refusing.send_nowait(b"x") for _ in range(3)]
    with pytest.raises(QueueFull, match=r"3 messages .* max_pending_messages=3"):
        await refusing.send(b"y")
    assert not refusing.has_room
    with pytest.raises(QueueFull):
        refusing.send_entry([b"y"])
    await refusing.flush()
    await asyncio.gather(*futures)
    waiting = await producer_of(client, topic, max_pending_messages=2, block_if_queue_full=True, batching=False)
    ids = await asyncio.wait_for(asyncio.gather(*(waiting.send(b"%d" % index) for index in range(50))), 30)
    assert ids == sorted(ids)


async def test_pending_bytes_are_bounded_too(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, max_pending_bytes=1000, batching=False)
    future = producer.send_nowait(b"x" * 1000)
    with pytest.raises(QueueFull, match="max_pending_bytes=1000"):
        producer.send_nowait(b"y")
    await future
    await asyncio.wait_for(producer.ready(), 30)
    await producer.send(b"y")


async def test_a_message_above_the_limit_is_refused_before_it_is_sent(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, batching=False)
    with pytest.raises(MessageTooLarge, match="5242881 bytes exceeds the broker's max_message_bytes=5242880"):
        await producer.send(b"x" * (5 * 1024 * 1024 + 1))
    compressing = await producer_of(client, topic, compression="ZSTD")
    assert await compressing.send(b"x" * (5 * 1024 * 1024 + 1))
    with pytest.raises(MessageTooLarge):
        producer.send_entry([b"x" * 3_000_000] * 2)
    assert await producer.send(b"still works")


@pytest.mark.parametrize("batching", [True, False])
async def test_a_message_of_exactly_the_limit_is_stored(client: AsyncClient, topic: str, batching: bool) -> None:
    producer = await producer_of(client, topic, batching=batching)
    before = producer.send_nowait(b"before")
    sizes = [5 * 1024 * 1024 - less for less in (0, 1, 64, 65)]
    sent = [await producer.send(b"x" * size, key="k" * 20, properties={"p": "v"}) for size in sizes[:2]]
    sent += [await producer.send(b"x" * size) for size in sizes[2:]]
    assert [await before, *sent] == sorted([await before, *sent])
    assert [len(m.data) for m in await read_all(client, topic)] == [6, *sizes]


async def test_closing_a_producer_stores_what_was_handed_over(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, batch_max_delay_ms=60_000)
    futures = [producer.send_nowait(b"%d" % index) for index in range(5)]
    await producer.close()
    assert len(await asyncio.gather(*futures)) == 5
    with pytest.raises(ClosedError, match="is closed"):
        producer.send_nowait(b"late")
    with pytest.raises(ClosedError):
        await producer.flush()
    await producer.close()
    assert len(await read_all(client, topic)) == 5


async def test_a_second_producer_of_a_name_is_refused(client: AsyncClient, topic: str) -> None:
    await producer_of(client, topic, name="taken")
    with pytest.raises(ProducerBusy, match="taken"):
        await producer_of(client, topic, name="taken")


async def test_generated_names_differ(client: AsyncClient, topic: str) -> None:
    first, second = await producer_of(client, topic), await producer_of(client, topic)
    assert first.name
    assert first.name != second.name


async def test_an_exclusive_producer_excludes_others(client: AsyncClient, topic: str) -> None:
    exclusive = await producer_of(client, topic, access_mode="Exclusive")
    with pytest.raises(ProducerBusy):
        await producer_of(client, topic)
    with pytest.raises(ProducerFenced):
        await producer_of(client, topic, access_mode="Exclusive")
    await exclusive.send(b"x")
    await exclusive.close()
    await (await producer_of(client, topic)).send(b"y")


async def test_a_producer_waits_for_its_turn_to_be_exclusive(cluster: Cluster, topic: str) -> None:
    # The wait is longer than the operation timeout: it has no limit.
    async with AsyncClient(cluster.service_url, ClientConfig(operation_timeout_s=2)) as client:
        first = await producer_of(client, topic, access_mode="Exclusive")
        waiting = asyncio.ensure_future(producer_of(client, topic, access_mode="WaitForExclusive"))
        done, _ = await asyncio.wait([waiting], timeout=2.5)
        assert not done
        await first.send(b"first")
        await first.close()
        second = await asyncio.wait_for(waiting, 30)
        await second.send(b"second")


async def test_a_fenced_producer_fails_for_good(client: AsyncClient, topic: str) -> None:
    old = await producer_of(client, topic, access_mode="Exclusive", batching=False)
    await old.send(b"x")
    new = await producer_of(client, topic, access_mode="ExclusiveWithFencing", batching=False)
    with pytest.raises(ProducerFenced):
        await asyncio.wait_for(old.send(b"too late"), 30)
    with pytest.raises(ProducerFenced):
        await old.send(b"still")
    await new.send(b"y")


async def test_cancelled_sends_are_stored_all_the_same(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, batch_max_delay_ms=60_000)
    send = asyncio.ensure_future(producer.send(b"cancelled"))
    await asyncio.sleep(0)
    send.cancel()
    kept = producer.send_nowait(b"kept")
    await producer.flush()
    assert (await kept).batch_index == 1
    assert [m.data for m in await read_all(client, topic)] == [b"cancelled", b"kept"]


async def test_what_a_producer_says_of_itself(client: AsyncClient, topic: str) -> None:
    producer = await producer_of(client, topic, name="p1")
    assert repr(producer) == f"Producer(topic={topic!r}, name='p1', pending=0)"
    assert producer.is_connected
    assert isinstance(await producer.send(b"x"), MessageId)


async def test_a_consumer_sees_what_is_published_after_it(client: AsyncClient, topic: str) -> None:
    consumer = await client.subscribe(topic, "s", ConsumerConfig())
    producer = await producer_of(client, topic)
    await producer.send(b"x")
    assert (await consumer.receive(30)).data == b"x"
