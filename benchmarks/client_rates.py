"""Publish and consume rates of our broker, with our client and with the official one."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from tests.support.servers import Server

from .figure import Figure, Table
from .load import Shape, consume, hold, official_consume, official_publish, publish
from .machine import cpu_s
from .plan import Plan
from .real_input import BATCHES, OWN, Input, OwnInput, inputs

SIZES = (100, 1024)
PUBLISH_TARGETS = {(1000, 100): 1_000_000, (1000, 1024): 300_000, (1, 100): 79_000}
OFFICIAL_CONSUMED = 60_000  # messages; takes about a second per forty thousand
CONSUMED_RATES = {True: {1000: 2_000_000, 50: 1_000_000, 1: 50_000}, False: {1000: 700_000, 50: 500_000, 1: 50_000}}
"""Expected rates for our own encoder and the official one, only used to determine the number of messages."""


def measure_publish(plan: Plan) -> Iterator[Figure]:
    """Measure publish rates."""
    for size_bytes in SIZES:
        for batch in BATCHES:
            with plan.server("broker") as server:
                yield _publish_figure(plan, server, Shape(batch, size_bytes))


def _publish_figure(plan: Plan, server: Server, shape: Shape) -> Figure:
    url = server.service_url
    ours, theirs, cpu = [], [], []
    publish(url, "warm", shape, 0.3)
    for i in range(plan.repeats):
        before = cpu_s(server.pid)
        count, took_s = publish(url, f"ours-{i}", shape, plan.seconds)
        cpu.append((cpu_s(server.pid) - before) / count * 1e6)
        ours.append(count / took_s)
        count, took_s = official_publish(url, f"theirs-{i}", shape, plan.seconds)
        theirs.append(count / took_s)
    return Figure(
        name=f"publish, {OWN}, batches of {shape.batch}, {shape.size_bytes} B",
        ours=statistics.median(ours),
        unit="messages/s",
        peer=statistics.median(theirs),
        peer_name="official client, our broker",
        target=PUBLISH_TARGETS.get((shape.batch, shape.size_bytes)),
        note=f"broker {statistics.median(cpu):.2f} µs CPU a message",
        table=Table.OWN,
    )


def measure_consume(plan: Plan) -> Iterator[Figure]:
    """Measure consume rates on a backlog: the official client's messages, then our own encoder's."""
    for batch in BATCHES:
        for given in inputs(plan, batch):
            yield _consume_figure(plan, given, "100 B, " if given.name == OWN else "")
    for batch in BATCHES:
        yield _consume_figure(plan, OwnInput(batch, size_bytes=1024), "1024 B, ")


def _consume_figure(plan: Plan, given: Input, size: str) -> Figure:
    count = int(CONSUMED_RATES[given.name == OWN][given.batch] * plan.seconds) // given.batch * given.batch
    small = min(count, OFFICIAL_CONSUMED)
    expected = given.total_bytes(count)
    ours, theirs, cpu = [], [], []
    with plan.server("broker") as server:
        url = server.service_url
        hold(url, "backlog", *(f"ours-{i}" for i in range(plan.repeats)))
        hold(url, "small", *(f"theirs-{i}" for i in range(plan.repeats)))
        given.fill(url, "backlog", count)
        given.fill(url, "small", small)
        for i in range(plan.repeats):
            before = cpu_s(server.pid)
            received_bytes, took_s = consume(url, "backlog", f"ours-{i}", count)
            assert received_bytes == expected
            cpu.append((cpu_s(server.pid) - before) / count * 1e6)
            ours.append(count / took_s)
            _, took_s = official_consume(url, "small", f"theirs-{i}", small)
            theirs.append(small / took_s)
    return Figure(
        name=f"consume, {given.name}, {size}batches of {given.batch}",
        ours=statistics.median(ours),
        unit="messages/s",
        peer=statistics.median(theirs),
        peer_name="official client, our broker",
        note=f"broker {statistics.median(cpu):.2f} µs CPU a message",
        table=given.table,
    )
