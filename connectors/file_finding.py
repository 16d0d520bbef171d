"""File discovery for the ``file`` source.

A file is identified by its inode. A symbolic link and its target count as one file, and so do hard links. The file's
name is the alphabetically first of its names, with symbolic links last. Symbolic links to directories are not followed.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from ..errors import InvalidConfig
from .file_removal import PRIVATE


class Choice(Protocol):
    """The options of `file_source.FileSourceConfig` that select files."""

    recurse: bool
    tail: bool
    processed_file_suffix: str
    file_filter: str
    path_filter: str
    ignore_hidden_files: bool


class Found(NamedTuple):
    """A file found by a scan.

    Attributes:
        path: the file's name, as defined in the module docstring.
        key: the file's identity.
        status: stat result of the file itself, not of a symbolic link.
        others: the file's other names in the directory.
    """

    path: Path
    key: str
    status: os.stat_result
    others: tuple[Path, ...] = ()


class FileFinder:
    """Scans for files.

    Attributes:
        root: the directory, or the single file.
        interrupted: files with private names found by the last scan; see `file_removal`.
    """

    def __init__(self, root: Path, choice: Choice, complain: Callable[[str], None]) -> None:
        """Create a finder.

        Args:
            root: the directory, or the single file.
            choice: options that select files in the directory.
            complain: called with a message for each name that cannot be read.

        Raises:
            InvalidConfig: a filter is not a valid regular expression.
        """
        self.root = root
        self.interrupted: list[Path] = []
        self._choice = choice
        self._complain = complain
        self._file_filter = expression("fileFilter", choice.file_filter)
        self._path_filter = expression("pathFilter", choice.path_filter)

    def find(self) -> list[Found]:
        """Return the files to read.

        Raises:
            FileNotFoundError: the directory, or the single file, does not exist.
            OSError: the directory or file cannot be read.
        """
        return self._files(self.root, is_any=False)

    def find_any(self) -> list[Found]:
        """Return the files of the directory under any name. Raises the same exceptions as `find`."""
        return self._files(self.root if self.root.is_dir() else self.root.parent, is_any=True)

    def _files(self, top: Path, *, is_any: bool) -> list[Found]:
        self.interrupted = []
        try:
            root = os.stat(top)
            if stat.S_ISREG(root.st_mode):
                return [Found(top, key_of(root, root), root)]
            with os.scandir(top):
                pass  # entries may be unreadable, but the directory itself must be readable
        except FileNotFoundError:
            self.interrupted = list(
                top.parent.glob(f"{PRIVATE}*-{glob.escape(top.name)}")
            )  # one of them may be the single file
            raise
        return _by_file(self._walk(top, top, root, is_any=is_any))

    def _walk(
        self, top: Path, directory: Path, root: os.stat_result, *, is_any: bool
    ) -> Iterator[tuple[bool, Path, str, os.stat_result]]:
        """Yield, for each name, whether it is a symbolic link, its path, and the file's key and status."""
        choice = self._choice
        is_read = is_any or not choice.path_filter or bool(self._path_filter.fullmatch(str(directory.relative_to(top))))
        suffix = choice.processed_file_suffix
        try:
            with os.scandir(directory) as found:
                entries = list(found)
        except OSError as error:
            self._complain(f"skipped directory {directory}: {error.strerror}")
            return
        for entry in entries:
            if entry.name.startswith(PRIVATE):
                self.interrupted.append(Path(entry.path))
                continue
            if choice.ignore_hidden_files and entry.name.startswith(".") and not is_any:
                continue
            try:
                if entry.is_dir(follow_symlinks=False):
                    if choice.recurse:
                        yield from self._walk(top, Path(entry.path), root, is_any=is_any)
                elif is_read and entry.is_file():
                    is_named_so = self._file_filter.fullmatch(entry.name)
                    if is_any or (is_named_so and not (suffix and entry.name.endswith(suffix))):
                        status = os.stat(entry.path)
                        yield entry.is_symlink(), Path(entry.path), key_of(status, root), status
            except FileNotFoundError:
                continue  # removed meanwhile
            except OSError as error:
                self._complain(f"skipped {entry.path}: {error.strerror}")


def _by_file(names: Iterator[tuple[bool, Path, str, os.stat_result]]) -> list[Found]:
    """Merge the names of each file."""
    files: dict[str, list[tuple[bool, Path, os.stat_result]]] = {}
    for is_link, path, key, status in names:
        files.setdefault(key, []).append((is_link, path, status))
    found: list[Found] = []
    for key, same in files.items():
        if len(same) > 1:
            same.sort(key=lambda name: name[:2])
        (_, path, status), *others = same
        found.append(Found(path, key, status, tuple(other for _, other, _ in others)))
    return found


def key_of(status: os.stat_result, root: os.stat_result) -> str:
    """Return a file's identity.

    The device number is omitted if it equals the root's, because a reboot may change it.
    """
    same = status.st_dev == root.st_dev
    return str(status.st_ino) if same else f"{status.st_dev}:{status.st_ino}"


def expression(key: str, text: str) -> re.Pattern[str]:
    """Compile a filter. Raises InvalidConfig if it is not a valid regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise InvalidConfig(f"invalid {key} {text!r}: {error}") from None
