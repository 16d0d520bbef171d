"""Finds a journal position up to which the storage of a running broker can be copied consistently.

Design: all valid groups are read from the replay position in the catalogue up to the first missing group, as in
recovery. Every group before the missing one was synced, since only one group is in flight at a time, and its pages are
not rewritten until the file is recycled. Files are recycled only after a new catalogue has been installed. So a copy of
the files up to the cut is consistent if the catalogue has not been replaced when the copy is complete. Otherwise, the
copy must be discarded and repeated.

A ledger that the copy lacks was deleted by a record before the cut. A ledger that a checkpoint was writing is in the
same state as after a crash during the checkpoint: data beyond the entries listed in the catalogue is ignored.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .journal import format as layout
from .journal.journal import JournalEnd, file_name


class Moved(Exception):
    """The storage has installed another catalogue, so the copy must be repeated."""


class Part(NamedTuple):
    """The name of a journal file and the length to be copied."""

    name: str
    length: int


class JournalCut:
    """Reads the journal of a data directory that a broker may be writing to, without changing it.

    Args:
        directory: directory of the journal files.
        start: replay position from the catalogue.

    Attributes:
        end: position after the last group found; its ``file_id`` is None until a file has been started.
    """

    def __init__(self, directory: Path, start: JournalEnd) -> None:
        self._directory = directory
        self._whole: list[Part] = []
        self._header: layout.FileHeader | None = None
        self.end = start

    def parts(self) -> list[Part]:
        """Return the files to copy up to `end`, in order."""
        last = [Part(file_name(self.end.sequence), self.end.offset)] if self._header is not None else []
        return [*self._whole, *last]

    def advance(self) -> None:
        """Read all groups that have been written so far.

        Raises:
            Moved: a file was replaced or does not continue the previous one.
        """
        if self._header is None and not self._begin():
            return
        while True:
            self._read_groups()
            offset = self.end.offset
            following = self._header_of(self.end.sequence + 1)
            if following is None:
                return
            if following.previous_end != offset:
                self._read_groups()  # the file grew between the last read and the start of the next file
            if following.previous_end != self.end.offset:
                raise Moved(f"{file_name(following.sequence)} does not continue where the previous file ends")
            self._whole.append(Part(file_name(self.end.sequence), self.end.offset))
            self._header = following
            self.end = JournalEnd(following.sequence, layout.PAGE, following.first_group, following.file_id)

    def _begin(self) -> bool:
        """Open the first file; return False if no group has been written since the catalogue."""
        header = self._header_of(self.end.sequence)
        if self.end.file_id is not None:
            if header is None or header.file_id != self.end.file_id:
                raise Moved(f"{file_name(self.end.sequence)} is not the file that the catalogue refers to")
        elif header is None:
            return False
        else:
            self.end = JournalEnd(self.end.sequence, layout.PAGE, header.first_group, header.file_id)
        self._header = header
        return True

    def _read_groups(self) -> None:
        header = self._header
        assert header is not None
        content = self._read(header.sequence, self.end.offset)
        begin, offset, number = self.end.offset, 0, self.end.group
        while (group := layout.decode_group(content, offset, len(content))) is not None:
            if (group.file_id, group.nonce, group.number) != (header.file_id, header.nonce, number):
                break
            offset, number = group.end, number + 1
        self.end = JournalEnd(header.sequence, begin + offset, number, header.file_id)

    def _header_of(self, sequence: int) -> layout.FileHeader | None:
        header = layout.decode_file_header(self._read(sequence, 0, layout.PAGE))
        return header if header is not None and header.sequence == sequence else None

    def _read(self, sequence: int, offset: int, length: int = -1) -> bytes:
        try:
            with (self._directory / file_name(sequence)).open("rb") as file:
                file.seek(offset)
                return file.read(length)
        except FileNotFoundError:
            return b""


def copy_part(source: Path, target: Path, part: Part, copy: Callable[[int, int, int], None]) -> None:
    """Copy the first part of a journal file.

    Args:
        source: directory of the journal.
        target: directory of the copy.
        part: name of the file, and length to copy.
        copy: called with two file descriptors and the number of bytes to copy from the first to the second.

    Raises:
        Moved: the file has been removed, or is shorter than expected.
    """
    try:
        with (source / part.name).open("rb") as old, (target / part.name).open("wb") as new:
            copy(old.fileno(), new.fileno(), part.length)
            new.flush()
            if os.fstat(new.fileno()).st_size != part.length:
                raise Moved(f"{part.name} is shorter than {part.length} bytes")
    except FileNotFoundError as exc:
        raise Moved(f"{part.name} was removed") from exc
