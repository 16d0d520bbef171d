"""Thread functions on one worker: the cost of each, and the worker's start with many of them."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.support.functions import Functions
from tests.support.servers import Server
from tests.support.waiting import wait_for

from .figure import Figure
from .footprint import SOURCE, config
from .growth import IDLE_S, QUICK_IDLE_S, at_rest, grown
from .machine import short_name, tree, usage
from .plan import Plan

SIZES, QUICK_SIZES = (10, 100, 1000, 5000), (10, 100)
LOOKS = 10
RUNNING_TIMEOUT_S = 300


def measure_growth_functions(plan: Plan) -> Iterator[Figure]:
    """Measure creating functions up to each size, and restarting the standalone with them."""
    counted, created = "functions", 0
    with plan.server("standalone") as server:
        for size in QUICK_SIZES if plan.is_quick else SIZES:
            with Functions(server.web_url) as functions:
                cpu_before, began = _worker_cpu_s(server), time.perf_counter()
                for number in range(created, size):
                    name = f"t{number}"
                    functions.create(name, SOURCE, {**config(name), "runtimeEnv": "thread"}).raise_for_status()
                took_s, used_s = time.perf_counter() - began, _worker_cpu_s(server) - cpu_before
                _wait_running(functions, size)
            yield grown(counted, size, "create each", took_s / (size - created) * 1000, "ms")
            yield grown(counted, size, "CPU of the worker for each created", used_s / (size - created) * 1000, "ms")
            created = size
            yield from at_rest(server, counted, size, QUICK_IDLE_S if plan.is_quick else IDLE_S)
            server.stop()
            began = time.perf_counter()
            server.start()
            with Functions(server.web_url) as functions:
                _wait_running(functions, size)
            yield grown(counted, size, "start until all run", time.perf_counter() - began, "s")


def _worker_cpu_s(server: Server) -> float:
    (worker,) = (process for process in tree(server.pid) if short_name(process) == "worker")
    return usage(worker).cpu_s


def _wait_running(functions: Functions, size: int) -> None:
    """Wait until a sample of the functions, including the last one, is running."""
    for number in {*range(0, size, max(1, size // LOOKS)), size - 1}:
        wait_for(lambda number=number: functions.status(f"t{number}")["running"], "running", RUNNING_TIMEOUT_S)  # type: ignore[misc]
