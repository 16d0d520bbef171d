"""Measurements during a soak: rates, memory, CPU time, disk and kills of each minute."""

from __future__ import annotations

import contextlib
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ..machine import usage


@dataclass(frozen=True)
class Minute:
    """Measurements of one minute.

    Attributes:
        number: number of the minute, from 0; in a short soak it is shorter.
        seconds: duration.
        processed: number of outputs of each function.
        backlog: published messages without output at the end, for each function.
        memory_mib: total PSS of the processes of each kind, median of several samples.
        cpu_s: CPU time of all processes.
        others_share: share of all CPUs used by other programs.
        disk_mib: maximum size of data and logs.
        kills: killed processes.
    """

    number: int
    seconds: float
    processed: Mapping[str, int]
    backlog: Mapping[str, int]
    memory_mib: Mapping[str, float]
    cpu_s: float
    others_share: float
    disk_mib: float
    kills: Sequence[str]

    @property
    def memory(self) -> float:
        """Return the PSS of all processes, in MiB."""
        return sum(self.memory_mib.values())

    @property
    def cpu_us(self) -> float:
        """Return the CPU time per message through all functions, in microseconds."""
        return self.cpu_s * 1e6 / max(1, *self.processed.values())

    def __str__(self) -> str:
        rates = " ".join(f"{name} {count / self.seconds:,.0f}/s" for name, count in self.processed.items())
        backlog = " ".join(f"{count:,}" for count in self.backlog.values())
        memory = " ".join(f"{kind} {mib:.0f}" for kind, mib in self.memory_mib.items())
        return (
            f"{self.number + 1:3d}  {rates}  backlog {backlog}  memory {self.memory:.0f} MiB ({memory})  "
            f"CPU {self.cpu_us:.1f} µs/message (others {self.others_share:.0%})  "
            f"disk {self.disk_mib:.0f} MiB  {', '.join(self.kills) or '-'}"
        )


@dataclass
class Life:
    """Memory of one process by age.

    Attributes:
        kind: kind of process.
        looks: samples: age in seconds, PSS in MiB.
    """

    kind: str
    looks: list[tuple[float, float]] = field(default_factory=list)


class Watch:
    """Samples the resource usage of processes."""

    def __init__(self) -> None:
        self.lives: dict[tuple[int, float], Life] = {}
        self._cpu: dict[tuple[int, float], float] = {}
        self._memory: dict[str, list[float]] = defaultdict(list)

    def look(self, processes: Sequence[tuple[str, psutil.Process]], now: float) -> None:
        """Record memory and CPU time of each process; `now` is the time since the epoch."""
        together: dict[str, float] = defaultdict(float)
        for kind, process in processes:
            with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):  # it has just exited
                used = usage(process)
                who = (process.pid, process.create_time())
                self._cpu[who] = used.cpu_s
                self.lives.setdefault(who, Life(kind)).looks.append((now - who[1], used.pss_mib))
                together[kind] += used.pss_mib
        for kind, mib in together.items():
            self._memory[kind].append(mib)

    def cpu_s(self) -> float:
        """Return the CPU time of all processes sampled so far, up to their last sample."""
        return sum(self._cpu.values())

    def others_s(self) -> float:
        """Return the CPU time of other processes on all CPUs since the machine was booted."""
        machine, own = psutil.cpu_times(), psutil.Process()
        times = own.cpu_times()
        own_s = 0.0 if (own.pid, own.create_time()) in self._cpu else float(times.user + times.system)
        return float(machine.user + machine.nice + machine.system) - self.cpu_s() - own_s

    def memory_mib(self) -> dict[str, float]:
        """Return the median memory of each kind since the last call."""
        found = {kind: statistics.median(looks) for kind, looks in self._memory.items()}
        self._memory.clear()
        return found


def disk_mib(directory: Path) -> float:
    """Return the disk usage of a directory tree."""
    blocks = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # just deleted
            blocks += path.lstat().st_blocks
    return blocks * 512 / 2**20
