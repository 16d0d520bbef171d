"""`python -m benchmarks [--only NAME …] [--quick] [--write]`: run, print, and on request write RESULTS.md."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from . import machine, report
from .client_rates import measure_consume, measure_publish
from .connector_rates import measure_connectors
from .exact_rates import measure_exact
from .failover import measure_failover
from .figure import Figure, table
from .footprint import measure_idle, measure_start, measure_threads
from .function_rates import measure_functions
from .group_commit import measure_group_commit
from .jdbc_rates import measure_jdbc
from .kafka_rates import measure_kafka
from .latency import measure_latency
from .plan import Plan
from .spark_function import measure_spark_function
from .spark_read import measure_spark
from .state_rates import measure_state
from .state_size import measure_state_size

BENCHMARKS: dict[str, Callable[[Plan], Iterator[Figure]]] = {
    "publish": measure_publish,
    "consume": measure_consume,
    "functions": measure_functions,
    "connectors": measure_connectors,
    "group-commit": measure_group_commit,
    "latency": measure_latency,
    "start": measure_start,
    "idle": measure_idle,
    "threads": measure_threads,
    "failover": measure_failover,
    "state": measure_state,
    "exactly": measure_exact,
    "state-size": measure_state_size,
    "kafka": measure_kafka,
    "jdbc": measure_jdbc,
    "spark": measure_spark,
    "spark-function": measure_spark_function,
}


def main() -> int:
    """Run what is asked for; exit code 1 if a benchmark failed to measure. A missed target is no failure."""
    arguments = _parse()
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="magnetar-bench-", dir=arguments.directory))
    plan = Plan(seconds=0.7 if arguments.quick else 2.0, repeats=1 if arguments.quick else 3, directory=directory)
    description = machine.describe(directory)
    print("\n".join(description), flush=True)
    figures: list[Figure] = []
    failed = []
    try:
        for name in arguments.only or BENCHMARKS:
            try:
                for figure in BENCHMARKS[name](plan):
                    figures.append(figure)
                    print("  ".join(cell for cell in figure.cells() if cell), flush=True)
            except Exception as exc:  # noqa: BLE001  one broken benchmark must not cost the others' figures
                failed.append(name)
                print(f"{name}: {type(exc).__name__}: {exc}", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    took_s = time.monotonic() - began
    print(f"\n{table(figures)}\n{took_s:.0f} s" + (f"; failed: {', '.join(failed)}" if failed else ""))
    if arguments.write:
        report.write(figures, description, _command(), plan.repeats, took_s)
    return 1 if failed else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(BENCHMARKS), help="run only this one; repeatable")
    parser.add_argument("--quick", action="store_true", help="short measurements, once each: a look, not a figure")
    parser.add_argument("--write", action="store_true", help="write benchmarks/RESULTS.md")
    parser.add_argument(
        "--directory", type=Path, help="where brokers keep their data; default: the system's for temporary files"
    )
    return parser.parse_args()


def _command() -> str:
    return " ".join(["python -m benchmarks", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
