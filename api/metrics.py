"""Function metrics: counters, gauges and histograms, created by `Context.counter`, `gauge` and `histogram`.

A function may keep a metric in an attribute or a global variable and change it from any thread. The value is read when
the worker's ``/metrics`` endpoint is scraped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from ..errors import InvalidConfig

DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of a histogram, in seconds; the same as Prometheus' defaults."""
_NOT_HERE = "{}: metrics with labels are not supported here, for example in Spark functions: use record_metric instead"


class Counter(ABC):
    """A number that only increases. Starts at 0 each time the instance starts."""

    @abstractmethod
    def inc(self, amount: float = 1.0) -> None:
        """Add a non-negative number.

        Raises:
            InvalidConfig: the number is negative or not finite.
        """


class Gauge(ABC):
    """A number that can increase and decrease. Starts at 0 each time the instance starts."""

    @abstractmethod
    def set(self, value: float) -> None:
        """Set the gauge to a finite number.

        Raises:
            InvalidConfig: the number is not finite.
        """

    @abstractmethod
    def inc(self, amount: float = 1.0) -> None:
        """Add a finite number.

        Raises:
            InvalidConfig: the number is not finite.
        """

    @abstractmethod
    def dec(self, amount: float = 1.0) -> None:
        """Subtract a finite number.

        Raises:
            InvalidConfig: the number is not finite.
        """


class Histogram(ABC):
    """Counts observed values by upper bound, with their total number and sum."""

    @abstractmethod
    def observe(self, value: float) -> None:
        """Record a finite number.

        Raises:
            InvalidConfig: the number is not finite.
        """


class MetricsContext:
    """The metric methods of contexts, which instances override."""

    def counter(self, name: str, labels: Mapping[str, str] | None = None, description: str = "") -> Counter:
        """Return the counter with a name and labels, creating it on first use.

        The worker's ``/metrics`` endpoint exports it as ``pulsar_function_custom_NAME`` (``pulsar_source_custom_…`` or
        ``pulsar_sink_custom_…`` for connectors), with the instance's labels added. ``functions stats`` also shows it.
        All metrics with the same name must have the same kind and the same label names.

        Args:
            name: letters, digits and underscores.
            labels: values of up to 256 bytes. Keep the number of distinct values small, because each is a separate
              series.
            description: what the metric counts, in one line.

        Raises:
            InvalidConfig: the name or a label is not valid in Prometheus, or a metric of another kind has the same
              name.
        """
        raise InvalidConfig(_NOT_HERE.format(f"counter {name}"))

    def gauge(self, name: str, labels: Mapping[str, str] | None = None, description: str = "") -> Gauge:
        """Return the gauge with a name and labels, creating it on first use.

        Arguments and exceptions are the same as for `counter`.
        """
        raise InvalidConfig(_NOT_HERE.format(f"gauge {name}"))

    def histogram(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        description: str = "",
        buckets: Sequence[float] | None = None,
    ) -> Histogram:
        """Return the histogram with a name and labels, creating it on first use.

        Args:
            name: letters, digits and underscores.
            labels: same as for `counter`.
            description: what the metric measures, in one line.
            buckets: up to 50 increasing upper bounds; by default `DEFAULT_BUCKETS`, which are suitable for seconds.

        Raises:
            InvalidConfig: same as for `counter`, or the buckets are invalid.
        """
        raise InvalidConfig(_NOT_HERE.format(f"histogram {name}"))
