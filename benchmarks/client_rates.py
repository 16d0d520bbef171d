"""How fast our broker takes and gives messages, with our client and with the official one."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from tests.support.servers import Server

from .figure import Figure
from .load import Shape, consume, hold, official_consume, official_publish, publish
from .machine import cpu_s
from .plan import Plan

BATCHES = (1000, 50, 1)
SIZES = (100, 1024)
PUBLISH_TARGETS = {(1000, 100): 1_000_000, (1000, 1024): 300_000, (1, 100): 79_000}
OFFICIAL_CONSUMED = 60_000  # messages; it takes about a second for each forty thousand


def measure_publish(plan: Plan) -> Iterator[Figure]:
    """Publish rates."""
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
        name=f"publish, batches of {shape.batch}, {shape.size_bytes} B",
        ours=statistics.median(ours),
        unit="messages/s",
        peer=statistics.median(theirs),
        peer_name="official client, our broker",
        target=PUBLISH_TARGETS.get((shape.batch, shape.size_bytes)),
        note=f"broker {statistics.median(cpu):.2f} µs CPU a message",
    )


def measure_consume(plan: Plan) -> Iterator[Figure]:
    """Consume rates over a backlog."""
    for size_bytes in SIZES:
        for batch in BATCHES:
            with plan.server("broker") as server:
                yield _consume_figure(plan, server, Shape(batch, size_bytes))


def _consume_figure(plan: Plan, server: Server, shape: Shape) -> Figure:
    url = server.service_url
    hold(url, "backlog", *(f"ours-{i}" for i in range(plan.repeats)))
    hold(url, "small", *(f"theirs-{i}" for i in range(plan.repeats)))
    count, _ = publish(url, "backlog", shape, plan.seconds)
    small, _ = publish(url, "small", shape, 0.2)
    small = min(small, OFFICIAL_CONSUMED)
    ours, theirs, cpu = [], [], []
    for i in range(plan.repeats):
        before = cpu_s(server.pid)
        received_bytes, took_s = consume(url, "backlog", f"ours-{i}", count)
        assert received_bytes == count * shape.size_bytes
        cpu.append((cpu_s(server.pid) - before) / count * 1e6)
        ours.append(count / took_s)
        _, took_s = official_consume(url, "small", f"theirs-{i}", small)
        theirs.append(small / took_s)
    return Figure(
        name=f"consume, batches of {shape.batch}, {shape.size_bytes} B",
        ours=statistics.median(ours),
        unit="messages/s",
        peer=statistics.median(theirs),
        peer_name="official client, our broker",
        note=f"broker {statistics.median(cpu):.2f} µs CPU a message",
    )
