"""The directory for a worker's instance sockets: in its data directory, or in /tmp if that path is too long.

Design: the directory in /tmp has a random name, and its path is stored in the data directory. A killed worker leaves it
behind; its next start removes it unless it is still locked. The lock is released when the process ends, so a worker
that is slow to stop keeps its directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

from ..instance.trees import remove_tree
from .control import SOCKET_PATH_BYTES_MAX

SHORT_PLACES = ("/tmp", "/var/tmp")  # noqa: S108 (created by mkdtemp)
"""Directories for sockets if TMPDIR also has a long path."""
SHORT_PREFIX = "magnetar-"
NOTE_SUFFIX = ".short"
_LOCK = "lock"
_SOCKET_NAME_BYTES = len("0123456789ab.sock")


class SocketDirectory:
    """A worker's socket directory, for one run of the worker.

    Attributes:
        path: directory for the sockets.
    """

    def __init__(self, wanted: Path) -> None:
        """Create the directory; `wanted` is used if paths in it are short enough, or as a last resort."""
        self._lock: int | None = None
        note = wanted.with_name(wanted.name + NOTE_SUFFIX)
        _remove_noted(note)
        if not has_room_for_sockets(wanted):
            for place in (tempfile.gettempdir(), *SHORT_PLACES):
                if has_room_for_sockets(Path(place, f"{SHORT_PREFIX}12345678")):
                    with contextlib.suppress(OSError):
                        self.path = Path(tempfile.mkdtemp(prefix=SHORT_PREFIX, dir=place))
                        self._lock = _locked(self.path)
                        _write(note, self.path)
                        return
        self.path = wanted
        wanted.mkdir(parents=True, exist_ok=True, mode=0o700)

    def close(self) -> None:
        """Remove the directory, unless it is in the worker's data directory."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def has_room_for_sockets(directory: Path) -> bool:
    """Return whether socket paths in a directory are within the kernel's limit."""
    return len(os.fsencode(directory)) + 1 + _SOCKET_NAME_BYTES <= SOCKET_PATH_BYTES_MAX


def _write(note: Path, path: Path) -> None:
    with contextlib.suppress(OSError):  # on a full disk the directory is left behind if the worker is killed
        note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        note.write_bytes(os.fsencode(path))


def _locked(directory: Path) -> int:
    """Lock a directory, and return the file that holds the lock until it is closed.

    Raises:
        OSError: the directory is locked by another process, or missing.
    """
    file = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    return file


def _remove_noted(note: Path) -> None:
    """Remove the directory of an earlier run, if it can be identified as such and is unused."""
    try:
        left = Path(os.fsdecode(note.read_bytes()))
        status = left.lstat()
        if not left.name.startswith(SHORT_PREFIX) or not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            return
        lock = _locked(left)
    except (OSError, ValueError):  # no path was stored, it was already removed, or its worker is alive
        return
    for found in left.iterdir():  # directories of isolated instances
        remove_tree(found)
    shutil.rmtree(left, ignore_errors=True)
    os.close(lock)
