"""The input of the benchmarks: its two shapes, and that topics hold what the official client encoded."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pulsar
import pytest
from magnetar.wire.batch import decode_batch
from magnetar.wire.payload import open_payload, verify_checksum

from benchmarks.load import hold, official
from benchmarks.plan import Plan
from benchmarks.real_input import APPLICATION, DISTINCT, PLAIN, OwnInput, messages_of, official_input

TIMEOUT_MS = 20_000


def test_plain_messages_are_100_equal_bytes_and_nothing_else() -> None:
    for message in messages_of(PLAIN, 1000):
        assert len(message.payload) == 100
        assert len(set(message.payload)) == 1
        assert (message.key, message.event_time_ms, message.properties) == (None, None, None)


def test_application_messages_are_json_of_all_lengths_with_key_time_and_property() -> None:
    messages = messages_of(APPLICATION, DISTINCT[1000])
    lengths = Counter(len(message.payload) for message in messages)
    assert set(lengths) == set(range(40, 111))
    assert lengths.most_common(1)[0][1] < len(messages) / 20
    assert len({message.key for message in messages}) == 1000
    assert len({message.event_time_ms for message in messages}) == len(messages)
    for number, message in enumerate(messages[:1000]):
        assert json.loads(message.payload)["id"] == number
        assert message.properties is not None
        assert len(message.properties) == 1


@pytest.mark.slow
@pytest.mark.parametrize("batch", [50, 1])
def test_topic_is_filled_with_the_official_clients_entries_again_and_again(tmp_path: Path, batch: int) -> None:
    plan = Plan(seconds=0.1, repeats=1, directory=tmp_path)
    given = official_input(plan, APPLICATION, batch)
    assert official_input(plan, APPLICATION, batch) == given, "what is read again is something else"
    distinct = DISTINCT[batch]
    count = distinct + 2 * batch
    expected = messages_of(APPLICATION, distinct)
    with plan.server("broker") as server:
        hold(server.service_url, "t", "s")
        given.fill(server.service_url, "t", count)
        client = official(server.service_url)
        try:
            consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
            for number in range(count):
                message, sent = consumer.receive(TIMEOUT_MS), expected[number % distinct]
                assert message.data() == sent.payload
                assert message.partition_key() == sent.key
                assert message.event_timestamp() == sent.event_time_ms
                assert message.properties() == sent.properties
                assert message.message_id().batch_index() == (number % batch if batch > 1 else -1)
        finally:
            client.close()
    assert given.payloads(count)[-1] == expected[2 * batch - 1].payload
    assert given.total_bytes(distinct) == sum(len(message.payload) for message in expected)


@pytest.mark.slow
def test_messages_of_a_batch_have_sequence_ids_as_official_clients_write_them(tmp_path: Path) -> None:
    plan = Plan(seconds=0.1, repeats=1, directory=tmp_path)
    given = official_input(plan, PLAIN, 50)
    metadata, body = open_payload(given.entries[1].section)
    payloads, headers = decode_batch(given.entries[1].section[body:], metadata.num_messages_in_batch)
    assert payloads == given.payloads(100)[50:]
    assert headers is not None
    assert [header.sequence_id for header in headers] == list(range(50, 100))
    assert verify_checksum(given.entries[1].section)


@pytest.mark.slow
def test_input_that_is_no_whole_number_of_batches_is_refused(tmp_path: Path) -> None:
    plan = Plan(seconds=0.1, repeats=1, directory=tmp_path)
    with pytest.raises(ValueError, match="75 messages are not a multiple of the batch size 50"):
        official_input(plan, PLAIN, 50).fill("pulsar://127.0.0.1:1", "t", 75)


def test_own_lines_are_numbered_across_the_pieces_that_they_are_sent_in() -> None:
    assert OwnInput(1000).payloads(3)[2].startswith(b"line 000000000002 ")
    assert OwnInput(1000).total_bytes(3) == sum(map(len, OwnInput(1000).payloads(3)))
