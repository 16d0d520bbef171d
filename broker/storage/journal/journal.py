"""The journal: one write-ahead log for everything durable, written in groups.

Design: callers on the loop lane put records, each with whom to tell, into the open batch. The writer lane takes the
batch, joins it to one group, writes and syncs it, and reports the whole group at once; whatever was put meanwhile is
the next group. Only one group is in flight at a time, so a valid group n on the disk proves that all groups before n
were synced: recovery rests on that. Files have a fixed length, are allocated ahead of the groups, and are recycled by
renaming once a checkpoint has made their content needless.

The next file is prepared by the background lane while the present one fills: its name, its first pages and the note
that it is not begun are synced before the writer needs it. Its header, which says where the file before it ends, is
then written with its first group and synced by the same sync. Should a crash keep the group and lose the header,
recovery finds the note: the group was in flight. Where nothing is prepared in time, the writer does all of it.

After a failed write or sync nothing is known about the pages of that group, so the journal stops: the group and all
that was queued behind it are reported as failed, and nothing more is accepted. A checkpoint that begins after the
damage (`broken_end`) puts all confirmed state elsewhere; then `mend` lets the journal go on in another file. Retrying
the sync was rejected: the kernel marks failed pages clean, so a second sync answers success for data that is gone.
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
_ALLOCATE_BYTES = 1024 * 1024  # of zeros at a time, about a millisecond's work
_SPARE_FILES = 4  # kept for recycling beside those that a busy storage needs

logger = logging.getLogger(__name__)

EntryWaiter = tuple[LedgerPort, Position, EntryDone]
"""The ledger and position of an entry, and its callback. A bare tuple because one is made for each entry."""


@dataclass(frozen=True, slots=True)
class JournalEnd:
    """Where the journal stands: what a checkpoint records as the place to replay from.

    Attributes:
        sequence: number of the file.
        offset: where the next group goes in it, or would go if it did not go into the next file.
        group: least number of the next group.
        file_id: the file's id; None if that file is yet to be begun.
    """

    sequence: int
    offset: int
    group: int
    file_id: int | None


class Batch:
    """Records that will be in one group, and whom to tell; the loop lane's own until it hands it to the writer."""

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
    """A file that has its name and its first pages, durably."""

    file: DiskFile
    path: str
    length: int


@dataclass(slots=True, eq=False)
class _Ahead:
    """The next file as the background lane prepares it.

    Attributes:
        sequence: its number.
        is_begun: whether the background lane is at it; only with the journal's lock.
        done: set when that is over.
        made: what came of it; None if the disk refused.
    """

    sequence: int
    is_begun: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    made: _MadeFile | None = None


class JournalReport(Protocol):
    """Receiver of the reports on groups, on the loop lane and in the order of the groups."""

    def written(self, batch: Batch) -> None:
        """A group is on the disk."""

    def failed(self, batch: Batch, failure: StorageError) -> None:
        """A group could not be written; the journal takes nothing more until `Journal.mend`."""


@dataclass(slots=True)
class JournalFiles:
    """Names of the directory, files that hold nothing any more, and the key of the files' nonces."""

    directory: str
    key: bytes
    free: deque[str] = field(default_factory=deque)
    used: deque[int] = field(default_factory=deque)

    def path(self, sequence: int) -> str:
        """Return the path of journal file number ``sequence``."""
        return f"{self.directory}/{file_name(sequence)}"


