"""What one client owns is released, and what it makes the broker remember is bounded, a limited part at a time."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from magnetar.broker.policies import rate_limit
from magnetar.broker.policies.effective import Rate
from magnetar.broker.policies.rate_limit import SubscribeLimit
from magnetar.broker.session.turns import SLICE_S
from magnetar.broker.storage import Storage
from magnetar.broker.topics import compaction_rules, incarnations
from magnetar.broker.topics.compaction_rules import Latest
from magnetar.broker.topics.maintenance import TOPICS_PER_TURN
from magnetar.broker.topics.unloading import Unloading
from magnetar.tasks import called_back
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import MessageMetadata
from magnetar.wire.topic_name import parse_topic_name

from .brokers import running_broker
from .raw import Raw

TOPIC = "persistent://public/wire/turns"
MEMBERS = 40


async def test_a_connection_releases_its_producers_and_consumers_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path) as broker:
        client, other = [await Raw.connected(broker.port) for _ in range(2)]
        for number in range(MEMBERS):
            name = f"p{number}"
            answer = await client.request(
                "PRODUCER", topic=TOPIC, producer_id=number, request_id=number, producer_name=name
            )
            assert answer.HasField("producer_success")
            answer = await client.request(
                "SUBSCRIBE", topic=TOPIC, subscription=f"s{number}", subType="Exclusive", consumer_id=number,
                request_id=number,
            )  # fmt: skip
            assert answer.HasField("success")
        now_s, turn = 0.0, 0
        detached: Counter[int] = Counter()
        waiting: list[Callable[[], None]] = []
        connection = next(one for one in broker.connections if one.producers)
        monkeypatch.setattr(broker.turns, "monotonic", lambda: now_s)
        monkeypatch.setattr(broker.turns, "wait", waiting.append)

        def slow(detach: Callable[[], None]) -> Callable[[], None]:
            def counted() -> None:
                nonlocal now_s
                now_s += SLICE_S / 4
                detached[turn] += 1
                detach()

            return counted

        members: list[Any] = [*connection.producers.values(), *connection.consumers.values()]
        for member in members:
            member.detach = slow(member.detach)
        connection.abort()
        assert detached[0] <= 6
        # A name that its producer has not given up yet is free for the next one all the same.
        last = f"p{MEMBERS - 1}"
        answer = await other.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=1, producer_name=last)
        assert answer.HasField("producer_success")
        while waiting:
            turn += 1
            waiting.pop()()
        assert max(detached.values()) <= 6
        topic = await broker.topic(parse_topic_name(TOPIC))
        assert list(topic.producers) == [last]
        assert not any(subscription.consumers for subscription in topic.subscriptions.values())
        await client.close()
        await other.close()


def test_the_consumers_whose_subscribing_is_counted_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit, "MAX_SUBSCRIBERS", 10)
    limit = SubscribeLimit(Rate(1, -1, 30), lambda: 0.0)
    for number in range(100):
        assert limit.admits(number)
        assert not limit.admits(number)
        assert len(limit._times) <= 10


def chunk(uuid: str, key: str = "k", number: int = 0, count: int = 2) -> bytes:
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, partition_key=key, uuid=uuid, chunk_id=number,
        num_chunks_from_msg=count,
    )  # fmt: skip
    return seal(metadata, b"x")


def test_unfinished_messages_in_chunks_are_bounded_in_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_rules, "MAX_UNFINISHED", 10)
    latest = Latest(0, 1, 1000, 1 << 20)
    latest.feed(chunk(f"{number:03}" * 1000) for number in range(100))
    assert len(latest._chunks) == 10
    assert max(map(len, latest._chunks)) == 16
    assert len(latest.survivors()) == 100, "chunks of messages whose end may still come stay"
    latest.feed(chunk(f"{number:03}" * 1000, number=1) for number in (98, 99))
    latest.feed([seal(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, partition_key="k"), b"new")])
    assert len(latest.survivors()) == 99  # all but the two messages that were complete, and the new one


async def test_unused_logs_leave_memory_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_broker(tmp_path) as broker:
        batches: list[int] = []
        names = [f"persistent://public/wire/{number}" for number in range(10 * TOPICS_PER_TURN + 1)]
        monkeypatch.setattr(broker.storage, "used_names", lambda: names)

        def unload(batch: list[str]) -> list[Callable[[], bool]]:
            batches.append(len(batch))
            return []

        monkeypatch.setattr(broker.storage, "unload", unload)
        unloading = Unloading(broker, broker._incarnations, lambda _: 0)
        turns: list[int] = []

        async def count() -> None:
            while True:
                turns.append(len(batches))
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        await unloading.unload_idle()
        counting.cancel()
        assert sum(batches) == len(names)
        assert max(batches) <= TOPICS_PER_TURN
        assert max(later - earlier for earlier, later in pairwise(turns)) == 1


SUBSCRIPTIONS = ("Exclusive", "Shared", "Failover", "Key_Shared")


async def test_unloaded_topics_are_freed_without_a_garbage_collection(tmp_path: Path) -> None:
    now_ms = 1_000_000
    async with running_broker(tmp_path, deduplication=True) as broker:
        broker.now_ms = lambda: now_ms  # type: ignore[method-assign]
        unloading = Unloading(broker, broker._incarnations, lambda _: 0)
        storage = cast(Storage, broker.storage)

        async def look(times: int) -> None:
            nonlocal now_ms
            for _ in range(times):
                await called_back(storage._checkpoint.begin)
                storage.take_touched()
                await unloading.unload_idle()
                now_ms += round(broker.config.unload_idle_after_s * 1000)

        client = await Raw.connected(broker.port)
        for number in range(MEMBERS):
            topic = f"persistent://public/wire/freed-{number}"
            for name in SUBSCRIPTIONS:
                consumer = {"consumer_id": number * 10 + len(name), "subType": name}
                client.send("SUBSCRIBE", topic=topic, subscription=name, request_id=1, **consumer)
            client.send("PRODUCER", topic=topic, producer_id=number, request_id=1)
        while len(broker.topics) < MEMBERS or not all(len(it.subscriptions) == 4 for it in broker.topics.values()):
            assert not (await client.receive()).command.HasField("error")
        await client.close()
        async with asyncio.timeout(30):
            while any(  # noqa: ASYNC110
                it.producers or any(s.consumers for s in it.subscriptions.values()) for it in broker.topics.values()
            ):
                await asyncio.sleep(0.01)
        topics = [weakref.ref(topic) for name, topic in broker.topics.items() if "freed" in name]
        logs = [weakref.ref(topic().log) for topic in topics]  # type: ignore[union-attr]
        assert len(topics) == MEMBERS
        used_topic, used_subscription = topics[0](), topics[1]().subscriptions["Shared"]  # type: ignore[union-attr]
        assert used_topic is not None
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                await look(1)
            assert not broker.topics
            assert not storage.used_names()
            assert [topic() is not None for topic in topics] == [True, True] + [False] * (MEMBERS - 2)
            assert used_topic.is_closed
            assert used_topic.log.entry_count == 0
            assert used_subscription.topic.subscriptions["Shared"] is used_subscription
            del used_topic, used_subscription
            await look(2)
            assert not any(topic() for topic in topics)
            await look(1)
            assert not any(log() for log in logs)
        finally:
            gc.enable()


async def test_a_topic_being_loaded_is_not_taken_for_an_unused_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(tmp_path) as broker:
        storage = cast(Storage, broker.storage)
        unloading = Unloading(broker, broker._incarnations, lambda _: 0)
        name = parse_topic_name(TOPIC)
        await (await broker.topic(name)).publish(b"x", 1, 1)
        broker._incarnations.unload(name)
        storage.open_log(TOPIC).close_ledger()
        await called_back(storage._checkpoint.begin)
        storage.take_touched()
        may_go_on = asyncio.Event()

        async def slow(*_: object) -> None:
            await may_go_on.wait()

        monkeypatch.setattr(incarnations, "read_epoch", slow)
        loading = asyncio.ensure_future(broker.topic(name))
        await asyncio.sleep(0.05)
        for _ in range(30):
            await unloading.unload_idle()
        may_go_on.set()
        topic = await loading
        for _ in range(30):
            await unloading.unload_idle()
        assert topic.log is storage.open_log(TOPIC)
        await topic.publish(b"y", 1, 1)
        assert topic.log.entry_count == 2
