"""The cost of TLS and tokens: publish and function rates with each security setting, as shares of the plain rates.

In each repeat, all postures are measured in direct succession, and only the quotients within a repeat are used, as the
machine's speed varies more than the measured effect. Each repeat starts with another posture.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.support.functions import Functions

from .figure import Figure, Table, number
from .function_rates import SOURCE, Counter, compare, count_for
from .load import COMPARED, Shape, hold, official_publish, publish
from .machine import cpu_s
from .plan import Plan
from .postures import PLAIN, POSTURES, SECURED, Posture, Site, sites
from .real_input import OWN, Input, OwnInput, official_input
from .real_input import PLAIN as PLAIN_SHAPE

TARGET = 0.7
BATCH = 1000
SHAPE = Shape(batch=BATCH, size_bytes=100)
OFFICIAL = "official client"
WARM_S = 0.3


@dataclass(frozen=True)
class Rate:
    """Result of one measurement.

    Attributes:
        per_s: messages per second.
        cpu_us: broker CPU time per message, in microseconds.
    """

    per_s: float
    cpu_us: float


Rates = Mapping[Posture, Sequence[Rate]]
"""Rates by repeat and posture."""


def measure_secured_publish(plan: Plan) -> Iterator[Figure]:
    """Measure batched publish rates of the official client and of our own, which loads a broker more."""
    with sites(plan) as found:
        for name, table in ((OFFICIAL, Table.OFFICIAL), (OWN, Table.OWN)):
            for site in found.values():
                _published(site, name, "warm", WARM_S)
            rates = in_turn(
                plan.repeats,
                lambda posture, turn, name=name: _published(found[posture], name, f"{name}-{turn}", plan.seconds),  # type: ignore[misc]
            )
            yield from figures(f"publish, {name}, batches of {BATCH}, {SHAPE.size_bytes} B", rates, table)


def _published(site: Site, client: str, topic: str, seconds: float) -> Rate:
    load, settings = (
        (official_publish, site.official_settings()) if client == OFFICIAL else (publish, site.client_settings())
    )
    before = cpu_s(site.broker.pid)
    count, took_s = load(site.service_url, topic.replace(" ", "-"), SHAPE, seconds, settings)
    return Rate(count / took_s, (cpu_s(site.broker.pid) - before) / count * 1e6)


def measure_secured_functions(plan: Plan) -> Iterator[Figure]:
    """Measure rates of a process function, on batches of the official client and of our own."""
    with sites(plan, with_functions=True) as found:
        for given in (official_input(plan, PLAIN_SHAPE, BATCH), OwnInput(BATCH)):
            rates = in_turn(
                plan.repeats,
                lambda posture, turn, given=given: processed(  # type: ignore[misc]
                    found[posture], given, count_for(given, plan.seconds), f"{given.table.name.lower()}{turn}"
                ),
            )
            yield from figures(f"function, {given.name}, input batches of {BATCH}", rates, given.table)


def processed(site: Site, given: Input, count: int, name: str) -> Rate:
    """Return the rate of a separate function between separate topics; all outputs are verified."""
    assert site.worker is not None
    broker, source, output = site.broker, f"{name}-in", f"{name}-out"
    hold(broker.service_url, source, "keep")
    hold(broker.service_url, output, COMPARED)
    given.fill(broker.service_url, source, count)
    config = {
        "className": f"{name}.process", "inputs": [source], "output": output, "subscriptionPosition": "Earliest",
        "runtimeEnv": "process",
    }  # fmt: skip
    with Functions(site.worker.worker_url, site.headers) as functions, Counter(broker.web_url, output) as counter:
        functions.create(name, SOURCE, config).raise_for_status()
        slope = counter.slope(count, broker, "")
        functions.delete(name)
    compare(broker, output, given.payloads(count))
    return Rate(slope.rate, slope.cpu_us["broker"])


def in_turn(repeats: int, measure: Callable[[Posture, int], Rate]) -> Rates:
    """Measure all postures once in each repeat, each time starting with another one."""
    found: dict[Posture, list[Rate]] = {posture: [] for posture in POSTURES}
    for turn in range(repeats):
        first = turn % len(POSTURES)
        for posture in (*POSTURES[first:], *POSTURES[:first]):
            found[posture].append(measure(posture, turn))
    return found


def figures(what: str, rates: Rates, table: Table) -> Iterator[Figure]:
    """Yield for each secured posture the median of its share of the plain rate in the same repeat."""
    for posture in SECURED:
        shares = [ours.per_s / plain.per_s for ours, plain in zip(rates[posture], rates[PLAIN], strict=True)]
        ours, plain = (
            [
                statistics.median(values)
                for values in zip(*((rate.per_s, rate.cpu_us) for rate in rates[one]), strict=True)
            ]
            for one in (posture, PLAIN)
        )
        yield Figure(
            name=f"{what}: {posture.name} over plain",
            ours=statistics.median(shares),
            unit="times",
            target=TARGET,
            note=f"{number(ours[0])} beside {number(plain[0])} messages/s;"
            f" broker {ours[1]:.2f} beside {plain[1]:.2f} µs CPU a message",
            table=table,
        )
