"""results.json: the latest results of each benchmark with its machine, from which RESULTS.md is generated.

Groups are measured separately, so rows of RESULTS.md may come from different runs, which are listed.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .figure import Figure, Table

FILE_NAME = "results.json"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a benchmark.

    Attributes:
        group: group of the benchmark.
        command: command that ran it.
        revision: revision of the repository; empty if unknown.
        date: end of the run, ISO 8601.
        machine: description of the machine, in lines.
        repeats: number of measurements per figure.
        seconds: duration.
        figures: results.
    """

    group: str
    command: str
    revision: str
    date: str
    machine: tuple[str, ...]
    repeats: int
    seconds: float
    figures: tuple[Figure, ...]


def read(file: Path) -> dict[str, Run]:
    """Return the stored results by benchmark; empty if the file is missing."""
    if not file.exists():
        return {}
    return {name: _run(fields) for name, fields in json.loads(file.read_text()).items()}


def merge(runs: Mapping[str, Run], file: Path) -> dict[str, Run]:
    """Replace the stored runs of these benchmarks; return all stored runs."""
    found = {**read(file), **runs}
    file.write_text(json.dumps({name: _fields(run) for name, run in sorted(found.items())}, indent=1) + "\n")
    return found


def _fields(run: Run) -> dict[str, Any]:
    fields = dataclasses.asdict(run)
    for figure in fields["figures"]:
        figure["table"] = figure["table"].name
    return fields


def _run(fields: Mapping[str, Any]) -> Run:
    figures = tuple(Figure(**{**figure, "table": Table[figure["table"]]}) for figure in fields["figures"])
    return Run(**{**fields, "machine": tuple(fields["machine"]), "figures": figures})
