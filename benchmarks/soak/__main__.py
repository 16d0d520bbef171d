"""`python -m benchmarks.soak`: functions at half of their maximum while one process a minute is killed.

Two functions read the same partitioned topic, one at least once and one effectively once; each has two instances,
counts by key in its state and fails for one message in a thousand. The input is entries of the official client: JSON
with key, event time and a property, batches of 1000, 50 and 1. First the rate is measured that both can take, then they
get half of it. Each minute an instance, a worker, the state store or the broker is killed, in turn, at a random moment.
In the end every payload on the outputs and every counter of the state is compared with what was published.

The environment: MAGNETAR_SOAK_S, seconds (1800); MAGNETAR_SOAK_SEED, which repeats the moments of kills;
MAGNETAR_SOAK_KILLS=0 kills nothing. Exit code 1 if something is missed, with a line for each cause.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from .report import Verdict, report
from .run import SECONDS, Soak
from .settings import Settings
from .verdict import judge


def run(settings: Settings, directory: Path, rng: random.Random) -> Verdict:
    """Run to the end, with a line for each minute."""
    return judge(Soak(settings, directory, rng).run())


if __name__ == "__main__":
    sys.exit(report(run, SECONDS))
