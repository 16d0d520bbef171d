"""Seeded samples of long tests: some cases of a test, and at least one of each test function or file.

Rounds of crashes (marked `crash`) and rows of large matrices (`matrix`) are sampled per test function. Other tests are
sampled per file: `slow` tests, except that encoding and decoding tests always run; tests of `connectors` and `spark`,
which the build server has no time to run completely; and tests marked `elsewhere`, on a standalone Spark cluster.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NAMES = {
    "crash": "rounds of crashes",
    "matrix": "rows of matrices",
    "slow": "slow tests",
    "elsewhere": "tests elsewhere",
    "connectors": "tests of connectors",
    "spark": "tests of Spark",
}
"""Marks that can be sampled, and the tests that have them."""
OF_FILES = ("slow", "elsewhere", "connectors", "spark")
"""Marks that are sampled per file."""
WHOLE = ("tests/wire/", "tests/client/test_golden")
"""Parts of the names of slow tests that always run, because they read or write bytes."""


def share_of(mark: str) -> str:
    """Return the variable with the share of a mark's tests in percent; all run if it is not set."""
    return f"MAGNETAR_{mark.upper()}_SHARE"


def seed_of(mark: str) -> str:
    """Return the variable with the seed; the same seed and share select the same tests."""
    return f"MAGNETAR_{mark.upper()}_SEED"


SHARE = share_of("crash")
SEED = seed_of("crash")


@dataclass(frozen=True)
class Sample:
    """The share of a mark's tests, and the seed that selects them."""

    percent: int
    seed: int
    mark: str = "crash"

    def chosen(self, node_ids: Sequence[str]) -> set[str]:
        """Select the share of the cases of each test function, or of the tests of each file, rounded up."""
        until = "::" if self.mark in OF_FILES else "["
        rounds: dict[str, list[str]] = defaultdict(list)
        kept: set[str] = set()
        for node_id in node_ids:
            if self.mark == "slow" and node_id.startswith(WHOLE):
                kept.add(node_id)
            else:
                rounds[node_id.partition(until)[0]].append(node_id)
        for group, all_of_it in rounds.items():
            rng = random.Random(f"{self.seed} {group}")  # other tests do not change what is chosen of this one
            kept.update(rng.sample(all_of_it, -(-len(all_of_it) * self.percent // 100)))
        return kept

    def __str__(self) -> str:
        return f"{share_of(self.mark)}={self.percent} {seed_of(self.mark)}={self.seed}"


EXAMPLES = "MAGNETAR_EXAMPLES_SHARE"
"""The variable with the share, in percent, of the examples of property tests."""
FEWEST_EXAMPLES = 25


def example_count(all_of_them: int, percent: int) -> int:
    """Return the number of examples of a property test: its share, but at least `FEWEST_EXAMPLES`."""
    return min(all_of_them, max(FEWEST_EXAMPLES, all_of_them * percent // 100))


def percent_of(environment: Mapping[str, str], variable: str) -> int:
    """Return a share in percent, or 100 if it is not set.

    Raises:
        ValueError: the share is not a whole number from 1 to 100.
    """
    text = environment.get(variable) or "100"
    try:
        percent = int(text)
        if not 1 <= percent <= 100:
            raise ValueError
    except ValueError:
        raise ValueError(f"{variable}={text} is no whole number from 1 to 100") from None
    return percent


def sample_of(environment: Mapping[str, str], mark: str = "crash") -> Sample | None:
    """Return the sample set by the environment, or None for all tests.

    Raises:
        ValueError: the share is not a whole number from 1 to 100, or the seed is not a number.
    """
    share, seed = share_of(mark), seed_of(mark)
    if not environment.get(share):
        return None
    percent = percent_of(environment, share)
    try:
        return Sample(percent, int(environment.get(seed) or "0"), mark)
    except ValueError:
        raise ValueError(f"{seed}={environment[seed]} is no whole number") from None
