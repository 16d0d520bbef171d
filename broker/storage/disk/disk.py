"""The few file operations that the storage needs, and their implementation for local disks.

Everything durable goes through this interface, so that tests can replace it with a simulated disk (`simulated_disk.py`)
that loses unsynced data, fills up, or fails. Errors are OSError; the callers translate them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Sequence
from typing import Protocol


class DiskFile(Protocol):
    """One open file."""

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        """Write ``parts`` consecutively from ``offset`` on; durable only after `sync`."""

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes; fewer only at the end of the file."""

    def sync(self) -> None:
        """Sync all content written so far. The name in the directory is synced separately (`Disk.sync_directory`)."""

    def preallocate(self, length: int) -> None:
        """Extend the file to at least ``length`` bytes with allocated zeros; follow with `sync`."""

    def size(self) -> int:
        """Return the length in bytes."""

    def close(self) -> None:
        """Close the file; does not sync."""


class DiskLock(Protocol):
    """A lock held until closed or until the process ends."""

    def close(self) -> None:
        """Release the lock."""


class LockedByOther(Exception):
    """The lock is held by another process; the text names it as far as known."""


class Disk(Protocol):
    """A file system, with paths separated by ``/``."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open for reading and writing; with ``create``, create a missing file, durable after `sync_directory`."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file within its directory, replacing an existing file; atomic."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def forget_cached(self, path: str) -> None:
        """Release the system's page cache of the file, except pages that are not on disk yet.

        For files that are unlikely to be read: a write that needs pages unused for a long time takes 3 ms per MB where
        the host of a virtual machine reclaims such memory, and 0.3 ms where pages are freed continuously.
        """

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Create a directory with its parents, durably, unless it exists."""

    def sync_directory(self, path: str) -> None:
        """Sync all names created, changed and removed in the directory so far."""

    def lock(self, path: str) -> DiskLock:
        """Take the exclusive lock of a file, or raise LockedByOther."""


class _LocalFile:
    def __init__(self, fd: int, sync_delay_s: float) -> None:
        self._fd = fd
        self._sync_delay_s = sync_delay_s

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        total = sum(map(len, parts))
        written = os.pwritev(self._fd, parts, offset)
        while written < total:  # full disk or signal: writing the rest raises the cause
            rest = b"".join(parts)[written:]
            step = os.pwrite(self._fd, rest, offset + written)
            if step == 0:
                raise OSError(errno.EIO, "write accepted nothing")
            written += step

    def read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        while 0 < len(data) < length:
            more = os.pread(self._fd, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def sync(self) -> None:
        if self._sync_delay_s:
            time.sleep(self._sync_delay_s)
        os.fdatasync(self._fd)

    def preallocate(self, length: int) -> None:
        # Zeros instead of fallocate: syncing into unwritten extents costs two to four times as much, because each such
        # sync changes the file system's metadata.
        chunk = bytes(1024 * 1024)
        offset = self.size()
        while offset < length:
            step = min(len(chunk), length - offset)
            self.write(offset, [chunk[:step]])
            offset += step

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        with contextlib.suppress(OSError):  # everything that matters has been synced
            os.close(self._fd)


class LocalDisk:
    """The local file system.

    Args:
        sync_delay_s: delay added to each file sync, to simulate a slow disk.
    """

    def __init__(self, sync_delay_s: float = 0.0) -> None:
        self._sync_delay_s = sync_delay_s

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open or create the file in binary mode."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return _LocalFile(os.open(path, flags, 0o644), self._sync_delay_s)

    def rename(self, old: str, new: str) -> None:
        """Rename atomically, replacing an existing file."""
        os.rename(old, new)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.remove(path)

    def forget_cached(self, path: str) -> None:
        """Release the page cache of the file, where the system supports it; errors are ignored."""
        with contextlib.suppress(OSError, AttributeError):  # not available on all systems
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(directory))

    def make_directory(self, path: str) -> None:
        """Create a directory with its parents, durably, unless it exists."""
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.make_directory(parent)
        os.mkdir(path)
        self.sync_directory(parent)

    def sync_directory(self, path: str) -> None:
        """Sync the directory itself."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> DiskLock:
        """Lock the file and write our process id into it, for the error message of other processes."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise LockedByOther(f"process {holder}" if holder else "another process") from exc
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return os.fdopen(fd)
