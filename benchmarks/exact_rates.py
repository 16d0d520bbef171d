"""What EFFECTIVELY_ONCE costs: the same function at least once and effectively once, with and without state."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from tests.support.servers import Server

from .figure import Figure
from .function_rates import SIZE_BYTES, Counter, compare
from .load import COMPARED, hold, payloads_of, publish_entries
from .plan import Plan
from .state_rates import deployed

PLAIN = "def process(text):\n    return text + '!'\n"
# Lines are numbered: a batch of 1,000 has 1,000 different keys.
STATEFUL = """
def process(text, context):
    context.incr_counter("key" + text[14:17], 1)
    return text + "!"
"""
EXPECTED_RATES = {"without state": {1000: 600_000, 50: 450_000}, "with state": {1000: 350_000, 50: 250_000}}
"""Messages a second; only to choose how many messages a measurement needs."""
LEAST, EXACT = "ATLEAST_ONCE", "EFFECTIVELY_ONCE"
TARGET = 0.5
SECONDS = 2.0
"""Of load in one measurement, also in a quick look: a shorter one is over before the state store and the outbox have
settled, and the quotient of two such says nothing."""


def measure_exact(plan: Plan) -> Iterator[Figure]:
    """Rates effectively once, and as a share of those at least once."""
    for kind, source in (("without state", PLAIN), ("with state", STATEFUL)):
        for batch in (1000, 50):
            count = int(EXPECTED_RATES[kind][batch] * max(plan.seconds, SECONDS)) // batch * batch
            rates: dict[str, list[float]] = {LEAST: [], EXACT: []}
            with plan.server("standalone") as server:
                for number in range(plan.repeats):
                    for guarantee, found in rates.items():
                        name = f"{guarantee[:5].lower()}{number}"
                        found.append(_slope(server, name, source, batch, count, guarantee))
            least, exact = (statistics.median(rates[guarantee]) for guarantee in (LEAST, EXACT))
            yield Figure(
                name=f"effectively once {kind}, input batches of {batch}",
                ours=exact,
                unit="messages/s",
                peer=least,
                peer_name="at least once",
            )
            yield Figure(
                name=f"effectively once over at least once, {kind}, batches of {batch}",
                ours=exact / least,
                unit="times",
                target=TARGET,
            )


def _slope(server: Server, name: str, source: str, batch: int, count: int, guarantee: str) -> float:
    inputs = payloads_of(SIZE_BYTES, count)
    source_topic, output = f"{name}-in", f"{name}-out"
    hold(server.service_url, source_topic, "keep")
    hold(server.service_url, output, COMPARED)
    publish_entries(server.service_url, source_topic, inputs, batch)
    config = {"output": output, "processingGuarantees": guarantee}
    with deployed(server, name, f"{name}.process", source, **config), Counter(server.web_url, output) as counter:
        rate = counter.slope(count, server, name).rate
    compare(server, output, inputs)
    return rate
