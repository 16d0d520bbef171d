"""Short measurements of the main rows, on the tree that `magnetar` is imported from; run by `benchmarks.against`.

`python -m benchmarks.short_rows --directory DIR ROW …` prints a line of JSON for each row. Rows of a group share a
server. This code generates the load for all trees; servers and our own client are those of the measured tree.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

import magnetar
import uvloop

from tests.support.functions import Functions
from tests.support.servers import Server

from .exact_rates import EXACT, PLAIN_SOURCE, exact_slope
from .footprint import SETTLE_S, _pss, _start
from .function_rates import SOURCE, count_for, our_slope
from .latency import CONFIG, _latencies, _percentile
from .load import Shape, consume, hold, official_publish, publish
from .plan import Plan
from .real_input import APPLICATION, PLAIN, OwnInput, official_input
from .state_rates import BATCH, EXPECTED_WORDS, WORDS, _words

WARM_S = 0.3
EXACT_RATE = 450_000
"""Expected rates, only used to determine the number of messages."""
LATENCY_S = 2.0
OFFICIAL_CONSUMED_RATES = {1000: 700_000, 1: 50_000}
"""Expected rates, only used to determine the number of messages."""

Measure = Callable[[Plan, Server, str], float]
"""Measures one row on a running server; takes the row's name, which is unique and used for topics."""


@dataclass(frozen=True, slots=True)
class Row:
    """One short measurement.

    Attributes:
        server: server of the row, shared by rows with the same one; empty if the row starts its own.
        unit: unit of the figure.
        measure: measures the figure.
        more_is_better: whether higher values are better.
    """

    server: str
    unit: str
    measure: Measure
    more_is_better: bool = True


def _publish(shape: Shape) -> Measure:
    def measure(plan: Plan, server: Server, name: str) -> float:
        publish(server.service_url, f"{name}-warm", shape, WARM_S)
        count, took_s = publish(server.service_url, name, shape, plan.seconds)
        return count / took_s

    return measure


def _official_publish(shape: Shape) -> Measure:
    def measure(plan: Plan, server: Server, name: str) -> float:
        count, took_s = official_publish(server.service_url, name, shape, plan.seconds)
        return count / took_s

    return measure


def _consume(shape: Shape) -> Measure:
    def measure(plan: Plan, server: Server, name: str) -> float:
        hold(server.service_url, name, "s")
        sent, _ = publish(server.service_url, name, shape, plan.seconds)
        _, took_s = consume(server.service_url, name, "s", sent)
        return sent / took_s

    return measure


def _function(batch: int, number: int, shape: str = "") -> Measure:
    def measure(plan: Plan, server: Server, _name: str) -> float:
        given = official_input(plan, shape, batch) if shape else OwnInput(batch)
        return our_slope(server, given, count_for(given, plan.seconds), number).rate

    return measure


def _consume_official(shape: str, batch: int) -> Measure:
    def measure(plan: Plan, server: Server, name: str) -> float:
        given = official_input(plan, shape, batch)
        count = int(OFFICIAL_CONSUMED_RATES[batch] * plan.seconds) // batch * batch
        hold(server.service_url, name, "s")
        given.fill(server.service_url, name, count)
        _, took_s = consume(server.service_url, name, "s", count)
        return count / took_s

    return measure


def _exact(plan: Plan, server: Server, name: str) -> float:
    count = int(EXACT_RATE * plan.seconds) // BATCH * BATCH
    return exact_slope(server, name.replace("-", ""), PLAIN_SOURCE, OwnInput(BATCH), count, EXACT)


