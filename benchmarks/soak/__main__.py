"""`python -m benchmarks.soak`: functions at half of their maximum rate while one process per minute is killed.

Two functions read the same partitioned topic, one with ATLEAST_ONCE and one with EFFECTIVELY_ONCE. Each has two
instances, counts by key in its state and fails for one message in a thousand. The input consists of entries of the
official client: JSON with key, event time and a property, in batches of 1000, 50 and 1. First the maximum rate of both
is measured, then half of it is published. Each minute an instance, a worker, the state store or the broker, in turn, is
killed at a random moment. At the end, all output payloads and all state counters are compared with the published
messages.

Environment: MAGNETAR_SOAK_S, seconds (1800); MAGNETAR_SOAK_SEED, the seed for the times of kills; MAGNETAR_SOAK_KILLS=0
disables kills. Exit code 1 if a check failed, with a line for each cause.
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
    """Run the soak, printing a line for each minute."""
    return judge(Soak(settings, directory, rng).run())


if __name__ == "__main__":
    sys.exit(report(run, SECONDS))
