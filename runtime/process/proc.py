"""Process information from /proc: states, parents, memory, marks. Ended processes are treated as missing."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_OWN_MEMORY = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")
_DEAD = (b"Z", b"X")
_STOPPED = (b"T", b"t")


@dataclass(frozen=True, slots=True)
class Process:
    """A running process.

    Attributes:
        pid: process id.
        parent: process id of the parent.
    """

    pid: int
    parent: int


def processes() -> Iterator[Process]:
    """Yield all living processes of this machine."""
    for name in os.listdir(PROC):
        if name.isdigit():
            found = _look(int(name))
            if found is not None:
                yield found


def _look(pid: int) -> Process | None:
    fields = _state_and_parent(pid)
    if len(fields) < 2 or fields[0] in _DEAD:
        return None
    return Process(pid, int(fields[1]))


def _state_and_parent(pid: int) -> list[bytes]:
    stat = _read(pid, "stat")
    # The program name may contain any character; state and parent follow the last bracket.
    return stat[stat.rfind(b")") + 2 :].split(maxsplit=2)


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped (SIGSTOP, a debugger); False if it runs, waits, has ended, or is hidden."""
    return any(state in _STOPPED for state in _state_and_parent(pid)[:1])


def below(root: int, among: Iterable[Process]) -> list[int]:
    """Return the ids of a process's descendants, parents before their children."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for process in among:
        children[process.parent].append(process.pid)
    found = [root]
    for pid in found:  # grows during the iteration
        found += children.pop(pid, ())
    return found[1:]


def resident_bytes(pid: int) -> int:
    """Return the memory used by a process, including shared pages; cheap, and never much less than `own_bytes`."""
    fields = _read(pid, "statm").split()
    return int(fields[1]) * PAGE_BYTES if len(fields) > 1 else 0


def own_bytes(pid: int) -> int:
    """Return the memory that killing a process would free: its share of shared pages, without files.

    Pages that a fork has not written to are divided among the processes sharing them, so the zygote's are counted once.
    If the kernel hides this information for another user's process (a container without `SYS_PTRACE`), all pages count.
    """
    shown = _read(pid, "smaps_rollup")
    if not shown:
        return resident_bytes(pid)
    return sum(int(line.split()[1]) * 1024 for line in shown.splitlines() if line.startswith(_OWN_MEMORY))


def user_of(pid: int) -> int | None:
    """Return the real user id of a process, or None if it has ended."""
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"Uid:"):
            return int(line.split()[1])
    return None


def waited_for_processor_s(pid: int) -> dict[int, float]:
    """Return how long each thread of a process has been ready to run without a CPU, since its start."""
    waited: dict[int, float] = {}
    try:
        threads = os.listdir(PROC / str(pid) / "task")
    except OSError:
        return waited
    for thread in threads:
        fields = _read(pid, f"task/{thread}/schedstat").split()
        if len(fields) > 1:
            waited[int(thread)] = int(fields[1]) / 1e9
    return waited


def limit_of(pid: int, name: bytes) -> int | None:
    """Return the hard limit of a process for a resource, or None."""
    for line in _read(pid, "limits").splitlines():
        if line.startswith(name):
            hard = line[len(name) :].split()[1]
            return int(hard) if hard.isdigit() else None
    return None


def shares_pid_numbers(pid: int) -> bool:
    """Return whether a process is in the same pid namespace as this one, and may be inspected."""
    try:
        return os.readlink(PROC / str(pid) / "ns/pid") == os.readlink(PROC / "self/ns/pid")
    except OSError:
        return False


def _read(pid: int, name: str) -> bytes:
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""
