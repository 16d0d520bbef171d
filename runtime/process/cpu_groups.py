"""CPU groups: enforce `resources.cpu` with the kernel's control groups, versions 1 and 2.

Design: a limit in cores is a share of a period for all processes of a group together (`cpu.cfs_quota_us` in version 1,
`cpu.max` in version 2), so it covers an instance and all processes that it starts. Each instance with a limit has a
group below that of the process that starts instances or, where version 2 allows processes only in leaf groups, next to
it, in a group delegated to us. Only processes that we started are moved.

A group is removed when its last process has ended. Groups left behind by a killed zygote are removed by the next one.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

PERIOD_US = 100_000
_PREFIX = "magnetar-"
_REMEDY = (
    "remove resources.cpu, or run the worker as root or as a systemd service with Delegate=cpu and"
    " DelegateSubgroup=worker"
)


class NoCpuLimit(Exception):
    """This process cannot create CPU-limited groups; the message contains the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class CpuGroups:
    """The parent directory of the instances' groups.

    Attributes:
        directory: directory of the parent control group.
        version: kernel interface version, 1 or 2.
    """

    directory: Path
    version: int

    def make(self, zygote: int, number: int, cores: float) -> Path:
        """Create an instance's group and return its directory.

        Args:
            zygote: process id of the zygote that starts it.
            number: number of the instance.
            cores: CPU limit in cores; unlimited if the machine has fewer.

        Raises:
            OSError: the kernel rejected it.
        """
        group = self.directory / f"{_PREFIX}{zygote}-{number}"
        group.mkdir(exist_ok=True)
        quota_us = round(min(cores, float(os.cpu_count() or 1)) * PERIOD_US)
        try:
            if self.version == 1:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(quota_us))
            else:
                (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        except OSError:
            remove(group)
            raise
        return group

    def remove_abandoned(self) -> None:
        """Remove the empty groups of dead zygotes."""
        for group in self.directory.glob(f"{_PREFIX}*-*"):
            zygote = group.name.removeprefix(_PREFIX).partition("-")[0]
            if zygote.isdigit() and not Path("/proc", zygote).exists():
                remove(group)


def add(group: Path, process_id: int) -> None:
    """Add a process, including its future children, to a group.

    Raises:
        OSError: the kernel rejected it.
    """
    (group / "cgroup.procs").write_text(str(process_id))


def remove(group: Path) -> bool:
    """Remove a group, and return whether it no longer exists; False while it has processes."""
    with contextlib.suppress(FileNotFoundError):
        try:
            group.rmdir()
        except OSError:
            return False
    return True


def find(proc: Path = Path("/proc/self")) -> CpuGroups:
    """Return the location where this process can create groups.

    Args:
        proc: the process's directory in /proc, with `cgroup` and `mounts`.

    Raises:
        NoCpuLimit: this process cannot create groups.
    """
    try:
        memberships = _memberships((proc / "cgroup").read_text())
        mounts = [line.split() for line in (proc / "mounts").read_text().splitlines()]
    except OSError as error:
        raise NoCpuLimit(f"cannot read control groups ({error}): remove resources.cpu") from error
    for mount in mounts:
        if mount[2] == "cgroup" and "cpu" in mount[3].split(",") and "cpu" in memberships:
            return _writable(CpuGroups(_below(mount[1], memberships["cpu"]), 1))
    for mount in mounts:
        if mount[2] == "cgroup2" and "" in memberships:
            return _find_unified(Path(mount[1]), _below(mount[1], memberships[""]))
    raise NoCpuLimit("no control groups with CPU limits are mounted: remove resources.cpu")


def _memberships(text: str) -> dict[str, str]:
    """Parse lines ``7:cpu,cpuacct:/path`` into groups by controller; the controller of version 2 is empty."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        found |= dict.fromkeys(controllers.split(","), path)
    return found


def _below(mount: str, path: str) -> Path:
    return Path(mount, path.lstrip("/"))


def _find_unified(mount: Path, own: Path) -> CpuGroups:
    """Return the root group, or the parent of our own group if it was delegated to us."""
    above = own if own == mount else own.parent
    try:
        if "cpu" not in (above / "cgroup.controllers").read_text().split():
            raise NoCpuLimit(f"control group {above} has no CPU controller: {_REMEDY}")
        if "cpu" not in (above / "cgroup.subtree_control").read_text().split():
            (above / "cgroup.subtree_control").write_text("+cpu")
    except OSError as error:
        raise NoCpuLimit(f"control group {above} was not delegated ({error.strerror}): {_REMEDY}") from error
    return _writable(CpuGroups(above, 2))


def _writable(groups: CpuGroups) -> CpuGroups:
    """Return the groups after creating one as a test."""
    try:
        remove(groups.make(os.getpid(), 0, 1.0))
    except OSError as error:
        raise NoCpuLimit(
            f"cannot create a control group in {groups.directory} ({error.strerror}): {_REMEDY}"
        ) from error
    return groups
