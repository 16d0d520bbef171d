from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from magnetar.broker.dispatch.single_active import Candidate, choose_active
from magnetar.client import EARLIEST, LATEST, AsyncClient, ConsumerConfig, Message, MessageId, ProducerConfig
from magnetar.client.consumers.consumer import Consumer
from magnetar.client.consumers.merged import MergedConsumer
from magnetar.client.producers.producer import Producer
from magnetar.errors import (
    BrokerError,
    ClosedError,
    ConsumerBusy,
    InvalidConfig,
    MetadataError,
    OperationTimeout,
)
from magnetar.wire import ack_set

from tests.client.clusters import Cluster

pytestmark = pytest.mark.slow

QUIET_S = 0.3
"""Nothing that is going to arrive takes this long."""


async def subscribe(client: AsyncClient, topic: str, **settings: Any) -> Consumer:
    made = await client.subscribe(topic, "s", ConsumerConfig(**settings))
    assert isinstance(made, Consumer)
    return made


async def producing(client: AsyncClient, topic: str, **settings: Any) -> Producer:
    made = await client.create_producer(topic, ProducerConfig(**settings))
    assert isinstance(made, Producer)
    return made


async def publish(client: AsyncClient, topic: str, *payloads: bytes) -> list[MessageId]:
    """Send messages one by one, each an entry of its own."""
    producer = await producing(client, topic, batching=False)
    ids = [await producer.send(payload) for payload in payloads]
    await producer.close()
    return ids


async def publish_batch(client: AsyncClient, topic: str, *payloads: bytes) -> list[MessageId]:
    producer = await producing(client, topic, batch_max_delay_ms=60_000)
    futures = [producer.send_nowait(payload) for payload in payloads]
    await producer.close()
    return [future.result() for future in futures]


async def take(consumer: Consumer | MergedConsumer, count: int) -> list[Message]:
    return [await consumer.receive(30) for _ in range(count)]


async def data(consumer: Consumer | MergedConsumer, count: int) -> list[bytes]:
    return [message.data for message in await take(consumer, count)]


async def assert_nothing_comes(consumer: Consumer | MergedConsumer) -> None:
    with pytest.raises(OperationTimeout, match="no message received from"):
        await consumer.receive(QUIET_S)


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(0.02)


# -- receiving and acknowledging ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Exclusive", "Failover", "Shared"])
async def test_acknowledged_messages_do_not_come_again(client: AsyncClient, topic: str, kind: Any) -> None:
    consumer = await subscribe(client, topic, type=kind)
    await publish(client, topic, b"0", b"1", b"2", b"3")
    messages = await take(consumer, 4)
    assert [m.data for m in messages] == [b"0", b"1", b"2", b"3"]
    consumer.ack(messages[0])
    consumer.ack(messages[2].message_id)
    await consumer.close()
    consumer = await subscribe(client, topic, type=kind)
    assert await data(consumer, 2) == [b"1", b"3"]
    await assert_nothing_comes(consumer)


async def test_a_new_subscription_begins_where_it_is_told(client: AsyncClient, topic: str) -> None:
    await publish(client, topic, b"old")
    earliest = await client.subscribe(topic, "earliest", ConsumerConfig(initial_position="Earliest"))
    latest = await client.subscribe(topic, "latest", ConsumerConfig(initial_position="Latest"))
    await publish(client, topic, b"new")
    assert [(await earliest.receive(30)).data for _ in range(2)] == [b"old", b"new"]
    assert (await latest.receive(30)).data == b"new"


async def test_a_cumulative_acknowledgement_covers_everything_before(client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic)
    await publish(client, topic, *(b"%d" % index for index in range(5)))
    messages = await take(consumer, 5)
    consumer.ack_cumulative(messages[1])
    consumer.ack_cumulative(messages[3])
    await consumer.close()
    assert await data(await subscribe(client, topic), 1) == [b"4"]


