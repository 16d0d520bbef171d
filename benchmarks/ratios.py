"""Comparison of paired measurements: the ratio and its confidence interval; pure.

The speed of a shared machine varies more than the effect of a change. So both trees are measured in direct succession,
and only the quotient within such a pair is used. Quotients are averaged as logarithms, so that twice as fast and half
as fast are equally far from 1. The interval uses Student's t, as there are few pairs.

A row counts as slower only if the whole interval is below `SLOWER_BELOW`. Noise widens the interval, which avoids false
positives; more repeats narrow it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

SLOWER_BELOW = 0.95
PAIRS_MIN = 3
"""Minimum number of pairs for estimating the spread."""

# Student's t, 97.5 % quantile, by degrees of freedom 1 to 30; for more, the value for 30 is slightly too large.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ratio:
    """The ratio of the new tree to the base; above 1 is better for all units.

    Attributes:
        value: the geometric mean of the quotients.
        low: lower end of the 95 % interval.
        high: upper end.
    """

    value: float
    low: float
    high: float

    @property
    def is_slower(self) -> bool:
        """Whether the new tree is significantly slower."""
        return self.high < SLOWER_BELOW

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def compare(new: Sequence[float], base: Sequence[float], *, more_is_better: bool = True) -> Ratio:
    """Return the ratio of paired measurements.

    Args:
        new: measurements of the new tree.
        base: measurements of the base, in the same order as `new`.
        more_is_better: False for times and sizes, whose quotients are inverted.

    Raises:
        ValueError: there are too few pairs, or a measurement is not positive and finite.
    """
    if len(new) != len(base) or len(new) < PAIRS_MIN:
        raise ValueError(f"got {len(new)} and {len(base)} measurements, at least {PAIRS_MIN} pairs are required")
    if not all(math.isfinite(value) and value > 0 for value in (*new, *base)):
        raise ValueError("measurements must be positive: nothing was measured")
    sign = 1 if more_is_better else -1
    logs = [sign * math.log(ours / theirs) for ours, theirs in zip(new, base, strict=True)]
    middle = statistics.fmean(logs)
    half = _T[min(len(logs) - 1, len(_T)) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(middle), math.exp(middle - half), math.exp(middle + half))
