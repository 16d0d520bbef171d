"""Strings that are no UTF-8 are found wherever they are, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from magnetar.wire.pulsar_api_pb2 import (
    DESCRIPTOR,
    BaseCommand,
    CommandProducer,
    CommandSubscribe,
    KeyValue,
    MessageMetadata,
)
from magnetar.wire.strings import bad_string, has_strings, parse_metadata

Descriptor = Any  # the stubs know two classes of it
NO_UTF8 = (b"\xff", b"caf\xe9", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\x80")


def spoiled(message: CommandSubscribe | CommandProducer | MessageMetadata, bad: bytes) -> bytes:
    """The bytes of a message in which every `QQQQ…` is `bad`."""
    return message.SerializeToString().replace(b"Q" * len(bad), bad)


@pytest.mark.parametrize("bad", NO_UTF8)
def test_a_bad_string_is_named_with_its_path(bad: bytes) -> None:
    mark = "Q" * len(bad)
    subscribe = CommandSubscribe(topic="t", subscription=mark, subType=0, consumer_id=1, request_id=1)  # type: ignore[arg-type]
    assert bad_string(subscribe) is None
    assert bad_string(CommandSubscribe.FromString(spoiled(subscribe, bad))) == "subscription"
    pairs = [KeyValue(key="k", value="v"), KeyValue(key="é", value=mark)]
    producer = CommandProducer(topic="t", producer_id=1, request_id=1, metadata=pairs)
    assert bad_string(CommandProducer.FromString(spoiled(producer, bad))) == "metadata[1].value"
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, replicate_to=["a", mark])
    with pytest.raises(DecodeError):
        parse_metadata(spoiled(metadata, bad))
    assert bad_string(MessageMetadata.FromString(spoiled(metadata, bad))) == "replicate_to[1]"


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_python_decides_what_is_utf8(name: bytes, key: bytes) -> None:
    raw = b"\x0a" + bytes((len(name),)) + name + b"\x10\x01\x18\x01\x32" + bytes((len(key),)) + key
    try:
        name.decode(), key.decode()
    except UnicodeDecodeError:
        with pytest.raises(DecodeError):
            parse_metadata(raw)
        assert bad_string(MessageMetadata.FromString(raw)) in ("producer_name", "partition_key")
    else:
        assert parse_metadata(raw).SerializeToString() == raw
        assert bad_string(MessageMetadata.FromString(raw)) is None


def test_the_checked_schema_is_the_protocols() -> None:
    ours, theirs = type(parse_metadata(b"")).DESCRIPTOR, MessageMetadata.DESCRIPTOR

    def shape(kind: Descriptor) -> list[object]:
        return [
            (f.name, f.number, f.type, f.is_repeated, f.is_required, f.has_presence, f.default_value)
            if f.message_type is None
            else (f.name, f.number, shape(f.message_type))
            for f in kind.fields
        ]

    assert shape(ours) == shape(theirs)


def test_what_holds_its_own_kind_has_no_strings() -> None:
    def walk(kind: Descriptor, above: tuple[Descriptor, ...]) -> None:
        for field in kind.fields:
            if field.message_type in above:
                assert not has_strings(field.message_type)
            elif field.message_type is not None:
                walk(field.message_type, (*above, field.message_type))

    for kind in DESCRIPTOR.message_types_by_name.values():
        walk(kind, (kind,))
    assert has_strings(BaseCommand.DESCRIPTOR)  # type: ignore[arg-type]
