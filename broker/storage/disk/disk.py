"""The file operations that storage needs, and their implementation for local disks.

All durable data goes through this interface, so that tests can replace it with a simulated disk (`simulated_disk.py`)
that loses unsynced data, becomes full, or fails. Errors are raised as OSError, and callers translate them.
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
    """An open file."""

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        """Write ``parts`` consecutively from ``offset`` on; durable only after `sync`."""

    def read(self, offset: int, length: int) -> bytes:
        """Read ``length`` bytes, or fewer at the end of the file."""

    def sync(self) -> None:
        """Sync all content written so far, but not the file's directory entry (see `Disk.sync_directory`)."""

    def preallocate(self, length: int) -> None:
        """Extend the file to at least ``length`` bytes with allocated zeros; durable only after `sync`."""

    def size(self) -> int:
        """Return the length in bytes."""

    def close(self) -> None:
        """Close the file without syncing it."""


class DiskLock(Protocol):
    """A file lock that is held until it is closed or the process exits."""

    def close(self) -> None:
        """Release the lock."""


class LockedByOther(Exception):
    """The lock is held by another process, which the message names if known."""


class Disk(Protocol):
    """A file system; path components are separated by ``/``."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open a file for reading and writing; a file created by ``create`` is durable after `sync_directory`."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file within its directory atomically, replacing an existing file."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def forget_cached(self, path: str) -> None:
        """Release the file's pages in the system's page cache, except pages that are not on disk yet.

        Use this for files that are unlikely to be read. If the host of a virtual machine reclaims pages that have been
        unused for a long time, writing to new pages takes 3 ms per MB, compared to 0.3 ms if pages are released
        continuously.
        """

    def list(self, directory: str) -> list[str]:
        """Return the sorted file names in a directory."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents durably, unless it exists."""

    def sync_directory(self, path: str) -> None:
        """Sync all creations, renames and removals of files in the directory so far."""

    def lock(self, path: str) -> DiskLock:
        """Acquire the exclusive lock of a file, or raise LockedByOther."""


class _LocalFile:
    def __init__(self, fd: int, sync_delay_s: float) -> None:
        self._fd = fd
        self._sync_delay_s = sync_delay_s

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        total = sum(map(len, parts))
        written = os.pwritev(self._fd, parts, offset)
        while written < total:  # after a short write, writing the rest either succeeds or raises the cause
            rest = b"".join(parts)[written:]
            step = os.pwrite(self._fd, rest, offset + written)
            if step == 0:
                raise OSError(errno.EIO, "write() wrote 0 bytes")
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
        # Write zeros instead of calling fallocate: syncing writes to unwritten extents takes two to four times as long,
        # because each such sync changes the file system's metadata.
        chunk = bytes(1024 * 1024)
        offset = self.size()
        while offset < length:
            step = min(len(chunk), length - offset)
            self.write(offset, [chunk[:step]])
            offset += step

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        with contextlib.suppress(OSError):  # all relevant content has been synced before
            os.close(self._fd)


class LocalDisk:
    """The local file system.

    Args:
        sync_delay_s: delay added to each file sync, to simulate a slow disk.
    """

    def __init__(self, sync_delay_s: float = 0.0) -> None:
        self._sync_delay_s = sync_delay_s

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open or create a file in binary mode."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return _LocalFile(os.open(path, flags, 0o644), self._sync_delay_s)

    def rename(self, old: str, new: str) -> None:
        """Rename a file atomically, replacing an existing file."""
        os.rename(old, new)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.remove(path)

    def forget_cached(self, path: str) -> None:
        """Release the file's page cache if the system supports it, ignoring errors."""
        with contextlib.suppress(OSError, AttributeError):  # not available on all systems
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)

    def list(self, directory: str) -> list[str]:
        """Return the sorted file names in a directory."""
        return sorted(os.listdir(directory))

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents durably, unless it exists."""
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.make_directory(parent)
        os.mkdir(path)
        self.sync_directory(parent)

    def sync_directory(self, path: str) -> None:
        """Sync a directory."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> DiskLock:
        """Lock a file and write the process id to it, for the error messages of other processes."""
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
