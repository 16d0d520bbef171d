"""A file next to an instance's log with the record of its deaths and the calls in flight.

The first line is the record. While calls are recorded, a line is appended at the start and end of each call. The file
is not synced: it must survive the process, not the machine. An instance that is stopped removes the file.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..logs.file import open_log
from .record import Call, DeathRecord, Range, from_json, range_of

SIZE_MAX = 1024 * 1024
"""Beyond this size the file is rewritten with only the calls in flight."""
_READ_MAX = 16 * SIZE_MAX


class Found(NamedTuple):
    """The journal of an earlier run.

    Attributes:
        record: deaths before that run.
        calls: calls in flight; None if not recorded.
        reason: why the run ended, if recorded, else empty.
    """

    record: DeathRecord
    calls: list[Call] | None
    reason: str


class CallJournal:
    """Writes the journal; it may be closed on another thread than the one that records calls."""

    def __init__(self, path: Path) -> None:
        """Create a journal without reading or writing the file."""
        self._path = path
        self._file = -1
        self._size = 0
        self._is_recording = False
        self._record = DeathRecord()
        self._open: dict[int, str] = {}
        self._number = 0
        self._lock = threading.Lock()

    def read(self) -> Found | None:
        """Return the journal of an earlier run, or None.

        Raises:
            OSError: the file cannot be read.
        """
        try:
            with open(open_log(self._path, os.O_RDONLY), "rb") as file:
                lines = file.read(_READ_MAX).decode("utf-8", "replace").split("\n")
        except FileNotFoundError:
            return None
        return _found(lines)

    def start(self, record: DeathRecord, *, is_recording: bool) -> None:
        """Rewrite the file, and start recording if requested.

        Args:
            record: the deaths so far.
            is_recording: whether calls will be recorded.

        Raises:
            OSError: the file cannot be written.
        """
        with self._lock:
            self._record, self._is_recording = record, is_recording
            self._rewrite()

    def _rewrite(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        new = self._path.with_name(f"{self._path.name}.new")
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
        self._file = open_log(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        lines = [self._record.to_json(), *(['"recording"'] if self._is_recording else ()), *self._open.values()]
        self._size = os.write(self._file, "".join(f"{line}\n" for line in lines).encode())
        new.replace(self._path)

    def begin(self, ranges: Sequence[Range], *, is_alone: bool) -> int:
        """Record the start of a call, and return its number."""
        with self._lock:
            self._number += 1
            self._note(self._number, ranges, is_alone)
            return self._number

    def change(self, number: int, ranges: Sequence[Range], *, is_alone: bool) -> None:
        """Record that a running call has become the only one, or no longer is."""
        with self._lock:
            if number in self._open:
                self._note(number, ranges, is_alone)

    def _note(self, number: int, ranges: Sequence[Range], is_alone: bool) -> None:
        self._open[number] = json.dumps(["+", number, is_alone, ranges])
        self._append(self._open[number])

    def end(self, number: int) -> None:
        """Record the end of a call."""
        with self._lock:
            if self._open.pop(number, None) is not None:
                self._append(f'["-", {number}]')

    def died(self, reason: str) -> None:
        """Record why the instance ends with calls in flight, and ignore later changes."""
        with self._lock:
            self._append(json.dumps(["died", reason]))
            self._leave()

    def _append(self, line: str) -> None:
        if self._file < 0:
            return
        with contextlib.suppress(OSError):  # if the disk is full, the next death is not attributed to a message
            self._size += os.write(self._file, f"{line}\n".encode())
            if self._size > SIZE_MAX:
                self._rewrite()

    def stop(self) -> None:
        """Remove the file, or keep only the record if it has suspected or proven messages."""
        with self._lock:
            if self._file < 0:
                return
            self._open.clear()
            with contextlib.suppress(OSError):
                if self._record.tried or (self._record.deaths and self._is_recording):
                    self._is_recording = True  # no calls were in flight
                    self._rewrite()
                else:
                    self._path.unlink()
            self._leave()

    def leave(self) -> None:
        """Close the file and leave it unchanged."""
        with self._lock:
            self._leave()

    def _leave(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _found(lines: Sequence[str]) -> Found:
    """Parse the lines of the file; a truncated or damaged last line is ignored."""
    record, reason = from_json(lines[0]), ""
    calls: dict[int, Call] | None = None
    for line in lines[1:]:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            entry = json.loads(line)
            if entry == "recording":
                calls = {}
            elif entry[0] == "died":
                reason = str(entry[1])
            elif calls is not None and entry[0] == "+":
                calls[int(entry[1])] = Call([range_of(one) for one in entry[3]], bool(entry[2]))
            elif calls is not None and entry[0] == "-":
                calls.pop(int(entry[1]), None)
    return Found(record, None if calls is None else list(calls.values()), reason)
