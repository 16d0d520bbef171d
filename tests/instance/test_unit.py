"""What to acknowledge, by the thousand: random entries, pieces in random order, random failures, runs."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.client.consumers.received import ReceivedEntry
from magnetar.instance.gate import runs_within
from magnetar.instance.unit import Unit
from magnetar.wire import ack_set
from magnetar.wire.batch import encode_plain_batch
from magnetar.wire.message_id import MessageId
from magnetar.wire.pulsar_api_pb2 import MessageMetadata


def entry_of(number: int, size: int) -> ReceivedEntry:
    metadata = MessageMetadata(num_messages_in_batch=size)
    body = encode_plain_batch([b"%d-%d" % (number, index) for index in range(size)])
    return ReceivedEntry(MessageId(1, number), "t", metadata, 0, size, (body, 0, 1_000_000))


ENTRIES = st.lists(
    st.integers(1, 12).flatmap(
        lambda size: st.tuples(st.just(size), st.none() | st.sets(st.integers(0, size - 1), min_size=1))
    ),
    min_size=1,
    max_size=8,
)


@given(ENTRIES, st.randoms(use_true_random=False))
def test_every_message_is_settled_once_and_failures_stay(
    shapes: list[tuple[int, set[int] | None]], rng: random.Random
) -> None:
    unit = Unit()
    entries = []
    for number, (size, wanted) in enumerate(shapes):
        entry = entry_of(number, size)
        entries.append((entry, sorted(wanted) if wanted is not None else list(range(size))))
        unit.add(entry, sorted(wanted) if wanted is not None else None)
    places = [(entry, index) for entry, indexes in entries for index in indexes]
    assert [unit.locate(position) for position in range(len(unit))] == places
    assert unit.messages == [entry.payloads[index] for entry, index in places]

    cuts = sorted({0, len(unit), *(rng.randrange(len(unit) + 1) for _ in range(rng.randrange(4)))})
    pieces = list(itertools.pairwise(cuts))
    rng.shuffle(pieces)
    open_indexes = {entry.message_id: set(indexes) for entry, indexes in entries}
    failed_at: dict[MessageId, set[int]] = {entry.message_id: set() for entry, _ in entries}
    whole: list[MessageId] = []
    for begin, end in pieces:
        assert not unit.is_settled
        failed = {position for position in range(begin, end) if rng.random() < rng.choice([0, 0.3, 1])}
        settlement = unit.settle(begin, end, failed)
        for position in range(begin, end):
            entry, index = places[position]
            if position in failed:
                failed_at[entry.message_id].add(index)
            else:
                open_indexes[entry.message_id].discard(index)
        whole += [entry.message_id for entry in settlement.whole]
        for entry, words in settlement.partial:
            assert set(ack_set.wanted(words)) == open_indexes[entry.message_id] != set()
        touched = {places[position][0].message_id for position in range(begin, end) if position not in failed}
        told = {entry.message_id for entry in settlement.whole} | {entry.message_id for entry, _ in settlement.partial}
        assert told == touched
    assert unit.is_settled
    assert sorted(whole) == sorted(key for key, left in open_indexes.items() if not left)
    assert {entry.message_id for entry in unit.failed_entries} == {key for key, left in open_indexes.items() if left}
    assert open_indexes == failed_at


@pytest.mark.parametrize("seed", range(20))
def test_runs_keep_both_bounds_and_are_as_long_as_they_may(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.randrange(15) for _ in range(rng.randrange(1, 100))]
    runs = [sizes[run] for run in runs_within(iter(sizes), 5, 20)]
    assert list(itertools.chain(*runs)) == sizes
    for run, after in itertools.pairwise([*runs, []]):
        assert 1 <= len(run) <= 5
        assert sum(run) <= 20
        assert not after or len(run) == 5 or sum(run) + after[0] > 20


def test_an_element_that_exceeds_the_bound_alone_is_a_run() -> None:
    assert list(runs_within([30, 1, 30, 2, 2], 5, 20)) == [slice(0, 1), slice(1, 2), slice(2, 3), slice(3, 5)]
