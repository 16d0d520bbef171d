"""Metadata as columns, all rows at once: the same as protobuf says of each message."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

np = pytest.importorskip("numpy")
pa = pytest.importorskip("pyarrow")

from magnetar.errors import ProtocolError  # noqa: E402
from magnetar.spark.source.columns import SHOWN_OF_METADATA, BatchBuilder  # noqa: E402
from magnetar.spark.source.entry_rows import rows_of  # noqa: E402
from magnetar.spark.source.header_columns import (  # noqa: E402
    EVENT_TIME_MS_MAX,
    FIELDS_MAX,
    HeaderColumns,
    attributes_of,
)
from magnetar.spark.source.range_reader import Entry  # noqa: E402
from magnetar.wire.batch import encode_batch  # noqa: E402
from magnetar.wire.message_id import deserialize  # noqa: E402
from magnetar.wire.position import Position  # noqa: E402
from magnetar.wire.pulsar_api_pb2 import KeyValue, MessageMetadata, SingleMessageMetadata  # noqa: E402

texts = st.one_of(st.text(max_size=4), st.sampled_from(["a", "b", "x" * 200, "H", "ключ", "日本", "\0", "😀"]))
pairs = st.builds(KeyValue, key=texts, value=texts)
times = st.one_of(st.sampled_from([0, 1, 127, 128, 1_763_700_000_123, EVENT_TIME_MS_MAX]), st.integers(0, 1 << 50))
maybe = st.one_of(st.none(), st.booleans())


def with_key(metadata: SingleMessageMetadata, key: str | None, raw: bytes | None) -> SingleMessageMetadata:
    if raw is not None:
        metadata.partition_key, metadata.partition_key_b64_encoded = base64.b64encode(raw).decode(), True
    elif key is not None:
        metadata.partition_key = key
    return metadata


metadata = st.builds(
    with_key,
    st.builds(
        SingleMessageMetadata,
        payload_size=st.integers(0, 1 << 20),
        properties=st.lists(pairs, max_size=3),
        event_time=st.one_of(st.none(), times),
        ordering_key=st.one_of(st.none(), st.binary(max_size=5)),
        sequence_id=st.one_of(st.none(), st.integers(0, (1 << 64) - 1)),
        null_value=maybe,
        null_partition_key=maybe,
        compacted_out=maybe,
    ),
    st.one_of(st.none(), texts),
    st.one_of(st.none(), st.none(), st.binary(max_size=6)),
)
fields = st.sampled_from([
    b"\x18\x05", b"\x18\x85\x80\x00", b"\x98\x00\x05", b"\x12\x01k", b"\x12\x00", b"\x12\x01l", b"\x28\x07",
    b"\x28\x00", b"\x28\x87\x80\x80\x80\x80\x80\x80\x80\x80\x00", b"\x30\x00", b"\x48\x01", b"\x48\x00",
    b"\x48\x80\x01",
    b"\x58\x01", b"\x62\x01a", b"\x09" + b"\0" * 8, b"\x3a\x02zz", b"\x0a\x06\x0a\x01p\x12\x01q",
    b"\x0a\x06\x12\x01r\x0a\x01p",
    b"\x0a\x06\x0a\x01q\x12\x01q", b"\x0a\x04\x0a\x00\x12\x00", b"\x0a\x09\x0a\x01p\x0a\x01s\x12\x01t",
    b"\x0a\x08\x0a\x01p\x12\x01q\x18\x01", b"\x0a\x07\x0a\x81\x00p\x12\x01q",
])  # fmt: skip
"""Parts of metadata of all forms that protobuf reads: usual, repeated, unknown, of more bytes than needed."""
unusual = st.lists(fields, max_size=6).map(lambda parts: b"".join([*parts, b"\x18\x00"]))
encoded = st.one_of(metadata.map(SingleMessageMetadata.SerializeToString), unusual)
Row = tuple[bytes | None, int | None, list[tuple[str, str]] | None]


def by_protobuf(header: SingleMessageMetadata | MessageMetadata) -> Row:
    key = None
    if header.HasField("partition_key"):
        text = header.partition_key
        key = base64.b64decode(text) if header.partition_key_b64_encoded else text.encode()
    properties = list({pair.key: pair.value for pair in header.properties}.items())
    return key, header.event_time * 1000 or None, properties or None


def columns_of(headers: list[bytes], repeats: list[int] | None = None) -> HeaderColumns:
    ends = np.cumsum(list(map(len, headers)), dtype=np.int32)
    return HeaderColumns(b"".join(headers), ends, None if repeats is None else np.array(repeats))


def rows(columns: HeaderColumns) -> list[Row]:
    found: list[list[Any]] = [
        columns.keys().to_pylist(),
        columns.event_times().cast(pa.int64()).to_pylist(),
        columns.properties().to_pylist(),
    ]
    for column in (columns.keys(), columns.event_times(), columns.properties()):
        column.validate(full=True)
    return list(zip(*found, strict=True))


@settings(max_examples=300)
@given(st.lists(encoded, min_size=1, max_size=12))
def test_columns_are_what_protobuf_says_of_each_message(headers: list[bytes]) -> None:
    expected = [by_protobuf(SingleMessageMetadata.FromString(header)) for header in headers]
    assert rows(columns_of(headers)) == expected


@given(st.lists(st.tuples(encoded, st.integers(1, 3)), min_size=1, max_size=6))
def test_metadata_that_stands_for_several_rows_is_repeated(headers: list[tuple[bytes, int]]) -> None:
    expected = [
        by_protobuf(SingleMessageMetadata.FromString(header)) for header, count in headers for _ in range(count)
    ]
    columns = columns_of([header for header, _ in headers], [count for _, count in headers])
    assert rows(columns) == expected


@given(metadata)
def test_a_message_that_came_alone_has_the_same_columns(header: SingleMessageMetadata) -> None:
    alone = MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=1,
        properties=header.properties,
        event_time=header.event_time,
        null_value=header.null_value,
        partition_key_b64_encoded=header.partition_key_b64_encoded,
    )
    if header.HasField("partition_key"):
        alone.partition_key = header.partition_key
    assert rows(columns_of([attributes_of(alone)])) == [by_protobuf(alone)]


messages_of_batches = st.lists(st.tuples(metadata, st.binary(max_size=3)), min_size=1, max_size=8)
equal_messages = st.tuples(st.tuples(metadata, st.binary(max_size=3)), st.integers(2, 8)).map(
    lambda one: [one[0]] * one[1]
)


@given(
    st.one_of(messages_of_batches, equal_messages),
    st.integers(0, 3),
    st.one_of(st.none(), st.integers(0, 9)),
)
def test_rows_of_a_batch_are_those_that_are_wanted_and_not_removed(
    messages: list[tuple[SingleMessageMetadata, bytes]], first: int, last: int | None
) -> None:
    # What compaction removes has no payload.
    messages = [(header, b"" if header.compacted_out else payload) for header, payload in messages]
    encoded = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=len(messages))
    entry = Entry(Position(3, 4), encoded, encode_batch(messages))
    end = len(messages) if last is None else last + 1
    wanted = [(index, *one) for index, one in enumerate(messages) if first <= index < end and not one[0].compacted_out]
    for columns in (("value",), ("__messageId", *SHOWN_OF_METADATA, "value")):
        rows = rows_of(entry, first, last, only_values=columns == ("value",))
        if rows is None:
            assert not wanted
            continue
        builder = BatchBuilder(columns, "persistent://public/default/t", -1)
        builder.add(entry, rows)
        found = builder.take()
        found.validate(full=True)
        values = [None if header.null_value else payload for _, header, payload in wanted]
        assert found.column("value").to_pylist() == values
        if len(columns) > 1:
            ids = [deserialize(one).batch_index for one in found.column("__messageId").to_pylist()]
            assert ids == [index for index, _, _ in wanted]
            assert found.column("__key").to_pylist() == [by_protobuf(header)[0] for _, header, _ in wanted]
            assert found.column("__messageProperties").to_pylist() == [by_protobuf(one)[2] for _, one, _ in wanted]


def test_a_key_that_is_no_text_is_its_bytes() -> None:
    header = b"\x12\x02\xff\xfe\x18\x00"
    assert columns_of([header, b"\x18\x00"]).keys().to_pylist() == [b"\xff\xfe", None]
    alone = MessageMetadata.FromString(
        MessageMetadata(producer_name="p", sequence_id=1, publish_time=1).SerializeToString() + b"\x32\x02\xff\xfe"
    )
    assert alone.HasField("partition_key")
    assert columns_of([attributes_of(alone)]).keys().to_pylist() == [b"\xff\xfe"]


def test_what_no_column_can_hold_is_refused_in_one_line() -> None:
    no_text = b"\x0a\x06\x0a\x01\xff\x12\x01a\x18\x00"
    with pytest.raises(
        ProtocolError, match=r"a message property is not valid UTF-8: .*omit the column __messageProperties"
    ):
        columns_of([no_text]).properties()
    late = SingleMessageMetadata(payload_size=0, event_time=EVENT_TIME_MS_MAX + 1).SerializeToString()
    with pytest.raises(
        ProtocolError,
        match=r"event time 9223372036854776 ms of a message .*omit the column"
        r" __eventTime",
    ):
        columns_of([late]).event_times()


def test_very_many_properties_are_read_once() -> None:
    count = 100_000
    many = SingleMessageMetadata(
        payload_size=0, properties=[KeyValue(key=str(number), value="v") for number in range(count)]
    ).SerializeToString()
    few = SingleMessageMetadata(
        payload_size=0, properties=[KeyValue(key=str(number), value="v") for number in range(FIELDS_MAX)]
    ).SerializeToString()
    found = columns_of([many, few]).properties().to_pylist()
    assert found == [[(str(number), "v") for number in range(size)] for size in (count, FIELDS_MAX)]
