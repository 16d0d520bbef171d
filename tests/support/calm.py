"""Time that a busy machine does not stretch, for tests of what is promised within seconds.

The kernel counts for how long somebody was ready to go on and had no processor, or waited for a disk. What is left of
the wall-clock time without that is about what a machine with nothing else to do would have needed: at least, a pause
that the program makes of its own accord, a retry that comes too late or a timeout that it runs into is in it whole.
That is what such a promise is about. On a machine that is never idle nothing is left, and nothing is shown; the waits
themselves have deadlines then.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

PRESSURE = Path("/proc/pressure")
STAT = Path("/proc/stat")
UNKNOWN_PART = 0.25
"""How much of the time counts where the kernel keeps no such account."""


class Calm:
    """A stopwatch, running from its creation on."""

    def __init__(self) -> None:
        self._began_s, self._began_held_s = time.monotonic(), held_up_s()

    @property
    def elapsed_s(self) -> float:
        """The time on the wall."""
        return time.monotonic() - self._began_s

    @property
    def calm_s(self) -> float:
        """The time in which nobody on this machine was held up."""
        elapsed_s, now_held_s = self.elapsed_s, held_up_s()
        if now_held_s is None or self._began_held_s is None:
            return elapsed_s * UNKNOWN_PART
        return max(0.0, elapsed_s - (now_held_s - self._began_held_s))

    def __repr__(self) -> str:
        return f"{self.calm_s:.2f} s ({self.elapsed_s:.2f} s by the clock)"


def held_up_s() -> float | None:
    """For how long somebody waited for a processor or a disk since the machine was started; None if nobody counts."""
    try:
        stalls = [_stalled_s((PRESSURE / name).read_text()) for name in ("cpu", "io")]
        return sum(stalls) + _stolen_s(STAT.read_text())
    except (OSError, ValueError, IndexError):
        return None


def _stalled_s(text: str) -> float:
    """The total of the line `some avg10=… avg60=… avg300=… total=<microseconds>`."""
    return int(text.partition("\n")[0].rpartition("total=")[2]) / 1e6


def _stolen_s(text: str) -> float:
    """What the host of a virtual machine gave to others, over all processors: `cpu user nice … steal …`, in ticks."""
    return int(text.split()[8]) / os.sysconf("SC_CLK_TCK")
