"""Thread-safe counters, gauges and histograms of user code."""

from __future__ import annotations

import math
import sys
import threading
from bisect import bisect_left
from collections.abc import Sequence

from ..api.metrics import Counter, Gauge, Histogram
from ..errors import InvalidConfig

_LARGEST = sys.float_info.max


class CounterValue(Counter):
    """A number that starts at 0 and never decreases.

    Attributes:
        value: current value.
    """

    def __init__(self) -> None:
        """Create a counter with the value 0."""
        self.value = 0.0
        self._lock = threading.Lock()

    def inc(self, amount: float = 1.0) -> None:  # noqa: D102  documented in the interface
        if not 0 <= amount < math.inf:
            raise InvalidConfig(f"invalid counter increment {amount!r}: expected a finite number of at least 0")
        with self._lock:
            self.value = min(self.value + amount, _LARGEST)


class GaugeValue(Gauge):
    """A number that can increase and decrease.

    Attributes:
        value: current value.
    """

    def __init__(self) -> None:
        """Create a gauge with the value 0."""
        self.value = 0.0
        self._lock = threading.Lock()

    def set(self, value: float) -> None:  # noqa: D102  documented in the interface
        self.value = _finite("gauge", value)

    def inc(self, amount: float = 1.0) -> None:  # noqa: D102  documented in the interface
        amount = _finite("gauge", amount)
        with self._lock:
            self.value = _bounded(self.value + amount)

    def dec(self, amount: float = 1.0) -> None:  # noqa: D102  documented in the interface
        self.inc(-amount)


class HistogramValue(Histogram):
    """Counts observed values per bucket, and sums them.

    Attributes:
        bounds: increasing upper bounds of the buckets; larger values are counted in one more bucket.
        counts: count of each bucket, not cumulative; one more than ``bounds``.
        sum: sum of all values.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        """Create a histogram without observations."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:  # noqa: D102  documented in the interface
        value = _finite("histogram", value)
        with self._lock:
            self.counts[bisect_left(self.bounds, value)] += 1
            self.sum = _bounded(self.sum + value)


def _bounded(total: float) -> float:
    """Limit a sum of finite numbers to the finite range, as required by JSON."""
    return max(-_LARGEST, min(total, _LARGEST))


def _finite(what: str, value: float) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise InvalidConfig(f"invalid {what} value {value!r}: expected a finite number")
    return number
