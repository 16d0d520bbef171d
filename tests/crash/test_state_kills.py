"""Functions with state while their processes are killed: counts are never too low, and status says what is missing."""

from __future__ import annotations

import pytest

from .mayhem import StatefulCluster
from .stateful_run import WORD_COUNT, Run, counters_of, recount

pytestmark = [pytest.mark.timeout(420)]

KINDS = ["instance", "worker", "store", "broker", "frozen instance"]
SAID_S = 2.0
CLEARED_S = 15.0
AWAY_S = 3.0


@pytest.mark.parametrize(
    ("seed", "kills", "messages"),
    [
        pytest.param(1, ["instance", "store"], 20_000, id="few", marks=pytest.mark.slow),
        pytest.param(2, [*KINDS * 2, "frozen worker"], 200_000, id="many", marks=[pytest.mark.slow, pytest.mark.crash]),
    ],
)
def test_counts_at_least_once_are_never_too_low(
    stateful: StatefulCluster, seed: int, kills: list[str], messages: int
) -> None:
    run = Run(stateful, f"least{seed}", seed, WORD_COUNT, processingGuarantees="ATLEAST_ONCE")
    try:
        run.survive(kills, messages)
        expected = recount([text for texts in run.input_texts() for text in texts])
        found = counters_of(run, sorted(expected))
        low = {key: (found[key], times) for key, times in expected.items() if found[key] < times}
        assert not low, f"{len(low)} of {len(found)} counters are too low (found, true): {list(low.items())[:10]}"
        print(f"counted twice: {found['all'] - expected['all']} of {expected['all']} messages")
    finally:
        run.close()
