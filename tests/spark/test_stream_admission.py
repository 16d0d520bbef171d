"""How much a batch of a stream takes of what waits. No Spark, no broker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from magnetar.spark.source.streaming.admission import NO_LIMITS, Limits, Waiting, admit, must_wait

ENTRIES = st.integers(1, 10_000)
RATES = st.floats(1, 1000, allow_nan=False)
WAITING = st.lists(st.tuples(ENTRIES, RATES, RATES), min_size=1, max_size=8).map(
    lambda drawn: [Waiting(str(number), *one) for number, one in enumerate(drawn)]
)
LIMIT = st.none() | st.integers(1, 1_000_000)


def rows(waiting: list[Waiting], given: dict[str, int]) -> float:
    return sum(given.get(one.topic, 0) * one.rows_per_entry for one in waiting)


def size(waiting: list[Waiting], given: dict[str, int]) -> float:
    return sum(given.get(one.topic, 0) * one.bytes_per_entry for one in waiting)


@given(WAITING, LIMIT, LIMIT)
def test_a_batch_keeps_its_limits_or_has_one_entry(
    waiting: list[Waiting], max_rows: int | None, max_bytes: int | None
) -> None:
    taken = admit(waiting, Limits(max_rows, max_bytes))
    assert taken
    assert all(0 < taken[one.topic] <= one.entries for one in waiting if one.topic in taken)
    if sum(taken.values()) > 1:
        assert max_rows is None or rows(waiting, taken) <= max_rows * 1.001
        assert max_bytes is None or size(waiting, taken) <= max_bytes * 1.001


@given(st.lists(ENTRIES, min_size=1, max_size=8), st.integers(1, 20_000))
def test_a_batch_of_single_messages_has_exactly_as_many_as_the_limit_says(entries: list[int], limit: int) -> None:
    waiting = [Waiting(str(number), count) for number, count in enumerate(entries)]
    taken = admit(waiting, Limits(max_rows=limit))
    assert sum(taken.values()) == min(limit, sum(entries))
    for one in waiting:  # in proportion
        assert abs(taken.get(one.topic, 0) - min(1, limit / sum(entries)) * one.entries) <= 1


@given(WAITING)
def test_without_limits_a_batch_has_everything(waiting: list[Waiting]) -> None:
    assert admit(waiting, NO_LIMITS) == {one.topic: one.entries for one in waiting}


@given(WAITING, st.integers(1, 1_000))
def test_batches_with_a_limit_come_to_the_end(waiting: list[Waiting], limit: int) -> None:
    left = {one.topic: min(one.entries, 200) for one in waiting}
    batches = 0
    while rest := [Waiting(one.topic, left[one.topic], one.rows_per_entry) for one in waiting if left[one.topic]]:
        for topic, entries in admit(rest, Limits(max_rows=limit)).items():
            left[topic] -= entries
        batches += 1
        assert batches <= 200 * len(waiting)


def test_nothing_waits_where_nothing_is_waiting() -> None:
    assert admit([], Limits(max_rows=1)) == {}


def test_a_batch_waits_for_its_least_number_but_not_for_ever() -> None:
    waiting = [Waiting("a", 3, rows_per_entry=10), Waiting("b", 1)]
    limits = Limits(min_rows=32, max_delay_s=60)
    assert must_wait(waiting, limits, 59.9)
    assert not must_wait(waiting, limits, 60)
    assert not must_wait(waiting, limits, None)  # the first one of a process, which may have waited in another
    assert not must_wait([*waiting, Waiting("c", 1)], limits, 0)
    assert not must_wait(waiting, NO_LIMITS, 0)
