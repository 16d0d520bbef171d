"""Key_Shared by our own client: batches of one key, sticky ranges, and what is refused."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest
from magnetar.client import (
    AsyncClient,
    Consumer,
    ConsumerConfig,
    ConsumerKeySharedPolicy,
    InvalidConfig,
    MergedConsumer,
    ProducerConfig,
)
from magnetar.errors import ConsumerAssignError, ConsumerBusy
from magnetar.wire.pulsar_api_pb2 import BaseCommand

from tests.client.scripted import ScriptedBroker

KEYS = [f"key-{number}" for number in range(10)]


async def subscribe(client: AsyncClient, topic: str, name: str, **settings: Any) -> Consumer | MergedConsumer:
    return await client.subscribe(topic, "s", ConsumerConfig(type="Key_Shared", name=name, **settings))


async def publish(client: AsyncClient, topic: str, count: int) -> list[int]:
    """Publish numbers with a key each; return the entries that they are in."""
    producer = await client.create_producer(topic, ProducerConfig(batching_type="KeyBased"))
    async with producer:
        ids = await asyncio.gather(
            *(producer.send(b"%d" % number, key=KEYS[number % len(KEYS)]) for number in range(count))
        )
    return [each.entry_id for each in ids]


async def test_batches_of_one_key_keep_each_key_with_one_consumer(client: AsyncClient, topic: str) -> None:
    consumers = [await subscribe(client, topic, name) for name in "ab"]
    entries = await publish(client, topic, 200)
    assert len(set(entries)) < 100, "messages were not batched"
    for number, entry in enumerate(entries):
        assert all(entries[other] != entry or (other - number) % len(KEYS) == 0 for other in range(number))
    seen: dict[str, list[int]] = defaultdict(list)
    readers: dict[str, set[int]] = defaultdict(set)

    async def read(consumer: Consumer | MergedConsumer) -> None:
        while sum(map(len, seen.values())) < 200:
            message = await consumer.receive()
            assert message.key is not None
            seen[message.key].append(int(message.data))
            readers[message.key].add(id(consumer))
            consumer.ack(message)

    async with asyncio.timeout(60):
        tasks = [asyncio.create_task(read(consumer)) for consumer in consumers]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
    assert seen == {key: list(range(number, 200, len(KEYS))) for number, key in enumerate(KEYS)}
    assert {len(of_key) for of_key in readers.values()} == {1}


async def test_sequence_ids_of_batches_of_one_key_follow_each_other() -> None:
    async with ScriptedBroker() as scripted, AsyncClient(scripted.service_url) as client:
        producer = await client.create_producer("t", ProducerConfig(batching_type="KeyBased", initial_sequence_id=7))
        sends = [producer.send_nowait(b"x", key=key) for key in ("a", "b", "a", "c", "b")]
        sends += [producer.send_nowait(b"x"), producer.send_nowait(b"x", key="a", ordering_key=b"o")]
        await producer.flush()
        await asyncio.gather(*sends)
    spans = [
        (command.send.sequence_id, command.send.highest_sequence_id, command.send.num_messages)
        for command in scripted.commands(BaseCommand.SEND)
    ]
    assert spans == [(7, 8, 2), (9, 10, 2), (11, 0, 1), (12, 0, 1), (13, 0, 1)]


async def test_sticky_ranges_are_exclusive(client: AsyncClient, topic: str) -> None:
    def policy(*ranges: tuple[int, int]) -> ConsumerKeySharedPolicy:
        return ConsumerKeySharedPolicy(key_shared_mode="Sticky", sticky_ranges=ranges)

    low = await subscribe(client, topic, "low", key_shared_policy=policy((0, 32767)))
    high = await subscribe(client, topic, "high", key_shared_policy=policy((32768, 65535)))
    with pytest.raises(ConsumerAssignError):
        await subscribe(client, topic, "both", key_shared_policy=policy((30000, 40000)))
    with pytest.raises(ConsumerBusy):
        await subscribe(client, topic, "other")
    await publish(client, topic, 10)
    keys: list[str | None] = []

    async def read(consumer: Consumer | MergedConsumer) -> None:
        while True:
            message = await consumer.receive()
            keys.append(message.key)
            consumer.ack(message)

    tasks = [asyncio.create_task(read(consumer)) for consumer in (low, high)]
    async with asyncio.timeout(30):
        while len(keys) < 10:  # noqa: ASYNC110 - what it is about tells nobody
            await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    assert set(keys) == set(KEYS)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"key_shared_mode": "Sticky"}, "if and only if key_shared_mode is 'Sticky'"),
        ({"sticky_ranges": [(0, 1)]}, "if and only if key_shared_mode is 'Sticky'"),
        ({"key_shared_mode": "Sticky", "sticky_ranges": [(5, 4)]}, "reversed or overlapping range"),
        ({"key_shared_mode": "Sticky", "sticky_ranges": [(0, 5), (5, 9)]}, "reversed or overlapping range"),
        ({"key_shared_mode": "Sticky", "sticky_ranges": [(0, 65536)]}, "65535"),
        ({"key_shared_mode": "sticky"}, "key_shared_mode"),
    ],
)
def test_policies_that_nobody_can_have_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        ConsumerKeySharedPolicy(**settings)


def test_settings_without_effect_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="requires type 'Key_Shared'"):
        ConsumerConfig(type="Shared", key_shared_policy=ConsumerKeySharedPolicy())
    with pytest.raises(InvalidConfig, match="requires batching=True"):
        ProducerConfig(batching_type="KeyBased", batching=False)


async def test_sequence_ids_of_the_application_are_refused_with_batches_of_one_key(
    client: AsyncClient, topic: str
) -> None:
    async with await client.create_producer(topic, ProducerConfig(batching_type="KeyBased")) as producer:
        for key in (None, "a"):
            with pytest.raises(InvalidConfig, match="not supported with batching_type 'KeyBased'"):
                producer.send_nowait(b"x", key=key, sequence_id=5)
        await producer.send(b"x", key="a")
