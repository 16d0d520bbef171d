"""Parameters of all benchmarks: duration, repeats, and directory."""

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
    """Parameters of a benchmark run.

    Attributes:
        seconds: seconds of load per measurement.
        repeats: number of measurements, of which the median is used.
        directory: parent directory for the data of brokers.
        is_quick: whether a quick check without exact figures is sufficient, with smaller sizes.
    """

    seconds: float
    repeats: int
    directory: Path
    is_quick: bool = False

    @contextlib.contextmanager
    def server(self, kind: str, *flags: str) -> Iterator[Server]:
        """Run a fresh broker or standalone, and delete its data afterwards."""
        directory = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=self.directory))
        try:
            with running(kind, directory, *flags) as server:
                yield server
        finally:
            shutil.rmtree(directory, ignore_errors=True)
