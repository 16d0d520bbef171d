"""Duration of a triggered run of a Spark function without a running host and JVM, and of the next one.

`magnetar standalone` starts with an empty data directory, the input is published, and the function is triggered right
after its creation, so that everything must be started. Then more input is published, and it is triggered again. Times
are those seen by a REST client: from the request to the first output in the topic, and to the end of the run.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx

from tests.support.functions import Functions

from .figure import Figure
from .function_rates import SOURCE, Counter
from .load import hold
from .plan import Plan
from .real_input import PLAIN, Input, official_input
from .spark_extra import is_installed

ROWS = 200_000
COLD_TARGET_S, WARM_TARGET_S = 8.0, 1.0
"""Targets for the time to the first output."""
NAME, SOURCE_TOPIC, OUTPUT_TOPIC = "started", "start-input", "start-output"
_BATCH = 1000
_POLL_S = 0.01
_RUN_TIMEOUT_S = 120.0
_WARM_RUNS = 3


def measure_spark_start(plan: Plan) -> Iterator[Figure]:
    """Measure the seconds from a trigger to the first output, cold and warm."""
    if not is_installed("spark-start"):
        return
    given = official_input(plan, PLAIN, _BATCH)
    taken = [_measure(plan, given) for _ in range(plan.repeats)]
    for what, target, found in (
        ("cold", COLD_TARGET_S, [cold for cold, _ in taken]),
        ("warm", WARM_TARGET_S, [warm for _, warms in taken for warm in warms]),
    ):
        yield Figure(
            name=f"Spark: triggered run of {ROWS:,} rows, {what}, to the first output",
            ours=statistics.median(first for first, _ in found),
            unit="s",
            target=target,
            more_is_better=False,
            note=f"to the end of the run {statistics.median(end for _, end in found):.1f} s",
        )


def _measure(plan: Plan, given: Input) -> tuple[tuple[float, float], list[tuple[float, float]]]:
    """Return the seconds to the first output and to the end, of the first run and of the following ones."""
    config = {
        "className": f"{NAME}.process",
        "inputs": [SOURCE_TOPIC],
        "output": OUTPUT_TOPIC,
        "subscriptionPosition": "Earliest",
        "runtimeEnv": "spark",
    }
    with plan.server("standalone") as server, Functions(server.web_url) as functions:
        hold(server.service_url, OUTPUT_TOPIC, "kept")
        given.fill(server.service_url, SOURCE_TOPIC, ROWS)
        functions.create(NAME, SOURCE, config).raise_for_status()
        found = []
        for _ in range(1 + _WARM_RUNS):
            found.append(_triggered(server.web_url, functions.url))
            given.fill(server.service_url, SOURCE_TOPIC, ROWS)
    return found[0], found[1:]


def _triggered(web_url: str, functions_url: str) -> tuple[float, float]:
    """Trigger a run over `ROWS`; return the seconds to its first output and to its end."""
    answers: list[tuple[float, Any]] = []

    def trigger() -> None:
        answer = httpx.post(f"{functions_url}{NAME}/trigger", timeout=_RUN_TIMEOUT_S)
        answers.append((time.perf_counter(), answer))

    with Counter(web_url, OUTPUT_TOPIC, _POLL_S) as counter:
        before = counter.read()
        began = time.perf_counter()
        waiting = threading.Thread(target=trigger)
        waiting.start()
        samples = counter.samples(before + 1)
        waiting.join()
        ended, answer = answers[0]
        run = answer.raise_for_status().json()
        if (run["stage"], run["rows"], counter.read() - before) != ("done", ROWS, ROWS):
            raise AssertionError(f"expected a run over {ROWS} rows, got {run}")
    return samples[-1][0] - began, ended - began
