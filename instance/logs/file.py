"""Write and read the log of an instance: one file for all output of the function, limited by rotation.

Lines are ``2026-11-21T10:11:12.345Z INFO text``; each line of multi-line prints and tracebacks gets the prefix, so that
every line is complete. At `FILE_BYTES_MAX` the file becomes ``.1`` and the previous ``.1`` is dropped. So an instance
uses at most twice that size on disk.

Texts are truncated, with a note, before they are processed. A function may print a value of hundreds of megabytes, and
each step of logging (splitting into lines, adding timestamps, encoding) would copy it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import stat
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ..gate import runs_within

FILE_BYTES_MAX = 10 * 1024 * 1024
TAIL_BYTES_MAX = 4 * 1024 * 1024
LINE_CHARACTERS_MAX = 64 * 1024
TEXT_CHARACTERS_MAX = 1024 * 1024
"""Limit of one print or log record."""
TEXT_LINES_MAX = 10_000

Observer = Callable[[str, str], None]


class InstanceLog:
    """The log of one instance; thread-safe.

    Attributes:
        observers: called on the writing thread with level and bounded text of each piece; used for the log topic.
        hiding: removes secrets from a string.
    """

    def __init__(self, path: Path, *, file_bytes_max: int = FILE_BYTES_MAX) -> None:
        """Open the log file.

        Args:
            path: path of the file; its directory is created.
            file_bytes_max: size at which the file is rotated.
        """
        self.path = path
        self.observers: list[Observer] = []
        self.hiding: Callable[[str], str] = str
        self._file_bytes_max = file_bytes_max
        self._lock = threading.RLock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = -1
        self._bytes = 0
        self._open()

    def _open(self) -> None:
        descriptor = open_log(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor
        self._bytes = os.fstat(descriptor).st_size

    def write(self, level: str, text: str, *, to_file_only: bool = False) -> None:
        """Append a text, line by line; lines are lost if the disk is full, without failing the function's messages.

        Args:
            level: log level of the lines.
            text: string of any length, truncated as by `bounded_lines`.
            to_file_only: skip the observers, because the text is about them.
        """
        self.write_all(level, (text,), to_file_only=to_file_only)

    def write_all(self, level: str, texts: Sequence[str], *, to_file_only: bool = False) -> None:
        """Append several texts in one batch, as by `write`."""
        shown = [bounded_lines(self.hiding(text)) for text in texts]
        now = datetime.now(UTC).isoformat(timespec="milliseconds")[:-6]
        begin = f"{now}Z {level} "
        blocks = ["".join([f"{begin}{line}\n" for line in lines]) for lines in shown]
        for run in runs_within(map(len, blocks), len(blocks), TEXT_CHARACTERS_MAX):
            self._append("".join(blocks[run]).encode("utf-8", "backslashreplace"))
        if self.observers and not to_file_only:
            for lines in shown:
                text = "\n".join(lines)
                for observer in list(self.observers):
                    observer(level, text)

    def _append(self, data: bytes) -> None:
        with self._lock:
            if self._descriptor < 0:
                return
            with contextlib.suppress(OSError):
                if self._bytes + len(data) > self._file_bytes_max and self._bytes:
                    self._rotate()
                os.write(self._descriptor, data)
            self._bytes += len(data)

    def forked(self) -> None:
        """Replace the lock in a forked process, because another thread may have held it."""
        self._lock = threading.RLock()

    def check_size(self) -> None:
        """Rotate the file if writes by other processes have made it too large."""
        with self._lock, contextlib.suppress(OSError):
            if self._descriptor >= 0 and os.fstat(self._descriptor).st_size > self._file_bytes_max:
                self._rotate()

    def _rotate(self) -> None:
        # A process forked by the function may have rotated the file already, or the file was deleted.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(self._descriptor).st_ino == self.path.lstat().st_ino:
                os.replace(self.path, rotated(self.path))
        self._open()

    def close(self) -> None:
        """Close the file; later lines are dropped."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1


