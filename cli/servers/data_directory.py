"""A server's data directory: creating, checking, locking, and emptying it."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from pathlib import Path

from ...errors import DataDirectoryInUse, StorageError

PRIVATE = 0o700
PASSAGE = 0o711
LOCK_FILE = "lock"
STORAGE_FOLDER = "storage"
METADATA_FILE = "metadata.sqlite"
BROKER_NAMES = (STORAGE_FOLDER, f"{METADATA_FILE}*")
"""Patterns of the names that a broker creates in its data directory."""


class DataDirectory:
    """A locked data directory; the lock is released when the process ends, even if it is killed.

    Attributes:
        path: the directory.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def open(cls, path: Path, *, is_passage: bool = False) -> DataDirectory:
        """Create the directory if it is missing, remove access by others, and lock it.

        Args:
            path: directory path.
            is_passage: whether other users may traverse it to reach their own files below, without listing it.

        Raises:
            StorageError: the directory cannot be created or written to.
            DataDirectoryInUse: another server has locked it.
        """
        try:
            _make(path, is_passage)
            _close(path, is_passage)
            lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise StorageError(
                f"data directory {path} cannot be used: {exc.strerror}; make it writable or use another --data-dir"
            ) from exc
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            os.close(lock)
            raise _in_use(path) from exc
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        return cls(path.absolute(), lock)

    @classmethod
    def check_free(cls, path: Path) -> None:
        """Raise DataDirectoryInUse if a server has locked the directory, without creating or locking it.

        When a server is started twice, both the directory and the ports are in use. The error about the directory is
        more helpful, so it is checked first.
        """
        if cls.is_in_use(path):
            raise _in_use(path)

    @staticmethod
    def is_in_use(path: Path) -> bool:
        """Return whether a server currently has the directory locked."""
        try:
            lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        else:
            return False
        finally:
            os.close(lock)

    def wipe(self, names: tuple[str, ...]) -> None:
        """Delete files of earlier runs with the given names; other files in the directory are kept."""
        for name in names:
            for found in self.path.glob(name):
                if found.is_dir() and not found.is_symlink():
                    shutil.rmtree(found)
                else:
                    found.unlink()

    def close_all_but(self, name: str) -> None:
        """Remove access by others from all entries of the directory, except one."""
        for found in self.path.iterdir():
            mode = found.lstat().st_mode
            if found.name != name and not stat.S_ISLNK(mode) and mode & 0o077:
                found.chmod(stat.S_IMODE(mode) & ~0o077)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)


def _make(path: Path, is_passage: bool) -> None:
    before = (
        os.umask(0o022) if is_passage else None
    )  # parent directories must be traversable, too; changing the umask is safe with a single thread
    try:
        path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    finally:
        if before is not None:
            os.umask(before)


def _close(path: Path, is_passage: bool) -> None:
    """Remove access by others from a directory owned by this process's user, except traversal if `is_passage`.

    The group's permissions are kept, unless others may traverse the directory: then only the owner may list it.
    """
    status = path.stat()
    if status.st_uid != os.geteuid():
        return
    before = stat.S_IMODE(status.st_mode)
    wanted = PASSAGE if is_passage else before & ~0o007
    if wanted != before:
        path.chmod(wanted)


def _in_use(path: Path) -> DataDirectoryInUse:
    try:
        holder = (path / LOCK_FILE).read_text(errors="replace").strip()
    except OSError:
        holder = ""
    return DataDirectoryInUse(
        f"data directory {path} is in use by process {holder or 'unknown'}: stop it or use another --data-dir"
    )
