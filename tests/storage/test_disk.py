"""The real and the simulated disk answer alike; the simulated one loses what it may lose."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from magnetar.broker.storage import Disk, LocalDisk
from magnetar.broker.storage.disk.disk import LockedByOther
from magnetar.testing.simulated_disk import PAGE, SimulatedCrash, SimulatedDisk


@pytest.fixture(params=["local", "simulated"])
def disk_and_root(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    return (LocalDisk(), f"{tmp_path}/a/b") if request.param == "local" else (SimulatedDisk(), "/a/b")


def test_files_are_written_read_renamed_and_removed(disk_and_root: tuple[Disk, str]) -> None:
    disk, root = disk_and_root
    disk.make_directory(root)
    disk.make_directory(root)
    assert disk.list(root) == []
    file = disk.open(f"{root}/x", create=True)
    file.write(3, [b"abc", b"", b"def"])
    file.sync()
    assert file.size() == 9
    assert file.read(0, 100) == b"\0\0\0abcdef"
    assert file.read(4, 2) == b"bc"
    assert file.read(50, 2) == b""
    file.preallocate(5)
    assert file.size() == 9
    file.preallocate(PAGE + 1)
    assert file.read(5, PAGE) == b"cdef" + bytes(PAGE - 8)
    file.close()
    disk.open(f"{root}/y", create=True).close()
    disk.rename(f"{root}/x", f"{root}/y")
    disk.sync_directory(root)
    assert disk.list(root) == ["y"]
    again = disk.open(f"{root}/y", create=True)
    assert again.size() == PAGE + 1
    again.close()
    disk.remove(f"{root}/y")
    assert disk.list(root) == []
    calls: list[Callable[[], object]] = [
        lambda: disk.open(f"{root}/y"),
        lambda: disk.remove(f"{root}/y"),
        lambda: disk.rename(f"{root}/y", f"{root}/z"),
        lambda: disk.list(f"{root}/none"),
        lambda: disk.open(f"{root}/none/x", create=True),
    ]
    for call in calls:
        with pytest.raises(FileNotFoundError):
            call()


def test_content_that_is_forgotten_in_memory_is_still_there(disk_and_root: tuple[Disk, str]) -> None:
    disk, root = disk_and_root
    disk.make_directory(root)
    content = random.Random(7).randbytes(64 * PAGE)
    file = disk.open(f"{root}/x", create=True)
    file.write(0, [content])
    file.sync()
    if isinstance(disk, LocalDisk):
        assert cached_pages(f"{root}/x") == 64
    disk.forget_cached(f"{root}/x")
    disk.forget_cached(f"{root}/none")
    if isinstance(disk, LocalDisk):
        assert cached_pages(f"{root}/x") == 0
    assert file.read(0, len(content)) == content
    file.close()


def cached_pages(path: str) -> int:
    """Pages of a file that the kernel holds in memory, as mincore(2) tells."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = os.stat(path).st_size
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        resident = (ctypes.c_ubyte * (size // PAGE))()
        start = ctypes.c_char.from_buffer(mapped)
        assert libc.mincore(ctypes.byref(start), ctypes.c_size_t(size), resident) == 0, os.strerror(ctypes.get_errno())
        del start
    return sum(page & 1 for page in resident)


def test_lock_excludes_until_it_is_closed(disk_and_root: tuple[Disk, str]) -> None:
    disk, root = disk_and_root
    disk.make_directory(root)
    lock = disk.lock(f"{root}/lock")
    with pytest.raises(LockedByOther, match="process"):
        disk.lock(f"{root}/lock")
    lock.close()
    disk.lock(f"{root}/lock").close()


def test_power_failure_loses_any_subset_of_pages_and_names_and_nothing_synced() -> None:
    contents, names = set(), set()
    for seed in range(200):
        disk = SimulatedDisk(seed)
        disk.make_directory("/d")
        file = disk.open("/d/kept", create=True)
        file.write(0, [b"o" * 2 * PAGE])
        file.sync()
        disk.sync_directory("/d")
        file.write(0, [b"1" * 2 * PAGE])
        file.write(0, [b"2" * PAGE])
        disk.open("/d/new", create=True)
        disk.rename("/d/new", "/d/newer")
        disk.power_failure()
        content = disk.content("/d/kept")
        contents.add((content[:1], content[-1:]))
        assert content == content[:1] * PAGE + content[-1:] * PAGE
        names.add(tuple(disk.list("/d")))
        with pytest.raises(SimulatedCrash):
            file.read(0, 1)
    assert contents == {(a, b) for a in (b"o", b"1", b"2") for b in (b"o", b"1")}
    assert names == {("kept",), ("kept", "new"), ("kept", "newer")}


def test_file_that_was_never_synced_may_come_back_empty_or_partly() -> None:
    sizes = set()
    for seed in range(40):
        disk = SimulatedDisk(seed)
        disk.make_directory("/d")
        disk.open("/d/x", create=True).write(0, [b"x" * 3 * PAGE])
        disk.sync_directory("/d")
        disk.power_failure()
        sizes.add(len(disk.content("/d/x")))
    assert sizes == {0, 3 * PAGE}


def test_second_sync_after_a_failed_one_proves_nothing() -> None:
    lost = 0
    for seed in range(40):
        disk = SimulatedDisk(seed)
        disk.make_directory("/d")
        file = disk.open("/d/x", create=True)
        disk.sync_directory("/d")
        file.write(0, [b"x" * PAGE])
        disk.failures[disk.operations + 1] = errno.EIO
        with pytest.raises(OSError, match="Input/output error"):
            file.sync()
        file.sync()
        disk.power_failure()
        lost += disk.content("/d/x") != b"x" * PAGE
    assert 10 < lost < 40


def test_full_disk_takes_what_fits_into_preallocated_files() -> None:
    disk = SimulatedDisk(capacity_bytes=2 * PAGE)
    disk.make_directory("/d")
    file = disk.open("/d/x", create=True)
    file.preallocate(2 * PAGE)
    file.write(PAGE, [b"x" * PAGE])
    with pytest.raises(OSError, match="No space left"):
        file.write(PAGE, [b"x" * (PAGE + 1)])
    with pytest.raises(OSError, match="No space left"):
        disk.open("/d/y", create=True).write(0, [b"x"])


def test_killed_process_loses_nothing_until_the_power_fails() -> None:
    disk = SimulatedDisk(1)
    disk.make_directory("/d")
    disk.lock("/d/lock")
    disk.open("/d/x", create=True).write(0, [b"x"])
    disk.kill_process()
    assert disk.content("/d/x") == b"x"
    disk.lock("/d/lock").close()
    survivors = 0
    for seed in range(20):
        disk = SimulatedDisk(seed)
        disk.make_directory("/d")
        disk.open("/d/x", create=True)
        disk.kill_process()
        disk.power_failure()
        survivors += len(disk.paths())
    assert 0 < survivors < 20
