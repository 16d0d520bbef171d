"""What no consumer may wait for: a read that fails for an unforeseen reason, a batch that claims too much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.broker.dispatch import dispatcher as entry_reader
from magnetar.broker.dispatch.dispatcher import limit_message_count
from magnetar.broker.service import BrokerService
from magnetar.broker.storage.entry import StoredEntry
from magnetar.broker.storage.topic_log import TopicLog
from magnetar.broker.topics.consumer import Consumer
from magnetar.wire.batch import encode_plain_batch
from magnetar.wire.compression import compress
from magnetar.wire.payload import seal
from magnetar.wire.position import Position
from magnetar.wire.pulsar_api_pb2 import LZ4, CommandSubscribe, MessageMetadata

from .brokers import running_broker
from .test_delivery import TOPIC, close, consumer, position, producer, publish, take

EXCLUSIVE, SHARED = CommandSubscribe.Exclusive, CommandSubscribe.Shared
MAX_BYTES = 5 * 1024 * 1024


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerService]:
    async with running_broker(tmp_path, failover_delay_s=0.0) as it:
        yield it


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
async def test_load_that_fails_for_an_unforeseen_reason_is_tried_again(
    broker: BrokerService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: int
) -> None:
    monkeypatch.setattr(entry_reader, "RETRY_DELAY_S", 0.001)
    source = await producer(broker)
    sent = await publish(source, [b"m"] * 3)
    failures = [ValueError("odd"), RuntimeError("odder"), MemoryError()]
    load = TopicLog.load

    async def failing(self: TopicLog, *arguments: Any) -> list[StoredEntry]:
        if failures:
            raise failures.pop()
        return await load(self, *arguments)

    read = TopicLog.read
    monkeypatch.setattr(TopicLog, "load", failing)
    monkeypatch.setattr(TopicLog, "read", lambda self, *arguments: None if failures else read(self, *arguments))
    sink = await consumer(broker, kind)
    assert [position(frame) for frame in await take(sink, 3)] == sent
    assert sum("retrying in" in record.message for record in caplog.records) == 3
    await close(source, sink)


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
async def test_consumers_are_closed_if_giving_out_entries_fails(
    broker: BrokerService, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    source = await producer(broker)
    sent = await publish(source, [b"m"] * 3)

    def fail(*_: object) -> int:
        raise RuntimeError("odd")

    with monkeypatch.context() as patch:
        patch.setattr(Consumer, "send", fail)
        sink = await consumer(broker, kind)
        assert (await sink.receive()).command.close_consumer.consumer_id == 1
    again = await consumer(broker, kind)
    assert [position(frame) for frame in await take(again, 3)] == sent
    await close(source, sink, again)


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED])
@pytest.mark.parametrize("claimed", [(1 << 31) - 1, (1 << 32) - 1, 0, 2000])
async def test_batch_that_claims_too_much_does_not_use_up_the_permits(
    broker: BrokerService, kind: int, claimed: int
) -> None:
    source = await producer(broker)
    sink = await consumer(broker, kind, permits=10)
    topic = broker.topics[TOPIC]
    payload = seal(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), b"m")
    stored: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
    topic.log.append(payload, claimed, 1, lambda place, _: stored.set_result(place))
    odd = await stored
    topic.grew()
    sent = await publish(source, [b"m"] * 9)
    assert [position(frame) for frame in await take(sink, 10)] == [odd, *sent]
    sink.send("FLOW", consumer_id=1, messagePermits=5)
    more = await publish(source, [b"m"] * 5)
    assert [position(frame) for frame in await take(sink, 5)] == more
    await close(source, sink)


def entry(body: bytes, claimed: int, **metadata: Any) -> StoredEntry:
    head = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **metadata)
    return StoredEntry(Position(1, 0), seal(head, body), claimed)


@given(st.integers(1, 500), st.booleans())
def test_real_batches_are_believed(count: int, is_compressed: bool) -> None:
    body = encode_plain_batch([b""] * count)
    packed = compress(LZ4, body) if is_compressed else body
    kind = LZ4 if is_compressed else 0
    batch = entry(packed, count, num_messages_in_batch=count, compression=kind, uncompressed_size=len(body))
    assert limit_message_count(batch, MAX_BYTES) == batch


@pytest.mark.parametrize(
    "odd",
    [
        entry(b"x" * 50, 100, num_messages_in_batch=100),
        entry(b"x" * 600, 100),
        entry(b"x" * 600, 100, num_messages_in_batch=-5),
        entry(b"x" * 50, 1 << 30, num_messages_in_batch=1 << 30, compression=LZ4, uncompressed_size=(1 << 32) - 1),
        entry(b"x" * 50, 100, num_messages_in_batch=100, compression=LZ4, uncompressed_size=99),
        StoredEntry(Position(1, 0), b"", 7),
        StoredEntry(Position(1, 0), b"\xff" * 99, 7),
    ],
)
def test_what_cannot_be_counts_as_one_message(odd: StoredEntry) -> None:
    assert limit_message_count(odd, MAX_BYTES) == odd._replace(messages=1)
