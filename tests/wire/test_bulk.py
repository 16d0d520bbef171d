from hypothesis import given
from hypothesis import strategies as st
from magnetar.wire.bulk import ack_frame, message_frame_head, receipt_frame, send_frame_head, varint
from magnetar.wire.frames import encode_frame
from magnetar.wire.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandMessage,
    CommandSend,
    CommandSendReceipt,
    MessageIdData,
)

u64 = st.integers(0, (1 << 64) - 1)
words = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=4)


@given(u64, u64, st.none() | u64, u64, u64)
def test_receipts_equal_protobufs(producer: int, sequence: int, highest: int | None, ledger: int, entry: int) -> None:
    command = CommandSendReceipt(
        producer_id=producer, sequence_id=sequence, message_id=MessageIdData(ledgerId=ledger, entryId=entry)
    )
    if highest is not None:
        command.highest_sequence_id = highest
    expected = encode_frame(BaseCommand(type=BaseCommand.SEND_RECEIPT, send_receipt=command))
    assert receipt_frame(producer, sequence, highest, ledger, entry) == expected


@given(u64, u64, st.none() | u64, st.integers(0, 1 << 30), st.booleans(), st.binary(max_size=50))
def test_sends_equal_protobufs(
    producer: int, sequence: int, highest: int | None, count: int, chunk: bool, payload: bytes
) -> None:
    command = CommandSend(producer_id=producer, sequence_id=sequence, num_messages=count)
    if highest is not None:
        command.highest_sequence_id = highest
    if chunk:
        command.is_chunk = True
    expected = encode_frame(BaseCommand(type=BaseCommand.SEND, send=command), payload)
    assert send_frame_head(producer, sequence, highest, count, chunk, len(payload)) + payload == expected


@given(u64, u64, u64, st.integers(-1, 1 << 20), st.integers(0, 1 << 20), words, st.none() | u64)
def test_messages_equal_protobufs(
    consumer: int, ledger: int, entry: int, partition: int, redeliveries: int, ack_set: list[int], epoch: int | None
) -> None:
    position = MessageIdData(ledgerId=ledger, entryId=entry, partition=partition)
    command = CommandMessage(consumer_id=consumer, message_id=position, ack_set=ack_set)
    if redeliveries:
        command.redelivery_count = redeliveries
    if epoch is not None:
        command.consumer_epoch = epoch
    expected = encode_frame(BaseCommand(type=BaseCommand.MESSAGE, message=command), b"body")
    head = message_frame_head(consumer, ledger, entry, partition, redeliveries, ack_set, epoch, 4)
    assert head + b"body" == expected


@given(u64, st.lists(st.tuples(u64, u64, words), max_size=5), st.booleans(), st.none() | u64)
def test_acks_equal_protobufs(
    consumer: int, ids: list[tuple[int, int, list[int]]], cumulative: bool, request_id: int | None
) -> None:
    command = CommandAck(
        consumer_id=consumer,
        ack_type=CommandAck.Cumulative if cumulative else CommandAck.Individual,
        message_id=[MessageIdData(ledgerId=ledger, entryId=entry, ack_set=bits) for ledger, entry, bits in ids],
    )
    if request_id is not None:
        command.request_id = request_id
    expected = encode_frame(BaseCommand(type=BaseCommand.ACK, ack=command))
    assert ack_frame(consumer, ids, cumulative, request_id) == expected


@given(st.integers(-(1 << 63), (1 << 64) - 1))
def test_varints_have_seven_bits_a_byte(number: int) -> None:
    encoded = varint(number)
    assert sum((byte & 127) << (7 * i) for i, byte in enumerate(encoded)) == number % (1 << 64)
    assert all(byte > 127 for byte in encoded[:-1])
    assert encoded[-1] < 128
