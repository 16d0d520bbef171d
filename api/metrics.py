"""Metrics of a function: counters, gauges and histograms, which `Context.counter` and its neighbours return.

A metric may be kept, in an attribute or a global of the function, and changed from any thread; its value is read when
somebody asks for the worker's ``/metrics``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from ..errors import InvalidConfig

DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of a histogram, in seconds: Prometheus' own default."""
_NOT_HERE = "{}: metrics with labels are not available here, as in a Spark function; leave it out, or use record_metric"


class Counter(ABC):
    """A number that only grows, from 0 at each start of the instance."""

    @abstractmethod
    def inc(self, amount: float = 1.0) -> None:
        """Add a number that is not negative.

        Raises:
            InvalidConfig: it is negative, or no finite number.
        """


class Gauge(ABC):
    """A number that rises and falls, from 0 at each start of the instance."""

    @abstractmethod
    def set(self, value: float) -> None:
        """Set it to a finite number.

        Raises:
            InvalidConfig: it is none.
        """

    @abstractmethod
    def inc(self, amount: float = 1.0) -> None:
        """Add a finite number.

        Raises:
            InvalidConfig: it is none.
        """

    @abstractmethod
    def dec(self, amount: float = 1.0) -> None:
        """Subtract a finite number.

        Raises:
            InvalidConfig: it is none.
        """


class Histogram(ABC):
    """How many observed values lie below each of some bounds, their number and their sum."""

    @abstractmethod
    def observe(self, value: float) -> None:
        """Count a finite number.

        Raises:
            InvalidConfig: it is none.
        """


class MetricsContext:
    """What contexts offer for metrics; an instance puts the real methods in place."""

    def counter(self, name: str, labels: Mapping[str, str] | None = None, description: str = "") -> Counter:
        """Return the counter of a name and labels, a new one the first time.

        It is shown by the worker's ``/metrics`` as ``pulsar_function_custom_NAME`` (of connectors
        ``pulsar_source_custom_…``, ``pulsar_sink_custom_…``) with the instance's labels beside its own, and by
        ``functions stats``. All metrics of a name have the same kind and the same names of labels.

        Args:
            name: letters, digits and _.
            labels: their values are texts of up to 256 bytes; few different ones, as each is a series of its own.
            description: one line, what it counts.

        Raises:
            InvalidConfig: a name or label that Prometheus does not take, or the name is another kind of metric's.
        """
        raise InvalidConfig(_NOT_HERE.format(f"counter {name}"))

    def gauge(self, name: str, labels: Mapping[str, str] | None = None, description: str = "") -> Gauge:
        """Return the gauge of a name and labels, a new one the first time.

        Args and Raises are those of `counter`.
        """
        raise InvalidConfig(_NOT_HERE.format(f"gauge {name}"))

    def histogram(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        description: str = "",
        buckets: Sequence[float] | None = None,
    ) -> Histogram:
        """Return the histogram of a name and labels, a new one the first time.

        Args:
            name: letters, digits and _.
            labels: as of `counter`.
            description: one line, what it measures.
            buckets: up to 50 rising upper bounds; `DEFAULT_BUCKETS`, which suit seconds, if there are none given.

        Raises:
            InvalidConfig: as of `counter`, or buckets that are none.
        """
        raise InvalidConfig(_NOT_HERE.format(f"histogram {name}"))
