"""A function that takes and returns dicts, with JSON on both sides, compared with equivalent loops.

The orders are sent by the official Python client in batches of its default size: at most 128 KiB and 1,000 messages.
All outputs are verified.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.servers import Server

from . import sample_functions
from .figure import Figure
from .function_rates import Counter, Slope
from .json_documents import LARGE, SMALL
from .load import COMPARED, hold, read_outputs
from .loops import OFFICIAL_LOOP, OWN_LOOP, Rate, figures_beside, looping
from .plan import Plan
from .real_input import official_input
from .sample_functions import add_total
from .state_rates import deployed

BATCHES = {SMALL: 1000, LARGE: 100}
EXPECTED_RATES = {SMALL: 120_000, LARGE: 30_000}
OFFICIAL_RATES = {SMALL: 20_000, LARGE: 12_000}
"""Expected rates, only used to determine the number of messages."""
INPUT, SHORT_INPUT = "orders", "few-orders"
SOURCE = Path(sample_functions.__file__).read_text()


def measure_json(plan: Plan) -> Iterator[Figure]:
    """Measure rates of JSON input and output with two sizes."""
    for shape, batch in BATCHES.items():
        given = official_input(plan, shape, batch)
        count = int(EXPECTED_RATES[shape] * plan.seconds) // batch * batch
        fewer = int(OFFICIAL_RATES[shape] * plan.seconds) // batch * batch
        turns = []
        with plan.server("standalone") as server:
            for topic, messages in ((INPUT, count), (SHORT_INPUT, fewer)):
                hold(server.service_url, topic, "keep")
                given.fill(server.service_url, topic, messages)
            payloads = given.payloads(count)
            for turn in range(plan.repeats):
                slope = _function(server, f"f{turn}", payloads)
                own = _loop(server, OWN_LOOP, INPUT, f"loop{turn}", payloads)
                turns.append((Rate(slope.rate, slope.cpu_us["instance"]), own))
            official = _loop(server, OFFICIAL_LOOP, SHORT_INPUT, "official", payloads[:fewer], in_order=False)
        yield from figures_beside(
            f"function from dict to dict, {shape}, input batches of {batch}",
            turns,
            official,
            unit="messages/s",
            table=given.table,
            note=slope.note,
        )


def _function(server: Server, name: str, payloads: Sequence[bytes]) -> Slope:
    output = f"{name}-out"
    hold(server.service_url, output, COMPARED)
    with (
        deployed(server, name, f"{name}.{add_total.__name__}", SOURCE, inputs=[INPUT], output=output),
        Counter(server.web_url, output) as counter,
    ):
        slope = counter.slope(len(payloads), server, name)
    compare_totals(read_outputs(server.service_url, output, len(payloads)), payloads)
    return slope


def _loop(
    server: Server, module: str, source: str, name: str, payloads: Sequence[bytes], *, in_order: bool = True
) -> Rate:
    output = f"{name}-out"
    hold(server.service_url, output, COMPARED)
    with (
        looping(module, "documents", server.service_url, source, output, name) as pid,
        Counter(server.web_url, output) as counter,
    ):
        slope = counter.slope(len(payloads), server, "", loop_pid=pid)
    compare_totals(read_outputs(server.service_url, output, len(payloads)), payloads, in_order=in_order)
    return Rate(slope.rate, slope.cpu_us["loop"])


def compare_totals(outputs: Sequence[bytes], inputs: Sequence[bytes], *, in_order: bool = True) -> None:
    """Compare outputs with the expected ones.

    Raises:
        AssertionError: an output is wrong.
    """
    expected = [json.dumps(add_total(json.loads(given)), separators=(",", ":")).encode() for given in inputs]
    found = list(outputs)
    if not in_order:
        found.sort()
        expected.sort()
    if len(found) != len(expected):
        raise AssertionError(f"got {len(found)} outputs for {len(expected)} inputs")
    for number, (output, right) in enumerate(zip(found, expected, strict=True)):
        if output != right:
            raise AssertionError(f"wrong output {number}, {output[:120]!r}: expected {right[:120]!r}")
