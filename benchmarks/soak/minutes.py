"""What is measured while a soak runs: each minute's rates, memory, CPU time, disk and kills."""

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
    """One line of a soak.

    Attributes:
        number: 0 for the first; shorter than a minute in a short soak.
        seconds: how long it was.
        processed: messages that came out of each function in it.
        backlog: messages published that had not come out at its end, of each function.
        memory_mib: PSS of the processes of each kind together, median of several looks.
        cpu_s: CPU time of all processes in it.
        others_share: what programs that are no part of the soak took of all processors.
        disk_mib: the most that data and logs took.
        kills: which processes were killed.
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
        """PSS of all processes, in MiB."""
        return sum(self.memory_mib.values())

    @property
    def cpu_us(self) -> float:
        """CPU time for a message that went through all functions, in microseconds."""
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
    """The memory of one process by its age.

    Attributes:
        kind: of process.
        looks: age in seconds, PSS in MiB.
    """

    kind: str
    looks: list[tuple[float, float]] = field(default_factory=list)


class Watch:
    """Looks at processes, and remembers what they used."""

    def __init__(self) -> None:
        self.lives: dict[tuple[int, float], Life] = {}
        self._cpu: dict[tuple[int, float], float] = {}
        self._memory: dict[str, list[float]] = defaultdict(list)

    def look(self, processes: Sequence[tuple[str, psutil.Process]], now: float) -> None:
        """Note memory and CPU time of each process; `now` is the time since the epoch."""
        together: dict[str, float] = defaultdict(float)
        for kind, process in processes:
            with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):  # it died just now
                used = usage(process)
                who = (process.pid, process.create_time())
                self._cpu[who] = used.cpu_s
                self.lives.setdefault(who, Life(kind)).looks.append((now - who[1], used.pss_mib))
                together[kind] += used.pss_mib
        for kind, mib in together.items():
            self._memory[kind].append(mib)

    def cpu_s(self) -> float:
        """CPU time of all processes that were ever seen, until they were seen last."""
        return sum(self._cpu.values())

    def others_s(self) -> float:
        """CPU time that neither these processes nor this one took, on all processors since the machine started."""
        machine, own = psutil.cpu_times(), psutil.Process()
        times = own.cpu_times()
        own_s = 0.0 if (own.pid, own.create_time()) in self._cpu else float(times.user + times.system)
        return float(machine.user + machine.nice + machine.system) - self.cpu_s() - own_s

    def memory_mib(self) -> dict[str, float]:
        """The median of each kind since this was asked last."""
        found = {kind: statistics.median(looks) for kind, looks in self._memory.items()}
        self._memory.clear()
        return found


def disk_mib(directory: Path) -> float:
    """What everything below a directory takes on the disk."""
    blocks = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # deleted just now
            blocks += path.lstat().st_blocks
    return blocks * 512 / 2**20
