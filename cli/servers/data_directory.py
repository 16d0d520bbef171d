"""The directory in which a server keeps everything: made, checked, locked, and emptied on request."""

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
    def open(cls, path: Path, *, is_passage: bool = False) -> DataDirectory:
        """Make the directory if it is missing, close it to others and lock it.

        Args:
            path: of the directory.
            is_passage: others come through to what is theirs below it; only to that, and cannot see what is in it.

        Raises:
            StorageError: it cannot be made or written to.
            DataDirectoryInUse: another server holds it.
        """
        try:
            _make(path, is_passage)
            _close(path, is_passage)
            lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise StorageError(
                f"data directory {path} cannot be used: {exc.strerror}; make it writable or give --data-dir another one"
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
        """Raise DataDirectoryInUse if a server holds the directory; nothing is made or locked.

        A second start finds the directory in use as well as the ports. The directory is the better explanation, so it
        is checked first.
        """
        if cls.is_in_use(path):
            raise _in_use(path)

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

    def close_all_but(self, name: str) -> None:
        """Take all rights of others from what lies in the directory, but for one name."""
        for found in self.path.iterdir():
            mode = found.lstat().st_mode
            if found.name != name and not stat.S_ISLNK(mode) and mode & 0o077:
                found.chmod(stat.S_IMODE(mode) & ~0o077)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._lock)


def _make(path: Path, is_passage: bool) -> None:
    before = os.umask(0o022) if is_passage else None  # those above it are ways, too; here is one thread
    try:
        path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    finally:
        if before is not None:
            os.umask(before)


def _close(path: Path, is_passage: bool) -> None:
    """Take all rights of others from a directory of this process's user, or all but that of coming through.

    Those of its group stay as somebody has set them, unless others come through: then nothing in it may be readable.
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
        f"data directory {path} is in use by process {holder or 'unknown'}; stop that or give --data-dir another one"
    )
