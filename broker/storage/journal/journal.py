"""The journal: a single write-ahead log for all durable changes, written in groups.

Design: on the loop lane, callers add records to the open batch, each with a waiter. The writer lane takes the batch,
joins its records into one group, writes and syncs the group, and sends one report for all of it. Records queued
meanwhile form the next group. Only one group is in flight at a time, so a valid group n on disk proves that all groups
before n were synced; recovery relies on that. Files have a fixed length, are allocated before groups are written to
them, and are recycled by renaming once a checkpoint has made their content obsolete.

The background lane prepares the next file while the current one fills up: the file's name, its first pages, and a
marker for a file that has not been started are synced before the writer needs the file. The header, which contains the
end of the previous file, is then written with the first group and synced together with it. If a crash preserves that
group but loses the header, recovery finds the marker and knows that the group was in flight. If no file has been
prepared in time, the writer creates one.

After a failed write or sync, the state of the group's pages is unknown, so the journal stops: the group and everything
queued after it are reported as failed, and no more records are accepted. A checkpoint whose replay position is after
the damage (`broken_end`) saves all confirmed state elsewhere, and then `mend` lets the journal continue in another
file. Retrying the sync was rejected, because the kernel marks failed pages as clean, so a second sync would report
success although the data is lost.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from ....errors import StorageError
from ....wire.position import Position
from ..config import StorageConfig
from ..disk.disk import Disk, DiskFile
from ..disk.failures import as_storage_error, disk_action
from ..disk.lanes import Lanes
from ..ports import Done, EntryDone, LedgerPort
from . import format as layout

_SUFFIX = ".journal"
_ALLOCATE_BYTES = 1024 * 1024  # zeros written at a time, which takes about a millisecond
_SPARE_FILES = 4  # files kept for recycling in addition to those needed under load

logger = logging.getLogger(__name__)

EntryWaiter = tuple[LedgerPort, Position, EntryDone]
"""Ledger, position and callback of an entry. A plain tuple, because one is created per entry."""


@dataclass(frozen=True, slots=True)
class JournalEnd:
    """A position between two groups of the journal, such as the one where replay starts.

    Attributes:
        sequence: number of the file.
        offset: offset in the file at which the next group is written, unless it is written to the next file.
        group: lower bound for the number of the next group.
        file_id: id of the file, or None if the file has not been started.
    """

    sequence: int
    offset: int
    group: int
    file_id: int | None


class Batch:
    """Records to be written in one group, with their waiters; owned by the loop lane until passed to the writer."""

    __slots__ = ("bytes", "end", "ends_group", "parts", "waiters")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.bytes = 0
        self.waiters: list[EntryWaiter | Done] = []
        self.ends_group = False
        self.end: JournalEnd | None = None


def file_name(sequence: int) -> str:
    """Return the name of journal file number ``sequence``."""
    return f"{sequence:016d}{_SUFFIX}"


def file_sequence(name: str) -> int | None:
    """Return the number in a journal file's name, or None if it is not the name of a journal file."""
    stem = name.removesuffix(_SUFFIX)
    return int(stem) if name.endswith(_SUFFIX) and stem.isdecimal() else None


@dataclass(slots=True)
class _OpenFile:
    file: DiskFile
    path: str
    header: layout.FileHeader
    offset: int
    length: int


@dataclass(slots=True)
class _MadeFile:
    """A file whose name and first pages are durable, ready to be started."""

    file: DiskFile
    path: str
    length: int


@dataclass(slots=True, eq=False)
class _Ahead:
    """The next file, prepared by the background lane.

    Attributes:
        sequence: number of the file.
        is_begun: whether the background lane has started to prepare it; guarded by the journal's lock.
        done: set when the preparation has finished.
        made: the prepared file, or None if the disk failed.
    """

    sequence: int
    is_begun: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    made: _MadeFile | None = None


