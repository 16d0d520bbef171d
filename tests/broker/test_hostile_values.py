"""Values that nobody sends by mistake are refused before anything changes; their sender learns why."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import google_crc32c
import pytest
from google.protobuf.descriptor import FieldDescriptor
from magnetar.broker.session.commands import HANDLERS
from magnetar.broker.topics.entry_checks import unacceptable
from magnetar.wire.compression import compress
from magnetar.wire.frames import Frame
from magnetar.wire.pulsar_api_pb2 import BaseCommand, MessageMetadata, ServerError
from magnetar.wire.session import LEGAL, Role, State

from tests.fuzz.hostile import Descriptor, Tree, command_frame, encode, fields_of, payload_section

from .brokers import running_broker
from .raw import FIELDS, Raw

TOPIC = "persistent://public/wire/hostile"
BAD = b"caf\xe9"
KINDS = {number: kind for kind, number in BaseCommand.Type.items() if kind in FIELDS}


def required(kind: Descriptor) -> Tree:
    """A message that has what it must have."""
    tree: Tree = {}
    for field in kind.fields:
        if field.is_required:
            tree[field.name] = _small(field)
    return tree


def _small(field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        return required(field.message_type)
    if field.name == "topic":
        return TOPIC
    return b"x" if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES) else 0


def spoiled(kind: Descriptor) -> Iterator[tuple[str, Tree]]:
    """Every message of that kind with one bad string in it, and the path of that string."""
    for field in kind.fields:
        if field.message_type is not None and field.message_type is not kind:
            for path, inner in spoiled(field.message_type):
                index = "[0]" if field.is_repeated else ""
                yield f"{field.name}{index}.{path}", required(kind) | {field.name: inner}
        elif field.type == FieldDescriptor.TYPE_STRING:
            yield field.name + ("[0]" if field.is_repeated else ""), required(kind) | {field.name: BAD}


def said(frame: Frame) -> tuple[int, str]:
    """Request id and text of an answer that says that a request failed."""
    (_, answer), *_ = [pair for pair in frame.command.ListFields() if pair[0].name != "type"]
    for name in ("message", "error_message"):
        if name in answer.DESCRIPTOR.fields_by_name:
            return answer.request_id, getattr(answer, name)
    raise AssertionError(answer)


async def test_every_string_of_every_command_must_be_utf8(tmp_path: Path) -> None:
    seen = 0
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        for number in HANDLERS:
            kind = KINDS[number]
            for path, tree in spoiled(fields_of(kind)):
                if kind == "ACK":
                    continue  # nobody reads its only one
                seen += 1
                has_id = "request_id" in fields_of(kind).fields_by_name
                if number in LEGAL[Role.CLIENT][State.CONNECTING]:
                    await raw.close()
                    raw = await Raw.open(broker.port)
                if has_id:
                    tree["request_id"] = seen
                raw.send_bytes(command_frame(kind, tree))
                if not has_id:
                    assert await raw.is_closed(), (kind, path)
                    await raw.close()
                    raw = await Raw.connected(broker.port)
                    continue
                request_id, text = said(await raw.receive())
                assert request_id == seen
                assert text.startswith(f"field {path} of "), (kind, path, text)
        assert seen > 60
        assert await raw.barrier() == []
        assert not broker.topics
        await raw.close()


async def test_clients_of_lookups_get_the_response_that_they_wait_for(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        for kind, field in (
            ("LOOKUP", "lookupTopicResponse"),
            ("PARTITIONED_METADATA", "partitionMetadataResponse"),
            ("GET_SCHEMA", "getSchemaResponse"),
            ("SUBSCRIBE", "error"),
        ):
            raw.send_bytes(command_frame(kind, required(fields_of(kind)) | {"topic": BAD, "request_id": 3}))
            command = (await raw.receive()).command
            assert command.HasField(field)
            answer = getattr(command, field)
            code = answer.error_code if field == "getSchemaResponse" else answer.error
            assert (answer.request_id, code) == (3, ServerError.InvalidTopicName)
        await raw.close()


def fail(*arguments: object) -> Any:
    raise KeyError(f"nobody foresaw {arguments}")


async def test_a_request_that_fails_unexpectedly_is_answered(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        it = cast(Any, broker)
        it.topic_index.list_of = it.namespaces.partitions = it.topic = fail
        answer = await raw.request("GET_TOPICS_OF_NAMESPACE", namespace="public/wire", request_id=1)
        assert (answer.error.request_id, answer.error.error) == (1, ServerError.UnknownError)
        answer = await raw.request("PARTITIONED_METADATA", topic=TOPIC, request_id=2)
        assert "nobody foresaw" in answer.partitionMetadataResponse.message
        answer = await raw.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=3)
        assert "nobody foresaw" in answer.error.message
        assert len([record for record in caplog.records if record.exc_info]) == 3
        await raw.close()


@pytest.mark.filterwarnings("error")
async def test_a_request_that_is_cancelled_before_its_first_step_leaves_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        producer = required(fields_of("PRODUCER")) | {"producer_id": 1, "request_id": 1}
        close = required(fields_of("CLOSE_PRODUCER")) | {"producer_id": 1, "request_id": 2}
        raw.send_bytes(command_frame("PRODUCER", producer) + command_frame("CLOSE_PRODUCER", close))
        assert (await raw.receive()).command.success.request_id == 2
        assert await raw.barrier() == []
        gc.collect()
        await raw.close()


@pytest.mark.parametrize("epoch", [(1 << 64) - 1, 1 << 63, (1 << 62) + 1])
async def test_an_epoch_that_no_owner_had_is_refused_and_the_topic_goes_on(epoch: int, tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        it = {"topic": TOPIC, "producer_access_mode": 1}
        answer = await raw.request("PRODUCER", producer_id=1, request_id=1, topic_epoch=epoch, **it)
        assert answer.error.error == ServerError.NotAllowedError
        for number in (2, 3):
            answer = await raw.request("PRODUCER", producer_id=number, request_id=number, **it)
            assert answer.producer_success.topic_epoch == number - 2
            await raw.request("CLOSE_PRODUCER", producer_id=number, request_id=10)
        await raw.close()


ODD: dict[str, Tree] = {
    "a batch of -1": {"num_messages_in_batch": -1},
    "a batch of nothing": {"num_messages_in_batch": 0},
    "a batch of 2^31-1": {"num_messages_in_batch": (1 << 31) - 1},
    "a batch of 2^31-1 that is compressed": {
        "num_messages_in_batch": (1 << 31) - 1, "compression": 1, "uncompressed_size": (1 << 32) - 1,
    },
    "a publish time of 2^63": {"publish_time": 1 << 63},
    "a publish time of 2^64-1": {"publish_time": (1 << 64) - 1},
    "a delayed one with a publish time of 2^63": {"publish_time": 1 << 63, "deliver_at_time": 1},
    "a delayed batch of -1": {"num_messages_in_batch": -1, "deliver_at_time": 1},
    "a name that is no text": {"producer_name": BAD},
    "a key that is no text": {"partition_key": BAD},
    "a property that is no text": {"properties": [{"key": b"k", "value": BAD}]},
}  # fmt: skip


def send(sequence_id: int, body: bytes = b"body", **metadata: Any) -> bytes:

    tree = {"producer_name": "p", "sequence_id": sequence_id, "publish_time": 5} | metadata
    section = payload_section(random.Random(0), tree, body, is_spoiled=False)
    return command_frame("SEND", {"producer_id": 1, "sequence_id": sequence_id}, section)


async def produce(raw: Raw, request_id: int = 1, name: str = "p") -> BaseCommand:
    return await raw.request("PRODUCER", topic=TOPIC, producer_id=1, request_id=request_id, producer_name=name)


@pytest.mark.parametrize("case", ODD)
async def test_an_odd_send_fails_once_in_order_and_hurts_nobody(case: str, tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        await produce(raw)
        raw.send_bytes(send(0) + send(1, **ODD[case]) + send(2))
        kinds = [(await raw.receive()).command for _ in range(3)]
        assert [command.type for command in kinds] == [
            BaseCommand.SEND_RECEIPT, BaseCommand.SEND_ERROR, BaseCommand.SEND_RECEIPT
        ]  # fmt: skip
        assert (kinds[1].send_error.sequence_id, kinds[1].send_error.error) == (1, ServerError.NotAllowedError)
        assert [kinds[0].send_receipt.sequence_id, kinds[2].send_receipt.sequence_id] == [0, 2]
        # Exclusive waits for everything that earlier producers have under way.
        later = await Raw.connected(broker.port)
        answer = await later.request(
            "PRODUCER", topic=TOPIC, producer_id=1, request_id=1, producer_name="q", producer_access_mode=2
        )
        assert answer.HasField("error") or answer.producer_success.producer_ready is False
        await raw.close()
        while not (await later.receive()).command.producer_success.producer_ready:
            pass
        later.send_bytes(send(0))
        assert (await later.receive()).command.HasField("send_receipt")
        assert broker.topics[TOPIC].log.entry_count == 3
        await later.close()


@pytest.mark.parametrize("version", ["Pulsar-CPP-v4.2.0", "Pulsar-Java-v4.0.7"])
async def test_each_official_client_gets_the_error_that_fails_one_message(version: str, tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.open(broker.port)
        await raw.request("CONNECT", client_version=version, protocol_version=20)
        await produce(raw)
        raw.send_bytes(send(0) + send(1, publish_time=1 << 63))
        assert (await raw.receive()).command.send_receipt.sequence_id == 0
        answer = (await raw.receive()).command
        code = ServerError.ChecksumError if "CPP" in version else ServerError.NotAllowedError
        assert (answer.send_error.sequence_id, answer.send_error.error) == (1, code)
        await raw.close()


async def test_a_go_client_comes_back_after_one_refusal(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.open(broker.port)
        await raw.request("CONNECT", client_version="Pulsar-Go-version", protocol_version=20)
        await produce(raw)
        # What follows the refused one is dropped: the client fails it together with that one.
        raw.send_bytes(send(0) + send(1, publish_time=1 << 63) + send(2))
        assert (await raw.receive()).command.send_receipt.sequence_id == 0
        assert (await raw.receive()).command.close_producer.producer_id == 1
        refused = (await produce(raw, 2)).error
        assert (refused.request_id, refused.error) == (2, ServerError.ProducerBlockedQuotaExceededException)
        assert "publish_time=9223372036854775808 is out of range" in refused.message
        assert (await produce(raw, 3)).HasField("producer_success")
        raw.send_bytes(send(3))
        assert (await raw.receive()).command.send_receipt.sequence_id == 3
        assert broker.topics[TOPIC].log.entry_count == 2
        await raw.close()


async def test_metadata_longer_than_its_section_ends_the_connection(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        await produce(raw)
        head = encode(MessageMetadata.DESCRIPTOR, {"producer_name": "p", "sequence_id": 0, "publish_time": 1})
        section = (len(head) + 1).to_bytes(4, "big") + head

        sealed = b"\x0e\x01" + google_crc32c.value(section).to_bytes(4, "big") + section
        raw.send_bytes(command_frame("SEND", {"producer_id": 1, "sequence_id": 0}, sealed))
        assert await raw.is_closed()
        await raw.close()
        assert not broker.topics[TOPIC].log.entry_count


def metadata(**fields: Any) -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, **fields)


def test_a_batch_holds_as_many_messages_as_its_bytes_can_be() -> None:
    limit = 5 << 20
    assert unacceptable(metadata(num_messages_in_batch=10), 60, limit) is None
    assert "at least 6 bytes per message in a batch of 59 bytes" in str(
        unacceptable(metadata(num_messages_in_batch=10), 59, limit)
    )
    assert unacceptable(metadata(num_messages_in_batch=1), 0, limit) is None
    body = compress(1, bytes(60_000))
    packed = metadata(num_messages_in_batch=10_000, compression=1, uncompressed_size=60_000)
    assert unacceptable(packed, len(body), limit) is None
    packed.uncompressed_size = 59_999
    assert unacceptable(packed, len(body), limit) is not None
    packed.uncompressed_size = (1 << 32) - 1
    packed.num_messages_in_batch = limit // 6 + 1
    assert unacceptable(packed, len(body), limit) is not None


@pytest.mark.parametrize("local", [".", "..", ".-partition-0"])
async def test_topic_that_no_metadata_store_takes_is_refused_and_not_created(local: str, tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker:
        raw = await Raw.connected(broker.port)
        raw.send("PRODUCER", topic=f"persistent://public/wire/{local}", producer_id=1, request_id=1)
        answer = (await raw.receive()).command
        assert answer.error.error == ServerError.NotAllowedError
        assert "is not a valid name in the metadata store" in answer.error.message
        assert broker.topic_names("public/wire") == []
        await raw.close()
