"""Rows of a batch, split byte by byte and by protobuf: the same messages, the same refusals, the same properties."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from struct import pack
from types import ModuleType
from typing import Any

import magnetar
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.errors import ProtocolError
from magnetar.wire import batch, message_rows
from magnetar.wire.batch import encode_attributes, encode_rows, split_batch
from magnetar.wire.message_rows import parsed_properties
from magnetar.wire.pulsar_api_pb2 import KeyValue, SingleMessageMetadata

pairs = st.builds(KeyValue, key=st.text(max_size=4), value=st.one_of(st.text(max_size=4), st.just("v" * 200)))
metadata = st.builds(
    SingleMessageMetadata,
    properties=st.lists(pairs, max_size=3),
    partition_key=st.one_of(st.none(), st.text(max_size=5)),
    compacted_out=st.one_of(st.none(), st.booleans()),
    event_time=st.one_of(st.none(), st.integers(0, (1 << 64) - 1)),
    partition_key_b64_encoded=st.one_of(st.none(), st.booleans()),
    ordering_key=st.one_of(st.none(), st.binary(max_size=5)),
    sequence_id=st.one_of(st.none(), st.integers(0, (1 << 64) - 1)),
    null_value=st.one_of(st.none(), st.booleans()),
    null_partition_key=st.one_of(st.none(), st.booleans()),
)
fields = st.sampled_from([
    b"\x0a", b"\x12", b"\x18", b"\x20", b"\x28", b"\x30", b"\x3a", b"\x40", b"\x48", b"\x50", b"\x58\x01", b"\x62\x01a",
    b"\x0a\x04\x0a\x00\x12\x00", b"\x0a\x04\x12\x00\x0a\x00", b"\x0a\x02\x0a\x00", b"\x09", b"\x0d", b"\x13\x14",
    b"\x14", b"\x98\x00\x05", b"\x18\xff\xff\xff\xff\x0f", b"\x18\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\x00",
    b"\xf8\xff\xff\xff\x0f\x01", b"\x18\x85\x80\x00", b"\x40" + b"\xff" * 9 + b"\x01", b"\x40" + b"\xff" * 10 + b"\x01",
    b"\x20\x01", b"\xa0\x00\x01", b"\x48\x01", b"\x48\x00", b"\xc8\x80\x00\x01",
])  # fmt: skip
"""Parts of metadata of all forms: usual, unknown, cut off, too long."""
hostile = st.lists(st.one_of(fields, st.binary(max_size=3)), max_size=5).map(b"".join)


def source() -> ModuleType:
    """The module as Python, whether it is compiled or not."""
    spec = spec_from_file_location(
        "magnetar.wire.message_rows_source", Path(magnetar.__file__).parent / "wire" / "message_rows.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WAYS = [message_rows, source()]
"""What is in use, and its source: one and the same where nothing is compiled."""


def expected_sizes(payloads: list[bytes], headers: list[bytes]) -> tuple[list[int], int]:
    """Return what `row_sizes` is to return for such rows, all of whose metadata protobuf reads."""
    sizes, all_flags = [], 0
    for payload, header in zip(payloads, headers, strict=True):
        found = SingleMessageMetadata.FromString(header)
        flags = message_rows.IS_REMOVED if found.compacted_out and not payload else 0
        flags |= message_rows.IS_NULL if found.null_value else 0
        all_flags |= flags
        sizes.append(len(payload) | len(header) << message_rows.HEADER_SHIFT | flags)
    return sizes, all_flags


def sizes_or_none(split: Callable[[bytes, int], tuple[list[int], int]], body: bytes, count: int) -> Any:
    try:
        return split(body, count)
    except ProtocolError:
        return None


def by_hand(module: ModuleType, body: bytes, count: int) -> tuple[list[bytes], list[bytes]] | None:
    try:
        found: tuple[list[bytes], list[bytes]] = module.split_rows(body, count)
    except ProtocolError:
        return None
    return found


def by_protobuf(body: bytes, count: int) -> tuple[list[bytes], list[bytes]] | None:
    try:
        return batch._split_parsed(body, count)
    except ProtocolError:
        return None


@given(st.lists(st.tuples(metadata, st.binary(max_size=40)), min_size=1, max_size=20))
def test_rows_of_clients_are_split_alike(messages: list[tuple[SingleMessageMetadata, bytes]]) -> None:
    parts = []
    for one, payload in messages:
        one.payload_size = len(payload)
        header = one.SerializeToString()  # in the order of the numbers, as official clients have it
        parts.append(pack(">I", len(header)) + header + payload)
    body = b"".join(parts)
    payloads, headers = batch._split_parsed(body, len(messages))
    assert payloads == [payload for _, payload in messages]
    assert [SingleMessageMetadata.FromString(header) for header in headers] == [one for one, _ in messages]
    assert list(map(batch._properties, headers)) == [parsed_properties(header) for header in headers]
    sizes = expected_sizes(payloads, headers)
    assert batch._sizes_parsed(body, len(messages)) == sizes
    for module in WAYS:
        assert module.split_rows(body, len(messages)) == (payloads, headers)
        assert module.row_sizes(body, len(messages)) == sizes
        properties = module.properties_of(headers)
        assert properties == [parsed_properties(header) for header in headers]
        forwarded = [SingleMessageMetadata.FromString(found + b"\x18\x00") for found in properties]
        assert [list(one.properties) for one in forwarded] == [list(one.properties) for one, _ in messages]


@settings(max_examples=1000)
@given(st.lists(st.tuples(hostile, st.binary(max_size=8)), min_size=1, max_size=4), st.data())
def test_hostile_rows_are_taken_and_refused_alike(rows: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    body = bytearray()
    for header, payload in rows:
        whole = header + (b"\x18" + bytes([len(payload)]) if data.draw(st.booleans()) else b"")
        body += pack(">I", len(whole)) + whole + payload
    for _ in range(data.draw(st.integers(0, 2))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.one_of(st.just(len(body)), st.integers(0, len(body))))
    expected = by_protobuf(bytes(body[:end]), len(rows))
    sizes = None if expected is None else expected_sizes(*expected)
    assert sizes_or_none(batch._sizes_parsed, bytes(body[:end]), len(rows)) == sizes
    if expected is not None:
        for header, found in zip(expected[1], map(batch._properties, expected[1]), strict=True):
            ours = SingleMessageMetadata.FromString(found + b"\x18\x00").properties
            assert list(ours) == list(SingleMessageMetadata.FromString(header).properties)
    for module in WAYS:
        assert by_hand(module, bytes(body[:end]), len(rows)) == expected
        assert sizes_or_none(module.row_sizes, bytes(body[:end]), len(rows)) == sizes
        if expected is not None:
            for header, found in zip(expected[1], module.properties_of(expected[1]), strict=True):
                ours = SingleMessageMetadata.FromString(found + b"\x18\x00").properties
                assert list(ours) == list(SingleMessageMetadata.FromString(header).properties)


@given(st.lists(st.tuples(st.one_of(st.none(), metadata), st.binary(max_size=300)), min_size=1, max_size=20))
def test_joined_rows_are_read_by_protobuf(messages: list[tuple[SingleMessageMetadata | None, bytes]]) -> None:
    attributes = [encode_attributes(one) for one, _ in messages]
    bodies = [module.join_rows([payload for _, payload in messages], attributes) for module in WAYS]
    assert bodies[0] == bodies[1]
    payloads, headers = split_batch(bodies[0], len(messages))
    assert payloads == [payload for _, payload in messages]
    for number, (one, payload) in enumerate(messages):
        expected = SingleMessageMetadata()
        if one is not None:
            expected.CopyFrom(one)
        expected.payload_size = len(payload)
        assert headers[number] == expected
    assert list(headers) == [headers[number] for number in range(len(messages))]


def test_attributes_belong_to_payloads() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        encode_rows([b"a", b"b"], [b""])


@pytest.mark.slow
def test_pure_python_is_taken_where_it_is_asked_for() -> None:
    code = "from magnetar.wire.message_rows import IS_COMPILED as is_compiled; print(is_compiled)"
    for wanted in ("", "0", "1"):
        environ = {**os.environ, "MAGNETAR_PURE": wanted}
        shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environ)
        assert shown.stdout.strip() == str(message_rows.IS_COMPILED and wanted != "1")