async def test_a_cumulative_acknowledgement_inside_a_batch_covers_what_is_before_it(
    cluster: Cluster, client: AsyncClient, topic: str
) -> None:
    consumer = await subscribe(client, topic)
    await publish(client, topic, b"first")
    await publish_batch(client, topic, *(b"%d" % index for index in range(4)))
    messages = await take(consumer, 5)
    consumer.ack_cumulative(messages[2])
    await consumer.close()
    consumer = await subscribe(client, topic)
    expected = [b"2", b"3"] if cluster.acks_inside_batches else [b"0", b"1", b"2", b"3"]
    assert await data(consumer, len(expected)) == expected
    await assert_nothing_comes(consumer)


async def test_cumulative_acknowledgement_is_refused_on_a_shared_subscription(client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic, type="Shared")
    await publish(client, topic, b"x")
    message = await consumer.receive(30)
    with pytest.raises(InvalidConfig, match="Shared subscription 's' does not support cumulative"):
        consumer.ack_cumulative(message)


async def test_a_batch_is_done_when_all_its_messages_are(cluster: Cluster, client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic, type="Shared", ack_grouping_ms=0)
    await publish_batch(client, topic, *(b"%d" % index for index in range(70)))  # more than one word of an ack set
    messages = await take(consumer, 70)
    for message in messages[:69]:
        consumer.ack(message)
    assert cluster.backlog(topic, "s") > 0
    consumer.ack(messages[69])
    await until(lambda: cluster.backlog(topic, "s") == 0, "the whole batch is acknowledged")


async def test_messages_acknowledged_inside_a_batch_do_not_come_again(
    cluster: Cluster, client: AsyncClient, topic: str
) -> None:
    consumer = await subscribe(client, topic, type="Shared")
    await publish_batch(client, topic, *(b"%d" % index for index in range(5)))
    messages = await take(consumer, 5)
    consumer.ack(messages[0])
    consumer.ack(messages[3])
    consumer.redeliver_unacknowledged()
    # The same consumer knows what it has acknowledged even where the broker does not.
    again = await take(consumer, 3)
    assert [m.data for m in again] == [b"1", b"2", b"4"]
    assert {m.redelivery_count for m in again} == {1}
    await consumer.close()
    consumer = await subscribe(client, topic, type="Shared")
    if cluster.acks_inside_batches:
        again = await take(consumer, 3)
        assert [m.data for m in again] == [b"1", b"2", b"4"]
    else:
        again = await take(consumer, 5)
    for message in again:
        consumer.ack(message)
    await consumer.flush_acks()
    await until(lambda: cluster.backlog(topic, "s") == 0, "nothing is left")


async def test_the_messages_of_an_entry_can_be_acknowledged_by_a_set(
    cluster: Cluster, client: AsyncClient, topic: str
) -> None:
    consumer = await subscribe(client, topic, type="Shared")
    await publish_batch(client, topic, *(b"%d" % index for index in range(4)))
    entry = await consumer.receive_entry()
    consumer.ack_batch_indexes(entry, ack_set.from_wanted([1]))
    consumer.redeliver_unacknowledged()
    again = await consumer.receive_entry()
    assert (again.wanted_indexes(), again.num_messages) == ([1], 4)
    assert [m.data for m in again.messages()] == [b"1"]
    consumer.ack_batch_indexes(again, ())
    await consumer.flush_acks()
    await until(lambda: cluster.backlog(topic, "s") == 0, "the entry is acknowledged")


@pytest.mark.parametrize("still_wanted", [[1], []])
async def test_what_is_acknowledged_while_a_second_copy_is_queued_is_taken_out_of_it(
    client: AsyncClient, topic: str, still_wanted: list[int]
) -> None:
    await publish_batch(client, topic, b"a", b"b", b"c")
    consumer = await subscribe(client, topic, initial_position="Earliest", negative_ack_delay_ms=100)
    first = await consumer.receive_entry()
    arrived = asyncio.Event()
    consumer.on_arrival = arrived.set
    consumer.negative_ack(first)
    async with asyncio.timeout(30):
        await arrived.wait()
    acknowledged = consumer.ack_batch_indexes(first, ack_set.from_wanted(still_wanted))
    again = consumer.poll_entry()
    assert (again.wanted_indexes() if again else []) == still_wanted
    await consumer.flush_acks()
    await acknowledged


