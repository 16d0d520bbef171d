"""results.json: what each benchmark gave when it was last written, and on what; RESULTS.md is made of it.

Groups are measured one by one, so the rows of RESULTS.md may come from different runs: each says from which.
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
    """One benchmark, measured once.

    Attributes:
        group: that it belongs to.
        command: what measured it.
        revision: of the repository, empty if that is unknown.
        date: ISO 8601, of the end.
        machine: lines about what it ran on.
        repeats: measurements of each figure.
        seconds: that it took.
        figures: what it gave.
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
    """Write these runs in the place of former ones of the same benchmarks; return all that there are now."""
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
