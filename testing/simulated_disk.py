"""An in-memory disk for tests that can lose unsynced data, fill up, and fail on request.

Design: each file has two contents, one visible to readers and one on the medium, plus all versions of the pages written
since the last sync. After a power failure, each page has the medium's version or any later one, and any subset of the
name changes since a directory's last sync survives. No order is preserved, because real disks and file systems do not
guarantee one. A failed sync discards its unwritten pages, as in kernels, so a retried sync succeeds but proves nothing.
The seed determines all random choices.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ..broker.storage.disk.disk import LockedByOther

PAGE = 4096

T = TypeVar("T")


class SimulatedCrash(BaseException):
    """The machine stopped during an operation; error handlers must not catch this."""


class Operation(NamedTuple):
    """One requested operation.

    Attributes:
        number: starts at 1.
        kind: ``open write read sync preallocate rename remove list make_directory sync_directory lock``.
        path: path of the file or directory.
    """

    number: int
    kind: str
    path: str


@dataclass(slots=True)
class _Inode:
    content: bytearray = field(default_factory=bytearray)
    medium: bytearray = field(default_factory=bytearray)
    versions: dict[int, list[bytes]] = field(default_factory=dict)  # page -> versions since the last sync

    def write(self, offset: int, data: bytes) -> None:
        end = offset + len(data)
        if end > len(self.content):
            self.content.extend(bytes(end - len(self.content)))
        self.content[offset:end] = data
        for page in range(offset // PAGE, -(-end // PAGE)):
            self.versions.setdefault(page, []).append(bytes(self.content[page * PAGE : (page + 1) * PAGE]))

    def put_on_medium(self, page: int, data: bytes, size: int) -> None:
        start = page * PAGE
        if start >= size:
            return
        data = data[: size - start]
        if len(self.medium) < start + len(data):
            self.medium.extend(bytes(start + len(data) - len(self.medium)))
        self.medium[start : start + len(data)] = data

    def sync(self) -> None:
        for page in self.versions:
            self.put_on_medium(page, bytes(self.content[page * PAGE : (page + 1) * PAGE]), len(self.content))
        self.versions.clear()

    def lose(self, rng: random.Random) -> None:
        """Keep a random part of the unsynced data on the medium, and make the medium's content visible to readers."""
        size = rng.choice((len(self.medium), len(self.content)))
        if size > len(self.medium):
            self.medium.extend(bytes(size - len(self.medium)))
        for page, versions in self.versions.items():
            if (kept := rng.randrange(len(versions) + 1)) < len(versions):
                self.put_on_medium(page, versions[kept], size)
        self.versions.clear()
        self.content = bytearray(self.medium)

    def fail_sync(self, rng: random.Random) -> None:
        """Write a random part and drop the rest; cached pages may be lost as well."""
        for page, versions in self.versions.items():
            fate = rng.random()
            if fate < 0.3:
                self.put_on_medium(page, versions[-1], len(self.content))
            elif fate < 0.6:
                old = bytes(self.medium[page * PAGE : (page + 1) * PAGE]).ljust(PAGE, b"\0")
                end = min((page + 1) * PAGE, len(self.content))
                self.content[page * PAGE : end] = old[: end - page * PAGE]
        self.versions.clear()


Change = Callable[[dict[str, _Inode]], object]


