"""Producers whose topic is deleted and created again while messages are pending: its schema has another version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from magnetar.client import AsyncClient, AutoConsumeSchema, AvroSchema, ClientConfig, ProducerConfig, StringSchema
from magnetar.client.producers.memory import MemoryLimit
from magnetar.client.producers.observed_queue import ObservedQueue
from magnetar.client.producers.pending_queue import PendingSend
from magnetar.client.producers.schema_renewal import renew_versions
from magnetar.errors import ChecksumError, ConnectionLost
from magnetar.wire.bulk import send_frame_head
from magnetar.wire.payload import open_payload, seal, verify_checksum
from magnetar.wire.pulsar_api_pb2 import BaseCommand, MessageMetadata

from tests.client.clusters import Cluster
from tests.client.proxy import Proxy
from tests.client.scripted import ScriptedBroker, connected, producer_success, send_error
from tests.client.test_bad_days import until
from tests.client.test_schemas import ItemAfter, ItemBefore

OLD, NEW = b"\0\0\0\0\0\0\0\1", b"\0\0\0\0\0\0\0\0"
QUICK = ClientConfig(backoff_initial_ms=1, backoff_max_ms=5)
Sent = tuple[BaseCommand, bytes]


class TwoLives(ScriptedBroker):
    """Has the schema in one version at first and, once `begin_again` was called, in another one."""

    def __init__(self, second: bytes = NEW) -> None:
        super().__init__()
        self.version = OLD
        self.second = second
        self.answers[BaseCommand.CONNECT] = lambda _c, _p: [connected(100_000)]
        self.answers[BaseCommand.PRODUCER] = lambda c, _p: [
            producer_success(c.producer.request_id, schema_version=self.version)
        ]
        self.answers[BaseCommand.SEND] = lambda _c, _p: []

    def begin_again(self, producer: Any) -> None:
        """Lose the connection; from now on messages are stored."""
        self.version = self.second
        self.answers[BaseCommand.SEND] = self.stored
        self.received.clear()
        producer.producer._connection.close(ConnectionLost("the topic is deleted"))

    @property
    def sends(self) -> list[Sent]:
        """The messages that came."""
        return [(command, payload) for command, payload in self.received if command.type == BaseCommand.SEND]


async def twice(
    broker: TwoLives, producer: Any, sends: list[asyncio.Future[Any]], count: int
) -> list[tuple[Sent, Sent]]:
    """What was sent in the first life, and the same in the second."""
    await until(lambda: len(broker.sends) == count, "all was sent")
    first = broker.sends
    broker.begin_again(producer)
    await asyncio.wait_for(asyncio.gather(*sends), 30)
    assert len(broker.sends) == count
    return list(zip(first, broker.sends, strict=True))


def assert_renewed(before: Sent, after: Sent, version: bytes = NEW) -> None:
    assert before[0] == after[0], "the command beside the payload is the same"
    assert verify_checksum(after[1])
    (old, old_body), (new, new_body) = open_payload(before[1]), open_payload(after[1])
    assert (old.schema_version, new.schema_version) == (OLD, version)
    old.ClearField("schema_version")
    new.ClearField("schema_version")
    assert (old, before[1][old_body:]) == (new, after[1][new_body:])


@pytest.mark.parametrize(
    "config",
    [
        ProducerConfig(batching=False),
        ProducerConfig(batching=False, compression="LZ4"),
        ProducerConfig(batch_max_messages=2, compression="ZSTD"),
        ProducerConfig(batch_max_messages=2, batching_type="KeyBased"),
    ],
    ids=["alone", "compressed", "batches", "by key"],
)
@pytest.mark.parametrize("second", [NEW, b"", b"longer version"], ids=["another", "none", "longer"])
async def test_pending_messages_have_the_version_of_the_new_life(config: ProducerConfig, second: bytes) -> None:
    client_config = ClientConfig(backoff_initial_ms=1, backoff_max_ms=5, memory_limit_bytes=1_000_000)
    async with TwoLives(second) as broker, AsyncClient(broker.service_url, client_config) as client:
        producer = await client.create_producer("t", config, schema=StringSchema())
        sends: list[asyncio.Future[Any]] = [producer.send_nowait("x" * 100, key=f"k{index % 2}") for index in range(4)]
        count = 4 if not config.batching or config.batching_type == "KeyBased" else 2
        for before, after in await twice(broker, producer, sends, count):
            assert_renewed(before, after, second)
        assert producer.pending_messages == 0
        shared: Any = client._producers.shared
        assert shared.memory.used_bytes == 0
        await producer.send("later")
        assert open_payload(broker.sends[-1][1])[0].schema_version == second


async def test_pending_chunks_have_the_version_of_the_new_life() -> None:
    config = ProducerConfig(batching=False, chunking_enabled=True)
    async with TwoLives() as broker, AsyncClient(broker.service_url, QUICK) as client:
        producer = await client.create_producer("t", config, schema=StringSchema())
        sends: list[asyncio.Future[Any]] = [producer.send_nowait("x" * 250_000)]
        pairs = await twice(broker, producer, sends, 3)
        for before, after in pairs:
            assert after[0].send.is_chunk
            assert_renewed(before, after)


async def test_with_the_same_version_pending_messages_go_out_as_they_were() -> None:
    async with TwoLives(OLD) as broker, AsyncClient(broker.service_url, QUICK) as client:
        producer = await client.create_producer("t", schema=StringSchema())
        for before, after in await twice(broker, producer, [producer.send_nowait("x")], 1):
            assert before == after


async def test_a_message_that_was_damaged_in_memory_is_still_refused() -> None:
    async with TwoLives() as broker, AsyncClient(broker.service_url, QUICK) as client:
        producer = await client.create_producer("t", ProducerConfig(batching=False), schema=StringSchema())
        damaged, whole = producer.send_nowait("damaged"), producer.send_nowait("whole")
        head = producer.producer._pending.head  # type: ignore[union-attr]
        assert head is not None
        head.payload = head.payload[:-1] + b"?"
        await until(lambda: len(broker.sends) == 2, "both were sent")
        broker.begin_again(producer)
        broker.answers[BaseCommand.SEND] = lambda c, p: (
            broker.stored(c, p) if verify_checksum(p) else [send_error(0, c.send.sequence_id, 9, "Checksum failed")]
        )
        results = await asyncio.wait_for(asyncio.gather(damaged, whole, return_exceptions=True), 30)
        assert isinstance(results[0], ChecksumError)
        assert not isinstance(results[1], BaseException)


async def test_what_has_a_version_of_its_own_keeps_it() -> None:
    memory = MemoryLimit(1000)
    queue = ObservedQueue(memory, lambda: 0.0)
    for sequence_id, version in enumerate((OLD, b"other", b"")):
        metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
        if version:
            metadata.schema_version = version
        payload = seal(metadata, b"x")
        head = send_frame_head(3, sequence_id, None, 1, False, len(payload))
        queue.append(PendingSend(sequence_id, sequence_id, head, payload, 1, 0.0))
    before = [(send.head, send.payload) for send in queue]
    renew_versions(queue, 3, OLD, b"")
    after = [(send.head, send.payload) for send in queue]
    assert after[1:] == before[1:]
    assert open_payload(after[0][1])[0].schema_version == b""
    assert after[0][0] == send_frame_head(3, 0, None, 1, False, len(after[0][1]))
    assert queue.bytes == memory.used_bytes == sum(len(payload) for _, payload in after)


@pytest.mark.slow
async def test_what_was_pending_when_its_topic_was_deleted_can_be_read_in_the_next_life(
    client: AsyncClient, proxied: AsyncClient, proxy: Proxy, cluster: Cluster, topic: str
) -> None:
    await (await client.create_producer(topic, schema=AvroSchema(ItemBefore))).close()
    producer = await proxied.create_producer(topic, schema=AvroSchema(ItemAfter))  # the second version
    proxy.hold_requests()
    sent = producer.send_nowait(ItemAfter("pending", 2, "red"))
    proxy.refuses = True
    proxy.cut()
    cluster.delete(topic)
    consumer = await client.subscribe(topic, "s", schema=AutoConsumeSchema())
    proxy.refuses = False
    proxy.resume()
    await asyncio.wait_for(sent, 60)
    message = await consumer.receive(20)
    assert int.from_bytes(message.schema_version, "big") == 0
    assert message.value["name"] == "pending"
