import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import FrameTooLarge, ProtocolError
from magnetar.wire.frames import Frame, FrameDecoder, encode_frame
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import BaseCommand, CommandPing, CommandSend, MessageMetadata


def ping() -> BaseCommand:
    return BaseCommand(type=BaseCommand.PING, ping=CommandPing())


def send(sequence_id: int) -> BaseCommand:
    return BaseCommand(type=BaseCommand.SEND, send=CommandSend(producer_id=1, sequence_id=sequence_id))


def payload(body: bytes) -> bytes:
    return seal(MessageMetadata(producer_name="p", sequence_id=0, publish_time=1), body)


frames = st.one_of(
    st.just((ping(), b"")),
    st.tuples(st.integers(0, 1 << 40).map(send), st.binary(max_size=600).map(payload)),
)


def feed_in_pieces(data: bytes, cuts: list[int]) -> list[Frame]:
    decoder = FrameDecoder()
    out: list[Frame] = []
    edges = [0, *sorted(c % (len(data) + 1) for c in cuts), len(data)]
    for start, end in pairwise(edges):
        out += decoder.feed(data[start:end])
    assert len(decoder._kept) == 0
    return out


@given(st.lists(frames, max_size=6), st.lists(st.integers(0, 1 << 20), max_size=12))
def test_any_split_of_the_stream_decodes_the_same(sent: list[tuple[BaseCommand, bytes]], cuts: list[int]) -> None:
    data = b"".join(encode_frame(command, body) for command, body in sent)
    assert feed_in_pieces(data, cuts) == sent


@given(st.lists(frames, min_size=1, max_size=3))
def test_byte_by_byte_decodes_the_same(sent: list[tuple[BaseCommand, bytes]]) -> None:
    data = b"".join(encode_frame(command, body) for command, body in sent)
    decoder = FrameDecoder()
    assert [frame for i in range(len(data)) for frame in decoder.feed(data[i : i + 1])] == sent


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_random_bytes_raise_protocol_error_or_wait_within_the_limit(pieces: list[bytes]) -> None:
    decoder = FrameDecoder(max_frame_bytes=1000)
    try:
        for piece in pieces:
            decoder.feed(piece)
            assert len(decoder._kept) <= 1004 + 300
    except ProtocolError:
        pass


@given(st.data())
def test_a_damaged_frame_raises_protocol_error_or_decodes(data: st.DataObject) -> None:
    frame = bytearray(encode_frame(send(7), payload(b"x" * 50)))
    position = data.draw(st.integers(4, len(frame) - 1))
    frame[position] ^= data.draw(st.integers(1, 255))
    decoder = FrameDecoder()
    try:
        decoded = decoder.feed(bytes(frame))
    except ProtocolError:
        return
    assert len(decoded) == 1


def test_a_frame_above_the_limit_is_refused_before_it_is_buffered() -> None:
    decoder = FrameDecoder(max_frame_bytes=100)
    with pytest.raises(FrameTooLarge, match="frame of 101 bytes exceeds max_frame_bytes=100"):
        decoder.feed(struct.pack(">I", 101))


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"\x15\x03\x03\x00\x02", "TLS"),
    ],
)
def test_another_protocol_is_named(data: bytes, name: str) -> None:
    with pytest.raises(ProtocolError, match=f"speaks {name}, not Pulsar's binary protocol: correct the scheme or port"):
        FrameDecoder().feed(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (struct.pack(">I", 0), "too short for a command size"),
        (struct.pack(">IB", 1, 0), "too short for a command size"),
        (struct.pack(">II", 4, 9), "exceeds its frame"),
        (struct.pack(">II", 6, 2) + b"\xff\xff", "cannot be parsed"),
        (struct.pack(">II", 4, 0), "lacks a required field"),
    ],
)
def test_contradictory_sizes_are_refused(data: bytes, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        FrameDecoder().feed(data)


@pytest.mark.parametrize("size", [70_000, 300_000])
@pytest.mark.parametrize("piece", [1000, 65_536, 262_144])
def test_big_frames_are_found_among_small_ones_however_they_are_cut(size: int, piece: int) -> None:
    bodies = [b"small", b"b" * size, b"c" * size, b"", b"d" * size, b"end"]
    stream = b"".join(encode_frame(send(number), payload(body)) for number, body in enumerate(bodies))
    decoder = FrameDecoder()
    frames = [frame for start in range(0, len(stream), piece) for frame in decoder.feed(stream[start : start + piece])]
    assert [frame.command.send.sequence_id for frame in frames] == list(range(len(bodies)))
    assert [frame.payload for frame in frames] == [payload(body) for body in bodies]
    assert all(type(frame.payload) is bytes for frame in frames)
    assert len(decoder._kept) == 0


@pytest.mark.parametrize("cut", [6, 8, 50_000])
def test_a_big_frame_that_contradicts_itself_is_refused_however_it_is_cut(cut: int) -> None:
    stream = struct.pack(">II", 100_000, 100_000) + bytes(99_996)
    decoder = FrameDecoder()
    with pytest.raises(ProtocolError, match="command of 100000 bytes exceeds its frame of 100000 bytes"):
        decoder.feed(stream[:cut]) or decoder.feed(stream[cut:])
