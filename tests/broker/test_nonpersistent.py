"""Non-persistent topics: entries for who takes them now, drops counted, nothing stored."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from magnetar.broker.service import BrokerService
from magnetar.broker.topics.nonpersistent import NonPersistentSubscription, NonPersistentTopic
from magnetar.errors import NotAllowed
from magnetar.wire.frames import Frame
from magnetar.wire.payload import open_payload
from magnetar.wire.pulsar_api_pb2 import BaseCommand, CommandSubscribe, ServerError
from magnetar.wire.topic_name import parse_topic_name

from .brokers import running_broker
from .raw import Raw

TOPIC = "non-persistent://public/wire/t"
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = (
    CommandSubscribe.Exclusive, CommandSubscribe.Shared, CommandSubscribe.Failover, CommandSubscribe.Key_Shared
)  # fmt: skip


async def subscribe(raw: Raw, id_: int = 1, kind: int = EXCLUSIVE, topic: str = TOPIC, **more: Any) -> BaseCommand:
    fields = {"subscription": "s", "consumer_name": f"c{id_}", "durable": True} | more
    raw.send("SUBSCRIBE", topic=topic, subType=kind, consumer_id=id_, request_id=id_, **fields)
    while (command := (await raw.receive()).command).type == BaseCommand.ACTIVE_CONSUMER_CHANGE:
        pass
    return command


async def produce(raw: Raw, topic: str = TOPIC, id_: int = 1, **more: Any) -> BaseCommand:
    return await raw.request("PRODUCER", topic=topic, producer_id=id_, request_id=100, **more)


async def connected(broker: BrokerService) -> Raw:
    return await Raw.connected(broker.port)


def bodies(frames: list[Frame], consumer_id: int | None = None) -> list[bytes]:
    return [
        frame.payload[open_payload(frame.payload)[1] :]
        for frame in frames
        if frame.command.type == BaseCommand.MESSAGE and consumer_id in (None, frame.command.message.consumer_id)
    ]


def live(broker: BrokerService, topic: str = TOPIC) -> NonPersistentTopic:
    it = broker.topics[topic]
    assert isinstance(it, NonPersistentTopic)
    return it


def dropped(broker: BrokerService, subscription: str = "s") -> int:
    it = live(broker).subscriptions[subscription]
    assert isinstance(it, NonPersistentSubscription)
    return it.messages_dropped


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_entries_beyond_the_permits_are_dropped_and_counted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await connected(broker)
        await produce(raw)
        await subscribe(raw)
        raw.send("FLOW", consumer_id=1, messagePermits=3)
        for number in range(5):
            raw.send_message(b"%d" % number, sequence_id=number)
        frames = await raw.barrier()
        assert bodies(frames) == [b"0", b"1", b"2"]
        receipts = [frame.command.send_receipt for frame in frames if frame.command.HasField("send_receipt")]
        assert [(one.sequence_id, one.message_id.ledgerId, one.message_id.entryId) for one in receipts] == [
            (number, 0, 0) for number in range(5)
        ]
        assert dropped(broker) == 2
        assert live(broker).messages_dropped == 2
        raw.send("FLOW", consumer_id=1, messagePermits=3)
        assert not await raw.barrier()  # what was dropped does not come later
        await raw.close()


async def test_messages_of_a_batch_are_counted_each(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await connected(broker)
        await produce(raw)
        await subscribe(raw)
        for _ in range(2):
            raw.send_message(b"\x00\x00\x00\x00" * 10, metadata={"num_messages_in_batch": 4})
            raw.send("FLOW", consumer_id=1, messagePermits=1)
        frames = await raw.barrier()
        assert len(bodies(frames)) == 1  # a permit takes a whole entry
        assert dropped(broker) == 4
        assert live(broker).subscriptions["s"].consumers[0].permits == -2
        await raw.close()


async def test_shared_consumers_take_turns_and_who_has_no_permits_is_passed_over(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await connected(broker)
        await produce(raw)
        for id_ in (1, 2, 3):
            await subscribe(raw, id_, SHARED)
        raw.send("FLOW", consumer_id=1, messagePermits=100)
        raw.send("FLOW", consumer_id=3, messagePermits=1)
        for number in range(6):
            raw.send_message(b"%d" % number, sequence_id=number)
        frames = await raw.barrier()
        counts = Counter(frame.command.message.consumer_id for frame in frames if frame.payload)
        assert counts == {1: 5, 3: 1}
        assert dropped(broker) == 0
        await raw.close()


async def test_each_key_goes_to_its_consumer_and_is_dropped_where_that_takes_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await connected(broker)
        await produce(raw)
        for id_ in (1, 2):
            await subscribe(raw, id_, KEY_SHARED, consumer_name=f"c{id_}")
            raw.send("FLOW", consumer_id=id_, messagePermits=10 if id_ == 1 else 1)
        readers: dict[bytes, set[int]] = {}
        for number in range(10):
            raw.send_message(b"%d" % (number % 5), sequence_id=number, metadata={"partition_key": f"k{number % 5}"})
        for frame in await raw.barrier():
            if frame.payload:
                readers.setdefault(frame.payload[-1:], set()).add(frame.command.message.consumer_id)
        assert all(len(of_key) == 1 for of_key in readers.values())
        counts = Counter(id_ for of_key in readers.values() for id_ in of_key)
        assert counts[1] > 0
        assert counts[2] == 1
        assert dropped(broker) == 2 * (5 - counts[1]) - 1
        await raw.close()


async def test_the_active_consumer_changes_at_once_under_failover(tmp_path: Path) -> None:
    async with running_broker(tmp_path, failover_delay_s=3600.0) as broker:
        raw = await connected(broker)
        await produce(raw)
        for id_ in (1, 2):
            await subscribe(raw, id_, FAILOVER, topic=TOPIC)
            raw.send("FLOW", consumer_id=id_, messagePermits=10)
        await raw.barrier()
        active = live(broker).subscriptions["s"].active_consumer
        assert active is not None
        raw.send_message(b"0")
        assert bodies(await raw.barrier(), active.id) == [b"0"]
        raw.send("CLOSE_CONSUMER", consumer_id=active.id, request_id=9)
        raw.send_message(b"1")
        assert bodies(await raw.barrier(), 3 - active.id) == [b"1"]
        await raw.close()


async def test_a_consumer_whose_socket_is_full_is_not_waited_for(tmp_path: Path) -> None:
    async with running_broker(tmp_path, write_buffer_bytes=100_000) as broker:
        slow, raw = await connected(broker), await connected(broker)
        await subscribe(slow)
        slow.send("FLOW", consumer_id=1, messagePermits=1_000_000)
        await slow.barrier()
        await produce(raw)
        body, sent = b"x" * 50_000, 0
        while not dropped(broker):
            raw.send_message(body, sequence_id=sent)
            sent += 1
            await raw.barrier()
            assert sent < 2000, "the socket of a consumer that reads nothing takes 100 MB"
        raw.send_message(body, sequence_id=sent)
        (frame,) = await raw.barrier()
        assert frame.command.send_receipt.sequence_id == sent
        received = 0
        while received < sent - dropped(broker) + 1:
            frame = await slow.receive()
            received += frame.command.type == BaseCommand.MESSAGE
        await raw.close()
        await slow.close()


async def test_a_subscription_goes_with_its_last_consumer_durable_or_not(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await connected(broker)
        await subscribe(raw, 1, SHARED)
        answer = await subscribe(raw, 2, SHARED, durable=False)  # no difference is made
        assert answer.HasField("success")
        raw.send("CLOSE_CONSUMER", consumer_id=1, request_id=3)
        await raw.barrier()
        assert list(live(broker).subscriptions) == ["s"]
        raw.send("UNSUBSCRIBE", consumer_id=2, request_id=4)
        assert (await raw.receive()).command.success.request_id == 4
        assert live(broker).subscriptions == {}
        await subscribe(raw, 5)
        await raw.close()
        await until(lambda: not live(broker).subscriptions)


async def test_a_producer_leaves_no_subscription(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await connected(broker)
        answer = await produce(raw, initial_subscription_name="s")
        assert answer.HasField("producer_success")
        assert live(broker).subscriptions == {}
        await raw.close()


async def test_drops_count_for_the_topic_after_their_subscription(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await connected(broker)
        await produce(raw)
        await subscribe(raw)
        raw.send_message(b"0")
        raw.send("CLOSE_CONSUMER", consumer_id=1, request_id=3)
        raw.send_message(b"1")  # for no subscription at all: not counted, as in Pulsar
        await raw.barrier()
        assert live(broker).messages_dropped == 1
        await raw.close()


async def test_statistics_show_rates_of_drops(tmp_path: Path) -> None:
    async with running_broker(tmp_path, stats_period_s=0.2) as broker:
        raw = await connected(broker)
        await produce(raw)
        await subscribe(raw)
        raw.send("FLOW", consumer_id=1, messagePermits=1)
        topic = live(broker)
        sent = 0
        async with asyncio.timeout(30):
            while not topic.stats()["msgDropRate"]:
                raw.send_message(b"m", sequence_id=sent)
                sent += 1
                await raw.barrier()
        stats = topic.stats()
        assert stats["subscriptions"]["s"]["msgDropRate"] > 0
        assert stats["publishers"][0]["msgDropRate"] == 0.0
        assert (stats["msgInCounter"], stats["msgOutCounter"], stats["storageSize"]) == (sent, 1, 0)
        assert topic.internal_stats()["entriesAddedCounter"] == sent
        await until(lambda: topic.stats()["msgDropRate"] == 0.0)
        await raw.close()


@pytest.mark.parametrize(
    ("more", "code", "text"),
    [
        ({"read_compacted": True}, ServerError.NotAllowedError, "readCompacted only valid on persistent topics"),
    ],
)
async def test_what_needs_stored_entries_is_refused(more: dict[str, Any], code: Any, text: str, tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await connected(broker)
        error = (await subscribe(raw, **more)).error
        assert error.error == code
        assert text in error.message
        await raw.close()


async def test_seek_acknowledgement_and_redelivery_change_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await connected(broker)
        await produce(raw)
        await subscribe(raw, 1, SHARED)
        raw.send("FLOW", consumer_id=1, messagePermits=10)
        raw.send_message(b"0")
        assert bodies(await raw.barrier()) == [b"0"]
        here = {"ledgerId": 0, "entryId": 0}
        raw.send("ACK", consumer_id=1, ack_type="Individual", message_id=[here], request_id=7)
        assert (await raw.receive()).command.ackResponse.request_id == 7
        raw.send("ACK", consumer_id=1, ack_type="Cumulative", message_id=[here], request_id=8)
        assert (await raw.receive()).command.ackResponse.request_id == 8
        raw.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
        raw.send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1, message_ids=[here])
        raw.send("SEEK", consumer_id=1, request_id=9, message_publish_time=0)
        assert (await raw.receive()).command.success.request_id == 9
        raw.send("GET_LAST_MESSAGE_ID", consumer_id=1, request_id=10)
        assert (await raw.receive()).command.error.error == ServerError.UnknownError
        await raw.close()


async def test_a_topic_that_is_unloaded_is_gone_and_comes_back(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await connected(broker)
        await produce(raw)
        await subscribe(raw)
        first = live(broker)
        await broker.unload_topic(first.name)
        closed = {frame.command.type for frame in await raw.barrier()}
        assert closed == {BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER}
        assert not broker.has_topic(first.name)
        raw.send_message(b"late")  # on its way when the topic was closed
        assert not await raw.barrier()
        await produce(raw)
        assert live(broker) is not first
        assert broker.non_persistent_names("public/wire") == [TOPIC]
        assert broker.topic_names("public/wire") == []
        await raw.close()


async def test_nothing_of_it_is_stored(tmp_path: Path) -> None:
    name = parse_topic_name(TOPIC)
    async with running_broker(tmp_path, deduplication=True, compaction_threshold_bytes=1) as broker:
        raw = await connected(broker)
        assert (await produce(raw, producer_access_mode="Exclusive")).producer_success.topic_epoch == 0
        await subscribe(raw)
        raw.send_message(b"0", metadata={"deliver_at_time": 1 << 41})
        assert [frame.command.send_receipt.message_id.ledgerId for frame in await raw.barrier()] == [0]
        topic = live(broker)
        await broker.adjust_deduplication([topic])
        await broker.trim_topics()
        with pytest.raises(NotAllowed, match="non-persistent"):
            await topic.terminate()
        with pytest.raises(NotAllowed, match="non-persistent"):
            topic.begin_compaction()
        with pytest.raises(NotAllowed, match="stores no data"):
            topic.log.open_cursor("s", topic.log.last_confirmed)
        assert await broker.namespaces.store.get("/admin/topic-epochs/non-persistent/public/wire/t") is None
        assert not broker.storage.has_log(TOPIC)
        await raw.close()
        await until(lambda: not topic.subscriptions and not topic.producers)
        await broker.delete_topic(name)
        assert not broker.has_topic(name)
    async with running_broker(tmp_path) as broker:
        assert broker.storage.log_names() == []


async def test_an_idle_topic_is_deleted_whatever_the_settings_say(tmp_path: Path) -> None:
    async with running_broker(tmp_path, inactive_check_s=0.05, retention_minutes=-1) as broker:
        raw = await connected(broker)
        await subscribe(raw)
        await broker.topic(parse_topic_name("non-persistent://public/wire/idle"))
        kept = await broker.topic(parse_topic_name("public/wire/stored"))
        await until(lambda: list(broker.topics) == [TOPIC, str(kept.name)])
        await raw.close()
        await until(lambda: list(broker.topics) == [str(kept.name)])


async def test_partitions_are_topics_of_their_own(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        await broker.namespaces.create_partitioned_topic(parse_topic_name(TOPIC), 2, {})
        raw = await connected(broker)
        answer = await raw.request("PARTITIONED_METADATA", topic=TOPIC, request_id=1)
        assert answer.partitionMetadataResponse.partitions == 2
        assert (await produce(raw)).error.error == ServerError.NotAllowedError
        part = f"{TOPIC}-partition-1"
        await produce(raw, topic=part)
        await subscribe(raw, topic=part)
        raw.send("FLOW", consumer_id=1, messagePermits=1)
        raw.send_message(b"0")
        frames = [frame for frame in await raw.barrier() if frame.payload]
        assert [frame.command.message.message_id.partition for frame in frames] == [1]
        assert (await produce(raw, topic=f"{TOPIC}-partition-2", id_=2)).error.error == ServerError.NotAllowedError
        await raw.close()


async def test_a_failure_of_one_subscription_is_not_that_of_another(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await connected(broker)
        await produce(raw)
        for id_ in (1, 2):
            await subscribe(raw, id_, subscription=f"s{id_}")
            raw.send("FLOW", consumer_id=id_, messagePermits=10)
        await raw.barrier()

        def fail(*_: object) -> int:
            raise RuntimeError("a mistake of ours")

        live(broker).subscriptions["s1"].consumers[0].send = fail  # type: ignore[method-assign, assignment]
        raw.send_message(b"0")
        frames = await raw.barrier()
        assert bodies(frames, 2) == [b"0"]
        assert [
            frame.command.close_consumer.consumer_id for frame in frames if frame.command.HasField("close_consumer")
        ] == [1]
        assert any(frame.command.HasField("send_receipt") for frame in frames)
        await raw.close()
