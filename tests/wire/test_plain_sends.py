from hypothesis import given
from hypothesis import strategies as st
from magnetar.wire.frames import encode_frame
from magnetar.wire.payload import seal
from magnetar.wire.plain_sends import MAX_KEPT_HEADS, PlainSends
from magnetar.wire.pulsar_api_pb2 import BaseCommand, CommandSend, MessageMetadata

u64 = st.integers(0, (1 << 64) - 1)
messages = st.lists(st.tuples(u64 | st.integers(0, 300), u64, st.binary(max_size=300)), min_size=1, max_size=8)


def by_protobuf(producer_id: int, name: str, sequence_id: int, time_ms: int, body: bytes) -> bytes:
    metadata = MessageMetadata(producer_name=name, sequence_id=sequence_id, publish_time=time_ms)
    command = CommandSend(producer_id=producer_id, sequence_id=sequence_id, num_messages=1)
    return encode_frame(BaseCommand(type=BaseCommand.SEND, send=command), seal(metadata, body))


@given(u64, st.text(max_size=200), messages)
def test_frames_equal_protobufs(producer_id: int, name: str, given: list[tuple[int, int, bytes]]) -> None:
    sends = PlainSends(producer_id, name)
    for sequence_id, time_ms, body in given:
        head, section = sends.frame(sequence_id, time_ms, body)
        assert head + section == by_protobuf(producer_id, name, sequence_id, time_ms, body)


def test_heads_of_ever_new_sizes_are_forgotten() -> None:
    sends = PlainSends(1, "p")
    for size in range(MAX_KEPT_HEADS + 10):
        head, section = sends.frame(size, 1, bytes(size))
        assert head + section == by_protobuf(1, "p", size, 1, bytes(size))
        assert len(sends._heads) <= MAX_KEPT_HEADS
