"""Safe removal of files that were read.

A path can refer to another file at any time, for example when a program writes a temporary file and renames it.
Deleting by path could delete a file that was never read. So a file is first renamed to a private name that no other
program uses, then compared with the file that was read, and only then deleted or renamed. If the files differ, the
original name is restored. A private name contains the identity of the file that was read, so that `recover` can finish
the removal after a crash.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from .file_text import stamp_of

PRIVATE = ".magnetar-read-"
"""Prefix of private names. Files with this prefix are never read."""
_PRIVATE_NAME = re.compile(rf"{re.escape(PRIVATE)}(\d+)-(\d+)-(\d+)-(.+)", re.DOTALL)
_NAME_BYTES_MAX = 255
_CRASHED_S = 10.0
"""Age in seconds after which the owner of a private name is assumed to have crashed."""

Finish: TypeAlias = Callable[[Path, str], None]
"""Deletes or renames a file that was read; called with its private path and its original name."""


class Identity(NamedTuple):
    """The identity and content version of a file that was read.

    Attributes:
        device: st_dev.
        inode: st_ino.
        stamp: result of `stamp_of`.
    """

    device: int
    inode: int
    stamp: int


def identity_of(status: os.stat_result) -> Identity:
    """Return the identity of a file with this status."""
    return Identity(status.st_dev, status.st_ino, stamp_of(status))


def delete(private: Path, name: str) -> None:
    """Delete a file that was read; a `Finish`."""
    private.unlink(missing_ok=True)


def rename_with(suffix: str) -> Finish:
    """Return a `Finish` that adds a suffix to the name of a file that was read."""

    def rename(private: Path, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            private.rename(private.with_name(name + suffix))

    return rename


def remove(path: Path, read: Identity, finish: Finish) -> bool:
    """Remove a file if it is the one that was read, unchanged. Return whether it was removed.

    Raises:
        FileNotFoundError: the path does not exist.
        OSError: the file cannot be removed.
    """
    if identity_of(os.stat(path)) != read:
        return False
    private = path.with_name(_private_name(path.name, read))
    path.rename(private)
    try:
        is_same = identity_of(os.stat(private)) == read
    except FileNotFoundError:
        is_same = False  # a symbolic link whose target has just been removed
    if is_same:
        _finish(private, path, finish)
    else:
        _put_back(private, path)
    return is_same


def _finish(private: Path, path: Path, finish: Finish) -> None:
    """Delete or rename a file that was read; restore its name on failure."""
    try:
        finish(private, path.name)
    except OSError:
        _put_back(private, path)
        raise


def recover(private: Path, finish: Finish | None) -> None:
    """Finish a removal interrupted by a crash, or restore the file's name if it is not the one that was read.

    Args:
        private: the file's current path.
        finish: deletes or renames a file that was read; None to always restore the name.

    Raises:
        OSError: the file cannot be removed.
    """
    found = _PRIVATE_NAME.fullmatch(private.name)
    if found is None:
        return
    try:
        status = os.stat(private)
    except FileNotFoundError:
        return  # another instance recovered it meanwhile
    if time.time() - status.st_ctime < _CRASHED_S:
        return
    name = found[4]
    if finish is not None and identity_of(status) == Identity(*map(int, found.groups()[:3])):
        _finish(private, private.with_name(name), finish)
    else:
        _put_back(private, private.with_name(name))


def _private_name(name: str, read: Identity) -> str:
    prefix = f"{PRIVATE}{read.device}-{read.inode}-{read.stamp}-"
    return prefix + os.fsdecode(os.fsencode(name)[: _NAME_BYTES_MAX - len(prefix)])


def _put_back(private: Path, path: Path) -> None:
    """Restore a file's name, adding a number if the name is in use."""
    target, number = path, 0
    while True:
        try:
            os.link(private, target, follow_symlinks=False)
            break
        except FileExistsError:
            number += 1
            target = path.with_name(f"{path.name}.{number}")
        except OSError:  # a file system without hard links
            if target.exists():
                number += 1
                target = path.with_name(f"{path.name}.{number}")
                continue
            private.rename(target)
            return
    private.unlink()
