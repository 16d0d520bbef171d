"""Comparison of our functions and commands with equivalent plain loops, on our client and on the official one.

Functions and commands may be slower than loops, as they do more: deployment, statistics, logging and restarts. They
must reach `SHARE_TARGET` percent of the rate of a loop on our client; the loop on the official client shows what users
get without Magnetar.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .figure import Figure, Table, number

OWN_LOOP, OFFICIAL_LOOP = "benchmarks.own_loops", "benchmarks.official_loops"
"""Modules of the loops."""
SHARE_TARGET = 60
STOP_TIMEOUT_S = 10


def command(module: str, kind: str, *arguments: str) -> list[str]:
    """Return the command that runs a loop; its arguments are service URL, source, sink, subscription."""
    return [sys.executable, "-m", module, kind, *arguments]


@contextlib.contextmanager
def looping(module: str, kind: str, *arguments: str) -> Iterator[int]:
    """Run a loop in a separate process while the context lasts, and provide its process id; raise if it exits."""
    process = subprocess.Popen(command(module, kind, *arguments), cwd=Path(__file__).parent.parent)
    try:
        yield process.pid
        if process.poll() is not None:
            raise RuntimeError(f"the loop {kind} of {module} exited with code {process.returncode}")
    finally:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Rate:
    """Result of one measurement.

    Attributes:
        rate: messages per second.
        cpu_us: CPU time per message of the process that produced them, in microseconds; 0 if unknown.
    """

    rate: float
    cpu_us: float = 0.0


def figures_beside(
    name: str,
    turns: Sequence[tuple[Rate, Rate]],
    official: Rate,
    *,
    unit: str,
    table: Table,
    note: str = "",
) -> Iterator[Figure]:
    """Compare our rate with the loops on the official client and on our own client; return the figures.

    Args:
        name: what was measured.
        turns: pairs of our rate and the rate of the loop on our client, measured consecutively.
        official: rates of the loop on the official client.
        unit: unit of all rates.
        table: table of the figures.
        note: note of the first figure.
    """
    ours, own = (statistics.median(turn[side].rate for turn in turns) for side in (0, 1))
    yield Figure(
        name=name,
        ours=ours,
        unit=unit,
        peer=official.rate,
        peer_name="loop on the official client, our broker",
        note=note,
        table=table,
    )
    yield Figure(
        name=f"{name}, over the same loop on our client",
        ours=100 * statistics.median(ours.rate / own.rate for ours, own in turns),
        unit="% of the loop's rate",
        target=SHARE_TARGET,
        note=f"{number(ours)} beside {number(own)} {unit}{_cpu_note(turns)}",
        table=table,
    )


def _cpu_note(turns: Sequence[tuple[Rate, Rate]]) -> str:
    if not all(one.cpu_us for turn in turns for one in turn):
        return ""
    ours, own = (statistics.median(turn[side].cpu_us for turn in turns) for side in (0, 1))
    return f"; CPU each {ours:.2f} beside {own:.2f} µs"