async def test_whole_entries_are_received_and_acknowledged(cluster: Cluster, client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic, type="Shared")
    producer = await producing(client, topic)
    assert consumer.poll_entry() is None
    ids = [await producer.send_entry([b"%d" % index] * 3) for index in range(4)]
    entries = [await consumer.receive_entry() for _ in range(4)]
    assert [entry.message_id for entry in entries] == ids
    assert [entry.payloads for entry in entries] == [[b"%d" % index] * 3 for index in range(4)]
    assert all(entry.is_batch and entry.num_messages == 3 and not entry.ack_set for entry in entries)
    assert consumer.poll_entry() is None
    consumer.ack_entries(entries[:2])
    consumer.ack_entry(entries[2])
    consumer.ack_entry(entries[3].message_id)
    await consumer.flush_acks()
    await until(lambda: cluster.backlog(topic, "s") == 0, "all entries are acknowledged")


async def test_acknowledgements_with_receipts_are_confirmed(client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic, type="Exclusive", ack_receipts=True)
    await publish(client, topic, *(b"%d" % index for index in range(6)))
    messages = await take(consumer, 6)
    await asyncio.wait_for(consumer.ack(messages[0]), 30)
    await asyncio.wait_for(consumer.ack_entries([m.message_id for m in messages[1:3]]), 30)
    both = [consumer.ack_cumulative(messages[3]), consumer.ack(messages[4])]
    assert not both[0].done()
    await consumer.flush_acks()
    await asyncio.gather(*both)
    await consumer.close()
    assert await data(await subscribe(client, topic), 1) == [b"5"]


async def test_acknowledgements_are_grouped_by_time_and_number(client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic, ack_grouping_ms=60_000, ack_grouping_max=3, ack_receipts=True)
    await publish(client, topic, *(b"%d" % index for index in range(4)))
    messages = await take(consumer, 4)
    first, second = consumer.ack(messages[0]), consumer.ack(messages[1])
    assert first is second
    third = consumer.ack(messages[2])  # the third fills the group
    await asyncio.wait_for(third, 30)
    assert first.done()
    assert not consumer.ack(messages[3]).done()
    await consumer.close()


# -- flow ---------------------------------------------------------------------------------------------------------


async def test_the_broker_sends_no_more_than_the_queue_holds(client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic, receiver_queue_size=4)
    await publish(client, topic, *(b"%d" % index for index in range(20)))
    await until(lambda: consumer.queued_messages == 4, "the queue is full")
    await asyncio.sleep(QUIET_S)
    assert consumer.queued_messages == 4
    assert await data(consumer, 20) == [b"%d" % index for index in range(20)]


@pytest.mark.parametrize("is_batch", [True, False])
async def test_a_queue_of_none_asks_for_one_message_at_a_time(client: AsyncClient, topic: str, is_batch: bool) -> None:
    lazy = await subscribe(client, topic, type="Shared", receiver_queue_size=0)
    busy = await subscribe(client, topic, type="Shared")
    waiting = asyncio.ensure_future(lazy.receive(30))
    await asyncio.sleep(0)
    await (publish_batch if is_batch else publish)(client, topic, b"a", b"b", b"c")
    first = await waiting
    if is_batch:
        assert [first.data, *(await data(lazy, 2))] == [b"a", b"b", b"c"]
    else:
        assert lazy.queued_messages == 0
        rest = await data(busy, 2)
        assert sorted([first.data, *rest]) == [b"a", b"b", b"c"]
    await publish(client, topic, b"d", b"e")
    got = {(await busy.receive(30)).data, (await busy.receive(30)).data}
    assert got == {b"d", b"e"}
    waiting = asyncio.ensure_future(lazy.receive(30))
    await asyncio.sleep(0.05)
    await busy.close()
    assert (await waiting).data in (b"b", b"c", b"d", b"e")


# -- subscription types -------------------------------------------------------------------------------------------


