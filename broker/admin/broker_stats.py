"""``/admin/v2/broker-stats`` as JSON, in Pulsar's shapes: metrics, beans and allocators.

The numbers are for this process. Without a JVM, beans contain values of the operating system and the interpreter, and
allocators have no arenas or caches.

Source: Pulsar's BrokerStatsBase, MBeanStatsGenerator and NamespaceStats.
"""

from __future__ import annotations

import os
import platform
import resource
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from starlette.responses import Response

from ... import __version__
from ...tasks import Slices
from ...web.answers import Refused, as_json
from ...web.call import caller_of
from .call import Call
from .routing import Routes
from .topics.stats import sliced_stats

_STATS = "/admin/v2/broker-stats"
_STATM = Path("/proc/self/statm")
_FILES = Path("/proc/self/fd")
_OF_TOPIC = {
    "brk_in_rate": "msgRateIn",
    "brk_in_tp_rate": "msgThroughputIn",
    "brk_out_rate": "msgRateOut",
    "brk_out_tp_rate": "msgThroughputOut",
    "brk_storage_size": "storageSize",
}
_NO_ARENAS = {
    "numDirectArenas": 0,
    "numHeapArenas": 0,
    "numThreadLocalCaches": 0,
    "normalCacheSize": 0,
    "smallCacheSize": 0,
    "usedDirectMemory": 0,
    "directArenas": [],
    "heapArenas": [],
}


async def _metrics(call: Call) -> Response:
    """Return rates and counts for each namespace, the broker and its process."""
    broker, cluster = call.broker, call.namespaces.cluster_name
    by_namespace: dict[str, Counter[str]] = {}
    async with broker.reports.turn(caller_of(call.request.scope)):
        slices = Slices()
        for topic in tuple(broker.topics.values()):
            counts = by_namespace.setdefault(topic.name.namespace_name, Counter())
            _count(counts, await sliced_stats(topic, slices))
            await slices.pause()
    found = [_metric(counts, namespace=namespace) for namespace, counts in sorted(by_namespace.items())]
    connections = {"brk_active_connections": len(broker.connections)}
    found.append(_metric(connections, broker=call.host, cluster=cluster, metric="broker_connection"))
    process = {"brk_process_memory_bytes": _memory_bytes(), "brk_process_cpu_seconds": time.process_time()}
    found.append(_metric(process, broker=call.host, cluster=cluster, metric="process_metrics"))
    health = {"brk_health": int(broker.is_started and broker.storage.failure is None)}
    found.append(_metric(health, broker=call.host, cluster=cluster, metric="broker_health"))
    return as_json(found)


def _count(counts: Counter[str], stats: dict[str, Any]) -> None:
    for name, field in _OF_TOPIC.items():
        counts[name] += stats[field]
    subscriptions = stats["subscriptions"].values()
    counts["brk_no_of_producers"] += len(stats["publishers"])
    counts["brk_no_of_subscriptions"] += len(subscriptions)
    counts["brk_no_of_consumers"] += sum(len(each["consumers"]) for each in subscriptions)
    counts["brk_msg_backlog"] += sum(each["msgBacklog"] for each in subscriptions)


def _metric(values: dict[str, Any], **dimensions: str) -> dict[str, Any]:
    return {"metrics": values, "dimensions": dimensions}


def _beans(_: Call) -> Response:
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    beans: dict[str, dict[str, Any]] = {
        "Memory": {"HeapMemoryUsage": {"used": _memory_bytes()}},
        "OperatingSystem": {
            "Name": platform.system(),
            "Version": platform.release(),
            "Arch": platform.machine(),
            "AvailableProcessors": os.cpu_count(),
            "SystemLoadAverage": os.getloadavg()[0],
            "ProcessCpuTime": time.process_time_ns(),
            "OpenFileDescriptorCount": _open_files(),
            "MaxFileDescriptorCount": soft,
        },
        "Runtime": {
            "Name": f"{os.getpid()}@{platform.node()}",
            "VmName": platform.python_implementation(),
            "VmVersion": platform.python_version(),
            "SpecName": f"Magnetar {__version__}",
        },
        "Threading": {"ThreadCount": threading.active_count()},
    }
    return as_json([_metric(values, MBean=f"java.lang:type={name}") for name, values in beans.items()])


def _allocator(call: Call) -> Response:
    name = call.text("allocator")
    if name not in ("default", "ml-cache"):
        raise Refused(406, f"Invalid allocator name : {name}")
    return as_json(_NO_ARENAS | {"usedHeapMemory": _memory_bytes() if name == "default" else 0})


def _memory_bytes() -> int:
    """Return the resident memory of the process, or its peak where only the peak is available."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _open_files() -> int:
    """Return the number of open files of the process, or -1 if unknown."""
    try:
        return sum(1 for _ in _FILES.iterdir())
    except OSError:
        return -1


ROUTES: Routes = (
    ("GET", f"{_STATS}/metrics", _metrics),
    ("GET", f"{_STATS}/mbeans", _beans),
    ("GET", f"{_STATS}/allocator-stats/{{allocator}}", _allocator),
)
