"""`python -m benchmarks.beside_pulsar [--only NAME] [--quick] [--write]`: Apache Pulsar and Magnetar, as ratios.

In `make bench-pulsar PULSAR=<starter>`, the starter is a program that starts an Apache Pulsar, as for `make
test-pulsar`. Both brokers run all the time, but only one has load: each measurement starts once the other is idle.
Functions read the same entries, written by the official client; all outputs are verified. Both sides' functions get
half of the messages as warm-up, and Pulsar's broker gets an unmeasured load of each kind before publishing is measured.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx

from tests.support.pulsar import STARTER, URL, WEB_URL, ApachePulsar, of_environment, own_name, started, what_is_wrong
from tests.support.servers import ServerFailed

from .figure import Figure, Table
from .function_rates import Counter, compare_outputs, count_for, ends_of, our_slope
from .groups import Benchmark
from .java_function import JavaFunction, jars, make_input_topic, running, version_of
from .load import COMPARED, hold
from .load_generator import Load, rate
from .machine import wait_until_quiet
from .plan import Plan
from .real_input import APPLICATION, PLAIN, OfficialInput, official_input
from .runner import PULSAR_FUNCTIONS, PULSAR_PUBLISH, add_options, commissioned

FUNCTION_TARGETS = {
    (APPLICATION, 1000): 6.0, (APPLICATION, 50): 6.0, (APPLICATION, 1): 8.0,
    (PLAIN, 1000): 8.0, (PLAIN, 50): 8.0, (PLAIN, 1): 8.0,
}  # fmt: skip
PUBLISH_TARGETS = {Load(100, 1000): 1.5, Load(1024, 1000): 1.5, Load(100, 1): 2.0}
"""Publish targets, as multiples of Apache Pulsar's rate."""
JAVA_RATES = {1000: 70_000, 50: 60_000, 1: 12_000}  # only used to determine the number of messages
WARM = 0.5
"""Share of a function's messages that is not measured, during which the JVM compiles."""
WARM_S = 5.0
"""Seconds of warm-up load for Pulsar's function and broker, at `JAVA_RATES`."""
POLL_S = 0.2
TIMEOUT_S = 180.0


def main() -> int:
    """Start Apache Pulsar, measure, print the ratios; return 1 if a measurement failed, 2 for invalid usage."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside_pulsar", description=__doc__)
    names = (PULSAR_FUNCTIONS, PULSAR_PUBLISH)
    parser.add_argument("--only", choices=names, action="append", help="run only this benchmark; repeatable")
    add_options(parser)
    arguments = parser.parse_args()
    if wrong := what_is_wrong(os.environ):
        parser.error(wrong)
    with commissioned(parser, arguments) as commission:
        directory = commission.plan.directory / "apache-pulsar"
        directory.mkdir()
        pulsar = of_environment(directory)
        if pulsar is None:
            parser.error(
                f"no Apache Pulsar: set {STARTER} (make bench-pulsar PULSAR=<starter>), or {URL} and {WEB_URL}"
            )
        pulsar.flags, pulsar.settings = (), ()
        benchmarks: dict[str, Benchmark] = {
            PULSAR_FUNCTIONS: lambda plan: measure_functions(plan, pulsar),
            PULSAR_PUBLISH: lambda plan: measure_publish(plan, pulsar),
        }
        wanted = {name: benchmarks[name] for name in arguments.only or names}
        try:
            with started(pulsar):
                return 1 if commission.run("pulsar", "make bench-pulsar PULSAR=<starter> ARGS=--write", wanted) else 0
        except ServerFailed as error:
            print(f"beside_pulsar: {error}", file=sys.stderr)
            return 1


def measure_functions(plan: Plan, pulsar: ApachePulsar) -> Iterator[Figure]:
    """Measure the rate of a function for each shape and batch size."""
    version = version_of(pulsar.web_url)
    java = jars(version)
    for (shape, batch), target in FUNCTION_TARGETS.items():
        given = official_input(plan, shape, batch)
        ours, theirs = [], []
        with plan.server("standalone") as server:
            for turn in range(plan.repeats):
                wait_until_quiet(server.pid)
                theirs.append(java_rate(plan, pulsar, java, given, _java_count(plan, batch)))
                _wait_until_quiet(pulsar)
                ours.append(our_slope(server, given, count_for(given, 2 * plan.seconds), turn, WARM).rate)
        yield Figure(
            name=f"function, {shape}, {f'batches of {batch}' if batch > 1 else 'one by one'}",
            ours=statistics.median(ours),
            unit="messages/s",
            peer=statistics.median(theirs),
            peer_name=f"Java function, Apache Pulsar {version}",
            target_factor=target,
            note=_turns(ours, theirs),
            table=Table.PULSAR,
        )


def _java_count(plan: Plan, batch: int) -> int:
    return int(JAVA_RATES[batch] * (WARM_S + 2 * plan.seconds)) // batch * batch


def java_rate(plan: Plan, pulsar: ApachePulsar, java: Path, given: OfficialInput, count: int) -> float:
    """Return the rate of Pulsar's function after the warm-up; all outputs are verified."""
    source, output, name = own_name("bench-in"), own_name("bench-out"), own_name("bench")
    make_input_topic(pulsar.web_url, source)
    hold(pulsar.service_url, source, "keep")
    hold(pulsar.service_url, output, COMPARED)
    given.fill(pulsar.service_url, source, count)
    function = JavaFunction(name, java, plan.directory)
    with (
        running(function, pulsar.service_url, source, output),
        Counter(pulsar.web_url, output, POLL_S, TIMEOUT_S) as counter,
    ):
        samples = counter.samples(count, lambda seen: function.check())
    (t0, n0), (t1, n1) = ends_of(samples, count, WARM)
    compare_outputs(pulsar.service_url, output, given.payloads(count))
    _delete(pulsar, source, output)
    return (n1 - n0) / (t1 - t0)


