"""Parameters of all benchmarks: durations, repeats, and directory."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.servers import Server, running


@dataclass(frozen=True)
class Plan:
    """How much to measure.

    Attributes:
        seconds: of load in one measurement.
        repeats: of each measurement; the median counts.
        directory: below which brokers keep their data.
        is_quick: a look is wanted, no figure: the smaller sizes are enough.
    """

    seconds: float
    repeats: int
    directory: Path
    is_quick: bool = False

    @contextlib.contextmanager
    def server(self, kind: str, *flags: str) -> Iterator[Server]:
        """A fresh broker or standalone whose data vanishes afterwards."""
        directory = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=self.directory))
        try:
            with running(kind, directory, *flags) as server:
                yield server
        finally:
            shutil.rmtree(directory, ignore_errors=True)
