"""Places of streams as JSON, and what lies between them, against lists. No Spark, no broker."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from magnetar.errors import InvalidConfig
from magnetar.spark.source.ranges import Span
from magnetar.spark.source.streaming.places import (
    BEGINNING,
    Place,
    advance,
    behind,
    between,
    from_json,
    may_be_lost,
    to_json,
)
from magnetar.wire.position import Position

TOPIC = "persistent://public/default/orders"
PLACES = st.builds(Place, st.integers(0, 9), st.integers(0, 9), st.integers(0, 3))
SPANS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=5)
"""Of each ledger: how far behind the last one, first entry, number of entries."""


def spans_of(drawn: list[tuple[int, int, int]]) -> tuple[Span, ...]:
    ledger_id, spans = 0, []
    for step, first, entries in drawn:
        ledger_id += step
        spans.append(Span(ledger_id, first, first + entries - 1))
    return tuple(spans)


def entries_of(spans: tuple[Span, ...]) -> list[tuple[int, int]]:
    return [(span.ledger_id, entry) for span in spans for entry in range(span.first, span.last + 1)]


def test_offsets_are_json_that_a_person_can_read() -> None:
    places = {f"{TOPIC}-partition-10": Place(7, 0), f"{TOPIC}-partition-2": Place(5, 18, 3)}
    places["persistent://public/default/a"] = Place(9, 4)
    places["persistent://public/default/nothing-yet"] = BEGINNING
    text = json.dumps(to_json(places))
    assert text == (
        '{"persistent://public/default/a": "9:4", "persistent://public/default/orders": {"2": "5:18:3", "10": "7:0"}}'
    )
    assert json.dumps(to_json(dict(reversed(places.items())))) == text  # Spark compares text


@given(st.dictionaries(st.sampled_from([TOPIC, *(f"{TOPIC}-x-partition-{n}" for n in range(12))]), PLACES))
def test_places_come_back_from_a_checkpoint(places: dict[str, Place]) -> None:
    assert from_json(json.loads(json.dumps(to_json(places)))) == places


@pytest.mark.parametrize("record", [{TOPIC: 5}, {TOPIC: "5"}, {TOPIC: {"0": "latest"}}, {TOPIC: {"zero": "1:2"}}])
def test_an_offset_of_another_source_is_refused(record: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match="set a separate checkpointLocation for each query"):
        from_json(record)


@given(SPANS, st.lists(st.integers(1, 6), max_size=8))
def test_batches_read_each_entry_once_however_they_are_cut(drawn: list[tuple[int, int, int]], sizes: list[int]) -> None:
    spans = spans_of(drawn)
    there = entries_of(spans)
    place, seen = BEGINNING, []
    for size in [*sizes, len(there)]:
        left = between(TOPIC, spans, place, behind(Position(*there[-1])))
        if left is None:
            break
        end = advance(left.spans, size)
        found = between(TOPIC, spans, place, end)
        assert found is not None
        assert found.entries == min(size, left.entries)
        seen += entries_of(found.spans)
        place = end
    assert seen == there


@given(SPANS, PLACES, PLACES)
def test_what_lies_between_two_places_is_what_is_neither_before_nor_behind(
    drawn: list[tuple[int, int, int]], start: Place, end: Place
) -> None:
    spans = spans_of(drawn)
    found = between(TOPIC, spans, start, end)
    wanted = [entry for entry in entries_of(spans) if start.position <= entry < end.position]
    assert (entries_of(found.spans) if found else []) == wanted
    if found is not None:
        assert found.first_index == (start.batch_index if wanted[0] == start.position else 0)


@pytest.mark.parametrize(
    ("start", "first", "mark", "is_lost"),
    [
        (BEGINNING, Position(5, 3), None, False),  # nobody has promised anything
        (Place(5, 3), Position(5, 3), None, False),
        (Place(5, 3), Position(5, 4), Position(5, 2), True),  # entries of a ledger are counted
        (Place(5, 3), Position(4, 0), None, False),
        (Place(5, 3), Position(6, 0), None, True),  # more may have been in ledger 5
        (Place(5, 3), Position(6, 0), Position(5, 2), False),  # but not behind a subscription that is still there
        (Place(5, 3), Position(6, 0), Position(5, 1), False),
        (Place(5, 3), Position(6, 0), Position(6, -1), False),  # as Apache Pulsar moves it
        (Place(5, 3), Position(6, 0), Position(7, -1), True),
        (Place(5, 3), Position(6, 0), Position(5, 9), True),  # somebody has moved it
        (Place(5, 3), Position(6, 0), Position(-1, -1), True),  # made anew on an empty topic
    ],
)
def test_a_gap_is_no_loss_only_where_something_has_held_it(
    start: Place, first: Position, mark: Position | None, is_lost: bool
) -> None:
    assert may_be_lost(start, first, mark) is is_lost
