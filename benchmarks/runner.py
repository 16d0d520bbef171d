"""Running benchmarks: their options, what each is given, what is printed and written."""

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
"""The benchmarks beside Apache Pulsar, which need one and stand in no group of `make bench`."""
SPARK_KAFKA = "spark-kafka"
"""The same beside Apache Kafka."""
ORDER = (PULSAR_FUNCTIONS, PULSAR_PUBLISH, SPARK_KAFKA, *BENCHMARKS)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what all commands that measure understand."""
    parser.add_argument("--quick", action="store_true", help="short measurements, once each: a look, not a figure")
    parser.add_argument("--write", action="store_true", help="write the rows into benchmarks/RESULTS.md")
    parser.add_argument(
        "--directory", type=Path, help="where brokers keep their data; default: the system's for temporary files"
    )


@contextlib.contextmanager
def commissioned(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> Iterator[Commission]:
    """What the options of `add_options` ask for, with a directory that vanishes at the end."""
    if arguments.quick and arguments.write:
        parser.error("--quick measures too short for figures that are written: leave out one of them")
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
    """How benchmarks are run.

    Attributes:
        plan: what each is given.
        machine: lines about what they run on.
        written_in: the directory of the results.json and RESULTS.md that their figures go into; None if into none.
    """

    plan: Plan
    machine: tuple[str, ...]
    written_in: Path | None

    def run(self, group: str, command: str, benchmarks: Mapping[str, Benchmark]) -> list[str]:
        """Run the benchmarks of a group, print their figures and write those of all that did not fail.

        Args:
            group: its name.
            command: what runs it again.
            benchmarks: by name.

        Returns:
            The names of those that failed.
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
            except Exception as exc:  # noqa: BLE001  one broken benchmark must not cost the others' figures
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
            print(f"{group}: more than {MINUTES_MAX} minutes, the group has to be cut", file=sys.stderr)
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
