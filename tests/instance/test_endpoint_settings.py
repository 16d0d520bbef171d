"""What a function's inputSpecs and producerConfig do to its consumers, its entries and its producers."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import defaultdict
from typing import Any

import pytest
from magnetar.client.client import AsyncClient
from magnetar.client.config import ConsumerConfig, ProducerConfig
from magnetar.instance.endpoint_settings import consumer_config, publishing_config
from magnetar.runtime.interface import Runtime
from magnetar.wire import functions_pb2 as records

from tests.instance.test_pipeline_e2e import Start, has_failed, runtime, start
from tests.support.eventually import until
from tests.support.exact import ExactSpec, arrived
from tests.support.function_topics import EARLIEST, no_backlog, receive, send_batches, stats_of
from tests.support.instances import MakeSpec
from tests.support.servers import Server

__all__ = ["runtime", "start"]  # the fixtures


async def entries_of(client: AsyncClient, topic: str, count: int) -> list[list[str | None]]:
    """Return the keys of the messages of each entry of a topic, until there are so many messages."""
    consumer = await client.subscribe(topic, f"entries-{uuid.uuid4().hex}", EARLIEST)
    entries: list[list[str | None]] = []
    while sum(map(len, entries)) < count:
        entry = await asyncio.wait_for(consumer.receive_entry(), 30)
        headers = entry.headers or [entry.metadata]
        entries.append([one.partition_key for one in headers])
    await consumer.close()
    return entries


# -- producers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batching", "largest"),
    [
        ({"enabled": False}, 1),
        ({"enabled": True, "batchingMaxMessages": 3}, 3),
        ({"enabled": True, "batchingMaxBytes": 6}, 2),
        ({"enabled": True, "batchingMaxPublishDelayMs": 1}, 20),
    ],
)
async def test_entries_of_outputs_become_as_large_as_batching_config_says(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str, batching: dict[str, Any], largest: int
) -> None:
    code = (
        "def process(text, context):\n    context.publish(context.get_output_topic() + '-side', text)\n    return text"
    )
    spec = make_spec(code)
    spec.details.sink.producerSpec.batchingSpec.CopyFrom(records.BatchingSpec(**batching))
    await send_batches(client, f"{topic}-in", [[b"m%02d" % number for number in range(20)]])
    await start(spec)
    returned = await entries_of(client, f"{topic}-out", 20)
    published = await entries_of(client, f"{topic}-out-side", 20)
    is_timed = "batchingMaxPublishDelayMs" in batching  # where the calls take longer, there are more entries
    assert max(map(len, returned)) == largest or is_timed
    assert max(map(len, published)) <= largest
    if largest == 1:
        assert len(published) == 20
    messages = await receive(client, f"{topic}-out", 20)
    assert [message.data for message in messages] == [b"m%02d" % number for number in range(20)]


KEYS = """
def process(text, context):
    for number in range(12):
        side = context.get_user_config_value("side")
        context.publish(side, str(number), message_conf={"partition_key": "abc"[number % 3]})
"""


async def test_a_key_based_entry_has_one_key(
    client: AsyncClient, any_runtime: Runtime, make_spec: MakeSpec, topic: str
) -> None:
    spec = make_spec(KEYS, userConfig=f'{{"side": "{topic}-side"}}')
    spec.details.sink.producerSpec.batchBuilder = "KEY_BASED"
    instance = await any_runtime.start(spec)
    await send_batches(client, f"{topic}-in", [[b"x"]])
    entries = await entries_of(client, f"{topic}-side", 12)
    assert sorted(map(tuple, entries)) == [("a",) * 4, ("b",) * 4, ("c",) * 4]
    await instance.stop(30)


async def test_a_key_based_entry_has_one_key_effectively_once(
    client: AsyncClient, start: Start, committing_spec: ExactSpec, topic: str
) -> None:
    spec = committing_spec(KEYS, userConfig=f'{{"side": "{topic}-side"}}')
    spec.details.sink.producerSpec.batchBuilder = "KEY_BASED"
    await start(spec)
    await send_batches(client, f"{topic}-in", [[b"x"]])
    entries = await entries_of(client, f"{topic}-side", 12)
    assert sorted(map(tuple, entries)) == [("a",) * 4, ("b",) * 4, ("c",) * 4]
    consumers = [
        await client.subscribe(
            f"{topic}-side", "shared", ConsumerConfig(type="Key_Shared", initial_position="Earliest")
        )
        for _ in range(3)
    ]
    seen = defaultdict(list)
    for consumer in consumers:
        while (message := consumer.poll()) is not None:
            seen[message.key].append(consumer)
    assert all(len(set(by)) == 1 for by in seen.values())  # the broker saw the key of each entry


async def test_a_sequence_id_beside_key_based_batches_is_refused_where_it_is_given(
    client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = "def process(text, context):\n    context.publish('t', text, message_conf={'sequence_id': 1})"
    spec = make_spec(code)
    spec.details.sink.producerSpec.batchBuilder = "KEY_BASED"
    instance = await start(spec)
    await send_batches(client, f"{topic}-in", [[b"x"]])
    await has_failed(instance, 1)
    (latest,) = (await instance.status()).latestUserExceptions
    assert "batchBuilder KEY_BASED, which numbers messages by key: remove one of them" in latest.exceptionString


async def test_threads_have_producers_of_their_own_where_that_is_asked_for(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    code = """
import threading
def process(text, context):
    side = context.get_user_config_value("side")
    context.publish(side, "mine")
    other = threading.Thread(target=context.publish, args=(side, "another's"))
    other.start()
    other.join()
