"""Values that the protocol cannot carry: refused by the call that gives them, and nothing beside them is harmed."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from magnetar.client import (
    AsyncClient,
    ConsumerConfig,
    ConsumerDeadLetterPolicy,
    MessageId,
    ProducerConfig,
    ReaderConfig,
    encode_entry,
)
from magnetar.client.blocking import Client
from magnetar.client.producers.producer import Producer
from magnetar.errors import ClosedError, InvalidConfig, MessageTooLarge

from tests.client.clusters import Cluster
from tests.client.test_consumer import producing, subscribe, until

LONE = "a\udc80b"
NOT_SENT: list[tuple[dict[str, Any], str]] = [
    ({"event_time_ms": -1}, "invalid event_time_ms -1: expected 0 to 9223372036854775807"),
    ({"event_time_ms": 2**63}, "invalid event_time_ms 9223372036854775808: expected 0 to"),
    ({"event_time_ms": 2**70}, "expected 0 to"),
    ({"event_time_ms": math.nan}, "invalid event_time_ms nan: expected an int, .* got float"),
    ({"key": LONE}, r"key cannot be encoded as UTF-8: lone surrogate U\+DC80 at index 1"),
    ({"key": 5}, "invalid key 5: expected a str, got int"),
    ({"ordering_key": "text"}, "invalid ordering_key 'text': expected bytes, got str"),
    ({"properties": {LONE: "x"}}, "name 'a.udc80b' in properties cannot be encoded as UTF-8: lone surrogate U.DC80"),
    ({"properties": {"a": LONE}}, "value of 'a' in properties cannot be encoded as UTF-8"),
    ({"properties": {"a": 5}}, "invalid value of 'a' in properties 5: expected a str"),
    ({"properties": [("a", "b")]}, "invalid properties .*: expected a dict of str, got list"),
    ({"sequence_id": -1}, "invalid sequence_id -1: expected 0 to"),
    ({"sequence_id": 2**63}, "expected 0 to"),
    ({"sequence_id": "5"}, "invalid sequence_id '5': expected an int"),
]


@pytest.mark.parametrize("batching", [True, False])
async def test_odd_values_are_refused_by_send_and_harm_no_other_message(
    client: AsyncClient, topic: str, batching: bool
) -> None:
    producer = await producing(client, topic, batching=batching)
    sends = [producer.send_nowait(b"first", key="k")]
    for options, why in NOT_SENT:
        with pytest.raises(InvalidConfig, match=why) as refusal:
            producer.send_nowait(b"odd", **options)
        assert "\n" not in str(refusal.value)
        str(refusal.value).encode()
    with pytest.raises(InvalidConfig, match="invalid payload: expected bytes, got str"):
        producer.send_nowait("text")  # type: ignore[arg-type]
    with pytest.raises(MessageTooLarge):
        producer.send_nowait(b"", properties={"a": "b" * 6_000_000})
    sends.append(producer.send_nowait(cast(bytes, bytearray(b"last")), properties={"a": "b"}))
    await asyncio.wait_for(asyncio.gather(*sends), 30)
    assert producer.last_sequence_id == 1, "a refused message used up a sequence id"


async def test_a_message_that_is_too_large_with_its_key_fails_alone(client: AsyncClient, topic: str) -> None:
    """Its key goes into the entry's metadata once more; a frame beyond the limit would end every connection."""
    producer = await producing(client, topic, batch_max_delay_ms=20)
    before, after = producer.send_nowait(b"before"), producer.send_nowait(b"before, too")
    with_key = producer.send_nowait(b"", key="k" * 3_000_000)
    later = producer.send_nowait(b"later")
    with pytest.raises(MessageTooLarge, match="bytes of keys and properties exceeds"):
        await asyncio.wait_for(with_key, 30)
    await asyncio.wait_for(asyncio.gather(before, after, later), 30)
    assert producer.is_connected


def test_odd_settings_are_refused_by_name() -> None:
    cases: list[tuple[Callable[..., object], dict[str, Any], str]] = [
        (ProducerConfig, {"name": LONE}, "name cannot be encoded as UTF-8"),
        (ProducerConfig, {"properties": {"a": LONE}}, "value of 'a' in properties cannot be encoded"),
        (
            ProducerConfig,
            {"initial_sequence_id": 2**63},
            "invalid initial_sequence_id 9223372036854775808: expected 0 to",
        ),
        (ProducerConfig, {"batch_max_delay_ms": math.nan}, "invalid batch_max_delay_ms nan: expected a finite number"),
        (ConsumerConfig, {"receiver_queue_size": 2**31}, "invalid receiver_queue_size 2147483648: expected 0 to"),
        (ConsumerConfig, {"subscription_properties": {"a": 1}}, "invalid value of 'a' in subscription_properties 1"),
        (ConsumerConfig, {"priority_level": 2**31}, "invalid priority_level 2147483648: expected 0 to"),
        (ConsumerConfig, {"ack_grouping_ms": math.inf}, "invalid ack_grouping_ms inf: expected a finite number"),
        (ReaderConfig, {"subscription_prefix": LONE}, "subscription_prefix cannot be encoded as UTF-8"),
    ]
    for make, settings, why in cases:
        with pytest.raises(InvalidConfig, match=why):
            make(**settings)


