"""What TLS and tokens cost: publishing and functions on servers of each posture, as shares of the plain one's rates.

In each repeat all postures are measured one right after the other, and only the quotient within a repeat counts: the
machine is faster at one time than at another, by more than what is measured. Each repeat begins with another posture.
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
    """What one measurement gave.

    Attributes:
        per_s: messages a second.
        cpu_us: microseconds of CPU that the broker took for a message.
    """

    per_s: float
    cpu_us: float


Rates = Mapping[Posture, Sequence[Rate]]
"""One of each posture for each repeat."""


def measure_secured_publish(plan: Plan) -> Iterator[Figure]:
    """Publish rates in batches: the official client's, and those of our own client, which asks more of a broker."""
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
    """Rates of a function in a process of its own, on the official client's batches and on those of our own."""
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
    """The rate of a function of its own between topics of its own, whose outputs are all compared."""
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
    """Measure all postures once in each repeat, each time beginning with another one."""
    found: dict[Posture, list[Rate]] = {posture: [] for posture in POSTURES}
    for turn in range(repeats):
        first = turn % len(POSTURES)
        for posture in (*POSTURES[first:], *POSTURES[:first]):
            found[posture].append(measure(posture, turn))
    return found


def figures(what: str, rates: Rates, table: Table) -> Iterator[Figure]:
    """Yield for each posture with security the median of its shares of the plain rate in the same repeat."""
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
