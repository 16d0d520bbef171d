"""Publishing on a slow disk: group commit must hide five added milliseconds per sync."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from .figure import Figure
from .load import Shape, publish
from .plan import Plan

ADDED_MS = 5
KEPT_PERCENT = 80
# Two groups are in flight at any time, one on the disk and one collecting. With a million messages per second and 5 ms
# per group, a window of twenty thousand messages would only measure the size of the window.
SHAPE = Shape(batch=1000, size_bytes=100, in_flight=100_000)


def measure_group_commit(plan: Plan) -> Iterator[Figure]:
    """Measure the batched publish rate with the delay, as a share of the rate without it."""
    plain = _rate(plan, 0)
    delayed = _rate(plan, ADDED_MS)
    yield Figure(
        name=f"publish with {ADDED_MS} ms added to each sync, batches of {SHAPE.batch}, {SHAPE.size_bytes} B",
        ours=delayed / plain * 100,
        unit="% of the rate without",
        target=KEPT_PERCENT,
        note=f"{delayed:,.0f} instead of {plain:,.0f} messages/s",
    )


def _rate(plan: Plan, added_ms: float) -> float:
    settings = plan.directory / f"sync-delay-{added_ms:g}.yml"
    settings.write_text(f"journalSyncDelayMs: {added_ms:g}\n")
    rates = []
    with plan.server("broker", "--config", str(settings)) as server:
        publish(server.service_url, "warm", SHAPE, 0.3)
        for i in range(plan.repeats):
            count, took_s = publish(server.service_url, f"t{i}", SHAPE, plan.seconds)
            rates.append(count / took_s)
    return statistics.median(rates)
