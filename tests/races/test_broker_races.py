"""Races of topics and subscriptions: seeded schedules hold and release whatever the broker waits for.

What is checked is told in `checks.py` (after each step, and once all is quiet) and `race.py` (after a power failure). A
seed that fails is printed with its last steps; `MAGNETAR_RACE_SEED=<seed>` runs that one alone.
"""

from __future__ import annotations

import os
import time

import pytest

from .race import race

SEED = os.environ.get("MAGNETAR_RACE_SEED")
SEEDS = 800
SEEDS_AT_A_TIME = 100
LONG_S = float(os.environ.get("MAGNETAR_RACE_S", "120"))
FIRST_LONG_SEED = int(os.environ.get("MAGNETAR_RACE_FIRST", "1000000"))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_AT_A_TIME))
def test_every_order_of_events_keeps_the_promises(first: int) -> None:
    for seed in [int(SEED)] if SEED else range(first, first + SEEDS_AT_A_TIME):
        race(seed)


@pytest.mark.crash
@pytest.mark.timeout(LONG_S + 600)
def test_every_order_of_events_keeps_the_promises_for_long() -> None:
    seed, steps, until = FIRST_LONG_SEED, 0, time.monotonic() + LONG_S
    while time.monotonic() < until:
        steps += race(seed)["steps"]
        seed += 1
    print(f"seeds {FIRST_LONG_SEED} to {seed - 1}: {steps} steps")
