"""Register a function's metrics by name and labels, and export them to the worker."""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..api.metrics import DEFAULT_BUCKETS, MetricsContext
from ..client.checks import check_text
from ..errors import InvalidConfig
from ..wire.functions_pb2 import MetricsData
from .metric_values import CounterValue, GaugeValue, HistogramValue

SERIES_MAX = 1000
"""Maximum number of series (name and labels) per instance; each takes up to a dozen lines per scrape."""
BUCKETS_MAX = 50
TEXT_BYTES_MAX = 256
RESERVED_LABELS = frozenset(("tenant", "namespace", "name", "instance_id", "cluster", "fqfn", "le", "quantile"))
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
UserMetric = MetricsData.UserMetric
_Metric = CounterValue | GaugeValue | HistogramValue
_M = TypeVar("_M", CounterValue, GaugeValue, HistogramValue)
_Labels = tuple[tuple[str, str], ...]
_KIND_NAMES: dict[type[_Metric], str] = {CounterValue: "counter", GaugeValue: "gauge", HistogramValue: "histogram"}
_KINDS = {CounterValue: UserMetric.COUNTER, GaugeValue: UserMetric.GAUGE, HistogramValue: UserMetric.HISTOGRAM}


@dataclass(slots=True)
class _Family:
    """All metrics with one name.

    Attributes:
        kind: metric class.
        help: description.
        label_names: sorted label names.
        bounds: bounds of histograms.
        series: metrics by labels.
    """

    kind: type[_Metric]
    help: str
    label_names: tuple[str, ...]
    bounds: tuple[float, ...] = ()
    series: dict[_Labels, _Metric] = field(default_factory=dict)


class UserMetrics:
    """The metrics of one instance; thread-safe."""

    def __init__(self, refuse: Callable[[str], None]) -> None:
        """Create an empty set.

        Args:
            refuse: called once, for the first metric beyond `SERIES_MAX`; further metrics are not exported.
        """
        self._refuse = refuse
        self._has_refused = False
        self._families: dict[str, _Family] = {}
        self._count = 0
        self._lock = threading.Lock()

    def offer(self, context: MetricsContext) -> None:
        """Set the metric methods of a context, bound directly to save a call."""
        vars(context).update(counter=self.counter, gauge=self.gauge, histogram=self.histogram)

    def counter(self, name: str, labels: Mapping[str, str] | None = None, description: str = "") -> CounterValue:
        """Return the counter with a name and labels, creating it if needed."""
        return self._find(CounterValue, name, labels, description, (), CounterValue)

    def gauge(self, name: str, labels: Mapping[str, str] | None = None, description: str = "") -> GaugeValue:
        """Return the gauge with a name and labels, creating it if needed."""
        return self._find(GaugeValue, name, labels, description, (), GaugeValue)

    def histogram(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        description: str = "",
        buckets: Sequence[float] | None = None,
    ) -> HistogramValue:
        """Return the histogram with a name and labels, creating it if needed."""
        bounds = DEFAULT_BUCKETS if buckets is None else _bounds(name, buckets)
        return self._find(HistogramValue, name, labels, description, bounds, lambda: HistogramValue(bounds))

    def _find(
        self,
        kind: type[_M],
        name: str,
        labels: Mapping[str, str] | None,
        description: str,
        bounds: tuple[float, ...],
        make: Callable[[], _M],
    ) -> _M:
        given = tuple(sorted(labels.items())) if labels else ()
        family = self._families.get(name)
        if family is not None and (family.kind, family.bounds) == (kind, bounds) and given in family.series:
            return family.series[given]  # type: ignore[return-value]  # matches the family's kind
        check_metric(name, given, description)
        label_names = tuple(label for label, _ in given)
        with self._lock:
            family = self._families.get(name)
            if family is None:
                family = _Family(kind, description, label_names, bounds)
            if (family.kind, family.label_names, family.bounds) != (kind, label_names, bounds):
                raise InvalidConfig(
                    f"metric {name} is already a {_described(family.kind, family.label_names, family.bounds)}, not a"
                    f" {_described(kind, label_names, bounds)}: use another name"
                )
            metric = family.series.get(given)
            if metric is None:
                metric = make()
                if self._count >= SERIES_MAX:
                    self._tell_refused(name)
                    return metric
                self._count += 1
                self._families[name] = family
                family.series[given] = metric
        return metric  # type: ignore[return-value]  # matches the family's kind

    def _tell_refused(self, name: str) -> None:
        if not self._has_refused:
            self._has_refused = True
            self._refuse(
                f"metric {name}: the function has reached the limit of {SERIES_MAX} metrics with different names or"
                " labels; further ones are not exported: use fewer labels, and publish values such as user ids to a"
                " topic"
            )

    def records(self) -> Iterator[MetricsData.UserMetric]:
        """Yield the metrics as records for the worker."""
        with self._lock:
            families = [(name, family, list(family.series.items())) for name, family in self._families.items()]
        for name, family, series in families:
            for labels, metric in series:
                record = UserMetric(name=name, kind=_KINDS[family.kind], help=family.help, labels=dict(labels))
                if isinstance(metric, HistogramValue):
                    record.bounds.extend(metric.bounds)
                    record.counts.extend(metric.counts)
                    record.value = metric.sum
                else:
                    record.value = metric.value
                yield record


def flat(records: Iterable[MetricsData.UserMetric]) -> dict[str, float]:
    """Return the values by ``name{label="value"}``, for statistics; histograms have a sum and a count."""
    values: dict[str, float] = {}
    for one in records:
        pairs = ",".join(f'{name}="{value}"' for name, value in sorted(one.labels.items()))
        labels = f"{{{pairs}}}" if pairs else ""
        if one.kind == UserMetric.HISTOGRAM:
            values[f"{one.name}_sum{labels}"] = one.value
            values[f"{one.name}_count{labels}"] = float(sum(one.counts))
        else:
            values[one.name + labels] = one.value
    return values


def _described(kind: type[_Metric], label_names: tuple[str, ...], bounds: tuple[float, ...]) -> str:
    labels = f" with labels {', '.join(label_names)}" if label_names else " without labels"
    return _KIND_NAMES[kind] + labels + (f" and buckets {', '.join(map(str, bounds))}" if bounds else "")


def check_metric(name: str, labels: _Labels, description: str) -> None:
    """Reject names and labels that are invalid in Prometheus."""
    check_text("metric name", name, TEXT_BYTES_MAX)
    if not _NAME.match(name):
        raise InvalidConfig(f"invalid metric name {name!a}: expected letters, digits and _, not beginning with a digit")
    check_text("description", description, TEXT_BYTES_MAX)
    for label, value in labels:
        check_text("label name", label, TEXT_BYTES_MAX)
        if not _LABEL.match(label) or label.startswith("__") or label in RESERVED_LABELS:
            raise InvalidConfig(
                f"invalid label {label!a} of metric {name}: expected letters, digits and _, and no reserved name"
            )
        check_text(f"label {label} of metric {name}", value, TEXT_BYTES_MAX)


def _bounds(name: str, buckets: Sequence[float]) -> tuple[float, ...]:
    bounds = tuple(float(bound) for bound in buckets)
    rising = all(low < high for low, high in itertools.pairwise(bounds))
    if not bounds or len(bounds) > BUCKETS_MAX or not rising or not all(map(math.isfinite, bounds)):
        raise InvalidConfig(
            f"buckets of metric {name} must be 1 to {BUCKETS_MAX} increasing finite numbers, not {buckets!r:.80}"
        )
    return bounds
