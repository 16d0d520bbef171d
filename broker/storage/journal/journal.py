"""The journal: one write-ahead log for everything durable, written in groups.

Design: callers on the loop lane put records, each with its waiter, into the open batch. The writer lane takes the
batch, joins it into one group, writes and syncs it, and reports the whole group at once; records queued meanwhile form
the next group. Only one group is in flight at a time, so a valid group n on disk proves that all groups before n were
synced: recovery relies on that. Files have a fixed length, are allocated ahead of the groups, and are recycled by
renaming once a checkpoint has made their content obsolete.

The background lane prepares the next file while the current one fills: its name, its first pages and a marker that it
is not begun are synced before the writer needs it. Its header, which holds the end of the previous file, is then
written with its first group and synced by the same sync. If a crash keeps the group but loses the header, recovery
finds the marker: the group was in flight. If no file is prepared in time, the writer does all of it.

After a failed write or sync, the state of that group's pages is unknown, so the journal stops: the group and everything
queued after it are reported as failed, and no more is accepted. A checkpoint that begins behind the damage
(`broken_end`) saves all confirmed state elsewhere; then `mend` lets the journal continue in another file. Retrying the
sync was rejected: the kernel marks failed pages clean, so a second sync reports success for lost data.
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
_ALLOCATE_BYTES = 1024 * 1024  # of zeros at a time, about a millisecond of work
_SPARE_FILES = 4  # kept for recycling besides those that a busy storage needs

logger = logging.getLogger(__name__)

EntryWaiter = tuple[LedgerPort, Position, EntryDone]
"""The ledger and position of an entry, and its callback. A bare tuple because one is made for each entry."""


@dataclass(frozen=True, slots=True)
class JournalEnd:
    """A journal position: where the replay starts after a checkpoint.

    Attributes:
        sequence: number of the file.
        offset: where the next group goes in it, unless that goes into the next file.
        group: lowest possible number of the next group.
        file_id: the file's id; None if that file is yet to be begun.
    """

    sequence: int
    offset: int
    group: int
    file_id: int | None


class Batch:
    """Records of one future group, with their waiters; owned by the loop lane until handed to the writer."""

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
    """Return the number in a journal file's name, or None for another kind of file."""
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
    """A file whose name and first pages are durable."""

    file: DiskFile
    path: str
    length: int


@dataclass(slots=True, eq=False)
class _Ahead:
    """The next file, prepared by the background lane.

    Attributes:
        sequence: its number.
        is_begun: whether the background lane has started; guarded by the journal's lock.
        done: set when it has finished.
        made: the result; None if the disk failed.
    """

    sequence: int
    is_begun: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    made: _MadeFile | None = None


class JournalReport(Protocol):
    """Receiver of the group reports, on the loop lane and in group order."""

    def written(self, batch: Batch) -> None:
        """A group is on the disk."""

    def failed(self, batch: Batch, failure: StorageError) -> None:
        """A group could not be written; the journal accepts no more until `Journal.mend`."""


@dataclass(slots=True)
class JournalFiles:
    """Directory of the journal files, recyclable files, and the key of the nonces."""

    directory: str
    key: bytes
    free: deque[str] = field(default_factory=deque)
    used: deque[int] = field(default_factory=deque)

    def path(self, sequence: int) -> str:
        """Return the path of journal file number ``sequence``."""
        return f"{self.directory}/{file_name(sequence)}"