async def test_odd_names_and_ids_are_refused_at_once(client: AsyncClient, topic: str) -> None:
    with pytest.raises(InvalidConfig, match="topic cannot be encoded as UTF-8"):
        await client.create_producer(topic + LONE)
    with pytest.raises(InvalidConfig, match="subscription cannot be encoded as UTF-8"):
        await client.subscribe(topic, LONE)
    consumer = await subscribe(client, topic, type="Exclusive", ack_receipts=True)
    for odd in (MessageId(-2, 0), MessageId(2**63, 0), MessageId(1, 2**64), MessageId(1, 1, -1, 3, 2**40)):
        for call in (consumer.ack, consumer.ack_entry, consumer.ack_cumulative, consumer.negative_ack):
            with pytest.raises(InvalidConfig, match=r"message id .*: expected "):
                call(odd)
    for target in (-1, 2**63, MessageId(-5, 2)):
        with pytest.raises(InvalidConfig, match=r"expected (0|-1) to"):
            await consumer.seek(target)
    await asyncio.wait_for(consumer.flush_acks(), 30)


@pytest.mark.slow
def test_send_async_refuses_odd_values_and_survives_callbacks_that_raise(cluster: Cluster, topic: str) -> None:
    with Client(cluster.service_url) as client:
        producer = client.create_producer(topic, ProducerConfig(initial_sequence_id=0))

        def raising(*_: Any) -> None:
            raise ValueError("from the callback")

        for options, why in NOT_SENT:
            with pytest.raises(InvalidConfig, match=why):
                producer.send_async(b"odd", None, **options)
        with pytest.raises(InvalidConfig, match="expected bytes, got str"):
            producer.send_async("text")
        producer.send_async(b"one", raising, sequence_id=5)
        producer.send_async(b"does not rise", raising, sequence_id=5)
        told = threading.Event()
        producer.send_async(b"two", lambda *_: told.set())
        assert told.wait(30), "what follows a callback that raised is not sent"


@pytest.mark.slow
def test_a_call_under_way_ends_when_the_client_is_closed(cluster: Cluster, topic: str) -> None:
    client = Client(cluster.service_url)
    consumer = client.subscribe(topic, "s")
    said: list[BaseException] = []
    begun = threading.Event()

    def receive() -> None:
        begun.set()
        try:
            consumer.receive()
        except ClosedError as error:
            said.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    begun.wait(30)
    client.close()
    thread.join(30)
    assert not thread.is_alive()
    assert len(said) == 1


@pytest.mark.slow
async def test_what_one_consumer_raises_does_not_keep_others_detached(
    proxied: AsyncClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(is_active: bool) -> None:
        raise ValueError("from on_active_change")

    first = await subscribe(proxied, topic, type="Shared", on_active_change=raising)
    second = await proxied.create_producer(topic)
    assert isinstance(second, Producer)
    connection = first._connection
    assert connection is not None
    connection.close(None)
    await asyncio.wait_for(second.send(b"x"), 30)
    await until(lambda: first.is_connected and first._connection is not connection, "attached again")
    assert "on_active_change(True) raised" in caplog.text


@pytest.mark.slow
async def test_a_consumer_that_is_closed_while_it_moves_leaves_nothing_on_the_broker(
    cluster: Cluster, client: AsyncClient, proxied: AsyncClient, topic: str
) -> None:
    """It waits for receipts first; the connection that it had then may not be the one that it has afterwards."""
    producer = await client.create_producer(topic)
    consumer = await subscribe(proxied, topic, type="Exclusive", ack_receipts=True, ack_grouping_ms=60_000)
    await producer.send(b"x")
    message = await consumer.receive(30)
    connection = consumer._connection
    assert connection is not None
    consumer.ack(message)
    closing = asyncio.ensure_future(consumer.close())
    await asyncio.sleep(0)
    connection.close(None)
    await asyncio.wait_for(closing, 30)
    other = await client.subscribe(topic, "s", ConsumerConfig(type="Exclusive"))
    await other.close()


NO_UTF8 = b"\x0a\x08\x0a\x02p\xfe\x12\x02\xffv" + b"\x12\x02k\xff"
"""Attributes of a message in a batch whose property and key are no UTF-8; brokers do not look there."""


async def test_texts_in_a_batch_that_are_no_utf8_are_replaced(client: AsyncClient, topic: str) -> None:
    producer = await client.create_producer(topic)
    await producer.send_entry(encode_entry([b"odd", b"even"], [NO_UTF8, b""]))
    consumer = await client.subscribe(topic, "s", ConsumerConfig(initial_position="Earliest"))
    message = await consumer.receive(30)
    assert (message.data, message.key, message.properties) == (b"odd", "k\ufffd", {"p\ufffd": "\ufffdv"})
    assert (await consumer.receive(30)).key is None


async def test_a_message_whose_texts_are_no_utf8_can_be_a_dead_letter(client: AsyncClient, topic: str) -> None:
    policy = ConsumerDeadLetterPolicy(max_redeliver_count=1, initial_subscription_name="s")
    config = ConsumerConfig(
        type="Shared", initial_position="Earliest", dead_letter_policy=policy, negative_ack_delay_ms=50
    )
    producer = await client.create_producer(topic)
    await producer.send_entry(encode_entry([b"odd", b"even"], [NO_UTF8, b""]))
    letters = await client.subscribe(f"{topic}-s-DLQ", "s", ConsumerConfig(initial_position="Earliest"))
    consumer = await client.subscribe(topic, "s", config)
    found: dict[bytes, str | None] = {}
    async with asyncio.timeout(30):
        while len(found) < 2:
            if (letter := letters.poll()) is not None:
                found[letter.data] = letter.key
            elif (message := consumer.poll()) is not None:
                consumer.negative_ack(message)
            else:
                await asyncio.sleep(0.01)
    assert found == {b"odd": "k\ufffd", b"even": None}
