"""The state that all logs of a storage share: journal and its reports, caches, counters, and whether the disk works.

Design: all of this belongs to the loop lane. A journal report confirms a whole group at once. When the journal fails,
everything pending is rolled back and its waiters get the error, changes are refused, and checkpoints are retried until
one succeeds: it starts after the failure and holds everything confirmed, so nothing depends on the damaged group any
more (see `journal.py`).
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

_HARD_LIMIT = 4  # multiple of the congestion limits above which appends are refused
logger = logging.getLogger(__name__)


class StorageCore:
    """The shared state; built by recovery, driven by `Storage`.

    Attributes:
        logs: by name.
        lines: the catalogue lines.
        touched: logs that changed since the broker last looked (see `Storage.take_touched`).
        partial_acks: counts the ack sets of all cursors.
        failure: why changes are refused, or None.
        memory: the entries in memory.
        checkpoint_at_bytes: bytes written by the journal at which ``checkpoint_due`` is called.
        has_changes: True if the catalogue is out of date.
        has_journal_failed: True until a checkpoint has healed a journal failure.
        unrecorded: number of changes (acknowledgements) made while the journal refused records.
        covered: how many of these are in the catalogue.
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
        """Return whether changes are refused now, after reporting that to ``done``: call it before changing memory.

        A change in memory that never reaches the disk would be lost in a crash, although other changes build on it.
        """
        if self.failure is None:
            return False
        if done is not None:
            done(self.failure)
        return True

    def record(self, done: Done | None, *parts: bytes) -> None:
        """Queue records, or only a wait for earlier ones, and report to ``done`` once they are on disk or have failed.

        While changes are refused, changes already made in memory (acknowledgements) are left to the next checkpoint.
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
        """Queue the record that ``ledgers`` are deleted; once it is on disk, their files are removed in the background.

        If a file cannot be removed, or after a crash, the next start removes it.
        """
        paths = [self.file_of(ledger).path for ledger in ledgers]

        def remove() -> None:
            for path in paths:
                try:
                    self.disk.remove(path)
                except FileNotFoundError:
                    continue  # no entry was ever moved there
                except OSError as exc:
                    logger.warning("%s; it is tried again at the next start", DiskFailure("remove", path, exc))

        def removed(error: Exception | None) -> None:
            if error is None:
                self.lanes.in_background(remove)
            done(error)

        self.record(removed, change)

    # Journal reports.

    def written(self, batch: Batch) -> None:
        """Confirm a group and call its waiters."""
        self.journal.queued_bytes -= batch.bytes
        # In append order: `confirmed` and `last_confirmed` only grow, one entry at a time.
        for waiter in batch.waiters:
            try:
                if type(waiter) is tuple:
                    ledger, position, done = waiter
                    ledger.confirmed = position[1] + 1
                    ledger.log.last_confirmed = position
                    done(position, None)
                else:
                    waiter(None)  # type: ignore[operator]  # a tuple or a callable
            except Exception:  # a failing callback must not hold back the other receipts of the group
                logger.exception("a callback of the storage failed")
        self.check_drained()
        if self.journal.written_bytes >= self.checkpoint_at_bytes or self.is_heavy:
            self.checkpoint_due()

    def failed(self, batch: Batch, failure: StorageError) -> None:
        """Roll back everything pending, report the failure, and refuse changes until a checkpoint has healed it."""
        self.has_changes = self.has_journal_failed = True
        # Refuse first: the callbacks below may append again, which must not reach the journal.
        self.refuse(failure)
        self._take_back([batch, *self.journal.take_unwritten()], failure)

    def died(self, error: BaseException) -> None:
        """Refuse changes for good: a storage thread ended because of a bug or lack of memory."""
        failure = StorageError(f"a thread of the storage ended by {error!r}; restart the broker")
        self.refuse(failure)
        self.is_closed = self.has_died = True
        self._take_back(self.journal.take_unwritten(), failure)
        self.on_death(failure)

    def _take_back(self, batches: Sequence[Batch], failure: StorageError) -> None:
        # Roll back all logs before the first callback, so that a callback sees no pending entry anywhere.
        for log in {w[0].log for b in batches for w in b.waiters if type(w) is tuple}:
            self.memory.drop_pending(log)
        for waiter in (waiter for batch in batches for waiter in batch.waiters):
            if type(waiter) is tuple:
                tell(waiter[2], waiter[1], failure)
            else:
                tell(waiter, failure)  # type: ignore[arg-type]  # a tuple or a callable
        self.check_drained()

    def refuse(self, failure: StorageError) -> None:
        """Refuse changes from now on with this error."""
        if self.is_closed:
            return
        self.failure = failure
        logger.error("storage refuses changes: %s", failure)

    def close(self) -> None:
        """Refuse changes for good; queued records are still written."""
        if self.has_died:
            return
        self.failure = StorageError(f"storage {self.directory} is closed")
        self.is_closed = True

    def accept(self) -> None:
        """Accept changes again, unless closed."""
        if self.is_closed:
            return
        if self.failure is not None:
            logger.warning("storage works again")
        self.failure = None
        self.check_drained()

    def refusal(self) -> StorageError | None:
        """Return why an append is refused now, or None."""
        if self.failure is not None:
            return self.failure
        for waiting, limit, what in (
            (self.journal.queued_bytes, self.queue_limit_bytes, "the journal"),
            (self.memory.unmoved_bytes, self.unmoved_limit_bytes, "their ledgers"),
        ):
            if waiting > limit:
                return Congested(
                    f"{waiting} bytes wait for {what}, more than {limit}; publish more slowly or use a faster disk"
                )
        return None

    @property
    def is_heavy(self) -> bool:
        """True if a checkpoint is due regardless of journal bytes: small entries take more memory than disk."""
        return self.memory.unmoved_bytes * 2 > self.config.unmoved_bytes

    @property
    def is_congested(self) -> bool:
        """True if appends outpace the disk: stop reading from producers until `on_drained`."""
        congested = (
            self.journal.queued_bytes > self.config.queue_bytes or self.memory.unmoved_bytes > self.config.unmoved_bytes
        )
        self._was_congested = self._was_congested or congested
        return congested

    def check_drained(self) -> None:
        """Call `on_drained` if the storage was congested and has recovered, with at least half of the queue free."""
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
        """Return the catalogue head for a replay that begins at ``start``."""
        return Head(start, self.ids.next_ledger, self.ids.next_object, self.journal_key)

    def now_ms(self) -> int:
        """Return the wall time in milliseconds."""
        return int(self.clock() * 1000)

    def file_of(self, ledger: Ledger) -> LedgerFile:
        """Return the ledger's file, which need not exist yet."""
        if ledger.file is None:
            ledger.file = LedgerFile(self.disk, f"{self.directory}/ledgers/{ledger.id}.ledger", ledger.id)
        return ledger.file

    def time_search(self, ledger: Ledger, time_ms: int, start: int) -> Callable[[], int | None]:
        """Return a job for a reading lane: the first entry published at ``time_ms`` or later, or None.

        Args:
            ledger: the ledger to search.
            time_ms: by the clocks of the producers.
            start: entry at which the search begins.
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
        """Return a job for a reading lane: the payload bytes of ``ledger`` from an entry on."""
        file, moved, payloads = self.file_of(ledger), ledger.moved, _confirmed_payloads(ledger)

        def measure() -> int:
            in_file = file.bytes_from(start, moved) if start < moved else 0
            return in_file + sum(map(len, payloads[max(start - moved, 0) :]))

        return measure

    def first_within(self, ledger: Ledger, max_bytes: int) -> Callable[[], int]:
        """Return a job for a reading lane: the entry from which on ``ledger`` has at most ``max_bytes`` of payload."""
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
        """Run ``job`` on a reading lane and return its result."""
        return await asyncio.wrap_future(self.lanes.reading(job))


def _confirmed_payloads(ledger: Ledger) -> list[bytes]:
    """Return the payloads of confirmed entries that no checkpoint has moved."""
    return (ledger.moving + ledger.unmoved)[1 : 2 * (ledger.confirmed - ledger.moved) : 2]


def tell(callback: Callable[..., object], *arguments: object) -> None:
    """Call a caller's callback; an exception is logged, so that the remaining callbacks still run."""
    try:
        callback(*arguments)
    except Exception:
        logger.exception("a callback of the storage failed")
