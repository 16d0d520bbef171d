"""Shared parts of the growth benchmarks: sizes, and resource usage of an idle server."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.support.servers import Server

from .figure import Figure
from .machine import tree, usage, wait_until_quiet

IDLE_S, QUICK_IDLE_S = 5.0, 1.0


def grown(counted: str, size: int, name: str, value: float, unit: str) -> Figure:
    """Return the figure of a quantity at a size; for rates, higher is better, otherwise lower."""
    return Figure(name=name, ours=value, unit=unit, more_is_better=unit.endswith("/s"), size=size, counted=counted)


def at_rest(server: Server, counted: str, size: int, idle_s: float) -> Iterator[Figure]:
    """Yield memory and CPU usage of all processes of an idle server."""
    wait_until_quiet(server.pid)
    processes = tree(server.pid)
    before = sum(usage(process).cpu_s for process in processes)
    time.sleep(idle_s)
    after = [usage(process) for process in processes]
    yield grown(counted, size, "memory (PSS)", sum(one.pss_mib for one in after), "MiB")
    share = (sum(one.cpu_s for one in after) - before) / idle_s * 100
    yield grown(counted, size, "idle CPU", share, "% of a core")
