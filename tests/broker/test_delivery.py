"""What consumers get, again and again, and what they never get again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from magnetar.broker.service import BrokerService
from magnetar.wire import ack_set
from magnetar.wire.batch import encode_plain_batch
from magnetar.wire.frames import Frame
from magnetar.wire.position import Position
from magnetar.wire.pulsar_api_pb2 import BaseCommand, CommandSubscribe, ServerError

from .brokers import running_broker
from .disks import MoodyDisk
from .raw import Raw

TOPIC = "persistent://public/wire/delivery"
HOUR_MS = 3_600_000
EXCLUSIVE, SHARED, FAILOVER = CommandSubscribe.Exclusive, CommandSubscribe.Shared, CommandSubscribe.Failover


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerService]:
    async with running_broker(tmp_path, failover_delay_s=0.0) as it:
        yield it


async def producer(broker: BrokerService) -> Raw:
    raw = await Raw.connected(broker.port)
    reply = await raw.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=1, producer_name="p")
    assert reply.HasField("producer_success"), reply
    return raw


async def publish(raw: Raw, bodies: Sequence[bytes], batch: int = 1) -> list[Position]:
    """Publish entries, each a batch of so many equal messages (1: no batch), and return where they are."""
    for number, body in enumerate(bodies):
        if batch == 1:
            raw.send_message(body, sequence_id=number)
        else:
            raw.send_message(
                encode_plain_batch([body] * batch), sequence_id=number * batch, num_messages=batch,
                metadata={"num_messages_in_batch": batch},
            )  # fmt: skip
    receipts = [(await raw.receive()).command.send_receipt for _ in bodies]
    return [Position(receipt.message_id.ledgerId, receipt.message_id.entryId) for receipt in receipts]


async def consumer(broker: BrokerService, kind: int, name: str = "c", permits: int = 1000, id_: int = 1) -> Raw:
    raw = await Raw.connected(broker.port)
    reply = await raw.request(
        "SUBSCRIBE", topic=TOPIC, subscription="s", subType=kind, consumer_id=id_, request_id=1, consumer_name=name,
        initialPosition=CommandSubscribe.Earliest,
    )  # fmt: skip
    assert reply.HasField("success"), reply
    if permits:
        raw.send("FLOW", consumer_id=id_, messagePermits=permits)
    return raw


def position(frame: Frame) -> Position:
    message_id = frame.command.message.message_id
    return Position(message_id.ledgerId, message_id.entryId)


async def take(raw: Raw, count: int) -> list[Frame]:
    frames: list[Frame] = []
    while len(frames) < count:
        frame = await raw.receive()
        if frame.command.type == BaseCommand.MESSAGE:
            frames.append(frame)
    return frames


def acknowledge(raw: Raw, *positions: Position, words: Sequence[int] = (), request_id: int | None = None) -> None:
    ids = [{"ledgerId": each.ledger_id, "entryId": each.entry_id, "ack_set": words} for each in positions]
    extra = {} if request_id is None else {"request_id": request_id}
    raw.send("ACK", consumer_id=1, ack_type=0, message_id=ids, **extra)


async def close(*raws: Raw) -> None:
    for raw in raws:
        await raw.close()


async def test_shared_consumer_that_dies_leaves_its_entries_to_the_others_uncounted(broker: BrokerService) -> None:
    source = await producer(broker)
    first = await consumer(broker, SHARED, "first", permits=3)
    sent = await publish(source, [b"m"] * 5)
    held = await take(first, 3)
    acknowledge(first, position(held[1]))
    await first.barrier()
    second = await consumer(broker, SHARED, "second")
    assert {position(frame) for frame in await take(second, 2)} == set(sent[3:])
    await first.close()
    again = await take(second, 2)
    assert [position(frame) for frame in again] == [sent[0], sent[2]]
    assert [frame.command.message.redelivery_count for frame in again] == [0, 0]
    await close(source, second)


async def test_redelivery_that_is_asked_for_is_counted_and_masks_what_is_acknowledged(broker: BrokerService) -> None:
    source = await producer(broker)
    sink = await consumer(broker, SHARED)
    (sent,) = await publish(source, [b"m"], batch=4)
    await take(sink, 1)
    acknowledge(sink, sent, words=ack_set.from_wanted([0, 1, 3]))
    acknowledge(sink, sent, words=ack_set.from_wanted([1, 2, 3]))
    for count in (1, 2):
        sink.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
        (again,) = await take(sink, 1)
        assert again.command.message.redelivery_count == count
        assert tuple(again.command.message.ack_set) == ack_set.from_wanted([1, 3])
    subscription = broker.topics[TOPIC].subscriptions["s"]
    assert subscription.consumers[0].unacked_messages == 2
    acknowledge(sink, sent, words=ack_set.from_wanted([1]))
    acknowledge(sink, sent, words=ack_set.from_wanted([3]))
    sink.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    assert await sink.barrier() == []
    assert subscription.cursor.backlog_entries == 0
    assert subscription.consumers[0].unacked_messages == 0
    await close(source, sink)


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, SHARED])
async def test_what_is_acknowledged_stays_so_over_a_restart(kind: int, tmp_path: Path) -> None:
    async with running_broker(tmp_path, failover_delay_s=0.0) as broker:
        source = await producer(broker)
        sink = await consumer(broker, kind)
        sent = await publish(source, [b"m"] * 6, batch=3)
        await take(sink, 6)
        acknowledge(sink, sent[0], sent[3], request_id=1)
        acknowledge(sink, sent[4], words=ack_set.from_wanted([2]), request_id=2)
        responses = [frame.command.ackResponse for frame in (await sink.receive(), await sink.receive())]
        assert [(r.request_id, r.HasField("error"), r.HasField("message")) for r in responses] == [
            (1, False, False), (2, False, False)
        ]  # fmt: skip
        await close(source, sink)
    async with running_broker(tmp_path, failover_delay_s=0.0) as broker:
        sink = await consumer(broker, kind)
        again = await take(sink, 4)
        assert [position(frame) for frame in again] == [sent[1], sent[2], sent[4], sent[5]]
        assert tuple(again[2].command.message.ack_set) == ack_set.from_wanted([2])
        assert await sink.barrier() == []
        await sink.close()


async def test_receipts_come_only_after_the_disk_has_it(tmp_path: Path) -> None:
    disk = MoodyDisk()
    async with running_broker(tmp_path, disk) as broker:
        source = await producer(broker)
        sink = await consumer(broker, EXCLUSIVE)
        (sent,) = await publish(source, [b"m"])
        await take(sink, 1)
        disk.may_sync.clear()
        try:
            acknowledge(sink, sent, request_id=9)
            source.send_message(b"n", sequence_id=1)
            assert await sink.barrier() == []
            assert await source.barrier() == []
        finally:
            disk.may_sync.set()
        assert (await source.receive()).command.send_receipt.sequence_id == 1
        frames = [await sink.receive(), await sink.receive()]
        assert {frame.command.type for frame in frames} == {BaseCommand.ACK_RESPONSE, BaseCommand.MESSAGE}
        await close(source, sink)


async def try_to_publish(broker: BrokerService, body: bytes) -> bool:
    """Publish with a connection of its own; False if the storage refuses, at creation already or at the send."""
    raw = await Raw.connected(broker.port)
    reply = await raw.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=1, producer_name="p")
    if reply.HasField("producer_success"):
        raw.send_message(body, sequence_id=1)
        reply = (await raw.receive()).command
    await raw.close()
    if not reply.HasField("send_receipt"):
        assert ServerError.PersistenceError in (reply.error.error, reply.send_error.error)
    return reply.HasField("send_receipt")


async def test_full_disk_refuses_in_order_and_publishing_goes_on_when_there_is_room(tmp_path: Path) -> None:
    disk = MoodyDisk()
    async with running_broker(tmp_path, disk) as broker:
        source = await producer(broker)
        sent = await publish(source, [b"m0"])
        disk.is_full = True
        try:
            for number in (1, 2, 3):
                source.send_message(b"lost", sequence_id=number)
            refusal = (await source.receive()).command
            assert refusal.send_error.sequence_id == 1
            assert refusal.send_error.error == ServerError.PersistenceError
            assert "No space left" in refusal.send_error.message
            assert (await source.receive()).command.HasField("close_producer")
            # What was on its way is ignored, what is stored can still be read.
            source.send_message(b"late", sequence_id=4)
            assert await source.barrier() == []
        finally:
            disk.is_full = False
        async with asyncio.timeout(30):
            while not await try_to_publish(broker, b"m1"):
                pass
        sink = await consumer(broker, EXCLUSIVE)
        frames = await take(sink, 2)
        assert position(frames[0]) == sent[0]
        assert [frame.payload[-2:] for frame in frames] == [b"m0", b"m1"]
        await close(source, sink)


async def test_consumer_that_does_not_read_holds_up_nobody_and_little_memory(tmp_path: Path) -> None:
    async with running_broker(tmp_path, write_buffer_bytes=64 * 1024) as broker:
        source = await producer(broker)
        slow = await consumer(broker, SHARED, "slow", permits=100_000)
        fast = await consumer(broker, SHARED, "fast", permits=100_000)
        count, size = 600, 50_000
        got: list[Position] = []

        async def read_fast() -> None:
            # Everything but what the kernel and the buffer of the other one hold.
            while len(got) < count // 2:
                got.extend(position(frame) for frame in await take(fast, 1))

        reading = asyncio.create_task(read_fast())
        sent = []
        for _ in range(count // 50):
            sent += await publish(source, [b"x" * size] * 50)
        await asyncio.wait_for(reading, 30)
        stuck = next(c for c in broker.topics[TOPIC].subscriptions["s"].consumers if c.name == "slow")
        assert not stuck.connection.is_writable
        assert stuck.unacked_messages * size < 20_000_000
        await slow.close()
        got += [position(frame) for frame in await take(fast, count - len(got))]
        assert set(got) == set(sent)
        await close(source, fast)


async def test_consumer_that_acknowledges_nothing_is_blocked_at_the_limit(tmp_path: Path) -> None:
    async with running_broker(tmp_path, max_unacked_per_consumer=10) as broker:
        source = await producer(broker)
        sink = await consumer(broker, SHARED, permits=100)
        sent = await publish(source, [b"m"] * 40)
        await take(sink, 10)
        sink.send("FLOW", consumer_id=1, messagePermits=5)
        assert await sink.barrier() == []
        acknowledge(sink, *sent[:4])
        assert await sink.barrier() == []
        acknowledge(sink, sent[4])
        assert [position(frame) for frame in await take(sink, 5)] == sent[10:15]
        await close(source, sink)


async def test_connection_that_publishes_faster_than_the_disk_is_not_read(tmp_path: Path) -> None:
    disk = MoodyDisk()
    async with running_broker(tmp_path, disk, max_pending_publishes=10) as broker:
        source = await producer(broker)
        await publish(source, [b"m"])
        (connection,) = broker.connections
        disk.may_sync.clear()
        try:
            for number in range(1, 40):
                source.send_message(b"m", sequence_id=number)
            await source.writer.drain()
            async with asyncio.timeout(30):
                while connection.is_reading:  # noqa: ASYNC110  a condition with a deadline; nobody tells of it
                    await asyncio.sleep(0)
        finally:
            disk.may_sync.set()
        receipts = [(await source.receive()).command.send_receipt.sequence_id for _ in range(1, 40)]
        assert receipts == list(range(1, 40))
        assert await source.barrier() == []
        assert connection.is_reading
        await source.close()


async def test_seek_moves_what_comes_next(broker: BrokerService) -> None:
    source = await producer(broker)
    sent = await publish(source, [b"m"] * 5)
    sink = await consumer(broker, EXCLUSIVE)
    await take(sink, 5)
    target = {"ledgerId": sent[3].ledger_id, "entryId": sent[3].entry_id}
    closed = await sink.request("SEEK", consumer_id=1, request_id=5, message_id=target)
    assert closed.close_consumer.request_id == (1 << 64) - 1
    # A client subscribes again at once; the answer waits for the end of the seek.
    sink.send("SUBSCRIBE", topic=TOPIC, subscription="s", subType=EXCLUSIVE, consumer_id=1, request_id=6)
    answers = [(await sink.receive()).command.success.request_id for _ in range(2)]
    assert answers == [5, 6]
    sink.send("FLOW", consumer_id=1, messagePermits=10)
    assert [position(frame) for frame in await take(sink, 2)] == sent[3:]
    await close(source, sink)


async def test_epoch_of_an_exclusive_topic_outlives_the_broker(tmp_path: Path) -> None:
    epochs = []
    for _ in range(3):
        async with running_broker(tmp_path) as broker:
            raw = await Raw.connected(broker.port)
            reply = await raw.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=1, producer_access_mode=1)
            epochs.append(reply.producer_success.topic_epoch)
            await raw.close()
    assert epochs == [0, 1, 2]


async def test_participants_of_the_workers_election_come_with_the_leader_first(broker: BrokerService) -> None:
    raw = await Raw.connected(broker.port)
    for id_, name in enumerate(("w:1:host-a:6750", "w:2:host-b:6751", "no worker")):
        await raw.request(
            "SUBSCRIBE", topic="persistent://public/functions/coordinate", subscription="participants",
            subType=FAILOVER, consumer_id=id_, request_id=id_, consumer_name=name,
            metadata=[{"key": "workerPortTls", "value": str(id_)}],
        )  # fmt: skip
    found = broker.election_participants()
    assert sorted(found) == [
        ("no worker", {"workerPortTls": "2"}),
        ("w:1:host-a:6750", {"workerPortTls": "0"}),
        ("w:2:host-b:6751", {"workerPortTls": "1"}),
    ]
    leader = broker.topics["persistent://public/functions/coordinate"].subscriptions["participants"].active_consumer
    assert leader is not None
    assert leader.name == found[0][0]
    await raw.close()


SMALL_LEDGERS = {"max_ledger_entries": 2}


@pytest.mark.parametrize(("retention_s", "left"), [(600, 7), (0, 1)])
async def test_entries_that_nobody_subscribed_to_are_kept_for_a_while(
    tmp_path: Path, retention_s: float, left: int
) -> None:
    async with running_broker(tmp_path, limits=SMALL_LEDGERS, unread_retention_s=retention_s) as broker:
        source = await producer(broker)
        await publish(source, [b"m"] * 7)
        await broker.trim_topics()
        assert broker.topics[TOPIC].log.entry_count == left
        await source.close()


async def test_entries_that_every_subscription_is_past_are_deleted(tmp_path: Path) -> None:
    async with running_broker(tmp_path, limits=SMALL_LEDGERS) as broker:
        source = await producer(broker)
        sink = await consumer(broker, SHARED)
        sent = await publish(source, [b"m"] * 7)
        await take(sink, 7)
        acknowledge(sink, *sent[:3], sent[4], request_id=1)
        await sink.receive()
        await broker.trim_topics()
        assert broker.topics[TOPIC].log.first_position == sent[2]
        sink.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
        assert [position(frame) for frame in await take(sink, 3)] == [sent[3], sent[5], sent[6]]
        await close(source, sink)


@pytest.mark.parametrize("time_ms", [-(1 << 63), -1, (1 << 63) - 1])
async def test_a_message_for_an_extreme_time_is_stored_and_delivered_or_waits(
    broker: BrokerService, time_ms: int
) -> None:
    sink = await consumer(broker, SHARED)
    source = await producer(broker)
    source.send_message(b"odd", sequence_id=7, metadata={"deliver_at_time": time_ms})
    source.send_message(b"now", sequence_id=8)
    for sequence_id in (7, 8):
        assert (await source.receive()).command.send_receipt.sequence_id == sequence_id
    topic = next(iter(broker.topics.values()))
    (subscription,) = topic.subscriptions.values()
    if time_ms < 0:
        assert (await sink.receive()).command.message.message_id.entryId == 0
    assert (await sink.receive()).command.message.message_id.entryId == 1
    assert subscription.delayed_entries == (time_ms > 0)
    await close(source, sink)


@pytest.mark.parametrize("kind", [SHARED, CommandSubscribe.Key_Shared])
async def test_what_became_due_while_nobody_was_there_does_not_pass_by_what_is_before_it(
    broker: BrokerService, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    gone = await consumer(broker, kind)
    source = await producer(broker)
    now_ms = broker.now_ms()
    for number, at_ms in enumerate((0, now_ms + HOUR_MS, 0)):
        source.send_message(b"m", sequence_id=number, metadata={"deliver_at_time": at_ms} if at_ms else {})
    receipts = [(await source.receive()).command.send_receipt for _ in range(3)]
    sent = [Position(receipt.message_id.ledgerId, receipt.message_id.entryId) for receipt in receipts]
    assert [position(frame) for frame in await take(gone, 2)] == [sent[0], sent[2]]
    await gone.request("CLOSE_CONSUMER", consumer_id=1, request_id=2)
    monkeypatch.setattr(broker, "_clock", lambda: (now_ms + 2 * HOUR_MS) / 1000)
    sink = await consumer(broker, kind)
    assert [position(frame) for frame in await take(sink, 3)] == sent
    assert await sink.barrier() == []
    await close(gone, source, sink)


async def test_exclusive_consumer_whose_connection_is_being_closed_gives_way(broker: BrokerService) -> None:
    """Until its peer has taken what was written, a closed connection has its consumers still."""
    first = await consumer(broker, EXCLUSIVE)
    (connection,) = (c for c in broker.connections if c.consumers)
    assert connection._transport is not None
    connection._transport.write(bytes(64 << 20))  # nobody reads it
    connection.close()
    assert connection.consumers
    second = await consumer(broker, EXCLUSIVE)
    await close(first, second)
