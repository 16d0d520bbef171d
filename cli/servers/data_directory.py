"""The directory in which a server keeps everything: made, checked, locked, and emptied on request."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from ...errors import DataDirectoryInUse, StorageError

LOCK_FILE = "lock"
STORAGE_FOLDER = "storage"
METADATA_FILE = "metadata.sqlite"
BROKER_NAMES = (STORAGE_FOLDER, f"{METADATA_FILE}*")
"""What a broker leaves in its data directory, as patterns."""


class DataDirectory:
    """A locked data directory; the lock ends with the process, however that ends.

    Attributes:
        path: the directory.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def open(cls, path: Path) -> DataDirectory:
        """Make the directory if it is missing and lock it.

        Raises:
            StorageError: it cannot be made or written to.
            DataDirectoryInUse: another server holds it.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise StorageError(
                f"data directory {path} cannot be used: {exc.strerror}; make it writable or give --data-dir another one"
            ) from exc
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            raise DataDirectoryInUse(
                f"data directory {path} is in use by process {holder}; stop that or give --data-dir another one"
            ) from exc
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        return cls(path.absolute(), lock)

    @staticmethod
    def is_in_use(path: Path) -> bool:
        """Return whether a server holds the directory at this moment."""
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
        """Remove what earlier runs left under the given names; nothing else in the directory is touched."""
        for name in names:
            for found in self.path.glob(name):
                if found.is_dir() and not found.is_symlink():
                    shutil.rmtree(found)
                else:
                    found.unlink()

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)