class SimulatedDisk:
    """A `Disk` in memory, for one thread.

    Args:
        seed: determines what a crash loses.
        capacity_bytes: limit for all files together; writes beyond it fail with ENOSPC.
        sync_delay_s: duration of each file sync.

    Attributes:
        operations: number of operations so far.
        crash_at: number of the operation during which the machine stops, or None.
        failures: errno to raise, by operation number.
        watch: called with each operation before it is executed.
        boot: number of processes that have used the disk so far.
    """

    def __init__(self, seed: int = 0, capacity_bytes: int | None = None, sync_delay_s: float = 0.0) -> None:
        self._rng = random.Random(seed)  # noqa: S311 (made-up data)
        self.capacity_bytes = capacity_bytes
        self.sync_delay_s = sync_delay_s
        self.operations = 0
        self.crash_at: int | None = None
        self.failures: dict[int, int] = {}
        self.watch: Callable[[Operation], None] | None = None
        self.counts: Counter[str] = Counter()
        self._names: dict[str, _Inode] = {}
        self._names_on_medium: dict[str, _Inode] = {}
        self._changes: dict[str, list[Change]] = {}  # directory -> changes that its next sync makes durable
        self._directories: set[str] = {"/"}
        self._locks: set[str] = set()
        self.boot = 0

    # -- crashes, and access by tests

    def power_failure(self) -> None:
        """Restart the machine: any part of the unsynced data may be lost, and open files and locks become invalid."""
        for changes in self._changes.values():
            for change in changes:
                if self._rng.random() < 0.5:
                    change(self._names_on_medium)
        self._changes.clear()
        self._names = dict(self._names_on_medium)
        for inode in {id(inode): inode for inode in self._names.values()}.values():
            inode.lose(self._rng)
        self.kill_process()

    def kill_process(self) -> None:
        """End the process that uses the disk: nothing is lost yet, but a later power failure may lose unsynced data."""
        self._locks.clear()
        self.boot += 1
        self.crash_at = None
        self.failures.clear()

    def content(self, path: str) -> bytes:
        """Return a file's content as seen by readers."""
        return bytes(self._names[path].content)

    def set_content(self, path: str, content: bytes) -> None:
        """Put a synced file on the medium, replacing any existing one, to simulate damage."""
        self._names[path] = self._names_on_medium[path] = _Inode(bytearray(content), bytearray(content))

    def paths(self) -> list[str]:
        """Return the paths of all files."""
        return sorted(self._names)

    def copy(self, seed: int) -> SimulatedDisk:
        """Return a disk with the same files, all synced."""
        other = SimulatedDisk(seed, self.capacity_bytes, self.sync_delay_s)
        other._directories = set(self._directories)
        for path, inode in self._names.items():
            other.set_content(path, bytes(inode.content))
        return other

    # -- disk operations

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        """Open a file, or create it with ``create``."""

        def act() -> SimulatedFile:
            inode = self._names.get(path)
            if inode is None:
                if not create or _parent(path) not in self._directories:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                inode = _Inode()
                self._change(path, lambda names, made=inode: names.__setitem__(path, made))  # type: ignore[misc]
            return SimulatedFile(self, path, inode, self.boot)

        return self.operate("open", path, act)

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing an existing one."""

        def act() -> None:
            inode = self._existing(old)

            def change(names: dict[str, _Inode]) -> None:
                if names.get(old) is inode:
                    del names[old]
                names[new] = inode

            self._change(new, change)

        self.operate("rename", new, act)

    def remove(self, path: str) -> None:
        """Remove a file."""

        def act() -> None:
            self._existing(path)
            self._change(path, lambda names: names.pop(path, None))

        self.operate("remove", path, act)

    def forget_cached(self, path: str) -> None:
        """Do nothing: this disk has no page cache."""

    def list(self, directory: str) -> list[str]:
        """Return the sorted names in a directory."""

        def act() -> list[str]:
            if directory not in self._directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), directory)
            return sorted(path.rpartition("/")[2] for path in self._names if _parent(path) == directory)

        return self.operate("list", directory, act)

    def make_directory(self, path: str) -> None:
        """Create a directory; durable immediately."""
        self.operate("make_directory", path, lambda: self._directories.add(path))

    def sync_directory(self, path: str) -> None:
        """Make all pending name changes in a directory durable."""

        def act() -> None:
            for change in self._changes.pop(path, ()):
                change(self._names_on_medium)

        self.operate("sync_directory", path, act)

    def lock(self, path: str) -> SimulatedLock:
        """Lock a file, or raise LockedByOther."""

        def act() -> SimulatedLock:
            if path in self._locks:
                raise LockedByOther("another simulated process")
            self._locks.add(path)
            return SimulatedLock(self._locks, path)

        return self.operate("lock", path, act)

    def operate(self, kind: str, path: str, act: Callable[[], T]) -> T:
        """Execute an operation, or its simulated failure."""
        self.operations += 1
        self.counts[kind] += 1
        if self.watch is not None:
            self.watch(Operation(self.operations, kind, path))
        if self.crash_at is not None and self.operations >= self.crash_at:
            if self.operations == self.crash_at and self._rng.random() < 0.5:
                act()
            raise SimulatedCrash(f"stopped in operation {self.operations}: {kind} {path}")
        number = self.failures.pop(self.operations, None)
        if number is not None:
            raise OSError(number, os.strerror(number), path)
        return act()

    def make_room(self, inode: _Inode, end: int) -> None:
        """Raise if a file would grow beyond the disk's capacity."""
        if self.capacity_bytes is not None and end > len(inode.content):
            used = sum(len(other.content) for other in {id(i): i for i in self._names.values()}.values())
            if used + end - len(inode.content) > self.capacity_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _existing(self, path: str) -> _Inode:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._names[path]

    def _change(self, path: str, change: Change) -> None:
        change(self._names)
        self._changes.setdefault(_parent(path), []).append(change)


class SimulatedFile:
    """A `DiskFile` of a simulated disk."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: _Inode, boot: int) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._boot = boot

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        """Write ``parts`` consecutively at an offset; durable after `sync`."""
        data = b"".join(parts)

        def act() -> None:
            self._disk.make_room(self._inode, offset + len(data))
            self._inode.write(offset, data)

        self._operate("write", act)

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes at an offset."""
        return self._operate("read", lambda: bytes(self._inode.content[offset : offset + length]))

    def sync(self) -> None:
        """Make the content durable."""
        if self._disk.sync_delay_s:
            time.sleep(self._disk.sync_delay_s)
        try:
            self._operate("sync", self._inode.sync)
        except OSError:
            self._inode.fail_sync(self._disk._rng)
            raise

    def preallocate(self, length: int) -> None:
        """Extend the file to ``length`` bytes with zeros."""

        def act() -> None:
            size = len(self._inode.content)
            if size < length:
                self._disk.make_room(self._inode, length)
                self._inode.write(size, bytes(length - size))

        self._operate("preallocate", act)

    def size(self) -> int:
        """Return the size in bytes."""
        return len(self._inode.content)

    def close(self) -> None:
        """Do nothing: a simulated file holds no resources."""

    def _operate(self, kind: str, act: Callable[[], T]) -> T:
        if self._boot != self._disk.boot:
            raise SimulatedCrash(f"{kind} {self._path} after the end of the process")
        return self._disk.operate(kind, self._path, act)


class SimulatedLock:
    """A `DiskLock` of a simulated disk."""

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def close(self) -> None:
        """Release the lock."""
        self._locks.discard(self._path)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
