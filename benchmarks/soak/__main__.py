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

import logging
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from .run import Soak, settings_of
from .verdict import judge


def main() -> int:
    """Run, print a line for each minute and the verdict."""
    try:
        settings = settings_of(os.environ)
    except ValueError as error:
        print(f"soak: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(level=logging.ERROR)  # that the broker was killed is no news
    print(f"soak of {settings.seconds:g} s, seed {settings.seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="magnetar-soak-"))
    soak = Soak(settings, directory, random.Random(settings.seed))
    try:
        outcome = soak.run()
    except Exception as error:  # noqa: BLE001  whatever ends it is the cause
        print(f"missed: {str(error).splitlines()[0] or type(error).__name__}; data and logs are in {directory}")
        return 1
    verdict = judge(outcome)
    for line in verdict.notes:
        print(line)
    if verdict.missed:
        for cause in verdict.missed:
            print(f"missed: {cause}")
        print(f"data and logs are in {directory}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    print("met")
    return 0


if __name__ == "__main__":
    sys.exit(main())
