from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import ProtocolError
from magnetar.wire.batch import decode_batch, encode_batch, encode_plain_batch, uniform_rows
from magnetar.wire.pulsar_api_pb2 import KeyValue, SingleMessageMetadata

metadata = st.one_of(
    st.none(),
    st.builds(
        SingleMessageMetadata,
        partition_key=st.text(max_size=5),
        event_time=st.integers(0, 1 << 50),
        sequence_id=st.integers(0, 1 << 50),
        compacted_out=st.booleans(),
        properties=st.lists(st.builds(KeyValue, key=st.text(max_size=3), value=st.text(max_size=3)), max_size=2),
    ),
)


@given(st.lists(st.tuples(metadata, st.binary(max_size=40)), max_size=20))
def test_a_batch_decodes_to_what_was_encoded(messages: list[tuple[SingleMessageMetadata | None, bytes]]) -> None:
    payloads, headers = decode_batch(encode_batch(messages), len(messages))
    assert payloads == [payload for _, payload in messages]
    for header, (given_metadata, payload) in zip(headers, messages, strict=True):
        expected = given_metadata or SingleMessageMetadata(payload_size=len(payload))
        assert header == expected


@given(metadata, st.integers(0, 30), st.integers(2, 40), st.binary(min_size=1, max_size=60), st.data())
def test_uniform_batches_and_almost_uniform_ones_decode_alike(
    header: SingleMessageMetadata | None, size: int, count: int, noise: bytes, data: st.DataObject
) -> None:
    payloads = [noise.ljust(size, b".")[:size] for _ in range(count)]
    messages = [(header, payload) for payload in payloads]
    if data.draw(st.booleans()):
        messages[data.draw(st.integers(0, count - 1))] = (SingleMessageMetadata(event_time=7), b"")
    decoded, headers = decode_batch(encode_batch(messages), count)
    assert decoded == [payload for _, payload in messages]
    assert [h.event_time for h in headers] == [(m or SingleMessageMetadata()).event_time for m, _ in messages]


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_the_plain_encoder_equals_the_general_one(payloads: list[bytes]) -> None:
    assert encode_plain_batch(payloads) == encode_batch([(None, payload) for payload in payloads])


@given(st.lists(st.binary(max_size=3), min_size=1, max_size=20))
def test_neighbours_may_share_metadata(payloads: list[bytes]) -> None:
    shared, other = SingleMessageMetadata(event_time=7), SingleMessageMetadata(event_time=8)
    messages = [(other if payload == b"\0" else shared, payload) for payload in payloads]
    decoded, headers = decode_batch(encode_batch(messages), len(messages))
    assert decoded == payloads
    assert [header.event_time for header in headers] == [8 if payload == b"\0" else 7 for payload in payloads]
    assert [header.payload_size for header in headers] == [len(payload) for payload in payloads]


def test_equal_metadata_is_one_object() -> None:
    _, headers = decode_batch(encode_plain_batch([b"a", b"b"]), 2)
    assert headers[0] is headers[1]


@given(st.binary(max_size=80), st.integers(0, 1 << 31))
def test_random_bytes_decode_or_raise_protocol_error(body: bytes, count: int) -> None:
    try:
        payloads, _ = decode_batch(body, count)
    except ProtocolError:
        return
    assert len(payloads) == count
    assert sum(map(len, payloads)) <= len(body)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda body: body[:-1], "take up 20 bytes, but the batch has 19"),
        (lambda body: body + b"x", "take up 20 bytes, but the batch has 21"),
        (lambda body: body[:2], "cannot hold 2 messages"),
        (lambda body: body[:12], "ends inside message 1 of 2"),
    ],
)
def test_a_body_of_the_wrong_length_is_refused(change: Callable[[bytes], bytes], text: str) -> None:
    body = encode_plain_batch([b"aaaa", b"bbbb"])
    assert len(body) == 20
    with pytest.raises(ProtocolError, match=text):
        decode_batch(change(body), 2)


def test_a_negative_payload_size_is_refused() -> None:
    header = SingleMessageMetadata(payload_size=-5).SerializeToString()
    with pytest.raises(ProtocolError, match="declares -5 payload bytes"):
        decode_batch(len(header).to_bytes(4, "big") + header, 1)


@given(metadata, st.integers(0, 30), st.lists(st.integers(0, 1 << 21), min_size=2, max_size=30), st.data())
def test_rows_that_differ_in_their_sequence_ids_alone_are_uniform(
    common: SingleMessageMetadata | None, size: int, ids: list[int], data: st.DataObject
) -> None:
    headers = []
    for id_ in ids:
        header = SingleMessageMetadata()
        if common is not None:
            header.CopyFrom(common)
        header.sequence_id = id_
        headers.append(header)
    if data.draw(st.booleans()):
        headers[data.draw(st.integers(0, len(ids) - 1))].event_time = 5
    body = encode_batch([(header, bytes([number] * size)) for number, header in enumerate(headers)])
    rows = uniform_rows(body, len(ids), ignores_sequence_ids=True)
    payloads, decoded = decode_batch(body, len(ids))
    assert [header.sequence_id for header in decoded] == ids  # who wants the ids has each
    if rows is None:
        return
    start, shared = rows
    width = len(body) // len(ids)
    assert [body[row + start : row + width] for row in range(0, len(body), width)] == payloads
    for header in decoded:
        header_without, shared_without = SingleMessageMetadata(), SingleMessageMetadata()
        header_without.CopyFrom(header)
        shared_without.CopyFrom(shared)
        header_without.sequence_id = shared_without.sequence_id = 0
        assert header_without == shared_without


def test_ids_of_one_length_are_uniform_and_of_two_lengths_are_not() -> None:
    def rows(*ids: int) -> object:
        body = encode_batch([(SingleMessageMetadata(sequence_id=id_), b"x") for id_ in ids])
        return uniform_rows(body, len(ids), ignores_sequence_ids=True)

    assert rows(200, 300, 16_383) is not None
    assert rows(100, 127) is not None
    assert rows(127, 128) is None
    plain = encode_batch([(SingleMessageMetadata(sequence_id=id_), b"x") for id_ in (200, 300)])
    assert uniform_rows(plain, 2) is None
