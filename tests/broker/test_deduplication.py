"""Repeated entries on the wire: which are stored, how each is answered, and what a restart knows of it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from magnetar.broker.service import BrokerService
from magnetar.broker.topics.deduplication import DEDUPLICATION_CURSOR, Status
from magnetar.wire.frames import encode_frame
from magnetar.wire.payload import open_payload, seal
from magnetar.wire.position import EARLIEST
from magnetar.wire.pulsar_api_pb2 import BaseCommand, CommandSend, MessageMetadata, ServerError
from magnetar.wire.topic_name import parse_topic_name

from . import brokers
from .disks import MoodyDisk
from .raw import Raw

NAME = parse_topic_name("persistent://public/wire/dedup")
TOPIC = str(NAME)
REPEATED = (-1, -1)
opened: list[Raw] = []


@contextlib.asynccontextmanager
async def running_broker(directory: Path, *args: Any, **settings: Any) -> AsyncIterator[BrokerService]:
    """A broker; the connections that `connected` opened are closed before it is stopped."""
    async with brokers.running_broker(directory, *args, **settings) as broker:
        try:
            yield broker
        finally:
            while opened:
                await opened.pop().close()


async def connected(broker: BrokerService) -> Raw:
    raw = await Raw.connected(broker.port)
    opened.append(raw)
    return raw


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerService]:
    async with running_broker(tmp_path, deduplication=True) as it:
        yield it


async def switch(broker: BrokerService, is_on: bool | None) -> None:
    await broker.namespaces.change_topic_policies(
        NAME, lambda _: {} if is_on is None else {"deduplicationEnabled": is_on}
    )
    await broker.adjust_deduplication(broker.topics.values())


class Sender:
    """One producer on a connection of its own; its name is what counts."""

    def __init__(self, raw: Raw, name: str, last: int):
        self.raw = raw
        self.name = name
        self.last = last

    def send(self, first: int, last: int | None = None, **metadata: Any) -> None:
        fields: dict[str, Any] = {} if last is None else {"highest_sequence_id": last}
        is_chunk = "num_chunks_from_msg" in metadata
        self.raw.send_message(
            b"%d" % first, sequence_id=first, is_chunk=is_chunk,
            metadata={"producer_name": self.name} | fields | metadata, **fields,
        )  # fmt: skip

    async def answers(self, count: int) -> list[Any]:
        """The ids and positions of receipts, the texts of refusals, in order."""
        found: list[Any] = []
        while len(found) < count:
            command = (await self.raw.receive()).command
            if command.type == BaseCommand.SEND_RECEIPT:
                place = command.send_receipt.message_id
                is_nowhere = place.ledgerId == place.entryId == (1 << 64) - 1
                found.append((command.send_receipt.sequence_id, REPEATED if is_nowhere else place.entryId))
            elif command.type == BaseCommand.SEND_ERROR:
                assert command.send_error.error == ServerError.PersistenceError
                found.append((command.send_error.sequence_id, command.send_error.message))
            else:
                raise AssertionError(command)
        return found


async def producer(broker: BrokerService, name: str = "p") -> Sender:
    raw = await connected(broker)
    reply = await raw.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=1, producer_name=name)
    assert reply.HasField("producer_success"), reply
    return Sender(raw, name, reply.producer_success.last_sequence_id)


async def stored(broker: BrokerService) -> list[tuple[str, int]]:
    """Producer and first sequence id of every entry."""
    log = broker.storage.open_log(TOPIC)
    found: list[tuple[str, int]] = []
    position = EARLIEST
    while entries := await log.load(position, 1000, 1 << 20):
        heads = [open_payload(entry.payload)[0] for entry in entries]
        found += [(head.producer_name, head.sequence_id) for head in heads]
        position = log.next_position(entries[-1].position)
    return found


async def until(is_so: Callable[[], bool], what: str) -> None:
    for _ in range(2000):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"{what}: not within 10 s")


async def test_a_repeated_entry_is_answered_in_order_and_not_stored(broker: BrokerService) -> None:
    p = await producer(broker)
    assert p.last == -1
    p.send(0)
    p.send(1)
    assert await p.answers(2) == [(0, 0), (1, 1)]
    p.send(1)
    p.send(2)
    p.send(0)
    p.send(3)
    assert await p.answers(4) == [(1, REPEATED), (2, 2), (0, REPEATED), (3, 3)]
    assert await stored(broker) == [("p", 0), ("p", 1), ("p", 2), ("p", 3)]
    await p.raw.close()
    assert (await producer(broker)).last == 3


async def test_names_do_not_know_each_other(broker: BrokerService) -> None:
    p, q = await producer(broker, "p"), await producer(broker, "q")
    p.send(5)
    q.send(5)
    assert [(await p.answers(1))[0][0], (await q.answers(1))[0][0]] == [5, 5]
    assert sorted(await stored(broker)) == [("p", 5), ("q", 5)]


async def test_a_batch_is_judged_by_its_first_id_and_counts_to_its_last(broker: BrokerService) -> None:
    p = await producer(broker)
    answers = []
    for first, last in ((10, 19), (15, 25), (20, 20), (20, None)):
        p.send(first, last)
        answers += await p.answers(1)
    assert answers == [(10, 0), (15, REPEATED), (20, 1), (20, REPEATED)]
    assert await stored(broker) == [("p", 10), ("p", 20)]


async def test_ids_may_have_gaps_and_go_up_to_the_end_of_the_signed_numbers(broker: BrokerService) -> None:
    p = await producer(broker)
    for number in (1 << 30 | 1 << 10, 7 << 40, (1 << 63) - 1):
        p.send(number, number)
        assert (await p.answers(1))[0][1] != REPEATED
        p.send(number, number)
        assert await p.answers(1) == [(number, REPEATED)]
    await p.raw.close()
    assert (await producer(broker)).last == (1 << 63) - 1


async def test_of_the_chunks_of_a_message_the_last_one_decides(broker: BrokerService) -> None:
    p = await producer(broker)
    for number in (0, 1, 2, 0, 1):
        p.send(4, num_chunks_from_msg=3, chunk_id=number, uuid="p-4", total_chunk_msg_size=3)
    assert [answer[1] for answer in await p.answers(5)] == [0, 1, 2, 3, 4]
    p.send(4, num_chunks_from_msg=3, chunk_id=2, uuid="p-4", total_chunk_msg_size=3)
    assert await p.answers(1) == [(4, REPEATED)]


async def test_chunks_of_a_message_that_was_cut_off_by_a_restart_can_be_sent_again(tmp_path: Path) -> None:
    async with running_broker(tmp_path, deduplication=True) as broker:
        p = await producer(broker)
        for number in (0, 1):
            p.send(4, num_chunks_from_msg=3, chunk_id=number, uuid="p-4", total_chunk_msg_size=3)
        await p.answers(2)
    async with running_broker(tmp_path, deduplication=True) as broker:
        p = await producer(broker)
        assert p.last == -1
        for number in (0, 1, 2):
            p.send(4, num_chunks_from_msg=3, chunk_id=number, uuid="p-4", total_chunk_msg_size=3)
        assert all(answer[1] != REPEATED for answer in await p.answers(3))


async def test_what_is_under_way_cannot_be_judged_yet(tmp_path: Path) -> None:
    disk = MoodyDisk()
    async with running_broker(tmp_path, disk, deduplication=True) as broker:
        p = await producer(broker)
        p.send(0)
        assert await p.answers(1) == [(0, 0)]
        disk.may_sync.clear()
        p.send(1)
        p.send(1)
        text = f"[{TOPIC}][p]Cannot determine whether the message is a duplicate at this time"
        assert await p.answers(1) == [(1, text)]
        p.send(0)
        p.send(2)
        disk.may_sync.set()
        # The repetition waits for what was sent before it.
        assert await p.answers(3) == [(1, 1), (0, REPEATED), (2, 2)]


async def test_a_producer_that_comes_back_waits_for_what_it_left_under_way(tmp_path: Path) -> None:
    disk = MoodyDisk()
    async with running_broker(tmp_path, disk, deduplication=True) as broker:
        p = await producer(broker)
        disk.may_sync.clear()
        p.send(0)
        p.send(1)
        topic = broker.topics[TOPIC]
        await until(lambda: topic.producers["p"].pending_entries == 2, "both entries under way")
        await p.raw.close()
        await until(lambda: "p" not in topic.producers, "the producer gone")
        again = asyncio.create_task(producer(broker))
        await asyncio.sleep(0.05)
        assert not again.done()
        disk.may_sync.set()
        p = await again
        assert p.last == 1
        p.send(1)
        p.send(2)
        assert await p.answers(2) == [(1, REPEATED), (2, 2)]


async def test_after_a_failed_write_the_same_ids_are_new_again(tmp_path: Path) -> None:
    disk = MoodyDisk()
    async with running_broker(tmp_path, disk, deduplication=True) as broker:
        p = await producer(broker)
        p.send(0)
        await p.answers(1)
        disk.is_full = True
        p.send(1)
        p.send(2)
        assert (await p.raw.receive()).command.type == BaseCommand.SEND_ERROR
        assert (await p.raw.receive()).command.type == BaseCommand.CLOSE_PRODUCER
        disk.is_full = False
        await until(lambda: broker.storage.failure is None, "the storage works again")
        p = await producer(broker)
        assert p.last == 0
        p.send(1)
        p.send(2)
        assert [answer[1] != REPEATED for answer in await p.answers(2)] == [True, True]
        assert await stored(broker) == [("p", 0), ("p", 1), ("p", 2)]


async def test_an_entry_behind_a_damaged_one_is_not_taken_before_it(broker: BrokerService) -> None:
    p = await producer(broker)
    head = CommandSend(producer_id=1, sequence_id=0)
    damaged = bytearray(seal(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"body"))
    damaged[-1] ^= 1
    p.raw.send_bytes(encode_frame(BaseCommand(type=BaseCommand.SEND, send=head), bytes(damaged)))
    p.send(1)
    refusal = (await p.raw.receive()).command
    assert refusal.send_error.error == ServerError.ChecksumError
    assert (await p.raw.receive()).command.type == BaseCommand.CLOSE_PRODUCER
    again = await producer(broker)
    again.send(0)
    again.send(1)
    assert await again.answers(2) == [(0, 0), (1, 1)]


@pytest.mark.parametrize("entries", [3, 1000])
async def test_a_restart_knows_what_was_stored(tmp_path: Path, entries: int) -> None:
    limits = {"deduplication": True, "deduplication_snapshot_entries": 7}
    async with running_broker(tmp_path, **limits) as broker:
        p, q = await producer(broker, "p"), await producer(broker, "q")
        for number in range(entries):
            p.send(number * 3)
        q.send(1, 40)
        await p.answers(entries)
        await q.answers(1)
        cursor = broker.topics[TOPIC].log.cursors[DEDUPLICATION_CURSOR]
        assert broker.topics[TOPIC].log.entries_between(cursor.mark_delete, broker.topics[TOPIC].log.last_confirmed) < 7
    async with running_broker(tmp_path, **limits) as broker:
        p, q = await producer(broker, "p"), await producer(broker, "q")
        assert [p.last, q.last] == [(entries - 1) * 3, 40]
        p.send((entries - 1) * 3)
        q.send(1, 40)
        assert (await p.answers(1))[0][1] == REPEATED
        assert (await q.answers(1))[0][1] == REPEATED
        assert len(await stored(broker)) == entries + 1


async def test_the_end_of_a_topic_that_was_unloaded_is_counted(tmp_path: Path) -> None:
    disk = MoodyDisk()
    async with running_broker(tmp_path, disk, deduplication=True, deduplication_snapshot_entries=2) as broker:
        p = await producer(broker)
        p.send(0)
        await p.answers(1)
        topic = broker.topics[TOPIC]
        disk.may_sync.clear()
        for number in (1, 2, 3, 4):
            p.send(number)
        await until(lambda: topic.producers["p"].pending_entries == 4, "four entries under way")
        await broker.unload_topic(NAME)
        again = asyncio.create_task(producer(broker))
        await asyncio.sleep(0.05)
        disk.may_sync.set()
        p = await again
        assert p.last == 4
        for number in (3, 4, 5):
            p.send(number)
        assert [answer[1] == REPEATED for answer in await p.answers(3)] == [True, True, False]


async def test_switched_on_it_counts_from_then_on_and_what_was_under_way(tmp_path: Path) -> None:
    disk = MoodyDisk()
    async with running_broker(tmp_path, disk) as broker:
        p = await producer(broker)
        p.send(0)
        p.send(0)
        assert await p.answers(2) == [(0, 0), (0, 1)]
        topic = broker.topics[TOPIC]
        assert topic.stats()["deduplicationStatus"] == "Disabled"
        disk.may_sync.clear()
        p.send(8)
        await until(lambda: topic.producers["p"].pending_entries == 1, "an entry under way")
        switching = asyncio.create_task(switch(broker, True))
        await until(lambda: topic.deduplication.status is Status.RECOVERING, "recovering")
        assert topic.stats()["deduplicationStatus"] == "Recovering"
        disk.may_sync.set()
        await switching
        assert await p.answers(1) == [(8, 2)]
        assert topic.stats()["deduplicationStatus"] == "Enabled"
        p.send(8)
        p.send(9)
        assert await p.answers(2) == [(8, REPEATED), (9, 3)]
        await switch(broker, False)
        p.send(9)
        assert await p.answers(1) == [(9, 4)]
        assert DEDUPLICATION_CURSOR not in topic.log.cursors


async def test_a_producer_that_comes_back_waits_until_the_ids_are_known(tmp_path: Path) -> None:
    disk = MoodyDisk()
    async with running_broker(tmp_path, disk) as broker:
        p = await producer(broker)
        topic = broker.topics[TOPIC]
        disk.may_sync.clear()
        p.send(8)
        await until(lambda: topic.producers["p"].pending_entries == 1, "an entry under way")
        switching = asyncio.create_task(switch(broker, True))
        await until(lambda: topic.deduplication.status is Status.RECOVERING, "recovering")
        await p.raw.close()
        await until(lambda: "p" not in topic.producers, "the producer gone")
        again = asyncio.create_task(producer(broker))
        done, _ = await asyncio.wait([again], timeout=0.05)
        assert not done
        disk.may_sync.set()
        p = await again
        await switching
        assert p.last == 8
        p.send(8)
        p.send(9)
        assert [answer[1] == REPEATED for answer in await p.answers(2)] == [True, False]


async def test_switched_off_and_on_again_it_knows_nothing_of_before(tmp_path: Path) -> None:
    async with running_broker(tmp_path, deduplication=True) as broker:
        p = await producer(broker)
        p.send(5)
        await p.answers(1)
        await switch(broker, False)
        await p.raw.close()
        await switch(broker, None)
        assert broker.topics[TOPIC].deduplication.status is Status.ENABLED
        assert (await producer(broker)).last == -1


async def test_switched_off_while_it_was_unloaded_it_leaves_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path, deduplication=True) as broker:
        p = await producer(broker)
        p.send(5)
        await p.answers(1)
    async with running_broker(tmp_path) as broker:
        assert (await producer(broker)).last == -1
        assert DEDUPLICATION_CURSOR not in broker.topics[TOPIC].log.cursors
        assert broker.topics[TOPIC].deduplication.status is Status.DISABLED


async def test_the_hidden_cursor_is_no_subscription_and_keeps_what_is_not_counted(tmp_path: Path) -> None:
    limits = {"max_ledger_entries": 4}
    async with running_broker(tmp_path, limits=limits, deduplication=True, unread_retention_s=0) as broker:
        p = await producer(broker)
        for number in range(10):
            p.send(number)
        await p.answers(10)
        topic = broker.topics[TOPIC]
        assert topic.stats()["subscriptions"] == {}
        assert DEDUPLICATION_CURSOR in topic.internal_stats()["cursors"]
        await broker.trim_topics()
        assert len(await stored(broker)) == 10
        await broker.namespaces.change_topic_policies(
            topic.name, lambda policies: policies | {"deduplicationSnapshotIntervalSeconds": 0}
        )
        await until(lambda: topic.policies.snapshot_age_s == 0, "the topic's policy")
        topic.deduplication.tick()
        assert topic.internal_stats()["cursors"][DEDUPLICATION_CURSOR]["properties"] == {"p": 9}
        await broker.trim_topics()
        assert len(await stored(broker)) < 10
        await p.raw.close()
        await broker.unload_topic(NAME)
        p = await producer(broker)
        p.send(9)
        assert await p.answers(1) == [(9, REPEATED)]
        await p.raw.close()
        await until(lambda: not broker.topics[TOPIC].producers, "the producer gone")
        await broker.delete_topic(NAME)
        assert (await producer(broker)).last == -1


async def test_where_the_disk_refuses_no_producer_is_let_in_until_it_works(tmp_path: Path) -> None:
    disk = MoodyDisk()
    async with running_broker(tmp_path, disk, deduplication_check_s=0.05) as broker:
        p = await producer(broker)
        disk.is_full = True
        await switch(broker, True)
        topic = broker.topics[TOPIC]
        assert topic.stats()["deduplicationStatus"] == "Failed"
        raw = await connected(broker)
        reply = await raw.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=1, producer_name="q")
        assert reply.error.error == ServerError.PersistenceError
        disk.is_full = False
        await until(lambda: topic.deduplication.status is Status.ENABLED, "deduplication works again")
        p.send(1)
        await p.answers(1)
        p.send(1)
        assert await p.answers(1) == [(1, REPEATED)]


async def test_compaction_and_the_end_of_a_topic_leave_the_ids_as_they_are(tmp_path: Path) -> None:
    limits = {"max_ledger_entries": 4}
    async with running_broker(tmp_path, limits=limits, deduplication=True, unread_retention_s=0) as broker:
        p = await producer(broker)
        for number in range(10):
            p.send(number, partition_key="k")
        await p.answers(10)
        topic = broker.topics[TOPIC]
        topic.begin_compaction()
        await until(lambda: not topic.compaction.is_running, "the topic compacted")
        await broker.trim_topics()
        assert len(await stored(broker)) == 10, "what is not counted in a snapshot stays"
    async with running_broker(tmp_path, limits=limits, deduplication=True) as broker:
        p = await producer(broker)
        assert p.last == 9
        p.send(9)
        assert await p.answers(1) == [(9, REPEATED)]
        await broker.topics[TOPIC].terminate()
    async with running_broker(tmp_path, limits=limits, deduplication=True) as broker:
        topic = await broker.topic(NAME)
        assert topic.deduplication.status is Status.ENABLED
        assert topic.log.is_terminated


async def test_entries_that_nobody_subscribed_to_stay_as_long_as_without_deduplication(tmp_path: Path) -> None:
    limits = {"max_ledger_entries": 4}
    settings: dict[str, Any] = {"deduplication": True, "deduplication_snapshot_entries": 1, "unread_retention_s": 600}
    async with running_broker(tmp_path, limits=limits, **settings) as broker:
        p = await producer(broker)
        for number in range(10):
            p.send(number, publish_time=int(time.time() * 1000))
        await p.answers(10)
        await broker.trim_topics()
        assert len(await stored(broker)) == 10
