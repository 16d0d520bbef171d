"""End-to-end encryption and decryption rates, with our client and with the official one."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from tests.support.keys import Pair, write_pair

from .figure import Figure
from .load import Shape, consume, hold, official_consume, official_publish, payloads_of, publish, publish_repeated
from .plan import Plan

SHAPE = Shape(batch=100, size_bytes=1024)
MIB = 1024 * 1024
CONSUMED = 20_000  # messages per second of measurement
_PEER = "official client, our broker"


def measure_encryption(plan: Plan) -> Iterator[Figure]:
    """Measure MiB of payload per second, encrypted by a producer and decrypted by a consumer."""
    pair = write_pair(plan.directory, "encryption")
    yield _publish_figure(plan, pair)
    yield _consume_figure(plan, pair)


def _publish_figure(plan: Plan, pair: Pair) -> Figure:
    encrypted: dict[str, Any] = {"encryption_keys": ["k"], "crypto_key_reader": pair.reader}
    rates: dict[str, list[float]] = {"ours": [], "theirs": [], "clear": []}
    with plan.server("broker") as server:
        url = server.service_url
        publish(url, "warm", SHAPE, 0.3)
        for i in range(plan.repeats):
            for name, (count, took_s) in {
                "ours": publish(url, f"ours-{i}", SHAPE, plan.seconds, **encrypted),
                "clear": publish(url, f"clear-{i}", SHAPE, plan.seconds),
                "theirs": official_publish(
                    url, f"theirs-{i}", SHAPE, plan.seconds, encryption_key="k", crypto_key_reader=pair.official
                ),
            }.items():
                rates[name].append(count * SHAPE.size_bytes / MIB / took_s)
    return _figure("publish", rates)


def _consume_figure(plan: Plan, pair: Pair) -> Figure:
    count = int(CONSUMED * plan.seconds) // SHAPE.batch * SHAPE.batch
    names = [f"{whose}-{i}" for whose in ("ours", "theirs") for i in range(plan.repeats)]
    rates: dict[str, list[float]] = {"ours": [], "theirs": [], "clear": []}
    encrypted: dict[str, Any] = {"encryption_keys": ["k"], "crypto_key_reader": pair.reader}
    with plan.server("broker") as server:
        url = server.service_url
        hold(url, "backlog", *names)
        hold(url, "clear", *names)
        payloads = payloads_of(SHAPE.size_bytes, SHAPE.batch)
        publish_repeated(url, "backlog", payloads, count // SHAPE.batch, **encrypted)
        publish_repeated(url, "clear", payloads, count // SHAPE.batch)
        for i in range(plan.repeats):
            for name, (bytes_, took_s) in {
                "ours": consume(url, "backlog", f"ours-{i}", count, crypto_key_reader=pair.reader),
                "clear": consume(url, "clear", f"ours-{i}", count),
                "theirs": official_consume(url, "backlog", f"theirs-{i}", count, crypto_key_reader=pair.official),
            }.items():
                rates[name].append(bytes_ / MIB / took_s)
    return _figure("consume", rates)


def _figure(what: str, rates: dict[str, list[float]]) -> Figure:
    ours, theirs, clear = (statistics.median(rates[name]) for name in ("ours", "theirs", "clear"))
    return Figure(
        name=f"{what}, encrypted, batches of {SHAPE.batch}, {SHAPE.size_bytes} B",
        ours=ours,
        unit="MiB/s",
        peer=theirs,
        peer_name=_PEER,
        note=f"{ours / clear:.0%} of what goes in the clear, {clear:,.0f} MiB/s",
    )
