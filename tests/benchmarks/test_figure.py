"""What a row of the benchmarks says of its target."""

from __future__ import annotations

import pytest

from benchmarks.figure import Figure


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure(name="n", ours=90, unit="u", target=100), "missed by 10%"),
        (Figure(name="n", ours=100, unit="u", target=100), "met"),
        (Figure(name="n", ours=110, unit="u", target=100, more_is_better=False), "missed by 10%"),
        (Figure(name="n", ours=100, unit="u"), ""),
        (Figure(name="n", ours=30, unit="u", peer=10, target_factor=3), "met"),
        (Figure(name="n", ours=30, unit="u", peer=10, target_factor=6), "missed by 50%"),
        (Figure(name="n", ours=10, unit="u", peer=30, target_factor=6, more_is_better=False), "missed by 50%"),
        (Figure(name="n", ours=30, unit="u", target_factor=6), "peer missing"),
    ],
)
def test_verdict(figure: Figure, verdict: str) -> None:
    assert figure.verdict == verdict
