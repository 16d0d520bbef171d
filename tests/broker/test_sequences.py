"""The rules of deduplication against a picture that keeps every entry; and what is remembered of the producers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from magnetar.broker.topics.sequences import Sequence, Sequences, Verdict, ids_of, is_counted
from magnetar.wire.payload import seal
from magnetar.wire.pulsar_api_pb2 import CommandSend, MessageMetadata

Steps = list[tuple[str, int, int]]
steps = st.lists(
    st.tuples(st.sampled_from(["send", "send", "send", "stored", "failed"]), st.integers(0, 12), st.integers(0, 3)),
    max_size=60,
)


class Picture:
    """Every accepted entry, and how it ended."""

    def __init__(self) -> None:
        self.under_way: list[int] = []
        self.failed: list[int] = []
        self.stored: list[int] = []

    def judge(self, first: int, last: int) -> Verdict:
        if all(first > other for other in self.under_way + self.failed + self.stored):
            self.under_way.append(last)
            return Verdict.NEW
        return Verdict.REPEATED if any(first <= other for other in self.stored) else Verdict.UNDECIDED

    def end(self, is_stored: bool) -> int:
        last = self.under_way.pop(0)
        (self.stored if is_stored else self.failed).append(last)
        if not self.under_way:
            self.failed.clear()
        return last


@settings(max_examples=400, deadline=None)
@given(steps)
def test_entries_are_judged_as_the_picture_of_all_entries_judges_them(actions: Steps) -> None:
    sequence, picture = Sequence("p"), Picture()
    for action, number, more in actions:
        if action == "send":
            assert sequence.judge(number, number + more) is picture.judge(number, number + more)
        elif picture.under_way:
            sequence.ended(picture.end(action == "stored"), is_stored=action == "stored")
        assert sequence.under_way == len(picture.under_way)
        assert sequence.last == max([*picture.under_way, *picture.failed, *picture.stored], default=-1)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3)), max_size=80),
    st.lists(st.integers(0, 80), max_size=3),
)
def test_snapshots_and_the_entries_behind_them_bring_back_every_number(
    sent: list[tuple[str, int]], cuts: list[int]
) -> None:
    live = Sequences(max_names=100, inactive_ms=1000)
    numbers: dict[str, int] = {}
    behind: list[bytes] = []
    expected: dict[str, int] = {}
    for index, (name, step) in enumerate(sent):
        sequence = live.connect(name)
        first = sequence.last + 1 + step
        assert sequence.judge(first, first + step) is Verdict.NEW
        live.ended(sequence, first + step, is_stored=True)
        expected[name] = first + step
        metadata = MessageMetadata(producer_name=name, sequence_id=first, publish_time=1)
        if step:
            metadata.highest_sequence_id = first + step
        behind.append(seal(metadata, b""))
        if index in cuts:
            changed, forgotten = live.take_changes()
            numbers.update(changed)
            assert not forgotten
            behind.clear()
    again = Sequences(max_names=100, inactive_ms=1000)
    again.restore(numbers, 5)
    for payload in behind:
        again.replay(payload, 5)
    assert {name: one.stored for name, one in again.by_name.items()} == expected
    assert all(one.pushed == one.stored and not one.under_way for one in again.by_name.values())


def known(names: Sequences, numbers: Mapping[str, int], now_ms: int = 0) -> Sequences:
    for name, last in numbers.items():
        sequence = names.connect(name)
        sequence.judge(last, last)
        names.ended(sequence, last, is_stored=True)
        names.disconnect(name, now_ms)
    return names


def test_a_name_without_producer_is_forgotten_after_a_while_and_a_connected_one_never_is() -> None:
    names = known(Sequences(max_names=10, inactive_ms=1000), {"gone": 5, "back": 6}, now_ms=100)
    names.connect("back")
    names.take_changes()
    names.purge(1099)
    assert set(names.by_name) == {"gone", "back"}
    names.purge(1100)
    assert set(names.by_name) == {"back"}
    assert names.take_changes() == ({}, ["gone"])
    names.purge(10**12)
    assert set(names.by_name) == {"back"}


def test_a_name_with_entries_under_way_is_not_forgotten() -> None:
    names = Sequences(max_names=10, inactive_ms=1000)
    sequence = names.connect("slow")
    sequence.judge(1, 1)
    names.disconnect("slow", 0)
    names.purge(10_000)
    assert names.connect("slow") is sequence


def test_the_names_that_are_gone_longest_make_room() -> None:
    names = known(Sequences(max_names=2, inactive_ms=1000), {"a": 1, "b": 2, "c": 3})
    assert set(names.by_name) == {"b", "c"}
    assert names.take_changes() == ({"b": 2, "c": 3}, ["a"])


def test_a_producer_that_sent_nothing_leaves_nothing() -> None:
    names = Sequences(max_names=10, inactive_ms=1000)
    names.connect("p")
    names.disconnect("p", 0)
    assert not names.by_name
    assert not names.has_changes


def test_a_forgotten_name_that_comes_back_is_in_the_next_snapshot() -> None:
    names = known(Sequences(max_names=10, inactive_ms=1000), {"p": 7})
    names.purge(5000)
    known(names, {"p": 3})
    assert names.take_changes() == ({"p": 3}, [])


def test_only_the_last_chunk_of_a_message_counts() -> None:
    chunks = [MessageMetadata(num_chunks_from_msg=3, chunk_id=number) for number in range(3)]
    assert [is_counted(chunk) for chunk in chunks] == [False, False, True]
    assert is_counted(MessageMetadata())
    assert not is_counted(MessageMetadata(marker_type=1))


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({"sequence_id": 5}, (5, 5)),
        ({"sequence_id": 5, "highest_sequence_id": 9}, (5, 9)),
        ({"sequence_id": 5, "highest_sequence_id": 5}, (5, 5)),
        ({"sequence_id": 5, "highest_sequence_id": 0}, (5, 5)),
        ({"sequence_id": (1 << 63) - 1, "highest_sequence_id": (1 << 63) - 1}, ((1 << 63) - 1, (1 << 63) - 1)),
        ({"sequence_id": (1 << 64) - 1}, (-1, -1)),
    ],
)
def test_ids_are_read_as_signed_numbers(fields: dict[str, Any], ids: tuple[int, int]) -> None:
    assert ids_of(CommandSend(producer_id=1, **fields)) == ids
