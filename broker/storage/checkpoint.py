"""Checkpoints: move entries from the journal to their ledgers and write a new catalogue.

Design: a checkpoint has three steps. First, the loop lane captures the journal position, the catalogue lines, and the
entries to move; all three describe the same moment, because only the loop lane changes them. Second, once the journal
has written everything up to that position, the background lane writes and syncs the ledger files, then the catalogue.
Third, the loop lane marks the entries as moved and releases earlier journal files. A failed step has nothing to undo on
disk: until the new catalogue is installed, the old catalogue and the journal still contain everything. An error in any
step is logged and ends the checkpoint, and the next attempt follows after `retry_s`.

A checkpoint also repairs a journal failure, because replay then starts after the damaged group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain

from ...errors import StorageError
from .catalogue import Head, write_catalogue
from .core import StorageCore, tell
from .disk.failures import as_storage_error, disk_action
from .journal.journal import Batch, JournalEnd
from .ledgers.ledger import Ledger
from .ports import Captured

_MANY_BYTES = 256 * 1024  # minimum size for which releasing a ledger's page cache is worth the system calls
Result = Callable[[StorageError | None], None]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Plan:
    """The content of one checkpoint.

    Attributes:
        ids: next ledger id and next object id.
        lines: catalogue lines of loaded logs.
        resting: catalogue lines of unloaded logs.
        ledgers: ledgers with entries to move, and these entries (`Ledger.moving`). They are written even if the ledger
            is deleted meanwhile, because after a crash before the deletion record is on disk, the catalogue still lists
            the ledger.
        covered_bytes: bytes that the journal had written when the checkpoint began.
        unrecorded: number of changes without a journal record that the lines include.
        heals: whether the checkpoint repairs a journal failure.
        failure: cause of a failed checkpoint, or None.
    """

    ids: tuple[int, int]
    lines: list[Captured]
    resting: list[bytes]
    ledgers: list[tuple[Ledger, list[bytes]]]
    covered_bytes: int
    unrecorded: int
    heals: bool
    failure: StorageError | None = None


class Checkpoint:
    """Runs checkpoints, one at a time; methods must be called on the loop lane unless noted otherwise."""

    def __init__(self, core: StorageCore) -> None:
        self._core = core
        self._is_running = False  # True from the capture until the result is known
        self._told: list[Result] = []  # callbacks of the running checkpoint
        self._waiting: list[Result] = []  # callbacks of the next checkpoint
        core.on_death = self._abort
        self._began_s = core.monotonic()
        self._has_failed = False
        self._covered_bytes = 0  # journal bytes covered by the last successful checkpoint
        self.completed = 0

    def is_due(self) -> bool:
        """Return whether a checkpoint is due: enough bytes were written, or a change is old enough."""
        core = self._core
        if self._is_running:
            return False
        if core.journal.written_bytes >= core.checkpoint_at_bytes:
            return True
        if core.is_heavy and not self._has_failed:
            return True
        is_dirty = core.has_changes or bool(core.memory.unmoved_ledgers)
        wait_s = core.config.retry_s if self._has_failed else core.config.checkpoint_interval_s
        return is_dirty and core.monotonic() - self._began_s >= wait_s

    def begin(self, done: Result | None = None) -> None:
        """Start a checkpoint, after the running one if any, and call ``done`` with its result."""
        if done is not None:
            self._waiting.append(done)
        if not self._is_running:
            self._begin()

    def _begin(self) -> None:
        core = self._core
        self._told, self._waiting = self._waiting, []
        if core.has_died:
            assert core.failure is not None
            self._abort(core.failure)
            return
        self._is_running = True
        self._began_s = core.monotonic()
        core.checkpoint_at_bytes = core.journal.written_bytes + core.config.checkpoint_bytes
        core.has_changes = False  # before the capture: later changes belong to the next checkpoint
        try:
            plan = self._capture()
        except Exception as exc:
            logger.exception("cannot capture the storage state for a checkpoint")
            failure = as_storage_error(exc, "write a checkpoint")
            self._is_running = False
            self._fail(failure)
            self._tell(failure)
            return
        if plan.heals:
            # No entry of the damaged group was confirmed, so there is nothing to wait for: replay starts after the
            # group, and this plan contains everything that was confirmed before.
            end = core.journal.broken_end()
            core.lanes.in_background(lambda: self._move(plan, end))
            return

        def reached(error: Exception | None) -> None:
            if error is None:
                assert batch.end is not None
                end = batch.end
                core.lanes.in_background(lambda: self._move(plan, end))
            else:
                plan.failure = as_storage_error(error, "write to the journal")
                self._finish(plan, None)

        batch: Batch = core.journal.mark_end(reached)

    def _capture(self) -> _Plan:
        core = self._core
        lines = core.lines.capture(core.now_ms(), is_last=core.is_closed)
        ledgers = []
        for ledger in core.memory.take_up():
            core.file_of(ledger)
            ledgers.append((ledger, ledger.moving))
        ids = core.ids.next_ledger, core.ids.next_object
        return _Plan(
            ids,
            lines,
            list(core.logs.lines),
            ledgers,
            core.journal.written_bytes,
            core.unrecorded,
            heals=core.has_journal_failed,
        )

    def _move(self, plan: _Plan, end: JournalEnd) -> None:
        """Write the ledgers and the catalogue on the background lane, then report the result."""
        try:
            self._write(plan, end)
        except Exception as exc:
            if not isinstance(exc, StorageError):
                logger.exception("cannot write a checkpoint")
            plan.failure = as_storage_error(exc, "write a checkpoint")
        self._core.lanes.on_loop(lambda: self._finish(plan, end))

    def _write(self, plan: _Plan, end: JournalEnd) -> None:
        core = self._core
        # Write ledgers first: a durable catalogue must only list entries as moved that are in their ledger files.
        made_file = False
        for ledger, moving in plan.ledgers:
            if moving:  # empty if the journal failed before it had written any of these entries
                assert ledger.file is not None
                made_file = ledger.file.write(ledger.moved, moving) or made_file
        if made_file:
            path = f"{core.directory}/ledgers"
            with disk_action("sync the directory", path):
                core.disk.sync_directory(path)
        lines = chain(plan.resting, (line.encode() for line in plan.lines))
        write_catalogue(core.disk, core.directory, Head(end, *plan.ids, core.journal_key), lines)

    def _finish(self, plan: _Plan, end: JournalEnd | None) -> None:
        core = self._core
        if core.has_died:
            return  # callbacks have already been called
        self._is_running = False
        for ledger, _ in plan.ledgers:
            if ledger.is_dropped:
                continue
            if plan.failure is None:
                size = core.memory.note_moved(ledger)
                if size >= _MANY_BYTES and ledger.log.consumed >= ledger.position(ledger.moved - 1):
                    # All consumers have already read these entries from memory, so the file is unlikely to be read.
                    core.lanes.in_background(partial(core.disk.forget_cached, core.file_of(ledger).path))
            else:
                core.memory.put_back(ledger)
        plan.ledgers.clear()  # break a reference cycle with the journal's waiters, which would retain all payloads
        if plan.failure is None:
            assert end is not None
            self._succeed(plan, end)
        else:
            self._fail(plan.failure)
        self._tell(plan.failure)
        is_behind = plan.failure is None and core.unrecorded > core.covered and not core.is_closed
        if (self._waiting or is_behind) and not self._is_running:
            self._begin()

    def _abort(self, failure: StorageError) -> None:
        """Report to all waiters that there will be no more checkpoints."""
        self._is_running = False
        self._told += self._waiting
        self._waiting = []
        self._tell(failure)

    def _tell(self, result: StorageError | None) -> None:
        waiters, self._told = self._told, []
        for waiting in waiters:
            tell(waiting, result)

    def _succeed(self, plan: _Plan, end: JournalEnd) -> None:
        core = self._core
        self.completed += 1
        self._has_failed = False
        self._covered_bytes = plan.covered_bytes
        core.covered = plan.unrecorded
        # Repair the journal before accepting changes below, or the first change would reach a broken journal.
        if plan.heals:
            core.journal.mend(end)
            core.has_journal_failed = False
        # Replay now starts at `end`, so earlier journal files are no longer needed.
        for path in core.journal.release(end.sequence):
            core.lanes.in_background(partial(self._remove, path))
        core.memory.shrink()
        # If the journal has failed again while this checkpoint was written, only the next checkpoint repairs it.
        if not core.has_journal_failed:
            core.accept()

    def _fail(self, failure: StorageError) -> None:
        core = self._core
        core.has_changes = self._has_failed = True
        logger.warning("checkpoint failed, retrying: %s", failure)
        kept = max(core.memory.unmoved_bytes, core.journal.written_bytes - self._covered_bytes)
        if core.failure is None and kept > core.config.unmoved_bytes:
            core.refuse(failure)

    def _remove(self, path: str) -> None:
        try:
            self._core.disk.remove(path)
        except FileNotFoundError:
            pass  # the deletion failed before the file was created
        except OSError as exc:
            logger.warning("cannot remove %s: %s; retrying at the next start", path, exc)
