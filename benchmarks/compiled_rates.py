"""The gain from compilation: the same wheel with and without its compiled modules, alternately.

Each measurement runs in its own process, with its own server: `MAGNETAR_PURE=1` makes both use the sources.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from magnetar.compiled import is_compiled

from .figure import Figure, Table
from .plan import Plan
from .short_rows import ROWS

COMPARED = (
    "function-application-1000",
    "function-application-50",
    "function-application-1",
    "function-plain-1000",
    "function-plain-50",
    "function-plain-1",
    "consume-application",
    "consume-plain-single",
    "publish-single",
    "publish-official-single",
)
"""The rows of `short_rows` in which messages are encoded or decoded."""
TIMEOUT_S = 300


def measure_compiled(plan: Plan) -> Iterator[Figure]:
    """Measure compiled rates, with those of pure Python as peers.

    Raises:
        RuntimeError: no compiled modules are installed.
    """
    if not is_compiled():
        raise RuntimeError("no compiled modules are installed: install gcc and python3-dev, then run `make bench`")
    for row in COMPARED:
        compiled, pure = [], []
        for _ in range(plan.repeats):
            pure.append(_measure(plan, row, pure=True))
            compiled.append(_measure(plan, row, pure=False))
        yield Figure(
            name=row,
            ours=statistics.median(compiled),
            unit=ROWS[row].unit,
            peer=statistics.median(pure),
            peer_name="pure Python",
            table=Table.COMPILED,
        )


def _measure(plan: Plan, row: str, *, pure: bool) -> float:
    command = [sys.executable, "-m", "benchmarks.short_rows"]
    command += ["--seconds", f"{plan.seconds:g}", "--directory", str(plan.directory), row]
    environment = {**os.environ, "MAGNETAR_PURE": "1" if pure else "0"}
    done = subprocess.run(
        command, cwd=Path(__file__).parent.parent, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S,
        check=False,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"row"')]
    if not found or "value" not in found[0]:
        why = found[0]["error"] if found else done.stderr.strip().rpartition("\n")[2]
        raise RuntimeError(f"{row}: {why or f'exit code {done.returncode}'}")
    return float(found[0]["value"])
