"""A letter is the message that failed, with what tells why: of random messages, in batches and alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.api.connector import Record
from magnetar.api.connector_config import HIDDEN
from magnetar.api.connector_secrets import Hiding
from magnetar.client.consumers.received import ReceivedEntry
from magnetar.client.outgoing_message import NO_VALUE, Base64Key
from magnetar.client.producers.outgoing import encode_entry
from magnetar.instance.acks.dead_letters import EXCEPTION_CHARS_MAX, DeadLetters, Letter, reason, shown_reason
from magnetar.instance.connectors.source_letters import SourceLetters
from magnetar.wire.functions_pb2 import FunctionDetails, SinkSpec
from magnetar.wire.message_id import MessageId
from magnetar.wire.pulsar_api_pb2 import KeyValue, MessageMetadata, SingleMessageMetadata

WHY = {"EXCEPTION": "ValueError: no", "TRACEBACK": "…\n" * 100}
COMMON = {"TRIES": "1", "FUNCTION": "a/b/c"}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
HEADERS = st.builds(
    SingleMessageMetadata,
    payload_size=st.just(0),
    partition_key=st.none() | TEXTS,
    partition_key_b64_encoded=st.none() | st.booleans(),
    ordering_key=st.none() | st.binary(max_size=9),
    event_time=st.none() | st.integers(0, 2**64 - 1),
    null_value=st.none() | st.booleans(),
    sequence_id=st.none() | st.integers(0, 2**64 - 1),
    properties=st.lists(
        st.builds(KeyValue, key=st.sampled_from(["p", "EXCEPTION", "TRIES", "REAL_TOPIC"]) | TEXTS, value=TEXTS),
        max_size=3,
    ),
)
OWN = ("partition_key", "partition_key_b64_encoded", "ordering_key", "event_time", "null_value")


def parsed(letter: Letter) -> SingleMessageMetadata:
    return SingleMessageMetadata.FromString(letter.attributes + b"\x18\x00")


def check(entry: ReceivedEntry, index: int, payload: bytes, header: SingleMessageMetadata | MessageMetadata) -> None:
    """Check the letter of a message."""
    letter = DeadLetters("dead", "f", "s").letter(entry, index, payload, WHY, COMMON)
    found = parsed(letter)
    assert letter.payload == payload
    for name in OWN:
        assert (found.HasField(name), getattr(found, name)) == (header.HasField(name), getattr(header, name)), name
    assert not found.HasField("sequence_id")
    ours = {"REAL_TOPIC": "t", "REAL_SUBSCRIPTION": "s", **WHY, **COMMON}
    theirs = [(pair.key, pair.value) for pair in header.properties if pair.key not in {*ours, "ORIGIN_MESSAGE_ID"}]
    properties = [(pair.key, pair.value) for pair in found.properties]
    assert properties[: len(theirs)] == theirs
    number = dict(properties)["ORIGIN_MESSAGE_ID"]
    assert dict(properties[len(theirs) :]) == {**ours, "ORIGIN_MESSAGE_ID": number}
    alone, options = letter.options()
    assert (alone is NO_VALUE) == header.null_value
    assert options.get("key") == (header.partition_key if header.HasField("partition_key") else None)
    assert isinstance(options.get("key"), Base64Key) == (
        header.HasField("partition_key") and header.partition_key_b64_encoded
    )


@given(st.lists(st.tuples(HEADERS, st.binary(max_size=50)), min_size=1, max_size=4))
def test_a_letter_is_its_message_and_why(messages: list[tuple[SingleMessageMetadata, bytes]]) -> None:
    copies = [SingleMessageMetadata.FromString(header.SerializeToString()) for header, _ in messages]
    encoded = encode_entry([payload for _, payload in messages], copies)
    metadata = MessageMetadata(num_messages_in_batch=len(messages))
    entry = ReceivedEntry(MessageId(1, 2), "t", metadata, 0, len(messages), (encoded.body, 0, 1_000_000))
    for index, (header, payload) in enumerate(messages):
        check(entry, index, payload, header)


@given(HEADERS)
def test_a_letter_of_a_message_that_came_alone_is_the_same(header: SingleMessageMetadata) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0)
    metadata.properties.extend(header.properties)
    for name in OWN:
        if header.HasField(name):
            setattr(metadata, name, getattr(header, name))
    check(ReceivedEntry(MessageId(1, 2), "t", metadata, 0, 1, (b"x", 0, 1_000_000)), 0, b"x", metadata)


def test_a_letter_without_its_longest_property() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0, partition_key="k")
    entry = ReceivedEntry(MessageId(1, 2), "t", metadata, 0, 1, (b"x", 0, 1_000_000))
    letter = DeadLetters("dead", "f", "s").letter(entry, 0, b"x", WHY, COMMON)
    shorter = letter.without("TRACEBACK")
    assert shorter is not None
    expected = {name: value for name, value in letter.options()[1]["properties"].items() if name != "TRACEBACK"}
    assert shorter.options() == (b"x", {"key": "k", "properties": expected})
    assert shorter.without("TRACEBACK") is None


KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nAQEFAASCBKcwggSj\n-----END KEY-----"


def failing(entry: ReceivedEntry, hiding: Hiding, error: Exception) -> list[str]:
    """The reasons in the letters of functions, sinks and sources."""
    details = FunctionDetails(tenant="t", namespace="n", name="f", sink=SinkSpec(topic="out"))
    of_sink = DeadLetters("", "f", "s", "t/n/f", hiding).request(entry, 0, b"", error)
    (of_source,) = SourceLetters(details, hiding).requests(Record(b""), str(error))
    return [
        shown_reason(reason(error, "").exception, hiding),
        *(one.options["properties"]["EXCEPTION"] for one in (of_sink, of_source)),
    ]


@pytest.mark.parametrize("before", [0, EXCEPTION_CHARS_MAX - 40])
def test_no_letter_has_a_secret_of_several_lines_in_its_reason(before: int) -> None:
    """Exceptions are joined into one line, and a long one is cut, perhaps within the secret."""
    hiding = Hiding()
    hiding.hide([KEY])
    entry = ReceivedEntry(MessageId(1, 1), "t", MessageMetadata(), 0, 1, (b"", 0, 100))
    for text in failing(entry, hiding, ValueError("x" * before + f" cannot read {KEY} twice")):
        assert "MII" not in text
        assert len(text) <= EXCEPTION_CHARS_MAX
        assert HIDDEN in text
