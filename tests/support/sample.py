"""A seeded sample of the rounds of a test: some of its parameters, and at least one of every test function."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SHARE = "MAGNETAR_CRASH_SHARE"
"""The share of the rounds of each test that is marked `crash`, in percent; all if it is not set."""
SEED = "MAGNETAR_CRASH_SEED"
"""Which rounds those are: the same seed and share choose the same of the same tests."""


@dataclass(frozen=True)
class Sample:
    """Which share of the rounds, chosen by which seed."""

    percent: int
    seed: int

    def chosen(self, node_ids: Sequence[str]) -> set[str]:
        """Choose of each test function the share of its rounds, rounded up."""
        rounds: dict[str, list[str]] = defaultdict(list)
        for node_id in node_ids:
            rounds[node_id.partition("[")[0]].append(node_id)
        kept: set[str] = set()
        for function, all_of_it in rounds.items():
            rng = random.Random(f"{self.seed} {function}")  # other tests do not change what is chosen of this one
            kept.update(rng.sample(all_of_it, -(-len(all_of_it) * self.percent // 100)))
        return kept

    def __str__(self) -> str:
        return f"{SHARE}={self.percent} {SEED}={self.seed}"


def sample_of(environment: Mapping[str, str]) -> Sample | None:
    """Read the sample that the environment asks for, or None for all rounds.

    Raises:
        ValueError: the share is no whole number from 1 to 100, or the seed none at all.
    """
    if not environment.get(SHARE):
        return None
    try:
        percent = int(environment[SHARE])
        if not 1 <= percent <= 100:
            raise ValueError
    except ValueError:
        raise ValueError(f"{SHARE}={environment[SHARE]} is no whole number from 1 to 100") from None
    try:
        return Sample(percent, int(environment.get(SEED) or "0"))
    except ValueError:
        raise ValueError(f"{SEED}={environment[SEED]} is no whole number") from None
