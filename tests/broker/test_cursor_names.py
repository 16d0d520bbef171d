"""Names and properties that are no text, or the broker's own: refused before anything changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from magnetar.broker.service import BrokerService
from magnetar.broker.storage.cursors.names import MAX_NAME_BYTES, check_text
from magnetar.broker.topics.subscription import Subscription
from magnetar.errors import NotAllowed
from magnetar.wire.position import EARLIEST
from magnetar.wire.pulsar_api_pb2 import BaseCommand, CommandSubscribe, KeyValue, ServerError

from .brokers import running_broker
from .raw import Raw
from .test_delivery import TOPIC, acknowledge, close, consumer, producer, publish, take

NOT_UTF_8 = (b"\xff\xfe\xfd\xfc", b"\xed\xa0\x80\xed", b"\xc3\x28ab")
"""As long as the text that they replace: what is no UTF-8 at all, a lone surrogate, and what looks like it."""
GOOD = "good"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerService]:
    async with running_broker(tmp_path) as it:
        yield it


def pair(key: str, value: str) -> list[KeyValue]:
    return [KeyValue(key=key, value=value)]


@pytest.mark.parametrize("bad", NOT_UTF_8)
@pytest.mark.parametrize(
    "field",
    [
        {"subscription": GOOD},
        {"consumer_name": GOOD},
        {"subscription_properties": pair(GOOD, "v")},
        {"subscription_properties": pair("k", GOOD)},
        {"metadata": pair(GOOD, "v")},
        {"metadata": pair("k", GOOD)},
    ],
)
async def test_subscribe_with_text_that_is_no_utf_8_changes_nothing(
    broker: BrokerService, field: dict[str, Any], bad: bytes
) -> None:
    fields: dict[str, Any] = {"topic": TOPIC, "subscription": "s", "consumer_name": "c", "subType": 0} | field
    command = BaseCommand(type=BaseCommand.SUBSCRIBE)
    command.subscribe.MergeFrom(CommandSubscribe(consumer_id=1, request_id=1, **fields))
    data = command.SerializeToString()
    assert data.count(GOOD.encode()) == 1
    raw = await Raw.connected(broker.port)
    raw.send_command_bytes(data.replace(GOOD.encode(), bad))
    answer = await raw.receive_or_end()
    if answer is not None:  # refused where frames come in, the connection may as well be closed
        assert answer.command.error.error == ServerError.NotAllowedError
        assert "UTF-8" in answer.command.error.message
    assert TOPIC not in broker.topics
    await raw.close()


@pytest.mark.parametrize("field", ["subscription", "consumer_name"])
async def test_names_have_a_longest_length(broker: BrokerService, field: str) -> None:
    raw = await Raw.connected(broker.port)
    fields = {"topic": TOPIC, "subscription": "s", "subType": 2, "consumer_id": 1, "request_id": 1}
    answer = await raw.request("SUBSCRIBE", **fields | {field: "x" * (MAX_NAME_BYTES + 1)})
    assert answer.error.error == ServerError.NotAllowedError
    assert f"exceeds {MAX_NAME_BYTES}" in answer.error.message
    assert (await raw.request("SUBSCRIBE", **fields | {field: "x" * MAX_NAME_BYTES})).HasField("success")
    await raw.close()


@pytest.mark.parametrize("properties", [{"k": "\ud800"}, {"\udfff": "v"}])
async def test_properties_with_lone_surrogates_make_no_subscription(
    broker: BrokerService, properties: dict[str, str]
) -> None:
    source = await producer(broker)
    topic = broker.topics[TOPIC]
    with pytest.raises(NotAllowed, match="UTF-8"):
        await topic.create_subscription("s", "latest", properties)
    with pytest.raises(NotAllowed, match="UTF-8"):
        await topic.create_subscription("\ud800", "latest")
    assert not topic.subscriptions
    assert not topic.log.cursors
    await source.close()


def test_bytes_are_no_text() -> None:
    with pytest.raises(NotAllowed, match="a name is not valid UTF-8: b'"):
        check_text("a name", b"\xff" * 1000)
    check_text("a name", "ä\U0001f600")


async def skip_one(subscription: Subscription) -> None:
    await subscription.skip(1)


async def reset(subscription: Subscription) -> None:
    await subscription.seek(EARLIEST)


async def delete(subscription: Subscription) -> None:
    await subscription.delete(force=True)


@pytest.mark.parametrize("act", [Subscription.skip_all, skip_one, reset, delete])
async def test_compaction_cursor_is_not_moved_or_deleted_as_a_subscription(
    broker: BrokerService, act: Callable[[Subscription], Awaitable[None]]
) -> None:
    source = await producer(broker)
    await publish(source, [b"m"] * 3)
    topic = broker.topics[TOPIC]
    await topic.compaction.run()
    await topic._compact()
    own = topic.subscriptions["__compaction"]
    await publish(source, [b"m"] * 3)
    before = own.cursor.mark_delete
    with pytest.raises(NotAllowed, match="invalid subscription name '__compaction'"):
        await act(own)
    assert own.cursor.mark_delete == before
    assert topic.subscriptions["__compaction"] is own
    assert "__compaction" in topic.log.cursors
    await source.close()


@pytest.mark.parametrize("name", ["pulsar.dedup", "pulsar.repl.x", "__compaction"])
async def test_no_subscription_gets_a_reserved_name(broker: BrokerService, name: str) -> None:
    source = await producer(broker)
    topic = broker.topics[TOPIC]
    with pytest.raises(NotAllowed, match="reserved"):
        await topic.create_subscription(name, "earliest")
    with pytest.raises(NotAllowed, match="reserved"):
        await topic.log.delete_cursor(name)
    assert name not in topic.subscriptions
    await source.close()


async def test_deduplication_survives_a_reserved_subscription(tmp_path: Path) -> None:
    async with running_broker(tmp_path, deduplication=True) as broker:
        source = await producer(broker)
        topic = broker.topics[TOPIC]
        assert "pulsar.dedup" in topic.log.cursors
        with pytest.raises(NotAllowed, match="reserved"):
            await topic.create_subscription("pulsar.dedup")
        assert "pulsar.dedup" in topic.log.cursors
        sink = await consumer(broker, CommandSubscribe.Exclusive)
        (sent,) = await publish(source, [b"m"])
        await take(sink, 1)
        acknowledge(sink, sent, request_id=1)
        assert (await sink.receive()).command.HasField("ackResponse")
        await close(source, sink)
