"""Create, take over and remove directories that user code writes to, in a worker that runs as root.

The owner of a directory may fill it with symbolic and hard links, pipes and endless trees. So root follows no links in
it, changes no owners in it, and lets its owner remove it. Its parent directory always belongs to root, so that no other
user can change names in it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import threading
import uuid
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from .logs.file import FILE_BYTES_MAX, open_log
from .system_user import SystemUser

PRIVATE = 0o700
PASSAGE = 0o711
"""Mode of a directory that others may pass through but not list."""
READABLE = 0o755
REMOVAL_S = 30.0
_RM = "/bin/rm"
_COPY_BYTES = 2 * FILE_BYTES_MAX
_PIECE_BYTES = 1024 * 1024
_LOGS_MAX = 1000
"""Maximum number of log files copied to a new owner."""


def make_passage(directory: Path, below: Path) -> None:
    """Create a directory and its parents below ``below`` so that others can pass through; blocking."""
    ways = [directory, *directory.parents]
    for way in reversed(ways[: ways.index(below)]):
        way.mkdir(mode=PASSAGE, exist_ok=True)
        if stat.S_IMODE(way.lstat().st_mode) != PASSAGE:
            way.chmod(PASSAGE)


def make_private(directory: Path, user: SystemUser) -> None:
    """Create an empty directory owned by a user, in a directory owned by root; blocking."""
    directory.mkdir(mode=PRIVATE)
    os.chown(directory, user.uid, user.gid, follow_symlinks=False)


def hand_over(directory: Path, user: SystemUser, discard: Callable[[Path], None]) -> None:
    """Make a user the owner of a log directory, copying the logs of an earlier owner; blocking.

    Args:
        directory: log directory, in a directory owned by root.
        user: new owner.
        discard: removes a directory eventually.
    """
    try:
        owner = directory.lstat()
    except FileNotFoundError:
        make_private(directory, user)
        return
    if owner.st_uid == user.uid and stat.S_ISDIR(owner.st_mode):
        return
    before = directory.with_name(f".{uuid.uuid4().hex}")
    directory.rename(before)
    make_private(directory, user)
    with contextlib.suppress(OSError):  # not a directory
        for found in islice(before.iterdir(), _LOGS_MAX):
            with contextlib.suppress(OSError):
                _copy_log(found, directory / found.name, user)
    discard(before)


def _copy_log(source: Path, target: Path, user: SystemUser) -> None:
    with open(open_log(source, os.O_RDONLY), "rb") as log:
        content = log.read(_COPY_BYTES)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, content)
        os.fchown(descriptor, user.uid, user.gid)
    finally:
        os.close(descriptor)


def remove_tree(directory: Path) -> None:
    """Remove a directory of any owner, as far as possible; blocking.

    A directory of another user is emptied by a process of that user: links cannot make it remove files of root, and a
    deep tree exhausts only the file descriptors and memory of that process.
    """
    try:
        owner = directory.lstat()
    except OSError:
        return
    if not stat.S_ISDIR(owner.st_mode):
        with contextlib.suppress(OSError):
            directory.unlink()
        return
    if os.geteuid() != 0 or owner.st_uid == 0:
        shutil.rmtree(directory, ignore_errors=True)
        return
    # The second attempt handles entries without owner permissions; rm does not follow links either.
    as_owner: dict[str, Any] = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": ()}
    for identity in (as_owner, dict[str, Any]()):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                [_RM, "-rf", "--", str(directory)], cwd="/", env={}, timeout=REMOVAL_S,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
                **identity,
            )  # fmt: skip
        with contextlib.suppress(OSError):
            directory.rmdir()
        if not directory.exists():
            return


class Removal:
    """Removes directories one after the other in the background, so that slow removals block no caller."""

    def __init__(self, trash: Path) -> None:
        """Create a remover without starting the thread.

        Args:
            trash: directory that holds directories to be removed; created on demand.
        """
        self._trash = trash
        self._doomed: SimpleQueue[Path] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def discard(self, directory: Path) -> None:
        """Move a directory out of the way immediately, and remove it later; blocks briefly."""
        doomed = self._trash / uuid.uuid4().hex
        try:
            self._trash.mkdir(mode=PASSAGE, exist_ok=True)
            self._trash.chmod(PASSAGE)
            directory.rename(doomed)
        except FileNotFoundError:
            return
        except OSError:  # on another disk
            doomed = directory.with_name(f".{doomed.name}")
            with contextlib.suppress(OSError):
                directory.rename(doomed)
        self._remove_later(doomed)

    def remove_left(self) -> None:
        """Remove directories that an earlier run of the worker left in the trash."""
        with contextlib.suppress(OSError):
            for found in self._trash.iterdir():
                self._remove_later(found)

    def _remove_later(self, doomed: Path) -> None:
        self._doomed.put(doomed)
        with self._starting:
            if self._thread is None:
                # A daemon thread, so that the process can exit without waiting for it; the next run continues.
                self._thread = threading.Thread(target=self._run, name="removal", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with contextlib.suppress(Exception):
                remove_tree(self._doomed.get())


def copy_regular(source: Path, target: Path) -> None:
    """Copy the regular files of a tree, which another process may change meanwhile, into a new tree.

    Links and pipes are skipped. Blocking.

    Raises:
        OSError: copying failed, for example because the disk is full.
    """
    for directory, _, names, descriptor in os.fwalk(source, follow_symlinks=False):
        made = target / Path(directory).relative_to(source)
        made.mkdir()
        made.chmod(READABLE)
        for name in names:
            _copy_file(descriptor, name, made / name)


def _copy_file(directory: int, name: str, target: Path) -> None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    except OSError:
        return
    with open(descriptor, "rb") as found:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return
        with target.open("xb") as copy:
            left = status.st_size
            while left > 0 and (piece := found.read(min(left, _PIECE_BYTES))):
                copy.write(piece)
                left -= len(piece)
        target.chmod(0o755 if status.st_mode & 0o111 else 0o644)
