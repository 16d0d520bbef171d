"""The log of an instance: one file for all output of the function, limited by rotation, and its reader.

Lines are ``2026-11-21T10:11:12.345Z INFO text``; each line of multi-line prints and tracebacks gets the prefix, so that
every line is complete. At `FILE_BYTES_MAX` the file becomes ``.1`` and the previous ``.1`` is dropped: an instance
never uses more than twice that on disk.

Texts are truncated, with a note, before they are processed. A function may print a value of hundreds of megabytes. Each
step of logging, into lines, with a time on each, into bytes, would copy it; so it is truncated first.
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
"""Of one print or record."""
TEXT_LINES_MAX = 10_000

Observer = Callable[[str, str], None]


class InstanceLog:
    """Writes lines from any thread.

    Attributes:
        observers: called with level and bounded text of each piece, on the writing thread; used for the log topic.
        hiding: removes secrets from a text.
    """

    def __init__(self, path: Path, *, file_bytes_max: int = FILE_BYTES_MAX) -> None:
        """Open the file.

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
        """Append a text, line by line. A full disk loses lines, never a message of the function.

        Args:
            level: log level of the lines.
            text: of any length; see `bounded_lines` for the limits.
            to_file_only: skip the observers, because the text is about them.
        """
        self.write_all(level, (text,), to_file_only=to_file_only)

    def write_all(self, level: str, texts: Sequence[str], *, to_file_only: bool = False) -> None:
        """Append texts, each as `write` does."""
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
        """Continue in a process forked by the function, whatever other threads were doing at that moment."""
        self._lock = threading.RLock()

    def check_size(self) -> None:
        """Rotate the file if writes of other processes made it too large."""
        with self._lock, contextlib.suppress(OSError):
            if self._descriptor >= 0 and os.fstat(self._descriptor).st_size > self._file_bytes_max:
                self._rotate()

    def _rotate(self) -> None:
        # A process forked by the function writes here too, and may have rotated it already; or it was deleted.
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
    """Replaces sys.stdout or sys.stderr: each complete line becomes a line of the log."""

    encoding = "utf-8"

    def __init__(self, log: InstanceLog, level: str) -> None:
        """Write to ``log`` with ``level``."""
        super().__init__()
        self._log = log
        self._level = level
        self._open_lines = threading.local()  # threads that print at the same time must not mix within a line

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Accept text; it is logged once its line is complete."""
        before: str = getattr(self._open_lines, "text", "")
        if len(text) > TEXT_CHARACTERS_MAX:  # not copied: the log truncates it first
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
        """Only `flush`: the stream is shared, so a function must not close it."""
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
        """Write to ``log``."""
        super().__init__()
        self._log = log
        self.setFormatter(logging.Formatter("[%(name)s] %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            self._log.write(record.levelname, self.format(record))
        except Exception:  # noqa: BLE001  as in logging: a record that cannot be formatted does no harm
            self.handleError(record)


def bounded_lines(text: str) -> list[str]:
    """Return the lines of a text, at least one: each within `LINE_CHARACTERS_MAX`, all within the other limits."""
    left_out = len(text) - TEXT_CHARACTERS_MAX
    lines = (text if left_out <= 0 else text[:TEXT_CHARACTERS_MAX]).splitlines() or [""]
    if len(lines) > TEXT_LINES_MAX:
        left_out = len(text) - sum(map(len, lines[:TEXT_LINES_MAX]))
        del lines[TEXT_LINES_MAX:]
    lines = [bounded(line, LINE_CHARACTERS_MAX) for line in lines]
    if left_out > 0:
        lines.append(
            f"… {left_out} of {len(text)} characters left out: a text in a log has at most {TEXT_CHARACTERS_MAX}"
            f" characters and {TEXT_LINES_MAX} lines"
        )
    return lines


def bounded(text: str, characters_max: int) -> str:
    """Return a text, truncated with a note if it is too long."""
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}… {len(text) - characters_max} of {len(text)} characters left out"


class NotALog(OSError):
    """A log path is not a log file but a link, a pipe, or another user's file."""


def open_log(path: Path, flags: int) -> int:
    """Open a log file.

    The user that the function runs as owns the directory, and may differ from the reader: it could put a link to
    another user's file there, or a pipe without a writer.

    Args:
        path: of the file.
        flags: as of `os.open`.

    Raises:
        NotALog: it is not a regular file with one name, owned by the directory's owner or this process's user.
        OSError: it cannot be opened.
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
            raise NotALog(f"{path} is neither of its directory's owner nor of this process's; remove it")
        if os.geteuid() == 0 and found.st_uid != directory.st_uid and flags & os.O_CREAT:
            os.fchown(descriptor, directory.st_uid, directory.st_gid)  # the instance continues to use it
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def rotated(path: Path) -> Path:
    """Return the path of a log's rotated half."""
    return path.with_name(path.name + ".1")


def tail(path: Path, lines: int) -> str:
    """Return the last lines of a log, including its rotated half where needed; empty before the first line."""
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
    """Reads new content of a log, across rotations; the caller decides how often."""

    def __init__(self, path: Path) -> None:
        """Start at the current end of the log."""
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
        except NotALog:  # reported once, by `tail`
            return ""
        data = data[: data.rfind(b"\n") + 1]
        self._offset += len(data)
        return data.decode("utf-8", "replace")


def _inode_of(path: Path) -> int:
    try:
        return path.lstat().st_ino
    except FileNotFoundError:
        return 0
