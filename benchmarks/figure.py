"""One measured figure, beside its peer and its target."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What one measurement gave.

    Attributes:
        name: what was measured.
        ours: our median.
        unit: of ours, peer and target.
        peer: the peer's median in the same run; None where there is none.
        peer_name: what the peer is.
        target: what `docs/` and RESULTS.md promise; None if nothing is promised.
        more_is_better: direction of the unit.
        note: what else was seen, for example CPU time.
    """

    name: str
    ours: float
    unit: str
    peer: float | None = None
    peer_name: str = ""
    target: float | None = None
    more_is_better: bool = True
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None without a target."""
        if self.target is None:
            return None
        return self.ours >= self.target if self.more_is_better else self.ours <= self.target

    @property
    def verdict(self) -> str:
        """`met`, or by how much it is missed."""
        if self.target is None:
            return ""
        if self.is_met:
            return "met"
        missed_by = abs(self.target - self.ours) / self.target
        return f"missed by {missed_by:.0%}"

    def cells(self) -> tuple[str, ...]:
        """The row of a table: name, ours, unit, peer, factor, target, verdict, note."""
        factor = ""
        if self.peer:
            quotient = self.ours / self.peer if self.more_is_better else self.peer / self.ours
            factor = f"{quotient:.1f}×"
        return (
            self.name,
            number(self.ours),
            self.unit,
            f"{number(self.peer)} ({self.peer_name})" if self.peer is not None else "",
            factor,
            number(self.target) if self.target is not None else "",
            self.verdict,
            self.note,
        )


HEADINGS = ("what", "ours", "unit", "peer", "factor", "target", "verdict", "note")


def number(value: float) -> str:
    """Thousands with commas, small values with the digits that matter."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def median_of(repeats: int, measure: Callable[[], float]) -> float:
    """Return the median of `repeats` measurements."""
    return statistics.median(measure() for _ in range(repeats))


def table(figures: list[Figure]) -> str:
    """A Markdown table of all figures."""
    rows = [HEADINGS, tuple("---" for _ in HEADINGS), *(figure.cells() for figure in figures)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