async def test_a_second_exclusive_consumer_is_refused(client: AsyncClient, topic: str) -> None:
    await subscribe(client, topic)
    with pytest.raises(
        ConsumerBusy, match=r"Exclusive consumer is already connected: .* of .* is in use: .*type='Shared'"
    ):
        await subscribe(client, topic)
    with pytest.raises(ConsumerBusy):
        await subscribe(client, topic, type="Shared")


async def test_a_type_alone_is_no_config(client: AsyncClient, topic: str) -> None:
    with pytest.raises(InvalidConfig, match=r"invalid config: expected ConsumerConfig\(…\), got str"):
        await client.subscribe(topic, "s", "Shared")  # type: ignore[call-overload]
    with pytest.raises(InvalidConfig, match=r"invalid config: expected ProducerConfig\(…\), got dict"):
        await client.create_producer(topic, {"batching": False})  # type: ignore[call-overload]


async def test_shared_consumers_share(client: AsyncClient, topic: str) -> None:
    consumers = [await subscribe(client, topic, type="Shared", receiver_queue_size=10) for _ in range(2)]
    await publish(client, topic, *(b"%d" % index for index in range(20)))
    await until(lambda: sum(consumer.queued_messages for consumer in consumers) == 20, "all have arrived")
    shares = [await data(consumer, consumer.queued_messages) for consumer in consumers]
    assert sorted(shares[0] + shares[1]) == sorted(b"%d" % index for index in range(20))
    assert all(shares)


async def test_messages_of_a_consumer_that_left_go_to_another(client: AsyncClient, topic: str) -> None:
    leaving = await subscribe(client, topic, type="Shared", receiver_queue_size=10)
    await publish(client, topic, b"0", b"1", b"2")
    assert await data(leaving, 3) == [b"0", b"1", b"2"]
    staying = await subscribe(client, topic, type="Shared")
    await leaving.close()
    messages = await take(staying, 3)
    assert [m.data for m in messages] == [b"0", b"1", b"2"]
    assert {m.redelivery_count for m in messages} == {0}


async def test_one_failover_consumer_is_active_and_another_takes_over(
    cluster: Cluster, client: AsyncClient, topic: str
) -> None:
    changes: dict[str, list[bool]] = {"a": [], "b": []}
    consumers = {
        name: await subscribe(client, topic, type="Failover", name=name, on_active_change=changes[name].append)
        for name in changes
    }
    await until(lambda: any(c.is_active for c in consumers.values()), "one is active")
    # A join may move the active one, a second later.
    if cluster.is_pulsar:
        await asyncio.sleep(1.2)
    else:
        chosen = choose_active([Candidate(0, name) for name in consumers], topic, -1)
        assert chosen is not None
        await until(lambda: consumers["ab"[chosen]].is_active, "the one that the ring of hashes names is active")
        await until(lambda: not consumers["ba"[chosen]].is_active, "the other one is not")
    active, standby = sorted(consumers.values(), key=lambda consumer: not consumer.is_active)
    assert not standby.is_active
    await publish(client, topic, b"0", b"1")
    (first, _) = await take(active, 2)
    active.ack(first)
    assert standby.queued_messages == 0
    await active.close()
    assert not active.is_active
    assert changes[active.name][-1] is False
    await until(lambda: standby.is_active, "the other takes over")
    assert changes[standby.name][-1] is True
    # Apache Pulsar 4.0.7 now and then delivers nothing to the new one until something is published.
    await publish(client, topic, b"2")
    assert await data(standby, 2) == [b"1", b"2"]


async def test_key_shared_keeps_a_key_with_one_consumer(client: AsyncClient, topic: str) -> None:
    consumers = [await subscribe(client, topic, type="Key_Shared", name=name) for name in "ab"]
    producer = await producing(client, topic, batching=False)
    await asyncio.gather(*(producer.send(b"x", key=f"key{index % 10}") for index in range(100)))
    await until(lambda: sum(c.queued_messages for c in consumers) == 100, "all have arrived")
    keys = [{m.key for m in await take(consumer, consumer.queued_messages)} for consumer in consumers]
    assert not keys[0] & keys[1]
    assert len(keys[0] | keys[1]) == 10


