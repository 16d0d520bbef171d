"""Races between incarnations of functions, created and deleted under one name while workers and leaders come and go.

Everything between workers, broker and instances takes a time that is drawn from a seed, in virtual time; so every
awaited point is held and released in another order with each. `tests/metadata/incarnations.py` says what is checked. A
seed that fails is printed with what happened; `MAGNETAR_RACE_SEED=<seed>` runs that one alone.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.metadata.incarnations import Incarnations
from tests.metadata.virtual_time import run

SEED = os.environ.get("MAGNETAR_RACE_SEED")
SEEDS = 40
SEEDS_AT_A_TIME = 20
LONG_S = float(os.environ.get("MAGNETAR_RACE_S", "120"))
FIRST_LONG_SEED = int(os.environ.get("MAGNETAR_RACE_FIRST", "1000000"))


def race(seed: int, directory: Path) -> int:
    """Play one story; returns how many requests were carried out."""
    story = Incarnations(seed, directory)
    try:
        run(story.play())
    except (AssertionError, RuntimeError) as exc:
        raise AssertionError(f"seed {seed}: {exc}\n{story.tail()}") from exc
    return story.answers


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_AT_A_TIME))
def test_no_incarnation_of_a_function_touches_the_next(first: int, tmp_path: Path) -> None:
    for seed in [int(SEED)] if SEED else range(first, first + SEEDS_AT_A_TIME):
        race(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [42, 2000095, 2000109])
def test_seeds_that_found_something(seed: int, tmp_path: Path) -> None:
    race(seed, tmp_path)


@pytest.mark.crash
@pytest.mark.timeout(LONG_S + 600)
def test_no_incarnation_of_a_function_touches_the_next_for_long(tmp_path: Path) -> None:
    seed, answers, until = FIRST_LONG_SEED, 0, time.monotonic() + LONG_S
    while time.monotonic() < until:
        answers += race(seed, tmp_path)
        seed += 1
    print(f"seeds {FIRST_LONG_SEED} to {seed - 1}: {answers} requests")
