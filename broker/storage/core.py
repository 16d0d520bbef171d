"""State shared by all logs: the journal and its reports, caches, counters, and the current failure.

Design: this state belongs to the loop lane. Each journal report confirms a whole group. When the journal fails, all
pending changes are rolled back, their waiters receive the error, further changes are rejected, and checkpoints are
retried until one succeeds. That checkpoint starts after the failure and contains everything confirmed, so nothing
depends on the damaged group any longer (see `journal.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ...errors import StorageError
from .catalogue import CatalogueLines, Head, Ids, JournalKey
from .config import StorageConfig
from .cursors.partial_acks import PartialAcks
from .disk.disk import Disk
from .disk.failures import Congested, DiskFailure
from .disk.lanes import Lanes
from .journal.format import publish_time_of
from .journal.journal import Batch, Journal, JournalEnd
from .ledgers.ledger import EntryMemory, Ledger
from .ledgers.ledger_file import LedgerFile
from .ledgers.read_cache import ReadCache
from .logs import Logs
from .ports import Done
from .topic_log import TopicLog

T = TypeVar("T")
Clock = Callable[[], float]

_HARD_LIMIT = 4  # multiple of the congestion limits above which appends are rejected
logger = logging.getLogger(__name__)


class StorageCore:
    """Shared storage state, loaded by recovery and driven by `Storage`.

    Attributes:
        logs: all logs, by name.
        lines: catalogue lines of the loaded logs.
        touched: logs that have changed since the last `Storage.take_touched`.
        partial_acks: memory accounting for the ack sets of all cursors.
        failure: error that currently prevents changes, or None.
        memory: entries in memory.
        checkpoint_at_bytes: number of bytes written by the journal at which ``checkpoint_due`` is called.
        has_changes: whether the catalogue is out of date.
        has_journal_failed: whether a journal failure still has to be repaired by a checkpoint.
        unrecorded: number of changes (acknowledgements) made while the journal accepted no records.
        covered: number of these changes that are in the catalogue.
        journal_key: key of the journal's nonces.
    """

    def __init__(self, disk: Disk, directory: str, config: StorageConfig, clock: Clock, monotonic: Clock) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.clock = clock
        self.monotonic = monotonic
        self.ids = Ids()
        self.journal_key: JournalKey
        self.unrecorded = 0
        self.covered = 0
        self.lines = CatalogueLines()
        self.logs = Logs(self.lines, partial(TopicLog.from_line, self))
        self.touched: set[TopicLog] = set()
        self.partial_acks = PartialAcks(config.partial_ack_bytes, monotonic)
        self.memory = EntryMemory(config.tail_cache_bytes)
        self.read_cache = ReadCache(config.read_cache_bytes)
        self.failure: StorageError | None = None
        self.is_closed = False
        self.has_died = False
        self.on_death: Callable[[StorageError], None] = lambda _: None
        self.queue_limit_bytes = config.queue_bytes * _HARD_LIMIT
        self.unmoved_limit_bytes = config.unmoved_bytes * _HARD_LIMIT
        self.checkpoint_at_bytes = config.checkpoint_bytes
        self.checkpoint_due: Callable[[], None] = lambda: None
        self.on_drained: Callable[[], None] | None = None
        self.has_changes = False
        self.has_journal_failed = False
        self._was_congested = False
        self._is_flush_planned = False
        self.journal: Journal
        self.lanes: Lanes

    # Changes.

    def refuses(self, done: Done | None) -> bool:
        """Return whether changes are currently rejected; if so, ``done`` is called with the error.

        Call this before changing memory: a change that never reaches the disk would be lost in a crash, although later
        changes depend on it.
        """
        if self.failure is None:
            return False
        if done is not None:
            done(self.failure)
        return True

    def record(self, done: Done | None, *parts: bytes) -> None:
        """Queue records, and call ``done`` with the result once they are on disk or have failed.

        Without records, ``done`` waits for all earlier records. While changes are rejected, the next checkpoint saves
        those already made in memory (acknowledgements).
        """
        if self.failure is not None:
            if parts:
                self.has_changes = True
                self.unrecorded += 1
            if done is not None:
                done(self.failure)
            return
        self.has_changes = self.has_changes or bool(parts)
        self.journal.put(done, *parts, is_urgent=done is not None)
        if done is None and not self._is_flush_planned:
            self._is_flush_planned = True
            self.lanes.later_on_loop(self.config.lazy_flush_s, self._flush)

    def _flush(self) -> None:
        self._is_flush_planned = False
        self.lanes.wake_writer()

    def record_removal(self, ledgers: Sequence[Ledger], done: Done, change: bytes) -> None:
        """Queue the record of a deletion of ``ledgers``, then remove their files in the background.

        Files that could not be removed, for example because of a crash, are removed at the next start.
        """
        paths = [self.file_of(ledger).path for ledger in ledgers]

        def remove() -> None:
            for path in paths:
                try:
                    self.disk.remove(path)
                except FileNotFoundError:
                    continue  # no entry was ever moved to this file
                except OSError as exc:
                    logger.warning("%s; retrying at the next start", DiskFailure("remove", path, exc))

        def removed(error: Exception | None) -> None:
            if error is None:
                self.lanes.in_background(remove)
            done(error)

        self.record(removed, change)

    # Journal reports.

    def written(self, batch: Batch) -> None:
        """Confirm the entries of a group and call its waiters."""
        self.journal.queued_bytes -= batch.bytes
        # Waiters are in append order, so `confirmed` and `last_confirmed` only increase, one entry at a time.
        for waiter in batch.waiters:
            try:
                if type(waiter) is tuple:
                    ledger, position, done = waiter
                    ledger.confirmed = position[1] + 1
                    ledger.log.last_confirmed = position
                    done(position, None)
                else:
                    waiter(None)  # type: ignore[operator]  # a tuple or a callable
            except Exception:  # a failing callback must not block the other receipts of the group
                logger.exception("storage callback failed")
        self.check_drained()
        if self.journal.written_bytes >= self.checkpoint_at_bytes or self.is_heavy:
            self.checkpoint_due()

    def failed(self, batch: Batch, failure: StorageError) -> None:
        """Roll back pending changes, report the failure, and reject changes until a checkpoint has repaired it."""
        self.has_changes = self.has_journal_failed = True
        # Reject changes first: the callbacks below may append entries, which must not reach the journal.
        self.refuse(failure)
        self._take_back([batch, *self.journal.take_unwritten()], failure)

    def died(self, error: BaseException) -> None:
        """Reject changes permanently after a storage thread failed, because of a bug or lack of memory."""
        failure = StorageError(f"a storage thread failed: {error!r}; restart the broker")
        self.refuse(failure)
        self.is_closed = self.has_died = True
        self._take_back(self.journal.take_unwritten(), failure)
        self.on_death(failure)

    def _take_back(self, batches: Sequence[Batch], failure: StorageError) -> None:
        # Roll back all logs before the first callback, so that callbacks never see a pending entry.
        for log in {w[0].log for b in batches for w in b.waiters if type(w) is tuple}:
            self.memory.drop_pending(log)
        for waiter in (waiter for batch in batches for waiter in batch.waiters):
            if type(waiter) is tuple:
                tell(waiter[2], waiter[1], failure)
            else:
                tell(waiter, failure)  # type: ignore[arg-type]  # a tuple or a callable
        self.check_drained()

    def refuse(self, failure: StorageError) -> None:
        """Reject changes with this error from now on."""
        if self.is_closed:
            return
        self.failure = failure
        logger.error("storage failed, rejecting changes: %s", failure)

    def close(self) -> None:
        """Reject changes permanently; queued records are still written."""
        if self.has_died:
            return
        self.failure = StorageError(f"storage {self.directory} is closed")
        self.is_closed = True

    def accept(self) -> None:
        """Accept changes again, unless the storage is closed."""
        if self.is_closed:
            return
        if self.failure is not None:
            logger.warning("storage recovered, accepting changes again")
        self.failure = None
        self.check_drained()

    def refusal(self) -> StorageError | None:
        """Return the error that currently prevents appends, or None."""
        if self.failure is not None:
            return self.failure
        for waiting, limit, what in (
            (self.journal.queued_bytes, self.queue_limit_bytes, "the journal"),
            (self.memory.unmoved_bytes, self.unmoved_limit_bytes, "ledger files"),
        ):
            if waiting > limit:
                return Congested(
                    f"{waiting} bytes are waiting to be written to {what}, above the limit of {limit}: publish more"
                    " slowly or use a faster disk"
                )
        return None

    @property
    def is_heavy(self) -> bool:
        """Whether entries in memory require a checkpoint: small entries take more memory than journal space."""
        return self.memory.unmoved_bytes * 2 > self.config.unmoved_bytes

    @property
    def is_congested(self) -> bool:
        """Whether appends outpace the disk; if so, stop reading from producers until `on_drained` is called."""
        congested = (
            self.journal.queued_bytes > self.config.queue_bytes or self.memory.unmoved_bytes > self.config.unmoved_bytes
        )
        self._was_congested = self._was_congested or congested
        return congested

    def check_drained(self) -> None:
        """Call `on_drained` once congestion has ended and at least half of the queue is free."""
        if (
            self._was_congested
            and self.journal.queued_bytes <= self.config.queue_bytes // 2
            and self.memory.unmoved_bytes <= self.config.unmoved_bytes
        ):
            self._was_congested = False
            if self.on_drained is not None:
                tell(self.on_drained)

    # Helpers.

    def catalogue_head(self, start: JournalEnd) -> Head:
        """Return the catalogue head for a replay that starts at ``start``."""
        return Head(start, self.ids.next_ledger, self.ids.next_object, self.journal_key)

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds."""
        return int(self.clock() * 1000)

    def file_of(self, ledger: Ledger) -> LedgerFile:
        """Return the ledger's file object; the file may not exist yet."""
        if ledger.file is None:
            ledger.file = LedgerFile(self.disk, f"{self.directory}/ledgers/{ledger.id}.ledger", ledger.id)
        return ledger.file

    def time_search(self, ledger: Ledger, time_ms: int, start: int) -> Callable[[], int | None]:
        """Return a job for a reading lane that finds the first entry published at ``time_ms`` or later, or None.

        Args:
            ledger: ledger to search.
            time_ms: publish time, set by the producers' clocks.
            start: id of the first entry to search.
        """
        file, moved, confirmed = self.file_of(ledger), ledger.moved, ledger.confirmed
        heads = (ledger.moving + ledger.unmoved)[::2]

        def search() -> int | None:
            if start < moved and (found := file.first_since(time_ms, start, moved)) is not None:
                return found
            for entry_id in range(max(start, moved), confirmed):
                if publish_time_of(heads[entry_id - moved]) >= time_ms:
                    return entry_id
            return None

        return search

    def bytes_from(self, ledger: Ledger, start: int) -> Callable[[], int]:
        """Return a job for a reading lane that counts the payload bytes of ``ledger`` from entry ``start`` on."""
        file, moved, payloads = self.file_of(ledger), ledger.moved, _confirmed_payloads(ledger)

        def measure() -> int:
            in_file = file.bytes_from(start, moved) if start < moved else 0
            return in_file + sum(map(len, payloads[max(start - moved, 0) :]))

        return measure

    def first_within(self, ledger: Ledger, max_bytes: int) -> Callable[[], int]:
        """Return a job for a reading lane that finds the first entry of a tail of at most ``max_bytes``."""
        file, moved, payloads = self.file_of(ledger), ledger.moved, _confirmed_payloads(ledger)

        def find() -> int:
            room = max_bytes
            for index in range(len(payloads) - 1, -1, -1):
                room -= len(payloads[index])
                if room < 0:
                    return moved + index + 1
            return file.first_within(room, moved) if moved else 0

        return find

    async def run_reading(self, job: Callable[[], T]) -> T:
        """Run ``job`` on a reading lane and return the result."""
        return await asyncio.wrap_future(self.lanes.reading(job))


def _confirmed_payloads(ledger: Ledger) -> list[bytes]:
    """Return the payloads of confirmed entries that are not in the ledger file yet."""
    return (ledger.moving + ledger.unmoved)[1 : 2 * (ledger.confirmed - ledger.moved) : 2]


def tell(callback: Callable[..., object], *arguments: object) -> None:
    """Call a callback and log its exception, if any, so that the remaining callbacks still run."""
    try:
        callback(*arguments)
    except Exception:
        logger.exception("storage callback failed")
