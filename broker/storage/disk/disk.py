"""The few file operations that the storage needs, and their plain implementation.

Everything durable goes through this interface, so that a simulated disk can take its place (`simulated_disk.py`): one
that loses what was not synced, runs full, or fails. Errors are OSError; the callers translate them.
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
        """Write ``parts`` one after the other from ``offset`` on; durable only after `sync`."""

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes; fewer only at the end of the file."""

    def sync(self) -> None:
        """Return when all content written so far is on the disk. The name in its directory is another matter."""

    def preallocate(self, length: int) -> None:
        """Give the file at least ``length`` bytes, the new ones zero, their blocks allocated; follow with `sync`."""

    def size(self) -> int:
        """Return the length in bytes."""

    def close(self) -> None:
        """Give the file back; does not sync."""


class DiskLock(Protocol):
    """A lock held until closed or until the process ends."""

    def close(self) -> None:
        """Let go."""


class LockedByOther(Exception):
    """The lock is held; the text names the holder as far as known."""


class Disk(Protocol):
    """A place with directories and files, named by paths with ``/``."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open for reading and writing; create it if asked to and absent, durably after `sync_directory`."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name in the same directory, replacing what has that name; atomic."""

    def remove(self, path: str) -> None:
        """Take the name away."""

    def forget_cached(self, path: str) -> None:
        """Release the system's page cache of the file, except pages that are not on disk yet.

        For files that are unlikely to be read: a write that needs pages unused for a long time takes 3 ms per MB where
        the host of a virtual machine reclaims such memory, and 0.3 ms where pages are freed continuously.
        """

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Create a directory with its parents, durably; fine if it is there."""

    def sync_directory(self, path: str) -> None:
        """Return when all names made, changed and removed in it so far are on the disk."""

    def lock(self, path: str) -> DiskLock:
        """Take the exclusive lock of that file, or raise LockedByOther."""


class _LocalFile:
    def __init__(self, fd: int, sync_delay_s: float) -> None:
        self._fd = fd
        self._sync_delay_s = sync_delay_s

    def write(self, offset: int, parts: Sequence[bytes]) -> None:
        total = sum(map(len, parts))
        written = os.pwritev(self._fd, parts, offset)
        while written < total:  # a full disk or a signal: say what stopped it by trying the rest
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
        # Zeros instead of fallocate: syncing into extents that were never written costs two to four times as much,
        # because each such sync changes the file system's own records.
        chunk = bytes(1024 * 1024)
        offset = self.size()
        while offset < length:
            step = min(len(chunk), length - offset)
            self.write(offset, [chunk[:step]])
            offset += step

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        with contextlib.suppress(OSError):  # whatever mattered has been synced
            os.close(self._fd)


class LocalDisk:
    """The machine's file system.

    Args:
        sync_delay_s: added to each sync of a file, to stand in for a slow disk.
    """

    def __init__(self, sync_delay_s: float = 0.0) -> None:
        self._sync_delay_s = sync_delay_s

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """See `Disk`."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return _LocalFile(os.open(path, flags, 0o644), self._sync_delay_s)

    def rename(self, old: str, new: str) -> None:
        """See `Disk`."""
        os.rename(old, new)

    def remove(self, path: str) -> None:
        """See `Disk`."""
        os.remove(path)

    def forget_cached(self, path: str) -> None:
        """See `Disk`; what cannot be done is not missed."""
        with contextlib.suppress(OSError, AttributeError):  # some systems have no such call
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)

    def list(self, directory: str) -> list[str]:
        """See `Disk`."""
        return sorted(os.listdir(directory))

    def make_directory(self, path: str) -> None:
        """See `Disk`."""
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.make_directory(parent)
        os.mkdir(path)
        self.sync_directory(parent)

    def sync_directory(self, path: str) -> None:
        """See `Disk`."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> DiskLock:
        """See `Disk`; the holder's process id is written into the file for the error message of the next one."""
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