"""
    spec = make_spec(code, userConfig=f'{{"side": "{topic}-side"}}')
    spec.details.sink.producerSpec.useThreadLocalProducers = True
    await start(spec)
    await send_batches(client, f"{topic}-in", [[b"x"]])
    await receive(client, f"{topic}-side", 2)
    assert len((await stats_of(server, f"{topic}-side"))["publishers"]) == 2


def test_settings_of_producers_reach_what_the_context_publishes(make_spec: MakeSpec) -> None:
    spec = make_spec()
    assert publishing_config(spec, "NONE") == ProducerConfig(send_timeout_ms=0)
    producer = spec.details.sink.producerSpec
    producer.maxPendingMessages, producer.maxPendingMessagesAcrossPartitions = 70, 7
    producer.batchingSpec.CopyFrom(
        records.BatchingSpec(
            enabled=True, batchingMaxPublishDelayMs=5, batchingMaxMessages=6, batchingMaxBytes=8,
            batchBuilder="KEY_BASED",
        )
    )  # fmt: skip
    assert publishing_config(spec, "ZSTD") == ProducerConfig(
        send_timeout_ms=0, compression="ZSTD", max_pending_messages=7, batch_max_delay_ms=5, batch_max_messages=6,
        batch_max_bytes=8, batching_type="KeyBased",
    )  # fmt: skip


# -- consumers ------------------------------------------------------------------------------------------------------


def test_receiver_queue_size_is_that_of_the_topic(make_spec: MakeSpec, topic: str) -> None:
    spec = make_spec()
    usual = consumer_config(spec, f"{topic}-in").receiver_queue_size
    spec.details.source.inputSpecs[f"{topic}-in"].receiverQueueSize.value = usual + 7
    assert consumer_config(spec, f"{topic}-in").receiver_queue_size == usual + 7


async def test_properties_of_a_consumer_have_their_effect(
    client: AsyncClient, any_runtime: Runtime, make_spec: MakeSpec, topic: str
) -> None:
    code = (
        "seen = []\ndef process(text):\n    seen.append(text)\n    if seen == ['x']: raise ValueError\n    return text"
    )
    spec = make_spec(code)
    given = spec.details.source.inputSpecs[f"{topic}-in"].consumerProperties
    given["negativeAckRedeliveryDelayMicros"] = "50000"  # by default a minute
    given["priorityLevel"] = "3"
    assert consumer_config(spec, f"{topic}-in").priority_level == 3
    instance = await any_runtime.start(spec)
    await send_batches(client, f"{topic}-in", [[b"x"]])
    assert [message.data for message in await receive(client, f"{topic}-out", 1)] == [b"x"]
    await instance.stop(30)


@pytest.mark.parametrize("kind", [records.SHARED, records.FAILOVER])
async def test_skip_to_latest_skips_the_backlog_at_each_start(
    server: Server, client: AsyncClient, any_runtime: Runtime, make_spec: MakeSpec, topic: str, kind: int
) -> None:
    spec = make_spec("def process(text):\n    return text", source={"skipToLatest": True, "subscriptionType": kind})
    for number in range(2):
        await send_batches(client, f"{topic}-in", [[b"skipped", b"too"]])
        instance = await any_runtime.start(spec)

        async def is_running() -> bool:
            return (await instance.status()).running  # noqa: B023  of this round

        await until(is_running)
        await send_batches(client, f"{topic}-in", [[b"%d" % number]])
        await arrived(client, f"{topic}-out", number + 1)
        await instance.stop(30)
    assert [message.data for message in await receive(client, f"{topic}-out", 2)] == [b"0", b"1"]


KEYED = """
seen = set()
def process(text, context):
    if text in ("k3 10", "k5 2") and text not in seen:
        seen.add(text)
        raise ValueError(text)
    return f"{context.get_message_key()} {text} {context.get_instance_id()}"
"""


async def test_instances_keep_the_order_of_each_key(
    server: Server, client: AsyncClient, start: Start, make_spec: MakeSpec, topic: str
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    keyed = {"subscriptionType": records.KEY_SHARED, "negativeAckRedeliveryDelayMs": 50}
    specs = [make_spec(KEYED, instance_id=number, source=keyed) for number in range(2)]
    instances = [await start(spec) for spec in specs]
    producer = await client.create_producer(f"{topic}-in", ProducerConfig(batching_type="KeyBased"))
    numbers = dict.fromkeys((f"k{number}" for number in range(32)), 0)

    async def send(count: int) -> None:
        for _ in range(count):
            key = rng.choice(list(numbers))
            await producer.ready()
            producer.send_nowait(f"{key} {numbers[key]}".encode(), key=key)
            numbers[key] += 1

    consumer = await client.subscribe(f"{topic}-out", "test", EARLIEST)
    came: dict[str, list[int]] = defaultdict(list)
    instance_of: dict[str, list[str]] = defaultdict(list)

    async def take_one() -> str:
        key, _, number, instance = (await consumer.receive(30)).data.decode().split()
        came[key].append(int(number))
        instance_of[key].append(instance)
        return instance

    await send(1000)
    while await take_one() != "0":
        pass
    await instances[0].stop(30)  # in the middle: its keys go to the other one, with what it had not acknowledged
    await send(500)
    await producer.flush()
    while sum(len(set(found)) for found in came.values()) < 1500:
        await take_one()
    await no_backlog(server, f"{topic}-in")
    for key, found in came.items():
        first = list(dict.fromkeys(found))
        failed = [number for name, number in (("k3", 10), ("k5", 2)) if name == key]
        assert [one for one in first if one not in failed] == [n for n in range(numbers[key]) if n not in failed], key
        # A key goes from the first instance to the second once, and never back.
        assert instance_of[key] == sorted(instance_of[key])
    assert {instance for by in instance_of.values() for instance in by} == {"0", "1"}
