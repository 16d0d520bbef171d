"""Description of the machine, and resource usage of processes."""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import psutil


def describe(directory: Path, measured: str) -> list[str]:
    """Return lines about the machine for the head of a report.

    Args:
        directory: data directory of the broker.
        measured: description of the measured software, and whether it is compiled.
    """
    return [
        f"{processor()}, {psutil.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB memory",
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, {measured}",
        f"write and fdatasync of 4 KiB into a preallocated file: {sync_us(directory):.0f} µs (median of 200)",
        f"load average of the minute before: {os.getloadavg()[0]:.1f}",  # load of other programs
    ]


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def sync_us(directory: Path) -> float:
    """Return the median time of a small synced write, in microseconds."""
    path = directory / "sync-probe"
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.posix_fallocate(file, 0, 4096 * 200)
        times = []
        for i in range(200):
            began = time.perf_counter()
            os.pwrite(file, b"x" * 4096, i * 4096)
            os.fdatasync(file)
            times.append(time.perf_counter() - began)
        return statistics.median(times) * 1e6
    finally:
        os.close(file)
        path.unlink()


@dataclass(frozen=True)
class Usage:
    """Resource usage of a process."""

    name: str
    pss_mib: float
    cpu_s: float


def usage(process: psutil.Process) -> Usage:
    """Return the proportional set size and CPU time of a process."""
    pss_kib = 0
    for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            pss_kib = int(line.split()[1])
    times = process.cpu_times()
    return Usage(short_name(process), pss_kib / 1024, times.user + times.system)


def short_name(process: psutil.Process) -> str:
    """Return a process's title or subcommand: `broker`, `worker`, `zygote`, `instance …`."""
    words = process.cmdline()
    if "magnetar.cli" in words:
        return words[words.index("magnetar.cli") + 1]
    return " ".join(words).removeprefix("magnetar").strip()


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and its descendants."""
    top = psutil.Process(pid)
    return [top, *top.children(recursive=True)]


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process without its children, in seconds."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


QUIET_SHARE = 0.1
QUIET_LOOK_S, QUIET_TIMEOUT_S = 0.5, 15.0


def wait_until_quiet(pid: int) -> bool:
    """Wait until a process and its descendants use less than a tenth of a core after an earlier load.

    Returns:
        whether they do; False after `QUIET_TIMEOUT_S`.
    """
    deadline = time.monotonic() + QUIET_TIMEOUT_S
    while time.monotonic() < deadline:
        before = _cpu_of_tree_s(pid)
        time.sleep(QUIET_LOOK_S)
        if _cpu_of_tree_s(pid) - before < QUIET_SHARE * QUIET_LOOK_S:
            return True
    return False


def _cpu_of_tree_s(pid: int) -> float:
    used = 0.0
    for process in tree(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            used += times.user + times.system
    return used