class JournalReport(Protocol):
    """Receiver of the reports on groups; called on the loop lane, in group order."""

    def written(self, batch: Batch) -> None:
        """Handle a group that is on disk."""

    def failed(self, batch: Batch, failure: StorageError) -> None:
        """Handle a group that could not be written; the journal accepts no records until `Journal.mend`."""


@dataclass(slots=True)
class JournalFiles:
    """The directory of the journal files, the files in use and those to be recycled, and the key of the nonces."""

    directory: str
    key: bytes
    free: deque[str] = field(default_factory=deque)
    used: deque[int] = field(default_factory=deque)

    def path(self, sequence: int) -> str:
        """Return the path of journal file number ``sequence``."""
        return f"{self.directory}/{file_name(sequence)}"


class Journal:
    """The queue of records and its writer.

    Args:
        disk: disk of the data directory.
        files: directory and existing files, as found by recovery.
        config: size limits.
        end: position at which recovery ended; the journal continues in a new file.
        rng: generates file ids.
    """

    def __init__(
        self, disk: Disk, files: JournalFiles, config: StorageConfig, end: JournalEnd, rng: random.Random
    ) -> None:
        self._disk = disk
        self._files = files
        self._config = config
        self._rng = rng
        self._lock = threading.Lock()
        self._queue: deque[Batch] = deque()
        self._open = Batch()
        self._in_flight: Batch | None = None
        self._current: _OpenFile | None = None
        self._ahead: _Ahead | None = None
        self._end = end
        self._last_begun = end.sequence  # highest number of a file whose start was attempted
        self._is_broken = False
        self._suspect: set[int] = set()
        self._most_free = _SPARE_FILES + config.unmoved_bytes // config.journal_file_bytes
        self.queued_bytes = 0
        self.written_bytes = 0
        self.groups = 0
        self.report: JournalReport
        self.lanes: Lanes

    # The loop lane's side.

    def put(self, waiter: EntryWaiter | Done | None, *parts: bytes, is_urgent: bool = True) -> None:
        """Queue records, and call ``waiter`` with the result once they are on disk or have failed.

        Args:
            waiter: callback, or None.
            parts: encoded records, or parts of them. If omitted, ``waiter`` is called after all earlier records.
            is_urgent: whether to start a write; if False, the records are written together with later ones.
        """
        batch = self._open
        if batch.bytes >= self._config.group_bytes:
            self.hand_over()
            batch = self._open
        size = 0
        for part in parts:
            size += len(part)
        batch.parts += parts
        batch.bytes += size
        if waiter is not None:
            batch.waiters.append(waiter)
        self.queued_bytes += size
        if is_urgent:
            self.lanes.wake_writer()

    def put_entry(self, waiter: EntryWaiter, head: bytes, payload: bytes) -> None:
        """Queue an entry record, like `put`.

        This runs for every published entry, so it is inlined: no loop over parts, no flags, no lock.
        """
        batch = self._open
        if batch.bytes >= self._config.group_bytes:
            self.hand_over()
            batch = self._open
        size = len(head) + len(payload)
        batch.parts += (head, payload)
        batch.bytes += size
        batch.waiters.append(waiter)
        self.queued_bytes += size
        self.lanes.wake_writer()

    def hand_over(self) -> None:
        """Pass new records to the writer; the lanes call this before they wake it."""
        batch = self._open
        if batch.parts or batch.waiters:
            self._queue.append(batch)
            self._open = Batch()

    def mark_end(self, waiter: Done) -> Batch:
        """Close and return the open batch; when ``waiter`` is called, its ``end`` is the position after the batch."""
        batch = self._open
        batch.waiters.append(waiter)
        batch.ends_group = True
        self.hand_over()
        self.lanes.wake_writer()
        return batch

    def broken_end(self) -> JournalEnd:
        """Return the position after a failure, for the checkpoint that repairs it; the journal must be broken."""
        assert self._is_broken
        return JournalEnd(self._last_begun + 1, layout.PAGE, self._end.group + 1, None)

    def take_unwritten(self) -> list[Batch]:
        """Remove and return all unwritten batches, after writing has stopped."""
        with self._lock:
            batches = [*([self._in_flight] if self._in_flight else []), *self._queue, self._open]
            self._in_flight = None
            self._queue.clear()
            self._open = Batch()
            self.queued_bytes = 0
        return batches

    def mend(self, end: JournalEnd) -> None:
        """Continue after a failure, at ``end`` (see `broken_end`), once a checkpoint covers everything before it."""
        with self._lock:
            self._end = end
            self._is_broken = False

    def release(self, before: int) -> list[str]:
        """Recycle files with numbers below ``before``, which are not needed after a durable checkpoint.

        Returns:
            Paths of files to remove, because they have failed or enough files are available for recycling.
        """
        needless = []
        with self._lock:
            while self._files.used and self._files.used[0] < before:
                sequence = self._files.used.popleft()
                if sequence in self._suspect or len(self._files.free) >= self._most_free:
                    self._suspect.discard(sequence)
                    needless.append(self._files.path(sequence))
                else:
                    self._files.free.append(self._files.path(sequence))
        return needless

    # The writer lane's side.

    def write_turn(self) -> None:
        """Write all queued batches and report each group."""
        while (batch := self._take()) is not None:
            try:
                if batch.parts:
                    self._write_group(b"".join(batch.parts))
                    batch.parts = []
            except Exception as exc:
                if not isinstance(exc, StorageError):  # out of memory, or a bug: handled like a disk error
                    logger.exception("cannot write a journal group")
                self._in_flight = None
                # Stop before reporting, so that no later group is written after the missing one.
                self._abandon_file()
                self.lanes.on_loop(partial(self.report.failed, batch, as_storage_error(exc, "write to the journal")))
                return
            batch.end = self._end  # set before the report, because the waiter of `mark_end` reads it
            self._in_flight = None
            self.lanes.on_loop(partial(self.report.written, batch))

    def _take(self) -> Batch | None:
        """Return the queued batches for the next group, joined into the last one, which may be marked with an end."""
        with self._lock:
            if self._is_broken or not self._queue:
                return None
            # Group commit: batches queued during the last sync share one sync, up to `group_bytes`.
            batches = [self._queue.popleft()]
            size = batches[0].bytes
            while self._queue and not batches[-1].ends_group and size < self._config.group_bytes:
                batches.append(self._queue.popleft())
                size += batches[-1].bytes
            batch = batches[-1]
            if len(batches) > 1:
                batch.parts = [part for one in batches for part in one.parts]
                batch.waiters = [waiter for one in batches for waiter in one.waiters]
                batch.bytes = size
            self._in_flight = batch
            return batch

    def _write_group(self, body: bytes) -> None:
        length = layout.padded(layout.GROUP_HEADER_BYTES + len(body))
        current = self._current
        is_empty = current is not None and current.offset == layout.PAGE
        if current is None or (not is_empty and current.offset + length > self._config.journal_file_bytes):
            current = self._open_next()
        parts = layout.encode_group(current.header, self._end.group, body)
        with disk_action("write to the journal", current.path):
            current.file.write(current.offset, parts)
            self._allocate_ahead(current, current.offset + length)
        with disk_action("sync the journal", current.path):
            current.file.sync()
        # Only after the sync, so that the end remains unchanged if it fails.
        current.offset += length
        self.written_bytes += length
        self.groups += 1
        header = current.header
        self._end = JournalEnd(header.sequence, current.offset, self._end.group + 1, header.file_id)
        if self._ahead is None and current.offset > self._config.journal_file_bytes // 2:
            self._ahead = ahead = _Ahead(header.sequence + 1)
            self.lanes.in_background(partial(self._prepare, ahead))

    def _allocate_ahead(self, current: _OpenFile, end: int) -> None:
        """Allocate pages for the next small groups, because a sync is much faster if the file does not grow.

        Large groups that extend the file themselves, and recycled files, need no zeros.
        """
        if end > current.length:
            current.length = max(end, min(current.length + _ALLOCATE_BYTES, self._config.journal_file_bytes))
            if current.length > end:
                current.file.preallocate(current.length)

    def _open_next(self) -> _OpenFile:
        """Start the next file, whose name and length are durable before its first group is written.

        Either its header is durable too, or the marker of a prepared file, which the header replaces in the same sync
        as the first group. Recovery treats a file with neither a readable header nor that marker as never started, so
        no group may be written before them.
        """
        sequence = self._end.sequence if self._end.file_id is None else self._end.sequence + 1
        path = self._files.path(sequence)
        self._last_begun = sequence  # before anything can fail, because `broken_end` must be after this file
        made = self._take_ahead(sequence)
        with self._lock:
            self._files.used.append(sequence)
        file_id = self._rng.getrandbits(64)
        nonce = layout.nonce_of(self._files.key, sequence, file_id)
        header = layout.FileHeader(file_id, sequence, self._end.group, self._end.offset, nonce)
        page = layout.encode_file_header(header)
        if made is None:
            with disk_action("create the journal file", path):
                made = self._make(sequence, page)
        else:
            try:
                with disk_action("create the journal file", path):
                    made.file.write(0, [page])
            except BaseException:
                made.file.close()
                raise
        if self._current is not None:
            self._current.file.close()
        self._current = _OpenFile(made.file, path, header, layout.PAGE, made.length)
        self._end = JournalEnd(sequence, layout.PAGE, self._end.group, header.file_id)
        return self._current

    def _make(self, sequence: int, page: bytes) -> _MadeFile:
        """Create file number ``sequence`` durably, with its first page and allocated pages for groups."""
        path = self._files.path(sequence)
        free, recycled = self._files.free, None
        with self._lock:
            if path in free:  # already renamed by an attempt that was interrupted by a crash
                free.remove(path)
            elif free:
                recycled = free.popleft()
        if recycled is not None:
            self._disk.rename(recycled, path)
        file = self._disk.open(path, create=True)
        try:
            file.write(0, [page])
            file.preallocate(min(_ALLOCATE_BYTES, self._config.journal_file_bytes))
            length = file.size()
            file.sync()
            self._disk.sync_directory(self._files.directory)
        except BaseException:
            file.close()
            raise
        return _MadeFile(file, path, length)

    def _take_ahead(self, sequence: int | None) -> _MadeFile | None:
        """Return file number ``sequence`` if it was prepared, waiting if needed; close any other prepared file."""
        with self._lock:
            ahead, self._ahead = self._ahead, None  # this cancels a preparation that has not started
            if ahead is None or not ahead.is_begun:
                return None
        ahead.done.wait()
        made = ahead.made
        if made is not None and ahead.sequence != sequence:
            made.file.close()
            return None
        return made

    # The background lane's side.

    def _prepare(self, ahead: _Ahead) -> None:
        with self._lock:
            if self._ahead is not ahead:
                return
            ahead.is_begun = True
        path = self._files.path(ahead.sequence)
        try:
            with disk_action("prepare the journal file", path):
                ahead.made = self._make(ahead.sequence, layout.encode_prepared(ahead.sequence))
        except StorageError as error:
            # The writer then creates the file when it needs one, and reports failures.
            logger.warning("%s", error)
            with self._lock:
                self._suspect.add(ahead.sequence)
        finally:
            ahead.done.set()

    def _abandon_file(self) -> None:
        with self._lock:
            self._is_broken = True
            self._suspect.add(self._last_begun)
        self.close()

    def close(self) -> None:
        """Close the open files; the caller must ensure that no records are queued."""
        self._take_ahead(None)
        if self._current is not None:
            self._current.file.close()
            self._current = None

    def __repr__(self) -> str:
        return f"<Journal file {self._end.sequence} offset {self._end.offset} group {self._end.group}>"
