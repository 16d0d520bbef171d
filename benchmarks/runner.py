"""Runs benchmarks: options, parameters, and output."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from magnetar.compiled import variant

from . import growth_report, machine, report, results
from .figure import Figure, table
from .groups import BENCHMARKS, MINUTES_MAX, Benchmark
from .plan import Plan

SECONDS, QUICK_SECONDS = 2.0, 0.7
REPEATS = 3
PULSAR_FUNCTIONS, PULSAR_PUBLISH = "pulsar-functions", "pulsar-publish"
"""The benchmarks that compare with Apache Pulsar, require one, and are in no group of `make bench`."""
SPARK_KAFKA = "spark-kafka"
"""The benchmark that compares with Apache Kafka, also in no group."""
ORDER = (PULSAR_FUNCTIONS, PULSAR_PUBLISH, SPARK_KAFKA, *BENCHMARKS)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options common to all measuring commands."""
    parser.add_argument("--quick", action="store_true", help="short single measurements, without exact figures")
    parser.add_argument("--write", action="store_true", help="write the rows to benchmarks/RESULTS.md")
    parser.add_argument(
        "--directory",
        type=Path,
        help="directory for data of brokers (default: the system's directory for temporary files)",
    )


@contextlib.contextmanager
def commissioned(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Iterator[Commission]:
    """Provide the commission for the options of `add_options`, with a directory that is deleted at the end."""
    if arguments.quick and arguments.write:
        parser.error("--quick cannot be combined with --write: its measurements are too short")
    directory = Path(tempfile.mkdtemp(prefix="magnetar-bench-", dir=arguments.directory))
    try:
        description = machine.describe(directory, f"magnetar ({variant()})")
        print("\n".join(description), flush=True)
        seconds, repeats = (QUICK_SECONDS, 1) if arguments.quick else (SECONDS, REPEATS)
        written_in = Path(__file__).parent if arguments.write else None
        yield Commission(Plan(seconds, repeats, directory, arguments.quick), tuple(description), written_in)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class Commission:
    """How to run benchmarks.

    Attributes:
        plan: parameters of all benchmarks.
        machine: description of the machine, in lines.
        written_in: directory of results.json and RESULTS.md to write; None to write nothing.
    """

    plan: Plan
    machine: tuple[str, ...]
    written_in: Path | None

    def run(self, group: str, command: str, benchmarks: Mapping[str, Benchmark]) -> list[str]:
        """Run the benchmarks of a group, print their figures, and write those of successful ones.

        Args:
            group: group name.
            command: command that repeats the run.
            benchmarks: benchmarks by name.

        Returns:
            names of failed benchmarks.
        """
        began = time.monotonic()
        runs: dict[str, results.Run] = {}
        shown: list[Figure] = []
        failed = []
        print(f"\n{group}: {', '.join(benchmarks)}", flush=True)
        for name, measure in benchmarks.items():
            started = time.monotonic()
            figures: list[Figure] = []
            try:
                for figure in measure(self.plan):
                    figures.append(figure)
                    print("  ".join(cell for cell in figure.cells() if cell), flush=True)
            except Exception as exc:  # noqa: BLE001  a failing benchmark must not affect others
                failed.append(name)
                print(f"{name}: {type(exc).__name__}: {exc}", file=sys.stderr, flush=True)
            shown += figures
            if figures and name not in failed:
                runs[name] = self._outcome(group, command, figures, time.monotonic() - started)
        if self.written_in is not None:
            merged = results.merge(runs, self.written_in / results.FILE_NAME)
            ordered = {name: merged[name] for name in ORDER if name in merged}
            (self.written_in / report.FILE_NAME).write_text(report.text(ordered))
            _write_growth(ordered, self.written_in)
        took_s = time.monotonic() - began
        print(f"\n{table(shown)}\n{group}: {took_s:.0f} s" + (f"; failed: {', '.join(failed)}" if failed else ""))
        if took_s > MINUTES_MAX * 60:
            print(f"{group} took more than {MINUTES_MAX} minutes: split the group", file=sys.stderr)
        sys.stdout.flush()
        return failed

    def _outcome(self, group: str, command: str, figures: list[Figure], seconds: float) -> results.Run:
        return results.Run(
            group=group,
            command=command,
            revision=report.revision(),
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            machine=self.machine,
            repeats=self.plan.repeats,
            seconds=seconds,
            figures=tuple(figures),
        )


def _write_growth(runs: Mapping[str, results.Run], directory: Path) -> None:
    text = growth_report.text(runs)
    if not text:
        return
    (directory / growth_report.FILE_NAME).write_text(text)
    plots = directory / growth_report.PLOTS
    plots.mkdir(exist_ok=True)
    for name, drawn in growth_report.plots(runs).items():
        (plots / name).write_text(drawn)