# -- redelivery ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
async def test_a_negative_acknowledgement_brings_the_message_again_after_its_delay(
    client: AsyncClient, topic: str, kind: Any
) -> None:
    consumer = await subscribe(client, topic, type=kind, negative_ack_delay_ms=200)
    await publish(client, topic, b"0", b"1", b"2")
    messages = await take(consumer, 3)
    consumer.ack(messages[0])
    consumer.ack(messages[2])
    began = time.monotonic()
    consumer.negative_ack(messages[1])
    again = await consumer.receive(30)
    assert again.data == b"1"
    assert time.monotonic() - began >= 0.19
    assert again.redelivery_count == (1 if kind == "Shared" else 0)
    await assert_nothing_comes(consumer)


async def test_an_acknowledgement_takes_a_negative_one_back(client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic, type="Shared", negative_ack_delay_ms=100)
    await publish(client, topic, b"0", b"1")
    first, second = await take(consumer, 2)
    consumer.negative_ack(first)
    consumer.negative_ack(second.message_id)
    consumer.ack(first)
    assert (await consumer.receive(30)).data == b"1"
    await assert_nothing_comes(consumer)


async def test_of_a_batch_only_what_is_not_acknowledged_comes_again(client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic, type="Shared", negative_ack_delay_ms=100)
    await publish_batch(client, topic, b"0", b"1", b"2")
    messages = await take(consumer, 3)
    consumer.ack(messages[0])
    consumer.negative_ack(messages[1])
    consumer.ack(messages[2])
    assert (await consumer.receive(30)).data == b"1"
    await assert_nothing_comes(consumer)


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
async def test_redelivery_brings_everything_unacknowledged_once(client: AsyncClient, topic: str, kind: Any) -> None:
    consumer = await subscribe(client, topic, type=kind, receiver_queue_size=10)
    await publish(client, topic, *(b"%d" % index for index in range(8)))
    messages = await take(consumer, 4)
    await until(lambda: consumer.queued_messages == 4, "the rest is queued")
    consumer.ack(messages[0])
    consumer.redeliver_unacknowledged()
    assert sorted(await data(consumer, 7)) == [b"%d" % index for index in range(1, 8)]
    await assert_nothing_comes(consumer)
    # The permits of what was dropped from the queue are back: the stream goes on.
    await publish(client, topic, *(b"new" for _ in range(10)))
    assert await data(consumer, 10) == [b"new"] * 10


# -- moving -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Exclusive", "Shared"])
async def test_seek_goes_behind_a_message_or_to_it(client: AsyncClient, topic: str, kind: Any) -> None:
    consumer = await subscribe(client, topic, type=kind)
    ids = await publish(client, topic, *(b"m%d" % index for index in range(4)))
    for message in await take(consumer, 4):
        consumer.ack(message)
    await consumer.seek(ids[2])
    assert await data(consumer, 1) == [b"m3"]
    await consumer.seek(ids[2], inclusive=True)
    assert await data(consumer, 2) == [b"m2", b"m3"]
    await consumer.seek(EARLIEST)
    assert await data(consumer, 4) == [b"m0", b"m1", b"m2", b"m3"]
    await consumer.seek(LATEST)
    await publish(client, topic, b"after")
    assert await data(consumer, 1) == [b"after"]
    await assert_nothing_comes(consumer)


async def test_seek_goes_into_a_batch(cluster: Cluster, client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic)
    ids = await publish_batch(client, topic, *(b"%d" % index for index in range(5)))
    await take(consumer, 2)
    await consumer.seek(ids[2])
    assert await data(consumer, 2) == [b"3", b"4"]
    await consumer.seek(ids[3], inclusive=True)
    messages = await take(consumer, 2)
    assert [m.data for m in messages] == [b"3", b"4"]
    await consumer.seek(ids[4])
    await assert_nothing_comes(consumer)
    # What was left out is done for the subscription too.
    await consumer.flush_acks()
    await until(lambda: cluster.backlog(topic, "s") == 0, "nothing is left")


