"""Live objects in executor heaps: the size of the old generation after a full collection requested with `jcmd`.

The memory of a JVM process says little about its program: it grows while the JVM enlarges its heap, and with a heap of
fixed size it is constant regardless of live objects.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import psutil

from ..soak.minutes import Life

FIXED_HEAP = "-Xms512m -XX:+AlwaysPreTouch"
"""Options of executors with 512 MiB of heap: all of it is allocated at the start."""
_JCMD_WITHIN_S = 60.0
_USED = re.compile(r"[Tt]enured .*? used (\d+)K")
"""Output of the serial collector: contains all live objects, and none created since. Java 24 changed the spelling."""


class LiveHeaps:
    """The live heap of each executor by age.

    Attributes:
        lives: samples by process id, in MiB.
    """

    def __init__(self) -> None:
        self.lives: dict[int, Life] = {}

    def look(self, executors: list[psutil.Process]) -> None:
        """Run a collection in each executor, and record the size of live objects.

        Raises:
            CalledProcessError, TimeoutExpired: a JVM does not respond.
            RuntimeError: the JVM does not use the serial collector.
        """
        for executor in executors:
            jcmd = Path(executor.exe()).with_name("jcmd")
            _ask(jcmd, executor.pid, "GC.run")
            used = _USED.search(_ask(jcmd, executor.pid, "GC.heap_info"))
            if used is None:
                raise RuntimeError(f"executor {executor.pid} does not use the serial collector")
            age_s = time.time() - executor.create_time()
            life = self.lives.setdefault(executor.pid, Life("executor's live heap"))
            life.looks.append((age_s, int(used[1]) / 1024))

    def __str__(self) -> str:
        return " ".join(f"{life.looks[-1][1]:.0f}" for life in self.lives.values())


def _ask(jcmd: Path, pid: int, command: str) -> str:
    done = subprocess.run(
        [str(jcmd), str(pid), command], capture_output=True, text=True, timeout=_JCMD_WITHIN_S, check=True
    )
    return done.stdout
