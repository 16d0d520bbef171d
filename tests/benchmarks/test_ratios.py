"""The statistics behind `make bench-against`: what counts as slower, and how often noise is taken for it."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.against import BASE, NEW, report
from benchmarks.ratios import SLOWER_BELOW, Ratio, compare
from benchmarks.short_rows import ROWS, grouped

FIGURE = st.floats(1e-3, 1e9)


def test_a_ratio_of_known_measurements() -> None:
    """Logs 0, 0.1 and 0.2: the mean 0.1, the deviation 0.1, t of two degrees 4.303."""
    ratio = compare([math.exp(log) for log in (0.0, 0.1, 0.2)], [1.0, 1.0, 1.0])
    half = 4.303 * 0.1 / math.sqrt(3)
    assert ratio.value == pytest.approx(math.exp(0.1))
    assert ratio.low == pytest.approx(math.exp(0.1 - half))
    assert ratio.high == pytest.approx(math.exp(0.1 + half))


@given(st.lists(st.tuples(FIGURE, FIGURE), min_size=3, max_size=40))
def test_swapping_the_trees_turns_the_interval_round(pairs: list[tuple[float, float]]) -> None:
    new, base = zip(*pairs, strict=True)
    there, back = compare(new, base), compare(base, new)
    assert there.low * back.high == pytest.approx(1)
    assert there.value * back.value == pytest.approx(1)
    turned = compare(new, base, more_is_better=False)
    assert (turned.value, turned.low, turned.high) == pytest.approx((back.value, back.low, back.high))
    assert there.low <= there.value * (1 + 1e-9)
    assert there.value <= there.high * (1 + 1e-9)


def test_a_change_of_the_whole_machine_between_rounds_does_not_count() -> None:
    speeds = [1.0, 3.0, 0.5, 2.0, 1.5, 0.7, 2.5]
    ratio = compare([100 * speed for speed in speeds], [110 * speed for speed in speeds])
    assert ratio.high - ratio.low < 1e-9
    assert ratio.is_slower


def test_slower_only_if_the_whole_interval_lies_below() -> None:
    assert Ratio(0.90, 0.86, 0.949).is_slower
    assert not Ratio(0.90, 0.80, SLOWER_BELOW).is_slower


@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, 0.0, 2.0], [1.0, math.nan, 2.0], [1.0, math.inf, 1.0]])
def test_measurements_that_say_nothing_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pairs|positive"):
        compare(values, [1.0] * len(values))


def test_the_interval_holds_the_true_ratio_in_95_of_100_runs() -> None:
    rng = random.Random(11)
    runs, held = 4000, 0
    for _ in range(runs):
        new = [0.97 * math.exp(rng.gauss(0, 0.08)) for _ in range(7)]
        base = [math.exp(rng.gauss(0, 0.08)) for _ in range(7)]
        ratio = compare(new, base)
        held += ratio.low <= 0.97 <= ratio.high
    assert 0.94 < held / runs < 0.96


def test_the_report_names_what_is_slower_and_what_was_not_measured() -> None:
    steady: list[float | None] = [100.0, 101.0, 99.0, 100.0, 102.0, 98.0, 100.0]
    slow: list[float | None] = [value * 0.8 for value in steady if value is not None]
    lines, code = report({"consume": {NEW: slow, BASE: steady}, "state": {NEW: steady, BASE: steady}}, {})
    assert code == 1
    assert "SLOWER" in lines[2]
    assert "no slower" in lines[3]
    lines, code = report({"consume": {NEW: [None] * 7, BASE: steady}}, {"consume": "new: it broke"})
    assert code == 2
    assert "it broke" in lines[2]
    _, code = report({"start": {NEW: slow, BASE: steady}}, {})
    assert code == 0, "less time is better"


def test_rows_that_share_a_server_are_measured_together() -> None:
    groups = grouped(ROWS)
    assert [row for _, rows in groups for row in rows] == list(ROWS)
    assert [server for server, _ in groups] == ["broker", "standalone", "", ""]
