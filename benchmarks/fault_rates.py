"""Faulty functions: the time from a message that makes them fail until the status shows the cause.

Each fault is a function in its own process, next to another one that must still be running afterwards without a
restart. The time starts before the message is sent and ends with the first response that shows the cause, so it
includes REST. Faults that are detected by polling take about as long as the polling interval, or the configured limit.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import magnetar

from tests.support.functions import Functions
from tests.support.waiting import wait_for

from .figure import Figure
from .plan import Plan
from .state_rates import deployed

RAM_BYTES = 64 * 1024 * 1024
RUN_TIME_LIMIT_MS = 1000
NAMED_S = 60.0
NEIGHBOUR = "neighbour"


class Fault(NamedTuple):
    """A faulty function and the resulting status.

    Attributes:
        name: name of the fault.
        code: body of the function.
        cause: expected part of the status.
        config: further fields of the function's config.
    """

    name: str
    code: str
    cause: str
    config: dict[str, Any] = {}  # noqa: RUF012  never modified


FAULTS = (
    Fault("an exception", "raise ValueError(text)", "ValueError: x"),
    Fault("os._exit", "import os; os._exit(7)", "exit code 7"),
    Fault("sys.exit", "import sys; sys.exit('so')", "the code called sys.exit"),
    Fault("a segmentation fault", "import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    Fault(
        "more than its 64 MiB",
        "x = []\n    while True: x.append(bytearray(8 << 20))",
        "resources.ram",
        {"resources": {"ram": RAM_BYTES}},
    ),
    Fault(
        f"an endless loop, runTimeLimitMs {RUN_TIME_LIMIT_MS}",
        "while True: pass",
        "runTimeLimitMs",
        {"runTimeLimitMs": RUN_TIME_LIMIT_MS},
    ),
    Fault("the interpreter's lock held", "import re; re.match(r'(a+)+$', 'a' * 60 + 'b')", "has not responded for"),
)


def measure_faults(plan: Plan) -> Iterator[Figure]:
    """Measure the times until the status shows faults."""
    with (
        plan.server("standalone") as server,
        deployed(server, NEIGHBOUR, f"{NEIGHBOUR}.process", "def process(text): return text"),
        Functions(server.web_url) as functions,
        magnetar.Client(server.service_url) as client,
    ):
        for number, fault in enumerate(FAULTS):
            names = [f"fault_{number}_{turn}" for turn in range(plan.repeats)]
            times = [_named_after_s(functions, client, name, fault) for name in names]
            yield Figure(
                name=f"process function with {fault.name}: until its status names the cause",
                ours=statistics.median(times) * 1000,
                unit="ms",
                more_is_better=False,
                note=f"worst {max(times) * 1000:,.0f} ms",
            )
        neighbour = functions.status(NEIGHBOUR)
        if neighbour["numRestarts"] or not neighbour["running"]:
            raise AssertionError(f"the other function was affected: {neighbour}")


def _named_after_s(functions: Functions, client: magnetar.Client, name: str, fault: Fault) -> float:
    """Deploy a faulty function, and return the time from a message until the status shows the fault."""
    config = {"inputs": [f"{name}-in"], "runtimeEnv": "process", **fault.config}
    source = f"def process(text):\n    {fault.code}\n"
    functions.create(name, source, {"className": f"{name}.process", **config}).raise_for_status()
    try:
        wait_for(lambda: functions.status(name)["running"], f"running {name}", NAMED_S)
        producer = client.create_producer(f"{name}-in")
        began_s = time.perf_counter()
        producer.send(b"x")
        while fault.cause not in str(status := functions.status(name)):
            if time.perf_counter() - began_s > NAMED_S:
                raise AssertionError(f"the status did not show {fault.name} within {NAMED_S:g} s: {status}")
        took_s = time.perf_counter() - began_s
        producer.close()
        return took_s
    finally:
        functions.delete(name)
