"""`/metrics`: this worker's and its instances' numbers for Prometheus, under Pulsar's names.

One deviation: Pulsar also exports the text of every exception as a label, which makes a new time series per message of
a broken function. Here exceptions are counted, and read in status and logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from ...web import exposition
from ...wire.functions_pb2 import MetricsData

_LABELS = ("tenant", "namespace", "name", "instance_id", "cluster", "fqfn")
_COUNTERS = (
    ("processed_successfully", "processedSuccessfullyTotal", "Calls of the function that returned."),
    ("system_exceptions", "systemExceptionsTotal", "Errors outside of the function."),
    ("user_exceptions", "userExceptionsTotal", "Calls of the function that raised."),
    ("received", "receivedTotal", "Messages received."),
)


class _Families:
    """Metric families of one worker at one moment."""

    def __init__(
        self, cluster: str, instances: Mapping[str, MetricsData], worker: Iterable[tuple[str, str, float]]
    ) -> None:
        self._cluster = cluster
        self._instances = instances
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        for name, help_text, value in self._worker:
            gauge = GaugeMetricFamily(f"pulsar_function_worker_{name}", help_text, labels=("cluster",))
            gauge.add_metric((self._cluster,), value)
            yield gauge
        for name, field, help_text in _COUNTERS:
            total = CounterMetricFamily(f"pulsar_function_{name}", help_text, labels=_LABELS)
            minute = CounterMetricFamily(f"pulsar_function_{name}_1min", help_text + " Last minute.", labels=_LABELS)
            for key, data in self._instances.items():
                total.add_metric(self._labels(key), getattr(data, field))
                minute.add_metric(self._labels(key), getattr(data, field + "_1min"))
            yield total
            yield minute
        yield from self._times()

    def _times(self) -> Iterator[Metric]:
        last = GaugeMetricFamily("pulsar_function_last_invocation", "Time of the last call, ms.", labels=_LABELS)
        latency = SummaryMetricFamily("pulsar_function_process_latency_ms", "Duration of calls, ms.", labels=_LABELS)
        users = SummaryMetricFamily(
            "pulsar_function_user_metric", "Recorded by the function.", labels=(*_LABELS, "metric")
        )
        for key, data in self._instances.items():
            last.add_metric(self._labels(key), data.lastInvocation)
            calls = data.processedSuccessfullyTotal
            latency.add_metric(self._labels(key), calls, data.avgProcessLatency * calls)
            for name, total in data.userMetrics.items():
                if name.endswith("_sum"):
                    metric = name.removesuffix("_sum")
                    count = data.userMetrics.get(f"{metric}_count", 0.0)
                    users.add_metric((*self._labels(key), metric), int(count), total)
        yield from (last, latency, users)

    def _labels(self, key: str) -> tuple[str, ...]:
        fqfn, _, instance_id = key.rpartition(":")
        tenant, namespace, name = fqfn.split("/", 2)
        return (tenant, f"{tenant}/{namespace}", name, instance_id, self._cluster, fqfn)


def render(cluster: str, instances: Mapping[str, MetricsData], worker: Iterable[tuple[str, str, float]]) -> bytes:
    """Return the exposition text.

    Args:
        cluster: label of everything.
        instances: the counts of this worker's instances by tenant/namespace/name:number.
        worker: name (without prefix), help and value of the worker's own gauges.
    """
    return exposition.render(_Families(cluster, instances, worker).collect())
