"""The storage of a broker.

    storage = Storage.open(directory)      # blocks: locks the directory and recovers its content
    storage.attach(loop)                   # starts the threads; results are delivered on the loop
    log = storage.open_log("persistent://public/default/t")
    log.append(payload, 1, publish_time_ms, done)
    await storage.close()

After `attach`, all methods must be called on the loop's thread, and none of them accesses files there.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from ...errors import ClosedError, DataDirectoryInUse, StorageError
from ...tasks import called_back
from ..cycles import free
from .checkpoint import Checkpoint
from .config import StorageConfig
from .core import Clock, StorageCore
from .cursors.cursor import Cursor, MemoryCursor
from .cursors.names import check_text
from .disk.disk import Disk, DiskLock, LocalDisk, LockedByOther
from .disk.failures import disk_action
from .disk.lanes import Lanes, Task, ThreadLanes
from .hidden_logs import HIDDEN
from .journal.format import encode_change
from .journal.journal import Journal
from .ledgers.ledger import Ledger
from .memory.store import MemoryStore
from .memory.volatile_log import VolatileLog
from .ports import Done
from .recovery.recovery import recover
from .topic_log import TopicLog

_TICK_S = 1.0
_PARTS = frozenset({TopicLog, Cursor, MemoryCursor, Ledger})
"""Classes of the objects that belong to a log."""


class Storage:
    """All logs of a broker, stored in one directory.

    When the disk fails or is full, changes are rejected with a StorageError that names the file and a remedy (see
    `failure`), reads continue, and recovery is attempted every `retry_s`. Confirmed data is not lost, and no restart is
    needed. A change that was reported as failed may still have taken effect.
    """

    def __init__(self, core: StorageCore, lock: DiskLock, salvaged: Sequence[TopicLog]) -> None:
        self._core = core
        self._lock = lock
        self._salvaged = salvaged
        self._checkpoint = Checkpoint(core)
        self._memory = MemoryStore(core.clock)  # for the logs of non-persistent topics
        self._is_closed = False
        self._retry_at_s = 0.0
        self._tick: asyncio.TimerHandle | None = None
        core.checkpoint_due = self.maintain

    @classmethod
    def open(
        cls,
        directory: str | Path,
        config: StorageConfig | None = None,
        disk: Disk | None = None,
        clock: Clock = time.time,
        rng: random.Random | None = None,
        monotonic: Clock = time.monotonic,
    ) -> Storage:
        """Open a data directory: create it if needed, lock it, and recover its content. Blocks.

        Args:
            directory: data directory.
            config: limits; the defaults if None.
            disk: disk of the directory; the local disk if None.
            clock: wall clock in seconds, for stored timestamps.
            rng: generates the journal key and file ids; `random.SystemRandom` if None.
            monotonic: monotonic clock in seconds, for intervals.

        Raises:
            DataDirectoryInUse: another process holds the lock.
            DamagedFile: synced data is missing or damaged; the message names the file and offset.
            NewerFormat: a later version wrote the directory.
            UnknownLogs: the journal contains records of logs that were neither created nor deleted; see
                `StorageConfig.salvage`.
            DiskFailure: a disk operation failed; the message names the file, errno and a remedy.
        """
        config = config or StorageConfig()
        disk = disk or LocalDisk(config.sync_delay_s)
        path = str(directory)
        with disk_action("create the data directory", path):
            disk.make_directory(path)
        lock = _take_lock(disk, path)
        try:
            rng = rng or random.SystemRandom()
            core = StorageCore(disk, path, config, clock, monotonic)
            recovered = recover(core, rng)
            journal = Journal(disk, recovered.files, config, recovered.end, rng)
        except BaseException:
            lock.close()
            raise
        core.journal = journal
        journal.report = core
        return cls(core, lock, recovered.salvaged)

    # Running.

    def attach(self, loop: asyncio.AbstractEventLoop, make_lanes: Callable[[Task, Task], Lanes] | None = None) -> None:
        """Start the threads, which deliver results on ``loop``, with one call per journal group.

        Args:
            loop: event loop of the caller.
            make_lanes: creates lanes to be used instead of threads, from `hand_over` and `write_turn` (see
                `ThreadLanes`).
        """
        journal = self._core.journal
        if make_lanes is None:
            self.use(ThreadLanes(loop, journal.hand_over, journal.write_turn, self._core.died))
        else:
            self.use(make_lanes(journal.hand_over, journal.write_turn))
        self._tick = loop.call_later(_TICK_S, self._on_tick, loop)

    def use(self, lanes: Lanes) -> None:
        """Set the lanes on which all work runs; until then, nothing can be changed."""
        self._core.lanes = self._core.journal.lanes = lanes
        for log in self._salvaged:
            log.create(lambda _: None)  # the journal reports failures itself

    def _on_tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._tick = loop.call_later(_TICK_S, self._on_tick, loop)
        self.maintain()

    def maintain(self) -> None:
        """Start a checkpoint if one is due, or to repair a failure. Called automatically every second."""
        now_s = self._core.monotonic()
        if self._core.failure is not None:
            if now_s >= self._retry_at_s:
                self._retry_at_s = now_s + self._core.config.retry_s
                self._checkpoint.begin()
        elif self._checkpoint.is_due():
            self._checkpoint.begin()

    async def close(self) -> None:
        """Write a final checkpoint, stop the threads, and unlock the directory.

        Cancellation: not safe; shield this call.

        Raises:
            StorageError: the final checkpoint failed. The directory is unlocked anyway, and no confirmed data is lost.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._core.close()
        try:
            await called_back(self._checkpoint.begin)
        finally:
            if self._tick is not None:
                self._tick.cancel()
            await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._core.lanes.stop()
        self.abandon()

    def abandon(self) -> None:
        """Close the files and unlock the directory without a checkpoint; the threads must not be running."""
        self._is_closed = True
        self._core.journal.close()
        self._lock.close()

    # Logs.

    def log_names(self) -> list[str]:
        """Return the names of all durable logs."""
        logs = self._core.logs
        return [name for name in logs if not name.startswith(HIDDEN) and self.has_log(name)]

    def has_log(self, name: str) -> bool:
        """Return whether a durable log with this name exists."""
        logs = self._core.logs
        log = logs.used.get(name)
        return logs.is_at_rest(name) if log is None else log.is_created

    def open_log(self, name: str) -> TopicLog:
        """Return the log with this name, creating it if needed.

        A new log becomes durable with its first record (see `TopicLog.create`).

        Raises:
            NotAllowed: the name is not valid UTF-8.
            ClosedError: the storage is closed.
        """
        if self._is_closed:
            raise ClosedError(f"storage {self._core.directory} is closed")
        log = self._core.logs.get(name)
        if log is None:
            check_text("topic name", name)
            log = TopicLog(self._core, self._core.ids.new_object(), name)
            self._core.logs.add(log)
        return log

    def volatile_log(self, name: str) -> VolatileLog:
        """Return a log that is always empty, for a non-persistent topic; it is not part of the storage.

        Raises:
            NotAllowed: the name is not valid UTF-8.
        """
        return self._memory.volatile_log(name)

    def used_names(self) -> list[str]:
        """Return the names of the loaded logs."""
        return list(self._core.logs.used)

    def unload(self, names: Iterable[str]) -> list[Callable[[], bool]]:
        """Unload logs, keeping only their catalogue lines until the next access.

        Logs with a compacted view, or with changes that are not on disk yet, are not unloaded. The objects of unloaded
        logs may still be used; changing such an object reloads the log.

        Returns:
            A function for each unloaded log that frees its memory, and returns False if that must be tried again later,
            because something still uses the object.
        """
        core = self._core
        logs = [log for name in names if (log := core.logs.used.get(name)) is not None and log.is_quiet]
        core.memory.release([ledger for log in logs for ledger in log.ledgers_by_id.values()])
        for log in logs:
            core.logs.unload(log, log.snapshot().encode())
        return [partial(self._free, log.name, [log]) for log in logs]

    def _free(self, name: str, held: list[object]) -> bool:
        is_loaded = self._core.logs.used.get(name) is held[0]
        return is_loaded or free(held, _PARTS.__contains__)

    async def delete_log(self, name: str) -> None:
        """Delete a log and its cursors durably, if it exists.

        Cancellation: the log is deleted anyway.

        Raises:
            StorageError: the disk failed. If changes were already being rejected, nothing has changed. Otherwise the
                log has been removed from memory, but may exist again after a restart.
        """
        await called_back(lambda done: self.delete_log_with(name, done))

    def delete_log_with(self, name: str, done: Done) -> None:
        """Delete a log, and call ``done`` when the deletion is durable."""
        if self._core.refuses(done):
            return
        log = self._core.logs.pop(name)
        if log is None or not log.is_created:
            self._core.record(done)
            return
        ledgers = log.drop()
        changes = encode_change({"do": "delete_log", "log": log.id})
        if log.view is not None:
            hidden = log.view.log
            self._core.logs.pop(hidden.name)
            ledgers += hidden.drop()
            changes += encode_change({"do": "delete_log", "log": hidden.id})
        self._core.record_removal(ledgers, done, changes)

    # State.

    def take_touched(self) -> list[TopicLog]:
        """Return the logs that changed since the last call."""
        touched = list(self._core.touched)
        self._core.touched.clear()
        for log in touched:
            log.looked_at()
        return touched

    @property
    def failure(self) -> StorageError | None:
        """The error that currently prevents changes, or None."""
        return self._core.failure

    @property
    def is_congested(self) -> bool:
        """Whether appends outpace the disk; if so, stop reading from producers until `on_drained` is called."""
        return self._core.is_congested

    def on_drained(self, callback: Callable[[], None]) -> None:
        """Set the callback that is run on the loop when storage has recovered from congestion."""
        self._core.on_drained = callback

    def __repr__(self) -> str:
        return f"<Storage {self._core.directory} {len(self._core.logs)} logs>"


def _take_lock(disk: Disk, directory: str) -> DiskLock:
    path = f"{directory}/lock"
    with disk_action("lock the data directory using", path):
        try:
            return disk.lock(path)
        except LockedByOther as exc:
            raise DataDirectoryInUse(
                f"data directory {directory} is in use by {exc}: stop that broker or use another data directory"
            ) from exc
