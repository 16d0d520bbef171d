"""Ranges cover the entries of topics exactly, whatever their number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from magnetar.spark.source.ranges import Span, TopicRange, clip, holds, plan, split
from magnetar.wire.position import Position


@st.composite
def spans(draw: st.DrawFn) -> tuple[Span, ...]:
    ledgers = sorted(draw(st.sets(st.integers(1, 50), min_size=1, max_size=6)))
    found = []
    for ledger in ledgers:
        first = draw(st.integers(0, 20))
        found.append(Span(ledger, first, first + draw(st.integers(0, 30))))
    return tuple(found)


positions = st.builds(Position, st.integers(1, 50), st.integers(0, 50))


def entries(of: tuple[Span, ...]) -> list[Position]:
    return [Position(span.ledger_id, entry) for span in of for entry in range(span.first, span.last + 1)]


@given(spans(), st.integers(1, 40))
def test_split_ranges_follow_each_other_and_are_of_one_size(whole: tuple[Span, ...], parts: int) -> None:
    ranges = split(TopicRange("t", whole, first_index=3, last_index=5), parts)
    assert [each for one in ranges for each in entries(one.spans)] == entries(whole)
    sizes = [one.entries for one in ranges]
    assert max(sizes) - min(sizes) <= 1
    assert len(ranges) == min(parts, len(entries(whole)))
    assert [one.first_index for one in ranges] == [3] + [0] * (len(ranges) - 1)
    assert [one.last_index for one in ranges] == [None] * (len(ranges) - 1) + [5]


@given(spans(), st.none() | positions, st.none() | positions)
def test_clip_keeps_what_lies_between(whole: tuple[Span, ...], start: Position | None, end: Position | None) -> None:
    expected = [each for each in entries(whole) if (start is None or each >= start) and (end is None or each <= end)]
    kept = clip(whole, start, end)
    assert entries(kept) == expected
    assert all(holds(kept, each) for each in expected)
    assert all(span.entries > 0 for span in kept)


@given(st.lists(spans(), min_size=1, max_size=5), st.integers(1, 30), st.integers(1, 10))
def test_a_plan_covers_all_topics_in_as_many_ranges_as_wanted(
    topics: list[tuple[Span, ...]], wanted: int, min_entries: int
) -> None:
    wholes = [TopicRange(str(number), each) for number, each in enumerate(topics)]
    ranges = plan(wholes, wanted)
    total = sum(whole.entries for whole in wholes)
    assert len(ranges) >= min(wanted, total)
    for whole in wholes:
        mine = [each for one in ranges if one.topic == whole.topic for each in entries(one.spans)]
        assert mine == entries(whole.spans)
    coarse = plan(wholes, wanted, min_entries)
    assert all(one.entries >= min_entries or one in wholes for one in coarse)


def test_a_range_says_where_it_lies() -> None:
    one = TopicRange("t", (Span(3, 4, 9), Span(7, 0, 2)))
    assert (one.start, one.end, one.entries) == (Position(3, 4), Position(7, 2), 9)
    assert str(one) == "3:4..7:2 of t"
