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
from magnetar.broker.topics import compaction_rules
from magnetar.broker.topics.compaction_rules import Latest
from magnetar.broker.topics.maintenance import TOPICS_PER_TURN
from magnetar.broker.topics.unloading import KEPT_MS, Unloading
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

        def unload(batch: list[str]) -> None:
            batches.append(len(batch))

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


async def test_unloaded_topics_are_freed_without_a_garbage_collection(tmp_path: Path) -> None:
    now_ms = 1_000_000
    async with running_broker(tmp_path) as broker:
        broker.now_ms = lambda: now_ms  # type: ignore[method-assign]
        client = await Raw.connected(broker.port)
        for number in range(MEMBERS):
            topic = f"persistent://public/wire/freed-{number}"
            answer = await client.request(
                "SUBSCRIBE", topic=topic, subscription="s", subType="Shared", consumer_id=number, request_id=number
            )
            assert answer.HasField("success")
            answer = await client.request("PRODUCER", topic=topic, producer_id=number, request_id=MEMBERS + number)
            assert answer.HasField("producer_success")
        await client.close()
        topics = [weakref.ref(topic) for name, topic in broker.topics.items() if "freed" in name]
        logs = [weakref.ref(topic().log) for topic in topics]  # type: ignore[union-attr]
        assert len(topics) == MEMBERS
        unloading = Unloading(broker, broker._incarnations, lambda _: 0)
        async with asyncio.timeout(30):
            while any(topic.producers for topic in broker.topics.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        gc.collect()
        gc.disable()
        try:
            await called_back(cast(Storage, broker.storage)._checkpoint.begin)
            for _ in range(2):
                broker.storage.take_touched()
                await unloading.unload_idle()
                assert any(topic() for topic in topics), "a request may still be using them"
                now_ms += round(broker.config.unload_idle_after_s * 1000)
            assert not broker.topics
            now_ms += KEPT_MS
            await unloading.unload_idle()
            assert not any(topic() for topic in topics)
            now_ms += KEPT_MS
            await unloading.unload_idle()
            assert not any(log() for log in logs)
        finally:
            gc.enable()