async def test_seek_goes_to_a_time(client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic)
    await publish(client, topic, b"before")
    await asyncio.sleep(0.05)
    now_ms = int(time.time() * 1000)
    await asyncio.sleep(0.05)
    await publish(client, topic, b"after")
    await take(consumer, 2)
    await consumer.seek(now_ms)
    assert await data(consumer, 1) == [b"after"]


async def test_seek_forgets_what_was_queued_and_acknowledged_before(client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic, ack_grouping_ms=60_000, negative_ack_delay_ms=100)
    await publish(client, topic, *(b"%d" % index for index in range(5)))
    messages = await take(consumer, 3)
    consumer.ack(messages[0])
    consumer.negative_ack(messages[1])
    await consumer.seek(EARLIEST)
    assert await data(consumer, 5) == [b"%d" % index for index in range(5)]
    await assert_nothing_comes(consumer)


async def test_the_last_message_id_follows_the_topic(client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic)
    assert (await consumer.last_message_id()).entry_id == -1
    (plain,) = await publish(client, topic, b"x")
    assert await consumer.last_message_id() == plain
    batch = await publish_batch(client, topic, b"a", b"b", b"c")
    assert await consumer.last_message_id() == batch[2]


# -- life ---------------------------------------------------------------------------------------------------------


async def test_unsubscribing_deletes_the_subscription(client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic)
    await publish(client, topic, b"x")
    await consumer.unsubscribe()
    with pytest.raises(ClosedError):
        await consumer.receive(1)
    fresh = await subscribe(client, topic, initial_position="Earliest")
    assert await data(fresh, 1) == [b"x"]


async def test_unsubscribing_is_refused_while_others_consume(client: AsyncClient, topic: str) -> None:
    consumer, other = [await subscribe(client, topic, type="Shared") for _ in range(2)]
    with pytest.raises(MetadataError):
        await consumer.unsubscribe()
    await other.close()
    await consumer.unsubscribe()


async def test_closing_ends_those_who_wait(client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic)
    waiting = [asyncio.ensure_future(consumer.receive()), asyncio.ensure_future(consumer.receive_entry())]
    await asyncio.sleep(0)
    await consumer.close()
    for result in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(result, ClosedError)
    with pytest.raises(ClosedError, match="subscription 's', is closed"):
        consumer.ack(EARLIEST)
    await consumer.close()


async def test_a_cancelled_receive_loses_nothing(client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic)
    waiting = asyncio.ensure_future(consumer.receive())
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await publish(client, topic, b"x")
    assert await data(consumer, 1) == [b"x"]


async def test_an_unloaded_topic_is_found_again(cluster: Cluster, client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic)
    producer = await producing(client, topic)
    await producer.send(b"before")
    consumer.ack(await consumer.receive(30))
    await consumer.flush_acks()
    await until(lambda: cluster.backlog(topic, "s") == 0, "the message is acknowledged")
    await asyncio.to_thread(cluster.unload, topic)
    await asyncio.wait_for(producer.send(b"after"), 30)
    (got,) = await data(consumer, 1)
    if cluster.is_pulsar and got == b"before":
        (got,) = await data(consumer, 1)  # Apache Pulsar may forget the newest acknowledgements when it unloads a topic
    assert got == b"after"


async def test_the_end_of_a_terminated_topic_is_seen(cluster: Cluster, client: AsyncClient, topic: str) -> None:
    consumer = await subscribe(client, topic)
    await publish(client, topic, b"last")
    await asyncio.to_thread(cluster.terminate, topic)
    consumer.ack(await consumer.receive(30))
    await until(lambda: consumer.has_reached_end, "the end of the topic")


async def test_the_compacted_view_is_read(cluster: Cluster, client: AsyncClient, topic: str) -> None:
    compacted = await subscribe(client, topic, read_compacted=True, properties={"a": "b"})
    await publish(client, topic, b"x")
    assert await data(compacted, 1) == [b"x"]


async def test_a_bad_namespace_is_refused(client: AsyncClient) -> None:
    with pytest.raises(BrokerError) as caught:
        await client.subscribe("persistent://nobody/nothing/topic", "s")
    assert "\n" not in str(caught.value)
