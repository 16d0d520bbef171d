"""The cost of EFFECTIVELY_ONCE: the same function with ATLEAST_ONCE and EFFECTIVELY_ONCE, with and without state.

Measured on each input: the official client's two shapes, and our own encoder's.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from tests.support.servers import Server

from .figure import Figure
from .function_rates import Counter, compare
from .load import COMPARED, hold
from .plan import Plan
from .real_input import APPLICATION, OWN, PLAIN, Input, inputs
from .state_rates import deployed

PLAIN_SOURCE = "def process(text):\n    return text + '!'\n"
# Lines of our own encoder are numbered, so a batch of 1,000 has 1,000 distinct keys, like that of applications.
STATEFUL_SOURCE = """
def process(text, context):
    context.incr_counter(context.get_partition_key() or "key" + text[14:17], 1)
    return text + "!"
"""
WITHOUT_STATE, WITH_STATE = "without state", "with state"
EXPECTED_RATES = {
    (WITHOUT_STATE, PLAIN): {1000: 200_000, 50: 120_000},
    (WITHOUT_STATE, APPLICATION): {1000: 130_000, 50: 80_000},
    (WITHOUT_STATE, OWN): {1000: 600_000, 50: 450_000},
    (WITH_STATE, PLAIN): {1000: 150_000, 50: 100_000},
    (WITH_STATE, APPLICATION): {1000: 90_000, 50: 70_000},
    (WITH_STATE, OWN): {1000: 350_000, 50: 250_000},
}
"""Expected rates, only used to determine the number of messages."""
LEAST, EXACT = "ATLEAST_ONCE", "EFFECTIVELY_ONCE"
TARGET = 0.5
SECONDS = 2.0
"""Seconds of load per measurement, also with --quick: a shorter one ends before the state store and the outbox have
reached a steady state, so that ratios would be meaningless.
"""


def measure_exact(plan: Plan) -> Iterator[Figure]:
    """Measure EFFECTIVELY_ONCE rates, also as a share of ATLEAST_ONCE rates."""
    for kind, source in ((WITHOUT_STATE, PLAIN_SOURCE), (WITH_STATE, STATEFUL_SOURCE)):
        for batch in (1000, 50):
            for given in inputs(plan, batch):
                yield from _measure(plan, given, kind, source)


def _measure(plan: Plan, given: Input, kind: str, source: str) -> Iterator[Figure]:
    seconds = max(plan.seconds, SECONDS)
    count = int(EXPECTED_RATES[kind, given.name][given.batch] * seconds) // given.batch * given.batch
    rates: dict[str, list[float]] = {LEAST: [], EXACT: []}
    with plan.server("standalone") as server:
        for number in range(plan.repeats):
            for guarantee, found in rates.items():
                name = f"{guarantee[:5].lower()}{number}"
                found.append(exact_slope(server, name, source, given, count, guarantee))
    least, exact = (statistics.median(rates[guarantee]) for guarantee in (LEAST, EXACT))
    yield Figure(
        name=f"effectively once {kind}, {given.name}, input batches of {given.batch}",
        ours=exact,
        unit="messages/s",
        peer=least,
        peer_name="at least once",
        table=given.table,
    )
    yield Figure(
        name=f"effectively once over at least once, {kind}, {given.name}, batches of {given.batch}",
        ours=exact / least,
        unit="times",
        target=TARGET,
        table=given.table,
    )


def exact_slope(server: Server, name: str, source: str, given: Input, count: int, guarantee: str) -> float:
    """Return messages per second of a separate function, verifying its outputs."""
    source_topic, output = f"{name}-in", f"{name}-out"
    hold(server.service_url, source_topic, "keep")
    hold(server.service_url, output, COMPARED)
    given.fill(server.service_url, source_topic, count)
    config = {"output": output, "processingGuarantees": guarantee}
    with deployed(server, name, f"{name}.process", source, **config), Counter(server.web_url, output) as counter:
        rate = counter.slope(count, server, name).rate
    compare(server, output, given.payloads(count))
    return rate
