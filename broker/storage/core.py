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
from ...tasks import settle
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

_HARD_LIMIT = 4  # times the mark at which the storage says that it is congested
logger = logging.getLogger(__name__)


class StorageCore:
    """The shared part; built by recovery, driven by `Storage`.

    Attributes:
        logs: by name.
        lines: what the catalogue says about them.
        touched: logs that changed since the broker last looked (see `Storage.take_touched`).
        partial_acks: what counts the ack sets of all cursors.
        failure: why changes are refused, or None.
        memory: the entries that memory holds.
        checkpoint_at_bytes: what the journal has to have written for ``checkpoint_due`` to be called.
        has_changes: True if the catalogue has something new to say.
        has_journal_failed: True until a checkpoint has healed a failure of the journal.
        unrecorded: changes so far that the journal did not take, as it was refusing: acknowledgements.
        covered: how many of these the catalogue has.
        journal_key: what tells the journal's files from what payloads hold.
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
        """Return whether changes are refused now, after telling ``done`` so: asked before memory changes.

        A change that memory has and the disk has not would be lost with a crash, although others build on it.
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
        """Queue the record that ``ledgers`` are gone; their files go in the background once it is on the disk.

        If a file cannot be removed, or a crash comes first, the next start does it.
        """
        paths = [self.file_of(ledger).path for ledger in ledgers]

        def remove() -> None:
            for path in paths:
                try:
                    self.disk.remove(path)
                except FileNotFoundError:
                    continue  # nothing was ever moved there
                except OSError as exc:
                    logger.warning("%s; it is tried again at the next start", DiskFailure("remove", path, exc))

        def removed(error: Exception | None) -> None:
            if error is None:
                self.lanes.in_background(remove)
            done(error)

        self.record(removed, change)

    # Reports of the journal.

    def written(self, batch: Batch) -> None:
        """Confirm a group and tell everybody who waits for it."""
        self.journal.queued_bytes -= batch.bytes
        # In the order of the appends: `confirmed` and `last_confirmed` only grow, and by one entry at a time.
        for waiter in batch.waiters:
            try:
                if type(waiter) is tuple:
                    ledger, position, done = waiter
                    ledger.confirmed = position[1] + 1
                    ledger.log.last_confirmed = position
                    done(position, None)
                else:
                    waiter(None)  # type: ignore[operator]  # a tuple or a callable
            except Exception:  # one bad callback must not keep the group's other receipts back
                logger.exception("a callback of the storage failed")
        self.check_drained()
        if self.journal.written_bytes >= self.checkpoint_at_bytes or self.is_heavy:
            self.checkpoint_due()

    def failed(self, batch: Batch, failure: StorageError) -> None:
        """Take back everything pending, tell everybody, and refuse changes until a checkpoint has healed this."""
        self.has_changes = self.has_journal_failed = True
        # Refuse first: a callback below may append again, which must not reach the journal.
        self.refuse(failure)
        self._take_back([batch, *self.journal.take_unwritten()], failure)

    def died(self, error: BaseException) -> None:
        """Refuse changes for good, as a thread of the storage ended by a mistake of ours or for lack of memory."""
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
        """Refuse changes from now on, for this reason."""
        if self.is_closed:
            return
        self.failure = failure
        logger.error("storage refuses changes: %s", failure)

    def close(self) -> None:
        """Refuse changes for good; what is queued is still written."""
        if self.has_died:
            return
        self.failure = StorageError(f"storage {self.directory} is closed")
        self.is_closed = True

    def accept(self) -> None:
        """Take changes again, unless closed."""
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
        """True if a checkpoint should not wait for its journal bytes: small entries take more memory than disk."""
        return self.memory.unmoved_bytes * 2 > self.config.unmoved_bytes

    @property
    def is_congested(self) -> bool:
        """True if appends come faster than the disk takes them: stop reading from producers until `on_drained`."""
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

    # Small services.

    def catalogue_head(self, start: JournalEnd) -> Head:
        """Return what a catalogue says beside the logs, if replaying begins at ``start``."""
        return Head(start, self.ids.next_ledger, self.ids.next_object, self.journal_key)

    def now_ms(self) -> int:
        """Return the wall time in milliseconds."""
        return int(self.clock() * 1000)

    def file_of(self, ledger: Ledger) -> LedgerFile:
        """Return the ledger's file; it need not exist yet."""
        if ledger.file is None:
            ledger.file = LedgerFile(self.disk, f"{self.directory}/ledgers/{ledger.id}.ledger", ledger.id)
        return ledger.file

    def time_search(self, ledger: Ledger, time_ms: int, start: int) -> Callable[[], int | None]:
        """Return a job for a reading lane: the first entry published at ``time_ms`` or later, or None.

        Args:
            ledger: that is searched.
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
        """Return a job for a reading lane: from which entry on ``ledger`` has at most ``max_bytes`` of payload."""
        file, moved, payloads = self.file_of(ledger), ledger.moved, _confirmed_payloads(ledger)

        def find() -> int:
            room = max_bytes
            for index in range(len(payloads) - 1, -1, -1):
                room -= len(payloads[index])
                if room < 0:
                    return moved + index + 1
            return file.first_within(room, moved) if moved else 0

        return find

    async def wait(self, start: Callable[[Done], None]) -> None:
        """Call ``start`` with a callback and wait until that is called; raise what it is given."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        start(partial(settle, future))
        await future

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
