"""Runs of frames, read byte by byte, by comparison and by protobuf: the same messages, the same refusals."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from struct import pack
from types import ModuleType
from typing import Any

import google_crc32c
import magnetar
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from magnetar.client.consumers import received
from magnetar.client.consumers.received import DamagedEntry, ReceivedEntry
from magnetar.errors import ProtocolError
from magnetar.wire import runs
from magnetar.wire.frames import Frame, FrameDecoder, Run
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import (
    BaseCommand,
    CommandMessage,
    CommandSend,
    EncryptionKeys,
    KeyValue,
    MessageIdData,
    MessageMetadata,
    SingleMessageMetadata,
)
from magnetar.wire.strings import parse_metadata

LIMIT = 10_000
u64 = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1), st.sampled_from([(1 << 63) - 1, 1 << 63]))
small = st.integers(0, 3)


def source() -> ModuleType:
    """The module as Python, whether it is compiled or not."""
    place = Path(magnetar.__file__).parent / "wire" / "runs.py"
    spec = spec_from_file_location("magnetar.wire.runs_source", place)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCE = source()
MESSAGE_WAYS = [runs.read_messages, SOURCE._read_messages, SOURCE._read_messages_alike]
SEND_WAYS = [runs.read_sends, SOURCE._read_sends, SOURCE._read_sends_alike]
METADATA_WAYS = [runs.usual_metadata, SOURCE.usual_metadata]


# -- what peers send --------------------------------------------------------------------------------------------------

positions = st.builds(
    MessageIdData,
    ledgerId=st.one_of(small, u64),
    entryId=u64,
    partition=st.one_of(st.none(), st.integers(-1, 3)),
    batch_index=st.one_of(st.none(), st.integers(-1, 3)),
    ack_set=st.one_of(st.just([]), st.lists(st.integers(-1, 1), max_size=1)),
    batch_size=st.one_of(st.none(), small),
)
message_commands = st.builds(
    CommandMessage,
    consumer_id=st.one_of(small, u64),
    message_id=positions,
    redelivery_count=st.one_of(st.none(), small, st.just((1 << 32) - 1)),
    ack_set=st.one_of(st.just([]), st.lists(st.integers(-1, 1), max_size=2)),
    consumer_epoch=st.one_of(st.none(), small, u64),
).map(lambda command: BaseCommand(type=BaseCommand.MESSAGE, message=command).SerializeToString())
send_commands = st.builds(
    CommandSend,
    producer_id=small,
    sequence_id=u64,
    num_messages=st.one_of(st.none(), small),
    txnid_least_bits=st.one_of(st.none(), st.none(), small),
    highest_sequence_id=st.one_of(st.none(), u64),
    is_chunk=st.one_of(st.none(), st.booleans()),
    marker=st.one_of(st.none(), st.booleans()),
).map(lambda command: BaseCommand(type=BaseCommand.SEND, send=command).SerializeToString())
texts = st.one_of(st.text(max_size=4), st.just("v" * 200))
metadata = st.builds(
    MessageMetadata,
    producer_name=texts,
    sequence_id=u64,
    publish_time=u64,
    properties=st.lists(st.builds(KeyValue, key=texts, value=texts), max_size=2),
    partition_key=st.one_of(st.none(), texts),
    replicate_to=st.one_of(st.just([]), st.just(["c"])),
    compression=st.one_of(st.none(), st.none(), small),
    uncompressed_size=st.one_of(st.none(), small),
    num_messages_in_batch=st.one_of(st.none(), small, st.integers(-2, (1 << 31) - 1)),
    event_time=st.one_of(st.none(), u64),
    encryption_keys=st.one_of(st.just([]), st.just([]), st.just([EncryptionKeys(key="k", value=b"v")])),
    schema_version=st.one_of(st.none(), st.binary(max_size=3)),
    partition_key_b64_encoded=st.one_of(st.none(), st.booleans()),
    ordering_key=st.one_of(st.none(), st.binary(max_size=3)),
    deliver_at_time=st.one_of(st.none(), st.none(), small),
    marker_type=st.one_of(st.none(), st.none(), small),
    txnid_least_bits=st.one_of(st.none(), st.none(), small),
    highest_sequence_id=st.one_of(st.none(), u64),
    null_value=st.one_of(st.none(), st.booleans()),
    num_chunks_from_msg=st.one_of(st.none(), st.none(), small),
    null_partition_key=st.one_of(st.none(), st.booleans()),
).map(MessageMetadata.SerializePartialToString)
parts = st.sampled_from([
    b"\x08\x09\x4a", b"\x08\x06\x32", b"\x08", b"\x0a", b"\x10", b"\x12", b"\x18", b"\x20", b"\x22", b"\x28", b"\x30",
    b"\x32", b"\x38", b"\x40", b"\x48", b"\x58", b"\x60", b"\x80\x01", b"\x82\x01", b"\x88\x01", b"\x92\x01\x01a",
    b"\x98\x01\x05", b"\xc0\x01", b"\xc8\x01", b"\xf0\x01", b"\x82\x02", b"\x90\x00", b"\x22\x04\x0a\x00\x12\x00",
    b"\x22\x04\x12\x00\x0a\x00", b"\x0a\x02\xff\xfe", b"\x00", b"\x01", b"\x85\x80\x00", b"\xff" * 9 + b"\x01",
    b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x01", b"\x13\x14", b"\x12\x04\x08\x01\x10\x01", b"\x08\x01", b"\x10\x05",
])  # fmt: skip
"""Parts of commands and metadata of all forms: usual, unknown, cut off, too long."""
hostile = st.lists(st.one_of(parts, st.binary(max_size=3)), max_size=6).map(b"".join)
bodies = st.binary(max_size=20)


@st.composite
def sections(draw: st.DrawFn) -> bytes:
    head = draw(st.one_of(metadata, metadata, hostile, st.builds(bytes.__add__, metadata, hostile)))
    body = draw(bodies)
    rest = pack(">I", len(head)) + head + body
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return pack(">HI", 0x0E01, 5) + rest
    if kind == 1:
        return rest
    if kind == 2:
        return draw(st.binary(max_size=14))
    if kind == 3:
        rest = pack(">I", len(head) + draw(st.integers(0, 99))) + head + body
    return pack(">HI", 0x0E01, google_crc32c.value(rest)) + rest


def frame_of(command: bytes, section: bytes) -> bytes:
    return pack(">II", 4 + len(command) + len(section), len(command)) + command + section


def counting(first: int, consumer_id: int, partition: int, epoch: int | None) -> list[bytes]:
    """The commands of messages that follow each other."""
    commands = [
        CommandMessage(
            consumer_id=consumer_id,
            message_id=MessageIdData(ledgerId=7, entryId=number, partition=partition),
            consumer_epoch=epoch,
        )
        for number in range(first, first + 3)
    ]
    return [BaseCommand(type=BaseCommand.MESSAGE, message=command).SerializeToString() for command in commands]


runs_of_messages = st.builds(
    counting, st.one_of(small, st.sampled_from([126, 16382, (1 << 63) - 2])), small, st.integers(-1, 2),
    st.one_of(st.none(), small),
)  # fmt: skip
streams_of_messages = st.lists(
    st.tuples(
        st.one_of(
            runs_of_messages,
            st.lists(message_commands, max_size=2),
            hostile.map(lambda given: [b"\x08\x09\x4a" + bytes((len(given),)) + given]),
            hostile.map(lambda given: [given]),
        ),
        sections(),
    ),
    max_size=5,
).map(lambda found: b"".join(frame_of(command, section) for commands, section in found for command in commands))


def is_parsed(frame: Frame) -> tuple[object, ...]:
    """What a MESSAGE or SEND says; the command itself of any other."""
    command, section = frame
    if command.type == BaseCommand.MESSAGE:
        message, position = command.message, command.message.message_id
        epoch = message.consumer_epoch if message.HasField("consumer_epoch") else -1
        words = tuple(message.ack_set)
        redeliveries = message.redelivery_count
        return message.consumer_id, position.ledgerId, position.entryId, redeliveries, epoch, words, section
    return command.SerializePartialToString(), section


def fed(decoder: FrameDecoder, data: list[bytes], way: object | None) -> list[object] | str:
    """What a decoder makes of data that comes in pieces; the error if it refuses."""
    found: list[object] = []
    try:
        for piece in data:
            for frame in decoder.feed_runs(piece, way, runs.MESSAGE_HEAD) if way else decoder.feed(piece):  # type: ignore[arg-type]
                if type(frame) is Run:
                    assert frame.rows
                    found += [(frame.owner_id, *row[:4], (), row[4]) for row in frame.rows]
                else:
                    assert isinstance(frame, Frame)
                    found.append(is_parsed(frame))
    except ProtocolError as error:
        return str(error)
    return found


@pytest.mark.parametrize("way", MESSAGE_WAYS)
@given(data=streams_of_messages, cut=st.integers(0, 400))
def test_messages_are_read_as_protobuf_does(way: object, data: bytes, cut: int) -> None:
    pieces = [data[:cut], data[cut:]]
    assert fed(FrameDecoder(LIMIT), pieces, way) == fed(FrameDecoder(LIMIT), pieces, None)


@pytest.mark.parametrize("way", MESSAGE_WAYS)
@pytest.mark.parametrize("epoch", [None, 0, 3])
def test_messages_of_a_broker_are_one_run(way: object, epoch: int | None) -> None:
    commands = [command for first in (125, 16380) for command in counting(first, 4, -1, epoch)]
    data = b"".join(frame_of(command, b"section") for command in commands)

    (run,) = FrameDecoder(LIMIT).feed_runs(data, way, runs.MESSAGE_HEAD)  # type: ignore[arg-type]

    assert type(run) is Run
    assert [row[1] for row in run.rows] == [125, 126, 127, 16380, 16381, 16382]


# -- metadata ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", METADATA_WAYS)
@settings(max_examples=300)
@given(head=st.one_of(metadata, hostile, st.builds(bytes.__add__, metadata, hostile)))
@example(head=b"\x58\x85\x80\x00")
def test_metadata_is_what_protobuf_reads(way: object, head: bytes) -> None:
    found = way(b"ab" + head + b"z", 2, 2 + len(head))  # type: ignore[operator]
    try:
        parsed = MessageMetadata.FromString(head)
    except DecodeError:
        assert found == runs.NO_METADATA
        return
    if found == runs.NO_METADATA:
        return
    assert found & runs.COUNT_MASK == parsed.num_messages_in_batch
    assert bool(found & runs.IN_BATCH) == parsed.HasField("num_messages_in_batch")
    assert bool(found & runs.HAS_PROPERTIES) == bool(parsed.properties)
    properties = SOURCE.properties_of_usual(head)
    assert properties == runs.properties_of_usual(head)
    assert list(SingleMessageMetadata.FromString(properties).properties) == list(parsed.properties)
    assert not parsed.compression
    assert not parsed.encryption_keys


@pytest.mark.parametrize("way", METADATA_WAYS)
@pytest.mark.parametrize("more", [
    {}, {"properties": [KeyValue(key="a", value="b")]}, {"partition_key": "é"}, {"event_time": 1 << 60},
    {"num_messages_in_batch": 1}, {"compression": 0, "uncompressed_size": 9}, {"null_value": True},
    {"ordering_key": b""}, {"schema_version": b"\0"}, {"highest_sequence_id": 3},
])  # fmt: skip
def test_metadata_of_official_clients_has_the_usual_form(way: object, more: dict[str, object]) -> None:
    given = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, **more)  # type: ignore[arg-type]
    head = given.SerializeToString()

    assert way(head, 0, len(head)) != runs.NO_METADATA  # type: ignore[operator]


def opened(entry: ReceivedEntry) -> tuple[object, ...]:
    """Everything that an entry says."""
    head = (entry.message_id, entry.position, entry.redelivery_count, entry.permits, entry.num_messages, entry.is_batch)
    more = (entry.body_bytes, entry.properties)
    try:
        messages = [(message.data, message.key, dict(message.properties)) for message in entry.messages()]
    except DamagedEntry as error:
        return (*head, *more, str(error), error.validation_error)
    return (*head, *more, messages, entry.metadata.SerializePartialToString())


@settings(max_examples=300)
@given(sections())
def test_an_entry_of_the_usual_form_is_opened_as_any_other(section: bytes) -> None:
    usual = received._open_usual((1, 2), 3, section, "t", 4, 1000)
    if usual is not None:
        any_other = received._open_parsed((1, 2), 3, (), section, "t", 4, 1000)
        assert opened(usual) == opened(any_other)


@given(sections())
def test_rows_are_opened_as_single_frames(section: bytes) -> None:
    entries, damaged = received.open_rows([(1, 2, 3, -1, section)], "t", 4, 1000)
    assert [opened(entry) for entry in entries] + [_damage(error) for _, error in damaged] == [_opened_alone(section)]
    assert [position for position, _ in damaged] in ([], [(1, 2)])


def _opened_alone(section: bytes) -> tuple[object, ...]:
    command = CommandMessage(consumer_id=1, message_id=MessageIdData(ledgerId=1, entryId=2), redelivery_count=3)
    try:
        return opened(received.open_entry(command, section, "t", 4, 1000))
    except DamagedEntry as error:
        return _damage(error)


def _damage(error: DamagedEntry) -> tuple[object, ...]:
    return str(error), error.permits, error.validation_error


def test_an_entry_keeps_what_it_says_after_it_was_opened() -> None:
    given = MessageMetadata(producer_name="p", sequence_id=5, publish_time=6, partition_key="k")
    ((entry,), _) = received.open_rows([(1, 2, 0, -1, seal(given, b"body"))], "t", -1, 1000)

    (message,) = entry.messages()

    assert (message.data, message.key, message.sequence_id, message.producer_name) == (b"body", "k", 5, "p")


# -- SEND -------------------------------------------------------------------------------------------------------------

streams_of_sends = st.lists(
    st.tuples(
        st.one_of(send_commands, hostile.map(lambda given: b"\x08\x06\x32" + bytes((len(given),)) + given), hostile),
        sections(),
    ),
    max_size=4,
).map(lambda found: b"".join(frame_of(command, section) for command, section in found))


@pytest.mark.parametrize("way", SEND_WAYS)
@settings(max_examples=300)
@given(data=streams_of_sends)
def test_sends_are_read_as_protobuf_does_and_may_be_stored(way: object, data: bytes) -> None:
    frames = _frames(data, None)
    found_frames = _frames(data, way)
    if isinstance(frames, str) or isinstance(found_frames, str):
        assert frames == found_frames
        return
    expected = iter(frames)
    for found in found_frames:
        if not isinstance(found, Run):
            assert is_parsed(found) == is_parsed(next(expected))
            continue
        for sequence_id, highest, messages, time_ms, section in found.rows:
            command, payload = next(expected)
            send = command.send
            assert (found.owner_id, section) == (send.producer_id, payload)
            assert (sequence_id, highest) == (send.sequence_id, send.highest_sequence_id)
            check_storable(send, payload, messages, time_ms)
    assert next(expected, None) is None


def _frames(data: bytes, way: object | None) -> list[Any] | str:
    """What a decoder makes of data; the error if it refuses."""
    decoder = FrameDecoder(LIMIT)
    try:
        return decoder.feed_runs(data, way, runs.SEND_HEAD) if way else decoder.feed(data)  # type: ignore[arg-type]
    except ProtocolError as error:
        return str(error)


def check_storable(send: CommandSend, payload: bytes, messages: int, time_ms: int) -> None:
    """Compare what is said of an entry with what is in it; nothing that a broker refuses may be."""
    size = int.from_bytes(payload[6:10], "big")
    stored = parse_metadata(payload[10 : 10 + size])
    assert payload[:2] == b"\x0e\x01"
    assert google_crc32c.value(payload[6:]) == int.from_bytes(payload[2:6], "big")
    assert (messages, time_ms) == (stored.num_messages_in_batch, stored.publish_time)
    assert messages == 1 or 0 < messages * 6 <= len(payload) - 10 - size
    assert not any((send.is_chunk, send.marker, send.HasField("txnid_least_bits")))
    assert not any((stored.HasField("marker_type"), stored.num_chunks_from_msg, stored.deliver_at_time))
    assert time_ms < 1 << 63


@pytest.mark.parametrize("way", SEND_WAYS)
@pytest.mark.parametrize("num_messages", [None, 1])
@pytest.mark.parametrize("compression", [None, 0, 1])
def test_sends_of_official_clients_are_one_run(way: object, num_messages: int | None, compression: int | None) -> None:
    data = b""
    for number in range(120, 140):
        send = CommandSend(producer_id=3, sequence_id=number, num_messages=num_messages)
        one = MessageMetadata(producer_name="p", sequence_id=number, publish_time=2, compression=compression)  # type: ignore[arg-type]
        command = BaseCommand(type=BaseCommand.SEND, send=send).SerializeToString()
        data += frame_of(command, seal(one, b"body"))

    (run,) = FrameDecoder(LIMIT).feed_runs(data, way, runs.SEND_HEAD)  # type: ignore[arg-type]

    assert type(run) is Run
    assert [row[0] for row in run.rows] == list(range(120, 140))
