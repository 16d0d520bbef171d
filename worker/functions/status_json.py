"""JSON of statuses and statistics, with Pulsar's fields and order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ...instance.user_metrics import flat
from ...spark.jobs.progress import reason_of
from ...wire.functions_pb2 import FunctionMetaData, FunctionStatus, MetricsData

Json = dict[str, Any]


def instance_status(status: FunctionStatus, worker_id: str) -> Json:
    """Return FunctionInstanceStatusData, without error lists for an instance that is down for an unknown reason."""
    answer: Json = {
        "running": status.running,
        "error": status.failureException,  # for a running instance: what it waits for
        "numRestarts": status.numRestarts,
        "numReceived": status.numReceived,
        "numSuccessfullyProcessed": status.numSuccessfullyProcessed,
        "numUserExceptions": status.numUserExceptions,
        "latestUserExceptions": _exceptions(status.latestUserExceptions),
        "numSystemExceptions": status.numSystemExceptions + status.numSourceExceptions + status.numSinkExceptions,
        "latestSystemExceptions": [
            *_exceptions(status.latestSystemExceptions),
            *_exceptions(status.latestSourceExceptions),
            *_exceptions(status.latestSinkExceptions),
        ],
        "averageLatency": status.averageLatency,
        "lastInvocationTime": status.lastInvocationTime,
        "workerId": worker_id,
    }
    if status.HasField("run"):
        answer["run"] = _run(status.run)
    if not status.running:
        for name in ("latestUserExceptions", "latestSystemExceptions"):
            if not answer[name]:
                del answer[name]
    return answer


def _run(run: FunctionStatus.Run) -> Json:
    """Return the progress of the latest run of a Spark function. Not in Pulsar."""
    return {
        "runId": run.runId,
        "stage": run.stage,
        "tasksDone": run.tasksDone,
        "tasksTotal": run.tasksTotal,
        "rows": run.rows,
        "rowsPerSecond": round(run.rowsPerSecond, 1),
        "lag": run.lag if run.lag >= 0 else None,
        "reason": reason_of(run.error),
        "error": run.error,
        "startedMs": run.startedMs,
        "endedMs": run.endedMs,
    }


def _exceptions(records: Iterable[FunctionStatus.ExceptionInformation]) -> list[Json]:
    return [{"exceptionString": record.exceptionString, "timestampMs": record.msSinceEpoch} for record in records]


def source_status(status: FunctionStatus, worker_id: str) -> Json:
    """Return SourceInstanceStatusData."""
    return {
        **_state(status),
        "numReceivedFromSource": status.numReceived,
        "numSystemExceptions": status.numUserExceptions + status.numSinkExceptions,
        "latestSystemExceptions": _exceptions([*status.latestUserExceptions, *status.latestSinkExceptions]),
        "numSourceExceptions": status.numSystemExceptions + status.numSourceExceptions,
        "latestSourceExceptions": _exceptions([*status.latestSystemExceptions, *status.latestSourceExceptions]),
        "numWritten": status.numSuccessfullyProcessed,
        "lastReceivedTime": status.lastInvocationTime,
        "workerId": worker_id,
    }


def sink_status(status: FunctionStatus, worker_id: str) -> Json:
    """Return SinkInstanceStatusData."""
    return {
        **_state(status),
        "numReadFromPulsar": status.numReceived,
        "numSystemExceptions": status.numUserExceptions + status.numSourceExceptions,
        "latestSystemExceptions": _exceptions([*status.latestUserExceptions, *status.latestSourceExceptions]),
        "numSinkExceptions": status.numSystemExceptions + status.numSinkExceptions,
        "latestSinkExceptions": _exceptions([*status.latestSystemExceptions, *status.latestSinkExceptions]),
        "numWrittenToSink": status.numSuccessfullyProcessed,
        "lastReceivedTime": status.lastInvocationTime,
        "workerId": worker_id,
    }


def _state(status: FunctionStatus) -> Json:
    return {"running": status.running, "error": status.failureException, "numRestarts": status.numRestarts}


def deployed_json(metadata: FunctionMetaData, status: FunctionStatus) -> Json:
    """Return the function version of an instance and whether it is running. Not in Pulsar."""
    return {
        "functionUuid": metadata.functionUuid,
        "version": metadata.version,
        "running": status.running,
        "error": status.failureException,
        "numRestarts": status.numRestarts,
    }


def function_status(instances: Mapping[int, Json]) -> Json:
    """Return FunctionStatus, SourceStatus or SinkStatus, aggregated over all assigned instances."""
    return {
        "numInstances": len(instances),
        "numRunning": sum(1 for status in instances.values() if status["running"]),
        "instances": [{"instanceId": number, "status": instances[number]} for number in sorted(instances)],
    }


def with_reason(status: Json, reason: str) -> Json:
    """Add a reason, unless it is empty, to each instance that is not running and has no error."""
    for instance in status["instances"]:
        found = instance["status"]
        if not found["running"] and not found["error"]:
            found["error"] = reason
    return status


def instance_stats(metrics: MetricsData) -> Json:
    """Return FunctionInstanceStatsData. A latency or time of 0 means no value."""
    return {
        **_counts(metrics),
        "1min": _counts(metrics, "_1min"),
        "lastInvocation": metrics.lastInvocation or None,
        "userMetrics": {
            **{name: value for name, value in metrics.userMetrics.items() if not math.isnan(value)},
            **flat(metrics.metrics),
        },
    }


def _counts(metrics: MetricsData, period: str = "") -> Json:
    counts: Json = {name: getattr(metrics, name + period) for name in _SUMMED}
    return {**counts, "avgProcessLatency": getattr(metrics, f"avgProcessLatency{period}") or None}


_SUMMED = ("receivedTotal", "processedSuccessfullyTotal", "systemExceptionsTotal", "userExceptionsTotal")


def function_stats(instances: Mapping[int, Json]) -> Json:
    """Return FunctionStats with sums, mean latency and last invocation over all instances."""
    all_stats = list(instances.values())
    return {
        **_totals(all_stats),
        "1min": _totals([stats["1min"] for stats in all_stats]),
        "lastInvocation": max((stats["lastInvocation"] or 0 for stats in all_stats), default=0) or None,
        "instances": [{"instanceId": number, "metrics": instances[number]} for number in sorted(instances)],
    }


def _totals(all_stats: list[Json]) -> Json:
    latencies = [stats["avgProcessLatency"] for stats in all_stats if stats["avgProcessLatency"] is not None]
    return {
        **{name: sum(stats[name] for stats in all_stats) for name in _SUMMED},
        "avgProcessLatency": sum(latencies) / len(latencies) if latencies else None,
    }
