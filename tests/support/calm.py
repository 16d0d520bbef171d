"""Measure time without the delays of a busy machine, for tests of time limits.

The kernel counts how long processes were ready to run without a processor, or waited for a disk. The remaining
wall-clock time is roughly what an idle machine would have needed. It includes all pauses that the program makes itself,
retries that come too late, and timeouts, which are what time limits are about. On a machine that is never idle almost
no time remains, and the test proves nothing; its waits have their own deadlines.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

PRESSURE = Path("/proc/pressure")
STAT = Path("/proc/stat")
UNKNOWN_PART = 0.25
"""Share of the elapsed time that counts if the kernel provides no such data."""


class Calm:
    """A stopwatch that starts when it is created."""

    def __init__(self) -> None:
        self._began_s, self._began_held_s = time.monotonic(), held_up_s()

    @property
    def elapsed_s(self) -> float:
        """Elapsed wall-clock time."""
        return time.monotonic() - self._began_s

    @property
    def calm_s(self) -> float:
        """Elapsed time in which no process on this machine was delayed."""
        elapsed_s, now_held_s = self.elapsed_s, held_up_s()
        if now_held_s is None or self._began_held_s is None:
            return elapsed_s * UNKNOWN_PART
        return max(0.0, elapsed_s - (now_held_s - self._began_held_s))

    def __repr__(self) -> str:
        return f"{self.calm_s:.2f} s ({self.elapsed_s:.2f} s by the clock)"


def held_up_s() -> float | None:
    """Return how long processes have waited for a processor or disk since boot, or None if unknown."""
    try:
        stalls = [_stalled_s((PRESSURE / name).read_text()) for name in ("cpu", "io")]
        return sum(stalls) + _stolen_s(STAT.read_text())
    except (OSError, ValueError, IndexError):
        return None


def _stalled_s(text: str) -> float:
    """Return the total of a line `some avg10=… avg60=… avg300=… total=<microseconds>`."""
    return int(text.partition("\n")[0].rpartition("total=")[2]) / 1e6


def _stolen_s(text: str) -> float:
    """Return the time that a virtual machine's host gave to others, from a line `cpu user nice … steal …` in ticks."""
    return int(text.split()[8]) / os.sysconf("SC_CLK_TCK")
