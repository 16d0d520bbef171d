"""A measured figure with its peer and its target."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Table(Enum):
    """Tables of RESULTS.md, in order; the values are the headings."""

    PULSAR = "Beside Apache Pulsar"
    KAFKA = "Spark beside Kafka's source"
    OFFICIAL = "On input of the official client"
    COMPILED = "Compiled beside pure Python"
    OWN = "On input of our own encoder"
    OTHER = "Start, memory, latency and the rest"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Result of one measurement.

    Attributes:
        name: what was measured.
        ours: our median.
        unit: unit of ours, peer and target.
        peer: the peer's median in the same run; None without a peer.
        peer_name: description of the peer.
        target: target promised in `docs/` and RESULTS.md; None without a target.
        target_factor: target as a multiple of the peer; at most one of the two is set.
        more_is_better: whether higher values are better.
        note: further observations, for example CPU time.
        table: table that contains it.
        size: number of objects that it was measured with; it is then in GROWTH.md, and in no table.
        counted: kind of these objects.
    """

    name: str
    ours: float
    unit: str
    peer: float | None = None
    peer_name: str = ""
    target: float | None = None
    target_factor: float | None = None
    more_is_better: bool = True
    note: str = ""
    table: Table = Table.OTHER
    size: int | None = None
    counted: str = ""

    @property
    def factor(self) -> float | None:
        """Return how many times better the figure is than the peer, or None without a peer."""
        if not self.peer:
            return None
        return self.ours / self.peer if self.more_is_better else self.peer / self.ours

    @property
    def verdict(self) -> str:
        """Return `met` or by how much the target is missed; empty without a target."""
        if self.target_factor is not None:
            if self.factor is None:
                return "peer missing"
            return _verdict(self.factor / self.target_factor)
        if self.target is None:
            return ""
        if self.more_is_better:
            return _verdict(self.ours / self.target)
        return "met" if self.ours <= self.target else f"missed by {self.ours / self.target - 1:.0%}"

    def cells(self) -> tuple[str, ...]:
        """Return the cells of a table row: name, ours, unit, peer, factor, target, verdict, note."""
        target = number(self.target) if self.target is not None else ""
        if self.target_factor is not None:
            target = f"{self.target_factor:g}×"
        return (
            self.name if self.size is None else f"{self.size:,} {self.counted}: {self.name}",
            number(self.ours),
            self.unit,
            f"{number(self.peer)} ({self.peer_name})" if self.peer is not None else "",
            f"{self.factor:.1f}×" if self.factor is not None else "",
            target,
            self.verdict,
            self.note,
        )


def _verdict(share: float) -> str:
    return "met" if share >= 1 else f"missed by {1 - share:.0%}"


HEADINGS = ("what", "ours", "unit", "peer", "factor", "target", "verdict", "note")


def number(value: float) -> str:
    """Format a number: thousands with commas, small values with their significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def median_of(repeats: int, measure: Callable[[], float]) -> float:
    """Return the median of `repeats` measurements."""
    return statistics.median(measure() for _ in range(repeats))


def table(figures: list[Figure]) -> str:
    """Return a Markdown table of all figures."""
    rows = [HEADINGS, tuple("---" for _ in HEADINGS), *(figure.cells() for figure in figures)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
