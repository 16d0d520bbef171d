"""`python -m benchmarks [--group NAME …] [--only NAME …] [--quick] [--write]`: run, print, and optionally write
RESULTS.md.

Benchmarks are in groups of at most 20 minutes; without names, all of them run one after the other. `--write` replaces
the rows of the benchmarks that were run and keeps the others. `python -m benchmarks.beside_pulsar` compares Apache
Pulsar with Magnetar, and `python -m benchmarks.beside_kafka` compares Spark on Apache Kafka with Spark on Magnetar.
"""

from __future__ import annotations

import argparse
import sys

from .groups import BENCHMARKS, GROUPS, chosen
from .runner import add_options, commissioned


def main() -> int:
    """Run the selected benchmarks; return 1 if one could not be measured. A missed target is not a failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--group", action="append", choices=list(GROUPS), help="run only this group; repeatable")
    parser.add_argument("--only", action="append", choices=list(BENCHMARKS), help="run this benchmark; repeatable")
    add_options(parser)
    arguments = parser.parse_args()
    failed = []
    with commissioned(parser, arguments) as commission:
        for group, names in chosen(arguments.group or (), arguments.only or ()):
            benchmarks = {name: BENCHMARKS[name] for name in names}
            failed += commission.run(group, f"make bench GROUP={group} ARGS=--write", benchmarks)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
