"""Removal of files that were read, and of no others.

A path can be given to another file at any time, for example by a program that writes a temporary file and renames it.
Deleting by path would delete a file that was never read. So a file is first renamed to a private name, where no other
program replaces it, then compared with the file that was read, and only then deleted or renamed. Another file goes back
to where it was. A private name holds the identity of the file that was read, so that `recover` can finish the removal
after a crash.
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
"""Prefix of private names. Files with it are never read."""
_PRIVATE_NAME = re.compile(rf"{re.escape(PRIVATE)}(\d+)-(\d+)-(\d+)-(.+)", re.DOTALL)
_NAME_BYTES_MAX = 255
_CRASHED_S = 10.0
"""Age of a private name from which on its instance counts as dead."""

Finish: TypeAlias = Callable[[Path, str], None]
"""Deletes or renames a file that was read, given its private path and its earlier name."""


class Identity(NamedTuple):
    """A file and its content, as it was read.

    Attributes:
        device: st_dev.
        inode: st_ino.
        stamp: see `stamp_of`.
    """

    device: int
    inode: int
    stamp: int


def identity_of(status: os.stat_result) -> Identity:
    """Return the identity of a file with this status."""
    return Identity(status.st_dev, status.st_ino, stamp_of(status))


def delete(private: Path, name: str) -> None:
    """Delete a file that was read; see `Finish`."""
    private.unlink(missing_ok=True)


def rename_with(suffix: str) -> Finish:
    """Return what renames a file that was read to its name with a suffix."""

    def rename(private: Path, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            private.rename(private.with_name(name + suffix))

    return rename


def remove(path: Path, read: Identity, finish: Finish) -> bool:
    """Remove a file if it is the one that was read and has not changed since; return whether it was.

    Raises:
        FileNotFoundError: the path is gone.
        OSError: the file cannot be removed.
    """
    if identity_of(os.stat(path)) != read:
        return False
    private = path.with_name(_private_name(path.name, read))
    path.rename(private)
    try:
        is_same = identity_of(os.stat(private)) == read
    except FileNotFoundError:
        is_same = False  # a symbolic link whose target was removed just now
    if is_same:
        _finish(private, path, finish)
    else:
        _put_back(private, path)
    return is_same


def _finish(private: Path, path: Path, finish: Finish) -> None:
    """Delete or rename a file that was read; give it its name back if that fails."""
    try:
        finish(private, path.name)
    except OSError:
        _put_back(private, path)
        raise


def recover(private: Path, finish: Finish | None) -> None:
    """Finish the removal that a crash interrupted, or put the file back if it is not the one that was read.

    Args:
        private: its path now.
        finish: what becomes of a file that was read; None to put it back too.

    Raises:
        OSError: the file cannot be removed.
    """
    found = _PRIVATE_NAME.fullmatch(private.name)
    if found is None:
        return
    try:
        status = os.stat(private)
    except FileNotFoundError:
        return  # another instance was faster
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
    """Give a file its name back, or the name with a number if yet another file has it by now."""
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
