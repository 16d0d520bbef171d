"""RESULTS.md: the figures, what they were measured on, and how to measure them again."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path

from .figure import Figure, table

FILE = Path(__file__).parent / "RESULTS.md"
PROFILES = Path(__file__).parent / "PROFILES.md"

HEAD = """\
# Results of the benchmarks

Written by `{command}`{revision}, on {date}, in {minutes:.0f} minutes. Do not edit: run it again. Where a target is
missed, [PROFILES.md](PROFILES.md) says where the time goes.

{machine}

Server, load and peer share these cores. Figures are medians of {repeats} measurements, where no other number is given.
Peers were measured in the same run on the same machine, where nothing else is said. Targets come from measurements of
Apache Pulsar 4.0.7 on a machine like this one, whatever this one's own speed is.

Figures of two runs cannot be compared, as machines differ from hour to hour: `make bench-against BASE=<commit>`
measures two commits in turn in one run, and tells which rows are slower ([CONTRIBUTING.md](../CONTRIBUTING.md)).

"""


def write(figures: list[Figure], machine: list[str], command: str, repeats: int, took_s: float) -> None:
    """Write RESULTS.md."""
    head = HEAD.format(
        command=command,
        revision=_revision(),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        minutes=took_s / 60,
        machine="\n".join(f"- {line}" for line in machine),
        repeats=repeats,
    )
    FILE.write_text(head + table(figures))


def _revision() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=FILE.parent
    )
    return f" at revision {done.stdout.strip()}" if done.returncode == 0 else ""
