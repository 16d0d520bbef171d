"""`/metrics`: Prometheus metrics of this worker and its instances, under Pulsar's names.

Functions, sources and sinks have separate names: ``pulsar_function_…``, ``pulsar_source_…``, ``pulsar_sink_…``.

In addition, Pulsar exports the message of every exception as a label, which creates a new time series for each failing
message. Here, exceptions are only counted; status and logs show their messages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from ...web import exposition
from ...wire.functions_pb2 import MetricsData
from ..functions.instances import InstanceMetrics

Labels = tuple[str, ...]
UserMetric = MetricsData.UserMetric
_LABELS = ("tenant", "namespace", "name", "instance_id", "cluster", "fqfn")


class _Names(NamedTuple):
    """Metric names of one kind of component.

    Attributes:
        prefix: common prefix.
        counters: name, field and help of each counter.
    """

    prefix: str
    counters: tuple[tuple[str, str, str], ...]


_KINDS = {
    "Function": _Names(
        "pulsar_function_",
        (
            ("processed_successfully", "processedSuccessfullyTotal", "Calls of the function that returned."),
            ("system_exceptions", "systemExceptionsTotal", "Errors outside the function."),
            ("user_exceptions", "userExceptionsTotal", "Calls of the function that raised."),
            ("received", "receivedTotal", "Messages received."),
        ),
    ),
    "Source": _Names(
        "pulsar_source_",
        (
            ("written", "processedSuccessfullyTotal", "Records published."),
            ("source_exceptions", "systemExceptionsTotal", "Errors of the source, and skipped records."),
            ("system_exceptions", "userExceptionsTotal", "Errors outside the source."),
            ("received", "receivedTotal", "Records read."),
        ),
    ),
    "Sink": _Names(
        "pulsar_sink_",
        (
            ("written", "processedSuccessfullyTotal", "Records written."),
            ("sink_exceptions", "systemExceptionsTotal", "Errors of the sink, and rejected records."),
            ("system_exceptions", "userExceptionsTotal", "Errors outside the sink."),
            ("received", "receivedTotal", "Messages received."),
        ),
    ),
}


def render(cluster: str, instances: Iterable[InstanceMetrics], worker: Iterable[tuple[str, str, float]]) -> bytes:
    """Return the metrics in Prometheus format.

    Args:
        cluster: cluster label of all metrics.
        instances: metrics of this worker's instances.
        worker: name (without prefix), help and value of the worker's own gauges.
    """
    by_kind: dict[str, dict[Labels, MetricsData]] = {"Function": {}, "Source": {}, "Sink": {}}
    for one in instances:
        by_kind[one.component.title][_labels(one.key, cluster)] = one.data
    families = [_gauges(cluster, worker)]
    for kind, by_labels in by_kind.items():
        if by_labels or kind == "Function":
            families += [_counters(_KINDS[kind], by_labels), _times(_KINDS[kind], by_labels)]
            families.append(_of_code(_KINDS[kind], by_labels))
    return exposition.render(chain.from_iterable(families))


def _labels(key: str, cluster: str) -> Labels:
    fqfn, _, instance_id = key.rpartition(":")
    tenant, namespace, name = fqfn.split("/", 2)
    return (tenant, f"{tenant}/{namespace}", name, instance_id, cluster, fqfn)


def _gauges(cluster: str, worker: Iterable[tuple[str, str, float]]) -> Iterator[Metric]:
    for name, help_text, value in worker:
        gauge = GaugeMetricFamily(f"pulsar_function_worker_{name}", help_text, labels=("cluster",))
        gauge.add_metric((cluster,), value)
        yield gauge


def _counters(names: _Names, instances: Mapping[Labels, MetricsData]) -> Iterator[Metric]:
    for name, field, help_text in names.counters:
        for suffix, period in (("", ""), ("_1min", " Last minute.")):
            counter = CounterMetricFamily(names.prefix + name + suffix, help_text + period, labels=_LABELS)
            for labels, data in instances.items():
                counter.add_metric(labels, getattr(data, field + suffix))
            yield counter


def _times(names: _Names, instances: Mapping[Labels, MetricsData]) -> Iterator[Metric]:
    prefix = names.prefix
    last = GaugeMetricFamily(f"{prefix}last_invocation", "Time of the last call, ms.", labels=_LABELS)
    latency = SummaryMetricFamily(f"{prefix}process_latency_ms", "Duration of calls, ms.", labels=_LABELS)
    users = SummaryMetricFamily(
        f"{prefix}user_metric", "Metric recorded by the function's code.", labels=(*_LABELS, "metric")
    )
    for labels, data in instances.items():
        last.add_metric(labels, data.lastInvocation)
        calls = data.processedSuccessfullyTotal
        latency.add_metric(labels, calls, data.avgProcessLatency * calls)
        for name, total in data.userMetrics.items():
            if name.endswith("_sum"):
                metric = name.removesuffix("_sum")
                count = data.userMetrics.get(f"{metric}_count", 0.0)
                users.add_metric((*labels, metric), int(count), total)
    yield from (last, latency, users)


def _of_code(names: _Names, instances: Mapping[Labels, MetricsData]) -> Iterator[Metric]:
    """Yield the metrics that functions and connectors created through their contexts.

    If functions use the same name for different kinds of metrics, the kind is appended to the later names.
    """
    families: dict[str, Metric] = {}
    for labels, data in instances.items():
        instance = dict(zip(_LABELS, labels, strict=True))
        for one in data.metrics:
            kind = UserMetric.Kind.Name(one.kind).lower()
            name = f"{names.prefix}custom_{one.name.removesuffix('_total')}"
            if name in families and families[name].type != kind:
                name = f"{name}_{kind}"
            family = families.setdefault(name, Metric(name, one.help or "Metric of the function's code.", kind))
            _add_samples(family, {**instance, **one.labels}, one)
    yield from families.values()


def _add_samples(family: Metric, labels: dict[str, str], one: MetricsData.UserMetric) -> None:
    if one.kind == UserMetric.COUNTER:
        family.add_sample(f"{family.name}_total", labels, one.value)
    elif one.kind == UserMetric.GAUGE:
        family.add_sample(family.name, labels, one.value)
    else:
        below = 0
        for bound, count in zip((*one.bounds, math.inf), one.counts, strict=True):
            below += count
            family.add_sample(
                f"{family.name}_bucket", {**labels, "le": "+Inf" if bound == math.inf else str(bound)}, below
            )
        family.add_sample(f"{family.name}_count", labels, below)
        family.add_sample(f"{family.name}_sum", labels, one.value)
