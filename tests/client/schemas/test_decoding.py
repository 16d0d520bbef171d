"""Messages that wait for the schema they were written with: their order, and what becomes of those without it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.client import AutoConsumeSchema, ConnectionLost, Int32Schema, Message, SchemaInfo, StringSchema
from magnetar.client.consumers.received import ReceivedEntry
from magnetar.client.typed.decoding import Decoding
from magnetar.client.typed.writers import TOPICS_MAX, VERSIONS_MAX, WriterSchemas, key_of
from magnetar.errors import MetadataError, TopicNotFound
from magnetar.wire.message_id import MessageId
from magnetar.wire.pulsar_api_pb2 import MessageMetadata
from magnetar.wire.topic_name import TopicName

TOPIC = "persistent://public/default/t-partition-3"


def message(number: int, version: bytes = b"", payload: bytes = b"\x00\x00\x00\x07") -> Message:
    metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=0)
    if version:
        metadata.schema_version = version
    return Message(ReceivedEntry(MessageId(1, number), TOPIC, metadata, 0, 1, (payload, 0, 1000)), 0)


class Registry:
    """Answers what it is told to, when it is told to."""

    def __init__(self, answers: dict[bytes | None, Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, bytes | None]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def fetch(self, topic: TopicName, version: bytes | None) -> SchemaInfo:
        self.asked.append((topic.text, version))
        await self.open.wait()
        answer = self.answers.get(version, TopicNotFound("no schema"))
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, SchemaInfo)
        return answer


def polling(messages: list[Message]) -> Callable[[], Message | None]:
    queue = deque(messages)
    return lambda: queue.popleft() if queue else None


async def take(decoding: Decoding[Any], poll: Callable[[], Message | None], count: int) -> list[Message]:
    taken: list[Message] = []
    while len(taken) < count:
        found = decoding.next(poll)
        if found is not None:
            taken.append(found)
        else:
            assert decoding.is_waiting
            await decoding.answered()
    return taken


V0, V1 = b"\x00" * 8, b"\x00" * 7 + b"\x01"


@given(st.lists(st.sampled_from([b"", V0, V1])))
def test_messages_keep_their_order_and_each_version_is_asked_for_once(versions: list[bytes]) -> None:
    async def run() -> None:
        registry = Registry({V0: StringSchema().info, V1: Int32Schema().info})
        decoding: Decoding[Any] = Decoding(AutoConsumeSchema(), WriterSchemas(registry.fetch), TOPIC)
        messages = [message(number, version) for number, version in enumerate(versions)]
        taken = await take(decoding, polling(messages), len(messages))
        assert [one.message_id for one in taken] == [one.message_id for one in messages]
        values = {b"": b"\x00\x00\x00\x07", V0: "\x00\x00\x00\x07", V1: 7}
        assert [one.value for one in taken] == [values[version] for version in versions]
        topic = TOPIC.removesuffix("-partition-3")
        assert sorted(registry.asked, key=str) == sorted(
            ((topic, version or None) for version in dict.fromkeys(versions)), key=str
        )
        await decoding.close()

    asyncio.run(run())


async def test_schema_that_is_gone_for_good_is_asked_for_once() -> None:
    registry = Registry({})
    decoding: Decoding[Any] = Decoding(AutoConsumeSchema(), WriterSchemas(registry.fetch), TOPIC)
    for one in await take(decoding, polling([message(1, V0), message(2, V0)]), 2):
        for _ in range(2):
            with pytest.raises(TopicNotFound, match="no schema"):
                _ = one.value
        assert one.data == b"\x00\x00\x00\x07"
    assert len(registry.asked) == 1


@pytest.mark.parametrize("failure", [ConnectionLost("gone"), MetadataError("later")])
async def test_schema_that_was_not_to_be_had_is_asked_for_again(failure: Exception) -> None:
    registry = Registry({V0: failure, None: failure})
    decoding: Decoding[Any] = Decoding(AutoConsumeSchema(), WriterSchemas(registry.fetch), TOPIC)
    for version in (V0, b""):
        [one] = await take(decoding, polling([message(1, version)]), 1)
        with pytest.raises(type(failure)):
            _ = one.value
    registry.answers = {V0: Int32Schema().info, None: Int32Schema().info}
    for version in (V0, b""):
        [one] = await take(decoding, polling([message(2, version)]), 1)
        assert one.value == 7


async def test_message_that_waits_is_forgotten_when_it_is_dropped() -> None:
    registry = Registry({V0: Int32Schema().info})
    registry.open.clear()
    decoding: Decoding[Any] = Decoding(AutoConsumeSchema(), WriterSchemas(registry.fetch), TOPIC)
    poll = polling([message(1, V0), message(2, V0)])
    assert decoding.next(poll) is None
    waiting = asyncio.ensure_future(decoding.answered())
    await asyncio.sleep(0)
    assert decoding.next(poll) is None
    assert not waiting.done()
    decoding.drop()
    registry.open.set()
    await waiting
    [one] = await take(decoding, poll, 1)
    assert (one.message_id.entry_id, one.value) == (2, 7)
    assert decoding.next(poll) is None
    assert not decoding.is_waiting
    await decoding.close()


async def test_schemas_that_are_kept_are_bounded() -> None:
    writers = WriterSchemas(Registry({}).fetch)
    keys = [(TOPIC, number.to_bytes(8, "big")) for number in range(VERSIONS_MAX + 5)]
    for key in keys:
        await writers.ask(key)
    assert [key for key in keys if writers.get(key) is not None] == keys[5:]
    topics = [(f"persistent://public/default/{number}", V0) for number in range(TOPICS_MAX)]
    for key in topics:
        await writers.ask(key)
    assert [key for key in (keys[-1], *topics) if writers.get(key) is not None] == topics


async def test_topic_that_is_created_again_has_other_schemas() -> None:
    registry = Registry({V0: Int32Schema().info})
    writers = WriterSchemas(registry.fetch)
    decoding: Decoding[Any] = Decoding(AutoConsumeSchema(), writers, TOPIC)
    [one] = await take(decoding, polling([message(1, V0)]), 1)
    assert one.value == 7
    registry.answers = {V0: StringSchema().info}
    writers.forget(TOPIC)
    [one] = await take(decoding, polling([message(1, V0)]), 1)
    assert one.value == "\x00\x00\x00\x07"


async def test_answer_that_comes_after_its_topic_is_forgotten_is_not_kept() -> None:
    registry = Registry({V0: Int32Schema().info})
    registry.open.clear()
    writers = WriterSchemas(registry.fetch)
    key = key_of(TOPIC, V0)
    asking = asyncio.ensure_future(writers.ask(key))
    await asyncio.sleep(0)
    writers.forget(TOPIC)
    registry.open.set()
    assert await asking == Int32Schema().info
    assert writers.get(key) is None


async def test_key_that_is_no_base64_is_named() -> None:
    from magnetar.client import KeyValueSchema, SchemaSerializationError

    schema = KeyValueSchema(StringSchema(), Int32Schema(), "SEPARATED")
    decoding = Decoding(schema, WriterSchemas(Registry({}).fetch), TOPIC)
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=0, partition_key="a")
    given = Message(ReceivedEntry(MessageId(1, 1), TOPIC, metadata, 0, 1, (b"\x00\x00\x00\x07", 0, 1000)), 0)
    [one] = await take(decoding, polling([given]), 1)
    assert one.value == ("a", 7)  # as the message says that the key is text
    metadata.partition_key_b64_encoded = True
    [one] = await take(decoding, polling([given]), 1)
    with pytest.raises(SchemaSerializationError, match=r"key of message .* is not valid base64"):
        _ = one.value
