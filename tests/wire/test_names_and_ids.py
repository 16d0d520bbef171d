import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar import errors
from magnetar.errors import InvalidTopicName, ProtocolError
from magnetar.wire import ack_set
from magnetar.wire.hashing import boost_hash, java_string_hash, murmur3_32
from magnetar.wire.message_id import EARLIEST, LATEST, MessageId, deserialize
from magnetar.wire.pulsar_api_pb2 import ServerError
from magnetar.wire.topic_name import base_of, parse_topic_name

VECTORS = json.loads((Path(__file__).parent / "hash_vectors.json").read_text())


@pytest.mark.parametrize(("text", "java", "murmur"), VECTORS)
def test_hashes_equal_the_published_vectors(text: str, java: int | None, murmur: int | None) -> None:
    if java is not None:
        assert java_string_hash(text) == java
    if murmur is not None:
        assert murmur3_32(text.encode()) == murmur


@given(st.binary(max_size=30))
def test_hashes_are_31_bits(data: bytes) -> None:
    assert 0 <= murmur3_32(data) < 1 << 31
    assert 0 <= boost_hash(data) < 1 << 31


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("a", "persistent://public/default/a"),
        ("t/n/a", "persistent://t/n/a"),
        ("non-persistent://t/n/a", "non-persistent://t/n/a"),
        ("persistent://t/n/a b%ü", "persistent://t/n/a b%ü"),
    ],
)
def test_short_names_are_completed(text: str, full: str) -> None:
    assert str(parse_topic_name(text)) == full


@pytest.mark.parametrize(
    "text",
    ["", "a/b", "a/b/c/d", "http://t/n/a", "persistent://t/n", "persistent://t/n/", "persistent://t//a",
     "persistent://t/n/c/a", "persistent://t /n/a", "persistent://", "x" * 2000],
)  # fmt: skip
def test_invalid_names_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidTopicName, match="invalid topic name") as caught:
        parse_topic_name(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("local", "partition", "base"),
    [("a-partition-0", 0, "a"), ("a-partition-12", 12, "a"), ("a-partition-01", -1, None),
     ("a-partition-2147483647", 2147483647, "a"), ("a-partition-2147483648", -1, None),
     ("a-partition-99999999999999999999", -1, None), ("a-partition--1", -1, None), ("a", -1, None),
     ("a-partition-1-partition-2", 2, "a-partition-1")],
)  # fmt: skip
def test_partitions_are_canonical_numbers(local: str, partition: int, base: str | None) -> None:
    name = parse_topic_name(local)
    assert name.partition == partition
    assert name.base.local == (base or local)
    assert name.base.partition_name(3).local == f"{base or local}-partition-3"


@pytest.mark.parametrize("local", ["x" * 900, "-partition-" * 80 + "x", "-partition-0" * 80 + "-", "\u2003x" * 200])
def test_parsing_time_of_a_long_name_is_linear(local: str) -> None:
    began_s = time.process_time()
    for number in range(300):
        name = parse_topic_name(f"persistent://public/default/{number}{local}")
        assert (name.partition, base_of(name.text)) == (-1, name.text)
    assert time.process_time() - began_s < 1.0  # a quadratic pattern takes more than 3 s


@given(
    st.integers(-1, (1 << 63) - 1), st.integers(-1, (1 << 63) - 1), st.integers(-1, 999), st.integers(-1, 999),
    st.integers(0, 999),
)  # fmt: skip
def test_a_message_id_survives_serialisation(ledger: int, entry: int, partition: int, index: int, size: int) -> None:
    message_id = MessageId(ledger, entry, partition, index, size)
    assert deserialize(message_id.serialize()) == message_id


def test_the_ends_of_a_topic_have_their_own_ids() -> None:
    assert EARLIEST < MessageId(0, 0) < LATEST
    assert deserialize(EARLIEST.serialize()) == EARLIEST
    with pytest.raises(ProtocolError, match="not a valid serialized message id"):
        deserialize(b"\xff")


indexes = st.sets(st.integers(0, 200))


@given(indexes, indexes)
def test_ack_sets_behave_as_sets(first: set[int], second: set[int]) -> None:
    one, two = ack_set.from_wanted(first), ack_set.from_wanted(second)
    both = ack_set.intersect(one, two)
    assert ack_set.wanted(both) == sorted(first & second)
    assert ack_set.count(one) == len(first)
    assert any(both) == bool(first & second)
    assert all(-(1 << 63) <= word < 1 << 63 for word in one)
    assert not one or one[-1] != 0


def test_every_error_code_of_the_protocol_has_its_class() -> None:
    assert {value.number for value in ServerError.DESCRIPTOR.values} == set(errors.BROKER_ERRORS)
    assert type(errors.broker_error(11, "x")) is errors.TopicNotFound
    assert type(errors.broker_error(999, "x")) is errors.UnknownBrokerError
