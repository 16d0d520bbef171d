"""`/metrics`: this worker's and its instances' numbers for Prometheus, under Pulsar's names.

One deviation: Pulsar also exports the text of every exception as a label, which makes a new time series per message of
a broken function. Here exceptions are counted, and read in status and logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from ...web import exposition
from ...wire.functions_pb2 import MetricsData

Labels = tuple[str, ...]
_LABELS = ("tenant", "namespace", "name", "instance_id", "cluster", "fqfn")
_COUNTERS = (
    ("processed_successfully", "processedSuccessfullyTotal", "Calls of the function that returned."),
    ("system_exceptions", "systemExceptionsTotal", "Errors outside of the function."),
    ("user_exceptions", "userExceptionsTotal", "Calls of the function that raised."),
    ("received", "receivedTotal", "Messages received."),
)


def render(cluster: str, instances: Mapping[str, MetricsData], worker: Iterable[tuple[str, str, float]]) -> bytes:
    """Return the exposition text.

    Args:
        cluster: label of everything.
        instances: the counts of this worker's instances by tenant/namespace/name:number.
        worker: name (without prefix), help and value of the worker's own gauges.
    """
    by_labels = {_labels(key, cluster): data for key, data in instances.items()}
    return exposition.render(chain(_gauges(cluster, worker), _counters(by_labels), _times(by_labels)))


def _labels(key: str, cluster: str) -> Labels:
    fqfn, _, instance_id = key.rpartition(":")
    tenant, namespace, name = fqfn.split("/", 2)
    return (tenant, f"{tenant}/{namespace}", name, instance_id, cluster, fqfn)


def _gauges(cluster: str, worker: Iterable[tuple[str, str, float]]) -> Iterator[Metric]:
    for name, help_text, value in worker:
        gauge = GaugeMetricFamily(f"pulsar_function_worker_{name}", help_text, labels=("cluster",))
        gauge.add_metric((cluster,), value)
        yield gauge


def _counters(instances: Mapping[Labels, MetricsData]) -> Iterator[Metric]:
    for name, field, help_text in _COUNTERS:
        for suffix, period in (("", ""), ("_1min", " Last minute.")):
            counter = CounterMetricFamily(f"pulsar_function_{name}{suffix}", help_text + period, labels=_LABELS)
            for labels, data in instances.items():
                counter.add_metric(labels, getattr(data, field + suffix))
            yield counter


def _times(instances: Mapping[Labels, MetricsData]) -> Iterator[Metric]:
    last = GaugeMetricFamily("pulsar_function_last_invocation", "Time of the last call, ms.", labels=_LABELS)
    latency = SummaryMetricFamily("pulsar_function_process_latency_ms", "Duration of calls, ms.", labels=_LABELS)
    users = SummaryMetricFamily("pulsar_function_user_metric", "Recorded by the function.", labels=(*_LABELS, "metric"))
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
