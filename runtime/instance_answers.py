"""Validation of an instance's responses: only content that one of our instances could have sent is accepted.

User code shares a process with the instance, so it may forge responses: bytes that are not a record, millions of
metrics, or metrics labelled as those of another function. Such content is dropped.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from ..errors import ConnectionLost, MagnetarError
from ..instance.stats import LATEST_MAX, METRIC_NAME_BYTES_MAX, METRICS_MAX, TRACEBACK_CHARACTERS_MAX
from ..instance.user_metrics import SERIES_MAX, check_metric
from ..wire.functions_pb2 import FunctionStatus, MetricsData

ANSWER_BYTES_MAX = 4 * 1024 * 1024
COUNT_MAX = 2**62
"""Upper bound for counters: unreachable in practice, and small enough to be added up."""
_RECORDED = ("_sum", "_count", "_max", "_min", "_avg")
_TEXT_CHARACTERS_MAX = 2 * TRACEBACK_CHARACTERS_MAX
_LATEST = ("latestUserExceptions", "latestSystemExceptions", "latestSourceExceptions", "latestSinkExceptions")

_Answer = TypeVar("_Answer", bound=Message)


def read_answer(kind: type[_Answer], data: bytes) -> _Answer:
    """Parse a response into a record.

    Raises:
        ConnectionLost: the data is invalid.
    """
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ConnectionLost(
            f"the instance responded with {len(data)} bytes that are not a valid {kind.__name__}"
        ) from error


def read_status(data: bytes) -> FunctionStatus:
    """Parse an instance's status; raises as `read_answer`."""
    status = read_answer(FunctionStatus, data)
    _bound_numbers(status)
    status.failureException = status.failureException[:_TEXT_CHARACTERS_MAX]
    for name in _LATEST:
        latest = getattr(status, name)
        del latest[:-LATEST_MAX]
        for one in latest:
            one.exceptionString = one.exceptionString[:_TEXT_CHARACTERS_MAX]
            _bound_numbers(one)
    return status


def read_metrics(data: bytes) -> MetricsData:
    """Parse an instance's counters; raises as `read_answer`."""
    metrics = read_answer(MetricsData, data)
    _bound_numbers(metrics)
    recorded = dict(metrics.userMetrics)
    metrics.userMetrics.clear()
    for name, value in list(recorded.items())[: len(_RECORDED) * METRICS_MAX]:
        if len(name.encode()) <= METRIC_NAME_BYTES_MAX + max(map(len, _RECORDED)) and math.isfinite(value):
            metrics.userMetrics[name] = value
    made = [one for one in metrics.metrics if _is_one(one)][:SERIES_MAX]
    del metrics.metrics[:]
    metrics.metrics.extend(made)
    return metrics


def _bound_numbers(record: Any) -> None:
    """Clamp numbers to their ranges."""
    for field, value in record.ListFields():
        if isinstance(value, bool):
            continue
        if isinstance(value, int) and field.type == field.TYPE_INT64:
            setattr(record, field.name, min(max(value, 0), COUNT_MAX))
        elif isinstance(value, float) and not math.isfinite(value):
            setattr(record, field.name, 0.0)


def _is_one(one: MetricsData.UserMetric) -> bool:
    """Return whether a metric could come from a function's context."""
    try:
        check_metric(one.name, tuple(one.labels.items()), one.help)
    except MagnetarError:
        return False
    if one.kind not in MetricsData.UserMetric.Kind.values() or not math.isfinite(one.value):
        return False
    if one.kind != MetricsData.UserMetric.HISTOGRAM:
        return True
    return len(one.counts) == len(one.bounds) + 1 and all(map(math.isfinite, one.bounds)) and min(one.counts) >= 0
