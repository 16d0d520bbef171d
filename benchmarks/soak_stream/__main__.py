"""`python -m benchmarks.soak_stream`: streams over ten million rows on a standalone cluster, with ten kills.

One stream counts rows by window and key, with a watermark, and one copies them, both to topics exactly once; if Delta
has a package for the installed Spark, a third one fills a table. Meanwhile driver, executors, Spark's workers and the
broker are killed in turn. At the end, the totals must equal a count without Spark, and topic and table must contain
each row once.

Environment: MAGNETAR_SOAK_ROWS (10,000,000); MAGNETAR_SOAK_KILLS (10); MAGNETAR_SOAK_SEED, the seed for the rows and
the order of kills. Exit code 1 if a check failed, with a line for each cause.
"""

from __future__ import annotations

import os
import random
import sys

from ..soak.report import conclude
from .run import Settings, StreamSoak

ROWS, KILLS = 10_000_000, 10
ROWS_MIN = 10_000


def settings() -> Settings:
    """Return the settings from the environment; raises ValueError if one is invalid."""

    def number(name: str, default: int, least: int) -> int:
        text = os.environ.get(name) or str(default)
        if not (text.isascii() and text.isdecimal() and int(text) >= least):
            raise ValueError(f"invalid {name}={text}: expected a whole number of at least {least}")
        return int(text)

    return Settings(
        number("MAGNETAR_SOAK_ROWS", ROWS, ROWS_MIN),
        number("MAGNETAR_SOAK_KILLS", KILLS, 0),
        number("MAGNETAR_SOAK_SEED", random.randrange(2**32), 0),
    )


def main() -> int:
    """Run the soak, and return the exit code."""
    try:
        chosen = settings()
    except ValueError as error:
        print(f"soak: {error}", file=sys.stderr)
        return 2
    print(f"soak of {chosen.rows} rows with {chosen.kills} kills, seed {chosen.seed}", flush=True)
    return conclude(lambda directory: StreamSoak(chosen, directory).run())


if __name__ == "__main__":
    sys.exit(main())
