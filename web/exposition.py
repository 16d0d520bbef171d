"""Metrics in Prometheus' text format. Import only when metrics are requested, as its library takes 2 MB."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_LATEST


class _Snapshot(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def render(metrics: Iterable[Metric]) -> bytes:
    """Return metrics as text."""
    return generate_latest(_Snapshot(metrics))
