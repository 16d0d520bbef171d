"""Limits of CPU time: where control groups can be made, by files as the kernel shows them, and what a real one does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from magnetar.client.client import AsyncClient
from magnetar.runtime.process import cpu_groups
from magnetar.runtime.process.cpu_groups import NoCpuLimit
from magnetar.runtime.process.runtime import ProcessRuntime
from magnetar.wire import functions_pb2 as records

from tests.support.eventually import until
from tests.support.instances import MakeSpec

BUSY = (
    "import os, time\ndef process(text):\n    ends = time.monotonic() + 60\n    while time.monotonic() < ends: pass\n"
)


def _proc(directory: Path, memberships: str, *mounts: str) -> Path:
    (directory / "cgroup").write_text(memberships)
    (directory / "mounts").write_text("".join(f"{mount} 0 0\n" for mount in mounts))
    return directory


def _unified(directory: Path, controllers: str, subtree: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cgroup.controllers").write_text(controllers)
    (directory / "cgroup.subtree_control").write_text(subtree)


def test_version_1_by_its_mount_and_membership(tmp_path: Path) -> None:
    mount = tmp_path / "cpu"
    (mount / "service").mkdir(parents=True)
    proc = _proc(
        tmp_path, "3:cpu,cpuacct:/service\n0::/other\n", f"cgroup {mount} cgroup rw,cpu,cpuacct", "t /tmp tmpfs rw"
    )
    found = cpu_groups.find(proc)
    assert (found.directory, found.version) == (mount / "service", 1)
    group = found.make(7, 3, 0.25)
    assert (group / "cpu.cfs_quota_us").read_text() == "25000"
    assert (group / "cpu.cfs_period_us").read_text() == "100000"


@pytest.mark.parametrize(("membership", "directory"), [("/a/worker", "a"), ("/", ".")])
def test_version_2_is_the_delegated_group_above_ours_or_the_root(
    tmp_path: Path, membership: str, directory: str
) -> None:
    mount = tmp_path / "unified"
    _unified(mount / directory, "cpu memory\n", "memory cpu\n")
    (mount / membership.lstrip("/")).mkdir(parents=True, exist_ok=True)
    found = cpu_groups.find(_proc(tmp_path, f"0::{membership}\n", f"cgroup2 {mount} cgroup2 rw"))
    assert (found.directory, found.version) == (mount / directory, 2)
    assert (found.make(7, 3, 10_000.0) / "cpu.max").read_text() == f"{(os.cpu_count() or 1) * 100_000} 100000"


@pytest.mark.parametrize(
    ("memberships", "mounted", "controllers", "reason"),
    [
        ("0::/a/worker\n", "cgroup2", "memory\n", "has no CPU controller"),
        ("0::/a/worker\n", "cgroup2", None, "was not delegated"),
        ("4:memory:/\n", "cgroup", "cpu\n", "no control groups with CPU limits are mounted"),
        ("3:cpu:/gone\n", "cgroup", "cpu\n", "cannot create a control group in"),
    ],
)
def test_without_a_group_the_reason_is_told(
    tmp_path: Path, memberships: str, mounted: str, controllers: str | None, reason: str
) -> None:
    mount = tmp_path / "mount"
    if controllers is not None:
        _unified(mount / "a", controllers, "")
    proc = _proc(tmp_path, memberships, f"cgroup {mount} {mounted} rw,cpu")
    with pytest.raises(NoCpuLimit, match=reason):
        cpu_groups.find(proc)


def test_groups_of_zygotes_that_are_gone_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / f"magnetar-{ended.pid}-1").mkdir()
    (tmp_path / f"magnetar-{os.getpid()}-1").mkdir()
    (tmp_path / "magnetar-other").mkdir()
    cpu_groups.CpuGroups(tmp_path, 1).remove_abandoned()
    assert {path.name for path in tmp_path.iterdir()} == {f"magnetar-{os.getpid()}-1", "magnetar-other"}


async def test_an_instance_gets_its_share_and_leaves_no_group(client: AsyncClient, make_spec: MakeSpec) -> None:
    try:
        groups = cpu_groups.find()
    except NoCpuLimit as why:
        pytest.skip(str(why))
    spec = make_spec(BUSY, resources=records.Resources(cpu=0.2))
    (topic,) = spec.details.source.inputSpecs
    runtime = ProcessRuntime()
    try:
        instance = await runtime.start(spec)
        (group,) = groups.directory.glob(f"magnetar-{psutil.Process(instance.process_id).ppid()}-*")
        assert (group / "cgroup.procs").read_text().split() == [str(instance.process_id)]
        assert "20000" in (group / ("cpu.cfs_quota_us" if groups.version == 1 else "cpu.max")).read_text().split()
        await (await client.create_producer(topic)).send(b"x")

        async def is_held_back() -> bool:
            values = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
            return int(values["nr_throttled"]) > 10

        await until(is_held_back)
    finally:
        await runtime.close()
    assert not group.exists()