class Journal:
    """The queue before the disk, and the writer's turn.

    Args:
        disk: where the files are.
        files: directory and recyclable files, as recovery found them.
        config: sizes.
        end: where recovery ended; the journal goes on in a new file behind it.
        rng: draws file ids.
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
        self._last_begun = end.sequence  # highest number of a file that was begun, or tried to
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
        """Do what `put` does, for the record of an entry.

        Everything published takes this path, so it is written out: no loop over parts, no flags, no lock.
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
        """Give the writer what was put since the last time; the lanes do so before they wake it."""
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
        """Return the place behind a failure, for the checkpoint that heals it. Only while broken."""
        assert self._is_broken
        return JournalEnd(self._last_begun + 1, layout.PAGE, self._end.group + 1, None)

    def take_unwritten(self) -> list[Batch]:
        """Return and forget everything not written, once no more is written."""
        with self._lock:
            batches = [*([self._in_flight] if self._in_flight else []), *self._queue, self._open]
            self._in_flight = None
            self._queue.clear()
            self._open = Batch()
            self.queued_bytes = 0
        return batches

    def mend(self, end: JournalEnd) -> None:
        """Go on behind a failure, at ``end`` (see `broken_end`), once a checkpoint made all before needless."""
        with self._lock:
            self._end = end
            self._is_broken = False

    def release(self, before: int) -> list[str]:
        """Recycle files with numbers below ``before``, as a durable checkpoint starts behind them.

        Returns:
            Files to remove: what failed once is not used again, and more than a few are not kept.
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
                if not isinstance(
                    exc, StorageError
                ):  # no memory, or a mistake of ours: healed like an error of the disk
                    logger.exception("a group of the journal could not be written")
                self._in_flight = None
                # Broken before anybody hears of it: no later group may reach the disk behind a hole.
                self._abandon_file()
                self.lanes.on_loop(partial(self.report.failed, batch, as_storage_error(exc, "write to the journal")))
                return
            batch.end = self._end  # before the report: `mark_end` promises it to the waiter
            self._in_flight = None
            self.lanes.on_loop(partial(self.report.written, batch))

    def _take(self) -> Batch | None:
        """Return what was handed over meanwhile, joined to one batch: the last one, so that a marked end stays it."""
        with self._lock:
            if self._is_broken or not self._queue:
                return None
            # Group commit: what was queued while the last group was synced shares one sync, up to `group_bytes`.
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
        # Only now: a group whose sync failed leaves the end where it was.
        current.offset += length
        self.written_bytes += length
        self.groups += 1
        header = current.header
        self._end = JournalEnd(header.sequence, current.offset, self._end.group + 1, header.file_id)
        if self._ahead is None and current.offset > self._config.journal_file_bytes // 2:
            self._ahead = ahead = _Ahead(header.sequence + 1)
            self.lanes.in_background(partial(self._prepare, ahead))

    def _allocate_ahead(self, current: _OpenFile, end: int) -> None:
        """Allocate pages for the small groups to come: syncing into them is much cheaper than growing.

        A large group grows the file by itself, and a recycled file has its pages: both need no zeros written first.
        """
        if end > current.length:
            current.length = max(end, min(current.length + _ALLOCATE_BYTES, self._config.journal_file_bytes))
            if current.length > end:
                current.file.preallocate(current.length)

    def _open_next(self) -> _OpenFile:
        """Begin the next file: its name and length are durable before its first group is written.

        So is its header, or else the note that it is prepared, which the header then replaces in the first group's
        sync: recovery takes a file without a readable header and without that note as never begun, so no group may come
        before them.
        """
        sequence = self._end.sequence if self._end.file_id is None else self._end.sequence + 1
        path = self._files.path(sequence)
        self._last_begun = sequence  # before anything can fail: `broken_end` must lie behind this file, too
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
        """Give file number ``sequence`` its name, its first page and room for groups, durably."""
        path = self._files.path(sequence)
        free, recycled = self._files.free, None
        with self._lock:
            if path in free:  # named by an attempt that a crash cut short
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
        """Return file number ``sequence`` if it is prepared, waiting where it is being prepared; another is closed."""
        with self._lock:
            ahead, self._ahead = self._ahead, None  # one that is not begun by now never is
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
            # The writer tries by itself when it needs the file, and is heard if it fails.
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
        """Close the open files; the caller has seen to it that nothing is queued."""
        self._take_ahead(None)
        if self._current is not None:
            self._current.file.close()
            self._current = None

    def __repr__(self) -> str:
        return f"<Journal file {self._end.sequence} offset {self._end.offset} group {self._end.group}>"