class LogStream(io.TextIOBase):
    """Replacement of sys.stdout or sys.stderr that writes each complete line to the log."""

    encoding = "utf-8"

    def __init__(self, log: InstanceLog, level: str) -> None:
        """Create a stream that writes to ``log`` with a level."""
        super().__init__()
        self._log = log
        self._level = level
        self._open_lines = threading.local()  # lines of concurrent threads must not be mixed

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Buffer text, and log complete lines."""
        before: str = getattr(self._open_lines, "text", "")
        if len(text) > TEXT_CHARACTERS_MAX:  # avoid copying: the log truncates it first
            self.flush()
            self._log.write(self._level, text)
            return len(text)
        *lines, rest = (before + text).split("\n")
        if len(rest) > LINE_CHARACTERS_MAX:
            lines.append(rest)
            rest = ""
        self._open_lines.text = rest
        if lines:
            self._log.write(self._level, "\n".join(lines))
        return len(text)

    def close(self) -> None:
        """Flush only: the stream is shared, so functions must not close it."""
        self.flush()

    def flush(self) -> None:
        """Log an incomplete line."""
        rest: str = getattr(self._open_lines, "text", "")
        if rest:
            self._open_lines.text = ""
            self._log.write(self._level, rest)


class LogHandler(logging.Handler):
    """Writes records of Python's logging to an instance's log."""

    def __init__(self, log: InstanceLog) -> None:
        """Create a handler that writes to ``log``."""
        super().__init__()
        self._log = log
        self.setFormatter(logging.Formatter("[%(name)s] %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            self._log.write(record.levelname, self.format(record))
        except Exception:  # noqa: BLE001  as in logging: formatting errors must not propagate
            self.handleError(record)


def bounded_lines(text: str) -> list[str]:
    """Split a string into at least one line, truncated to the limits of lines and texts."""
    left_out = len(text) - TEXT_CHARACTERS_MAX
    lines = (text if left_out <= 0 else text[:TEXT_CHARACTERS_MAX]).splitlines() or [""]
    if len(lines) > TEXT_LINES_MAX:
        left_out = len(text) - sum(map(len, lines[:TEXT_LINES_MAX]))
        del lines[TEXT_LINES_MAX:]
    lines = [bounded(line, LINE_CHARACTERS_MAX) for line in lines]
    if left_out > 0:
        lines.append(
            f"… {left_out} of {len(text)} characters omitted: a log text has at most {TEXT_CHARACTERS_MAX}"
            f" characters and {TEXT_LINES_MAX} lines"
        )
    return lines


def bounded(text: str, characters_max: int) -> str:
    """Return a string, truncated with a note if it is too long."""
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}… {len(text) - characters_max} of {len(text)} characters omitted"


class NotALog(OSError):
    """A log path is not a regular log file, but a link, a pipe, or another user's file."""


def open_log(path: Path, flags: int) -> int:
    """Open a log file safely.

    The directory belongs to the user that the function runs as, who may differ from the reader and could create a link
    to another user's file there, or a pipe without a writer.

    Args:
        path: path of the file.
        flags: flags of `os.open`.

    Raises:
        NotALog: it is not a regular file with a single link, or belongs to a third user.
        OSError: the file cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise NotALog(f"{path} is not a regular file: remove it") from error
        raise
    try:
        found, directory = os.fstat(descriptor), path.parent.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise NotALog(f"{path} is not a regular file with a single link: remove it")
        if found.st_uid not in (directory.st_uid, os.geteuid()):
            raise NotALog(f"{path} belongs neither to its directory's owner nor to this process's user: remove it")
        if os.geteuid() == 0 and found.st_uid != directory.st_uid and flags & os.O_CREAT:
            os.fchown(descriptor, directory.st_uid, directory.st_gid)  # so that the instance can write to it
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def rotated(path: Path) -> Path:
    """Return the path of the rotated log file."""
    return path.with_name(path.name + ".1")


def tail(path: Path, lines: int) -> str:
    """Return the last lines of a log, including the rotated file if needed."""
    text = _end_of(path)
    if text.count("\n") < lines:
        text = _end_of(rotated(path)) + text
    return "".join(text.splitlines(keepends=True)[-lines:] if lines > 0 else [])


def _end_of(path: Path) -> str:
    try:
        with open(open_log(path, os.O_RDONLY), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES_MAX))
            data = file.read(TAIL_BYTES_MAX)
    except FileNotFoundError:
        return ""
    except NotALog as error:
        return f"ERROR {error}\n"
    if size > TAIL_BYTES_MAX:
        data = data.partition(b"\n")[2]
    return data.decode("utf-8", "replace")


class LogFollower:
    """Reads new content of a log, across rotations."""

    def __init__(self, path: Path) -> None:
        """Create a follower that starts at the current end of the log."""
        self._path = path
        self._offset = 0
        self._inode = 0
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat()
            self._offset, self._inode = found.st_size, found.st_ino

    def read(self) -> str:
        """Return the complete lines appended since the last call."""
        inode, text = _inode_of(self._path), ""
        if not inode:
            return text
        if inode != self._inode:
            if self._inode and _inode_of(rotated(self._path)) == self._inode:
                text = self._read_from(rotated(self._path))
            self._inode, self._offset = inode, 0
        return text + self._read_from(self._path)

    def _read_from(self, path: Path) -> str:
        try:
            with open(open_log(path, os.O_RDONLY), "rb") as file:
                file.seek(self._offset)
                data = file.read(TAIL_BYTES_MAX)
        except NotALog:  # reported by `tail`
            return ""
        data = data[: data.rfind(b"\n") + 1]
        self._offset += len(data)
        return data.decode("utf-8", "replace")


def _inode_of(path: Path) -> int:
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return 0