def _state(plan: Plan, server: Server, _name: str) -> float:
    return _words(server, int(EXPECTED_WORDS / WORDS * plan.seconds) // BATCH * BATCH, 1)


def _latency_p99(_plan: Plan, server: Server, _name: str) -> float:
    with Functions(server.web_url) as functions:
        functions.create("f", SOURCE, CONFIG).raise_for_status()
        latencies = sorted(uvloop.run(_latencies(server, LATENCY_S)))
        functions.delete("f")
    return _percentile(latencies, 99)


def _start_s(plan: Plan) -> float:
    return _start(plan.directory)[1]


def _idle_mib(plan: Plan) -> float:
    with plan.server("standalone") as server:
        sleep(SETTLE_S)
        return _pss(server)


def _alone(measure: Callable[[Plan], float]) -> Measure:
    return lambda plan, _server, _name: measure(plan)


BROKER, STANDALONE, OWN = "broker", "standalone", ""
ROWS = {
    "publish-batched": Row(BROKER, "messages/s", _publish(Shape(1000, 100))),
    "publish-1kib": Row(BROKER, "messages/s", _publish(Shape(1000, 1024))),
    "publish-single": Row(BROKER, "messages/s", _publish(Shape(1, 100))),
    "publish-official-batched": Row(BROKER, "messages/s", _official_publish(Shape(1000, 100))),
    "publish-official-single": Row(BROKER, "messages/s", _official_publish(Shape(1, 100))),
    "consume": Row(BROKER, "messages/s", _consume(Shape(1000, 100))),
    "consume-application": Row(BROKER, "messages/s", _consume_official(APPLICATION, 1000)),
    "consume-plain-single": Row(BROKER, "messages/s", _consume_official(PLAIN, 1)),
    "function-plain-1000": Row(STANDALONE, "messages/s", _function(1000, 3, PLAIN)),
    "function-application-1000": Row(STANDALONE, "messages/s", _function(1000, 4, APPLICATION)),
    "function-application-50": Row(STANDALONE, "messages/s", _function(50, 5, APPLICATION)),
    "function-application-1": Row(STANDALONE, "messages/s", _function(1, 6, APPLICATION)),
    "function-plain-50": Row(STANDALONE, "messages/s", _function(50, 7, PLAIN)),
    "function-plain-1": Row(STANDALONE, "messages/s", _function(1, 8, PLAIN)),
    "function-1000": Row(STANDALONE, "messages/s", _function(1000, 0)),
    "function-50": Row(STANDALONE, "messages/s", _function(50, 1)),
    "function-1": Row(STANDALONE, "messages/s", _function(1, 2)),
    "exact": Row(STANDALONE, "messages/s", _exact),
    "state": Row(STANDALONE, "words/s", _state),
    "latency-p99": Row(STANDALONE, "ms", _latency_p99, more_is_better=False),
    "start": Row(OWN, "s", _alone(_start_s), more_is_better=False),
    "idle-memory": Row(OWN, "MiB", _alone(_idle_mib), more_is_better=False),
}


def grouped(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Group rows by shared server, in order; each row with its own server is a separate group."""
    groups: list[tuple[str, list[str]]] = []
    for name in names:
        server = ROWS[name].server
        if server and groups and groups[-1][0] == server:
            groups[-1][1].append(name)
        else:
            groups.append((server, [name]))
    return groups


def measured(plan: Plan, names: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield each row's figure, or its error, so that a failing row does not affect others."""
    for kind, rows in grouped(names):
        if kind == OWN:
            yield _one(rows[0], lambda name=rows[0]: ROWS[name].measure(plan, None, name))  # type: ignore[misc, arg-type]
            continue
        with plan.server(kind) as server:
            for row in rows:
                yield _one(row, lambda name=row, server=server: ROWS[name].measure(plan, server, name))  # type: ignore[misc]


def _one(name: str, measure: Callable[[], float]) -> dict[str, object]:
    began = perf_counter()
    try:
        return {"row": name, "value": measure(), "seconds": perf_counter() - began}
    except Exception as exc:  # noqa: BLE001  the error is the row's result
        return {"row": name, "error": f"{type(exc).__name__}: {exc}"[:500]}


def main() -> int:
    """Measure the requested rows; the first line of output contains the path of the tree."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.short_rows", description=__doc__)
    parser.add_argument("rows", nargs="+", choices=list(ROWS))
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of load per measurement")
    parser.add_argument("--directory", type=Path, required=True, help="directory for data of servers")
    arguments = parser.parse_args()
    print(json.dumps({"tree": str(Path(magnetar.__file__).parent.resolve())}), flush=True)
    for line in measured(Plan(arguments.seconds, 1, arguments.directory), arguments.rows):
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
