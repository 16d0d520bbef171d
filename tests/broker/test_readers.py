"""Non-durable subscriptions: they hold nothing back and end with their connection, whenever it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from magnetar.broker.service import BrokerService
from magnetar.broker.session.connection import Connection
from magnetar.broker.storage.topic_log import TopicLog
from magnetar.broker.topics.topic import Topic
from magnetar.wire.payload import open_payload
from magnetar.wire.position import Position
from magnetar.wire.pulsar_api_pb2 import CommandSubscribe, ServerError

from .brokers import running_broker
from .disks import MoodyDisk
from .raw import Raw
from .test_delivery import TOPIC, acknowledge, close, consumer, position, producer, publish, take

SMALL_LEDGERS = {"max_ledger_entries": 2}
EARLIEST_ID = {"ledgerId": (1 << 64) - 1, "entryId": (1 << 64) - 1}
READER: dict[str, Any] = {
    "topic": TOPIC, "subscription": "reader", "subType": CommandSubscribe.Exclusive, "consumer_id": 7, "request_id": 1,
    "durable": False, "start_message_id": EARLIEST_ID,
}  # fmt: skip


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110  a condition with a deadline; nobody tells of it
            await asyncio.sleep(0)


async def reader(broker: BrokerService, permits: int) -> Raw:
    raw = await Raw.connected(broker.port)
    assert (await raw.request("SUBSCRIBE", **READER)).HasField("success")
    raw.send("FLOW", consumer_id=7, messagePermits=permits)
    return raw


async def test_connected_reader_holds_nothing_back_and_goes_on_at_the_first_entry_there_is(tmp_path: Path) -> None:
    async with running_broker(tmp_path, limits=SMALL_LEDGERS, unread_retention_s=0) as broker:
        source = await producer(broker)
        sent = await publish(source, [b"m"] * 9)
        sink = await reader(broker, permits=3)
        got = [position(frame) for frame in await take(sink, 3)]
        cursor = broker.topics[TOPIC].subscriptions["reader"].cursor
        # One of an entry that stays, one of an entry that goes, out of order: the count must survive the trimming.
        ids = [{"ledgerId": each.ledger_id, "entryId": each.entry_id} for each in (got[1], sent[8])]
        sink.send("ACK", consumer_id=7, ack_type=0, message_id=ids)
        await sink.barrier()
        await broker.trim_topics()
        log = broker.topics[TOPIC].log
        assert log.first_position == sent[8]
        assert cursor.backlog_entries == 0
        sink.send("FLOW", consumer_id=7, messagePermits=100)
        more = await publish(source, [b"n"] * 2)
        assert [position(frame) for frame in await take(sink, 2)] == more
        assert cursor.backlog_entries == 2
        await close(source, sink)


async def test_reader_that_reads_slowly_skips_what_was_trimmed(tmp_path: Path) -> None:
    async with running_broker(tmp_path, limits=SMALL_LEDGERS, unread_retention_s=0) as broker:
        source = await producer(broker)
        sent = await publish(source, [b"m"] * 9)
        sink = await reader(broker, permits=1)
        await take(sink, 1)
        await broker.trim_topics()
        sink.send("FLOW", consumer_id=7, messagePermits=100)
        assert [position(frame) for frame in await take(sink, 1)] == sent[8:]
        await close(source, sink)


async def test_shared_reader_gets_rid_of_what_was_trimmed_under_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path, limits=SMALL_LEDGERS, unread_retention_s=0) as broker:
        source = await producer(broker)
        sent = await publish(source, [b"m"] * 5)
        sink = await Raw.connected(broker.port)
        assert (await sink.request("SUBSCRIBE", **READER | {"subType": CommandSubscribe.Shared})).HasField("success")
        sink.send("FLOW", consumer_id=7, messagePermits=100)
        await take(sink, 5)
        await broker.trim_topics()
        ids = [{"ledgerId": each.ledger_id, "entryId": each.entry_id} for each in sent]
        sink.send("ACK", consumer_id=7, ack_type=0, message_id=ids)
        await sink.barrier()
        subscription = broker.topics[TOPIC].subscriptions["reader"]
        assert subscription.consumers[0].unacked_messages == 0
        assert subscription.cursor.backlog_entries == 0
        await close(source, sink)


@pytest.mark.parametrize("is_cut", [False, True])
async def test_reader_that_goes_away_while_its_place_is_searched_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cut: bool
) -> None:
    async with running_broker(tmp_path) as broker:
        source = await producer(broker)
        await publish(source, [b"m"])
        searching, go_on = asyncio.Event(), asyncio.Event()
        search = TopicLog.position_before_time

        async def slow(self: TopicLog, time_ms: int) -> Position:
            searching.set()
            await go_on.wait()
            return await search(self, time_ms)

        monkeypatch.setattr(TopicLog, "position_before_time", slow)
        sink = await Raw.connected(broker.port)
        sink.send("SUBSCRIBE", **READER, start_message_rollback_duration_sec=60)
        await searching.wait()
        topic = broker.topics[TOPIC]
        assert "reader" in topic.subscriptions
        connection = next(each for each in broker.connections if each.consumers.opening)
        if is_cut:
            connection.abort()
        else:
            sink.send("CLOSE_CONSUMER", consumer_id=7, request_id=2)
            await sink.receive()
        await until(lambda: not topic.subscriptions)
        go_on.set()
        await close(source, sink)


async def test_reader_that_goes_away_while_the_other_is_asked_for_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path) as broker:
        first = await reader(broker, permits=1)
        topic = broker.topics[TOPIC]
        asked, answered = asyncio.Event(), asyncio.Event()

        async def is_alive(self: Connection) -> bool:
            asked.set()
            await answered.wait()
            return True

        monkeypatch.setattr(Connection, "is_alive", is_alive)
        second = await Raw.connected(broker.port)
        second.send("SUBSCRIBE", **READER)
        await asked.wait()
        await first.close()
        await until(lambda: not topic.subscriptions["reader"].consumers)
        assert "reader" in topic.subscriptions  # for the one that waits
        next(each for each in broker.connections if each.consumers.opening).abort()
        await until(lambda: not topic.subscriptions)
        answered.set()
        await second.close()


async def test_consumer_whose_topic_is_unloaded_while_it_subscribes_is_told_to_come_back(tmp_path: Path) -> None:
    disk = MoodyDisk()
    async with running_broker(tmp_path, disk) as broker:
        source = await producer(broker)
        disk.may_sync.clear()
        sink = await Raw.connected(broker.port)
        sink.send("SUBSCRIBE", topic=TOPIC, subscription="s", subType=0, consumer_id=1, request_id=1)
        topic: Topic = broker.topics[TOPIC]
        await until(lambda: "s" in topic.subscriptions)
        await broker.unload_topic(topic.name)
        disk.may_sync.set()
        answer = (await sink.receive()).command
        assert answer.error.error == ServerError.ServiceNotReady
        assert await sink.barrier() == []
        await close(source, sink)


async def test_seek_whose_subscription_was_closed_meanwhile_moves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path, failover_delay_s=0.0) as broker:
        source = await producer(broker)
        sent = await publish(source, [b"m"] * 3)
        sink = await consumer(broker, CommandSubscribe.Exclusive)
        await take(sink, 3)
        acknowledge(sink, *sent, request_id=1)
        await sink.receive()
        searching, go_on = asyncio.Event(), asyncio.Event()
        search = TopicLog.position_before_time

        async def slow(self: TopicLog, time_ms: int) -> Position:
            searching.set()
            await go_on.wait()
            return await search(self, time_ms)

        monkeypatch.setattr(TopicLog, "position_before_time", slow)
        sink.send("SEEK", consumer_id=1, request_id=2, message_publish_time=1)
        await searching.wait()
        await broker.unload_topic(broker.topics[TOPIC].name)
        assert (await sink.receive()).command.HasField("close_consumer")
        again = await consumer(broker, CommandSubscribe.Exclusive)
        go_on.set()
        assert (await sink.receive()).command.error.error == ServerError.ServiceNotReady
        assert await again.barrier() == []
        assert broker.topics[TOPIC].subscriptions["s"].cursor.mark_delete == sent[-1]
        await close(source, sink, again)


LATEST_ID = {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}


@pytest.mark.parametrize(
    ("start", "initial_position", "expected"),
    [
        (None, CommandSubscribe.Earliest, [b"0", b"1", b"2", b"new"]),
        (None, CommandSubscribe.Latest, [b"new"]),
        (EARLIEST_ID, CommandSubscribe.Latest, [b"0", b"1", b"2", b"new"]),
        (EARLIEST_ID, CommandSubscribe.Earliest, [b"0", b"1", b"2", b"new"]),
        (LATEST_ID, CommandSubscribe.Latest, [b"new"]),
        (LATEST_ID, CommandSubscribe.Earliest, [b"0", b"1", b"2", b"new"]),
        (1, CommandSubscribe.Latest, [b"1", b"2", b"new"]),
        (1, CommandSubscribe.Earliest, [b"1", b"2", b"new"]),
        (2, CommandSubscribe.Earliest, [b"2", b"new"]),
    ],
)
@pytest.mark.parametrize("kind", [CommandSubscribe.Exclusive, CommandSubscribe.Shared])
async def test_non_durable_subscription_begins_at_its_start_message_or_initial_position(
    tmp_path: Path, kind: int, start: dict[str, int] | int | None, initial_position: int, expected: list[bytes]
) -> None:
    async with running_broker(tmp_path) as broker:
        source = await producer(broker)
        sent = [(await publish(source, [b"%d" % number]))[0] for number in range(3)]
        sink = await Raw.connected(broker.port)
        asked = READER | {"subType": kind, "initialPosition": initial_position}
        del asked["start_message_id"]
        if isinstance(start, int):
            start = {"ledgerId": sent[start].ledger_id, "entryId": sent[start].entry_id}
        if start is not None:
            asked["start_message_id"] = start
        assert (await sink.request("SUBSCRIBE", **asked)).HasField("success")
        sink.send("FLOW", consumer_id=7, messagePermits=100)
        await publish(source, [b"new"])
        frames = await take(sink, len(expected))
        assert [frame.payload[open_payload(frame.payload)[1] :] for frame in frames] == expected
        await close(source, sink)