class Journal:
    """The queue of records, and its writer.

    Args:
        disk: where the files are.
        files: directory and recyclable files, as recovery found them.
        config: sizes.
        end: where recovery ended; the journal continues in a new file after it.
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
        self._last_begun = end.sequence  # highest number of a file that was begun, or attempted
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
        """Queue ``parts`` as one record or several, and report to ``waiter`` once they are on disk.

        Args:
            waiter: the callback; None without a waiter.
            parts: encoded records; without any, the waiter is called after all earlier records.
            is_urgent: False leaves it to later records to start the write.
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
        """Put an entry record, as `put` does.

        Every published entry takes this path, so it is inlined: no loop over parts, no flags, no lock.
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
        """Hand new records to the writer; the lanes call this before they wake it."""
        batch = self._open
        if batch.parts or batch.waiters:
            self._queue.append(batch)
            self._open = Batch()

    def mark_end(self, waiter: Done) -> Batch:
        """Close and return the open batch; once ``waiter`` is called, its ``end`` is the position after the batch."""
        batch = self._open
        batch.waiters.append(waiter)
        batch.ends_group = True
        self.hand_over()
        self.lanes.wake_writer()
        return batch

    def broken_end(self) -> JournalEnd:
        """Return the position behind a failure, for the checkpoint that heals it. Only while broken."""
        assert self._is_broken
        return JournalEnd(self._last_begun + 1, layout.PAGE, self._end.group + 1, None)

    def take_unwritten(self) -> list[Batch]:
        """Return and clear everything unwritten, after writing has stopped."""
        with self._lock:
            batches = [*([self._in_flight] if self._in_flight else []), *self._queue, self._open]
            self._in_flight = None
            self._queue.clear()
            self._open = Batch()
            self.queued_bytes = 0
        return batches

    def mend(self, end: JournalEnd) -> None:
        """Continue behind a failure, at ``end`` (see `broken_end`), once a checkpoint covers everything before."""
        with self._lock:
            self._end = end
            self._is_broken = False

    def release(self, before: int) -> list[str]:
        """Recycle files numbered below ``before``, which a durable checkpoint no longer needs.

        Returns:
            Files to remove: files that failed are not reused, and only a few are kept.
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
        """Write everything queued, group by group, and report each."""
        while (batch := self._take()) is not None:
            try:
                if batch.parts:
                    self._write_group(b"".join(batch.parts))
                    batch.parts = []
            except Exception as exc:
                if not isinstance(exc, StorageError):  # out of memory, or a bug: healed like a disk error
                    logger.exception("a group of the journal could not be written")
                self._in_flight = None
                # Break before reporting: no later group may reach the disk behind a hole.
                self._abandon_file()
                self.lanes.on_loop(partial(self.report.failed, batch, as_storage_error(exc, "write to the journal")))
                return
            batch.end = self._end  # before the report: `mark_end` promises it to the waiter
            self._in_flight = None
            self.lanes.on_loop(partial(self.report.written, batch))

    def _take(self) -> Batch | None:
        """Return all batches handed over meanwhile, joined into the last one, so that a marked end is kept."""
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
        # Only after the sync: if it fails, the end stays where it was.
        current.offset += length
        self.written_bytes += length
        self.groups += 1
        header = current.header
        self._end = JournalEnd(header.sequence, current.offset, self._end.group + 1, header.file_id)
        if self._ahead is None and current.offset > self._config.journal_file_bytes // 2:
            self._ahead = ahead = _Ahead(header.sequence + 1)
            self.lanes.in_background(partial(self._prepare, ahead))

    def _allocate_ahead(self, current: _OpenFile, end: int) -> None:
        """Allocate pages for the next small groups: syncing into allocated pages is much cheaper than growing.

        A large group grows the file itself, and a recycled file has its pages: neither needs zeros written first.
        """
        if end > current.length:
            current.length = max(end, min(current.length + _ALLOCATE_BYTES, self._config.journal_file_bytes))
            if current.length > end:
                current.file.preallocate(current.length)

    def _open_next(self) -> _OpenFile:
        """Begin the next file: its name and length are durable before its first group is written.

        So is its header, or else the marker that it is prepared, which the header then replaces in the first group's
        sync: recovery treats a file without a readable header and without that marker as never begun, so no group may
        precede them.
        """
        sequence = self._end.sequence if self._end.file_id is None else self._end.sequence + 1
        path = self._files.path(sequence)
        self._last_begun = sequence  # before anything can fail: `broken_end` must be behind this file, too
        made = self._take_ahead(sequence)
        with self._lock:
            self._files.used.append(sequence)
        file_id = self._rng.getrandbits(64)
        nonce = layout.nonce_of(self._files.key, sequence, file_id)
        header = layout.FileHeader(file_id, sequence, self._end.group, self._end.offset, nonce)
        page = layout.encode_file_header(header)
        if made is None:
            with disk_action("begin the journal file", path):
                made = self._make(sequence, page)
        else:
            try:
                with disk_action("begin the journal file", path):
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
        """Create file number ``sequence`` durably, with its first page and room for groups."""
        path = self._files.path(sequence)
        free, recycled = self._files.free, None
        with self._lock:
            if path in free:  # named by an attempt that a crash interrupted
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
        """Return file number ``sequence`` if it is prepared, waiting if needed; a file of another number is closed."""
        with self._lock:
            ahead, self._ahead = self._ahead, None  # a preparation that has not started by now never will
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
            # The writer makes the file itself when it needs it, and reports a failure.
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
        """Close the open files; the caller ensures that nothing is queued."""
        self._take_ahead(None)
        if self._current is not None:
            self._current.file.close()
            self._current = None

    def __repr__(self) -> str:
        return f"<Journal file {self._end.sequence} offset {self._end.offset} group {self._end.group}>"