def measure_publish(plan: Plan, pulsar: ApachePulsar) -> Iterator[Figure]:
    """Measure the rate at which each broker accepts messages from the Go client's load generator."""
    log = plan.directory / "load-generator.log"
    version = version_of(pulsar.web_url)
    for load, target in PUBLISH_TARGETS.items():
        batching = "batched" if load.batch > 1 else "one by one"
        ours, theirs = [], []
        with plan.server("broker") as server:
            topic = own_name("bench-warm")
            rate(pulsar.service_url, pulsar.web_url, topic, load, WARM_S, log)
            _delete(pulsar, topic)
            for turn in range(plan.repeats):
                topic = own_name("bench-published")
                wait_until_quiet(server.pid)
                theirs.append(rate(pulsar.service_url, pulsar.web_url, topic, load, 2 * plan.seconds, log))
                _delete(pulsar, topic)
                _wait_until_quiet(pulsar)
                ours.append(rate(server.service_url, server.web_url, f"t{turn}", load, 2 * plan.seconds, log))
        yield Figure(
            name=f"publish, Go client's load generator, {load.size_bytes} B, {batching}",
            ours=statistics.median(ours),
            unit="messages/s",
            peer=statistics.median(theirs),
            peer_name=f"the same into Apache Pulsar {version}",
            target_factor=target,
            note=_turns(ours, theirs),
            table=Table.PULSAR,
        )


def _wait_until_quiet(pulsar: ApachePulsar) -> None:
    """Wait until Pulsar has finished its work after a load, so that it does not affect our measurement."""
    if pulsar.process is not None:
        wait_until_quiet(pulsar.process.pid)


def _turns(ours: list[float], theirs: list[float]) -> str:
    """Return the ratio of each round, which shows their spread."""
    return "by turn " + ", ".join(f"{mine / other:.1f}×" for mine, other in zip(ours, theirs, strict=True))


def _delete(pulsar: ApachePulsar, *topics: str) -> None:
    """Delete a topic to free disk space."""
    for topic in topics:
        url = f"{pulsar.web_url}/admin/v2/persistent/public/default/{topic}"
        httpx.delete(url, params={"force": "true"}, timeout=60).raise_for_status()


if __name__ == "__main__":
    sys.exit(main())
