"""The log of a topic: its ledgers, its cursors, and their positions.

Design: the state of a log belongs to the loop lane. `append` assigns the position of an entry immediately, but the
entry is invisible until the journal has synced it. A new ledger is created by the first append that needs it, so idle
topics use neither ids nor files. After a start or a disk failure, the next append creates a new ledger, because it is
unknown whether unconfirmed positions were written. Only the last ledger accepts entries.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakSet

from ...errors import StorageError, TopicTerminated
from ...tasks import called_back
from ...wire.position import EARLIEST, Position
from .catalogue import encode_log
from .cursors.cursor import Cursor, MemoryCursor
from .cursors.image import Image
from .cursors.names import check_name, check_properties, check_size, refuse_internal
from .entry import LedgerInfo, StoredEntry
from .hidden_logs import HIDDEN, HiddenView, begin_view, drop_hidden, stale_views, switch_view
from .journal.format import ENTRY, ENTRY_FIELDS_BYTES, encode_change, pack_entry_head
from .ledgers.ledger import Ledger, LedgerTotals
from .ledgers.ledger_list import ClosedLedger, LedgerList, ledgers_to_drop
from .ledgers.read_cache import within
from .ports import Done, EntryDone, LedgerPort, Watcher

if TYPE_CHECKING:
    from .core import StorageCore

T = TypeVar("T")
_READ_AHEAD_BYTES = 1024 * 1024
_NOBODY: WeakSet[Watcher] = WeakSet()  # never modified; avoids creating a set for each of thousands of logs


class TopicLog(LedgerList[Ledger]):
    """The entries of a topic, in order, and its cursors.

    Attributes:
        name: full topic name.
        id: id of the log in journal records.
        cursors: durable cursors by name; only changed by the methods of this class.
        is_terminated: whether the log has been terminated and accepts no more entries.
        view: compacted view of older entries, or None if there was no compaction.
        is_compacting: whether a compaction is running, during which entries must not be deleted.
        delayed_ledgers: ids of the ledgers that may contain delayed entries.
    """

    def __init__(self, core: StorageCore, log_id: int, name: str) -> None:
        super().__init__()
        self.core = core
        self.id = log_id
        self.name = name
        self.cursors: dict[str, Cursor] = {}
        self.is_terminated = False
        self.is_created = False  # whether the creation record has been queued
        self.is_deleted = False
        self.view: HiddenView | None = None
        self.is_compacting = False
        self.delayed_ledgers: set[int] = set()
        self._open: Ledger | None = None
        self._is_quiet = True  # no change since the last catalogue capture or `looked_at`
        self._watchers: WeakSet[Watcher] = _NOBODY

    # Writing.

    def append(self, payload: bytes, messages: int, publish_time_ms: int, done: EntryDone) -> None:
        """Append an entry.

        Args:
            payload: the entry exactly as received.
            messages: number of messages in the entry.
            publish_time_ms: publish time, for searches by time.
            done: called on the loop, in append order, with the position and None once the entry is on disk, or with an
                error. If the entry is rejected, it is called immediately.
        """
        core = self.core
        memory = core.memory
        ledger = self._open
        if (
            ledger is None
            or core.failure is not None
            or core.journal.queued_bytes > core.queue_limit_bytes
            or memory.unmoved_bytes > core.unmoved_limit_bytes
        ):
            error = core.refusal() or self._refusal()
            if error is not None:
                done(EARLIEST, error)
                return
            ledger = self._open or self._begin_ledger()
        # The position is assigned now and confirmed later; readers only read up to `Ledger.confirmed`.
        entry_id, size = ledger.appended, len(payload)
        # tuple.__new__ creates a named tuple in less than half the time.
        position = tuple.__new__(Position, (ledger.id, entry_id))
        head = pack_entry_head(ENTRY, size + ENTRY_FIELDS_BYTES, ledger.id, entry_id, messages, publish_time_ms)
        entry = tuple.__new__(StoredEntry, (position, payload, messages))
        memory.append(ledger, entry, head, size, publish_time_ms)
        if self._is_quiet:
            self.has_changed()
        # This comes last, because memory must contain the entry before the journal can report it.
        core.journal.put_entry((ledger, position, done), head, payload)
        if ledger.appended >= core.config.max_ledger_entries or ledger.totals.bytes >= core.config.max_ledger_bytes:
            self.close_ledger()

    def expect_delayed(self) -> None:
        """Record durably that the next entry has a delayed delivery.

        This is recorded per ledger, so that dispatchers need not inspect the entries of other ledgers. If the log
        currently accepts no entries, this does nothing, and the append reports the error.
        """
        if self.core.refusal() is None and self._refusal() is None:
            ledger = self._open or self._begin_ledger()
            if ledger.id not in self.delayed_ledgers:
                self.delayed_ledgers.add(ledger.id)
                self.has_changed()
                # Queued before the entry, so that no delayed entry is on disk without this record.
                self.core.journal.put(
                    None, encode_change({"do": "expect_delayed", "log": self.id, "ledger": ledger.id})
                )

    def create(self, done: Done) -> None:
        """Make the log durable, even if it is empty."""
        if not self.refuses(done):
            self._create()
            self.core.record(done)

    def terminate_with(self, done: Done) -> None:
        """Terminate the log, keeping existing entries, and call ``done`` when that is durable."""
        if self.refuses(done):
            return
        self._create()
        self.is_terminated = True
        self.close_ledger()
        self.has_changed()
        self.core.record(done, encode_change({"do": "terminate", "log": self.id}))

    async def terminate(self) -> Position:
        """Terminate the log, so that it accepts no more entries, and return the position of the last entry.

        Cancellation: the log is terminated anyway.
        """
        await called_back(self.terminate_with)
        return self.last_confirmed

    @property
    def failure(self) -> StorageError | None:
        """Error that currently prevents changes, or None."""
        return self.core.failure

    def _refusal(self) -> Exception | None:
        if self.is_deleted:
            return StorageError(f"log {self.name} was deleted: reopen it")
        if self.is_terminated:
            return TopicTerminated(f"topic {self.name} is terminated and accepts no more messages")
        return None

    def barrier(self, done: Done) -> None:
        """Call ``done`` once all previous changes are durable, or with the error if they have failed."""
        self.core.record(done)

    def refuses(self, done: Done) -> bool:
        """Return whether changes are currently rejected; if so, ``done`` is called with the error.

        Call this before changing memory.
        """
        if self.is_deleted:
            done(self._refusal())
            return True
        return self.core.refuses(done)

    def _create(self) -> None:
        """Queue the creation record unless it was queued before; if writing it fails, the log does not exist."""
        if self.is_created:
            return
        record = encode_change({"do": "create_log", "log": self.id, "name": self.name})
        self.is_created = True
        self.has_changed()

        def created(error: Exception | None) -> None:
            if error is not None:  # everything queued after this record has failed too
                self.is_created = self.is_terminated = False
                self.has_changed()

        self.core.record(created, record)

    def _begin_ledger(self) -> Ledger:
        core = self.core
        ledger = self.add_ledger(core.ids.new_ledger(), core.now_ms())
        self._open = core.lines.open_ledgers[ledger.id] = ledger
        change = {"do": "begin_ledger", "log": self.id, "ledger": ledger.id, "created_ms": ledger.created_ms}
        self._create()
        core.journal.put(None, encode_change(change))
        return ledger

    def add_ledger(self, ledger_id: int, created_ms: int) -> Ledger:
        """Append a new ledger and close the previous one."""
        last = self.last_ledger
        if last is not None and last.closed_ms is None:
            last.closed_ms = created_ms
        self.has_changed()
        return self.take(Ledger(self, ledger_id, created_ms, self.entries_ever()))

    def close_ledger(self) -> None:
        """Close the last ledger if it is open, so that the next append creates a new one."""
        self._open = None
        last = self.last_ledger
        if last is not None and last.closed_ms is None:
            last.closed_ms = self.core.now_ms()
            self.has_changed()

    def has_changed(self) -> None:
        """Mark the catalogue line as out of date, and the log for the broker's periodic work.

        This is called for each change, but only the first call after `looked_at` does any work.
        """
        if self._is_quiet:
            self._is_quiet = False
            self.core.logs.changed(self)
            self.core.lines.changed.add(self)
            self.core.touched.add(self)

    def touch(self) -> None:
        """Mark the log for the broker's periodic work, although it has not changed."""
        self.core.touched.add(self)

    def looked_at(self) -> None:
        """Record that the catalogue or the broker has processed all changes so far."""
        self._is_quiet = True

    def watch(self, watcher: Watcher) -> None:
        """Notify ``watcher`` of dropped ledgers, without retaining entries for it."""
        if self._watchers is _NOBODY:
            self._watchers = WeakSet()
        self._watchers.add(watcher)

    def drop_pending(self) -> int:
        """Drop unconfirmed entries after a journal failure, and return the number of bytes freed."""
        size = 0
        for ledger_id, ledger in list(self.ledgers_by_id.items()):
            if ledger.appended > ledger.confirmed:
                size += ledger.drop_pending()
            if not ledger.confirmed:
                self.forget(ledger_id)
                self.delayed_ledgers.discard(ledger_id)
        self.close_ledger()
        self.has_changed()
        return size

    # Reading.

    def ledgers(self) -> tuple[LedgerInfo, ...]:
        """Return the ledgers, oldest first."""
        return tuple(ledger.info(ledger is self._open) for ledger in self.ledgers_by_id.values())

    def read(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry] | None:
        """Return confirmed entries from memory, from ``start`` on, or None if they must be loaded.

        All returned entries are in the same ledger. At least one is returned if the log contains any, even if it
        exceeds ``max_bytes``.
        """
        found = self.locate(start)
        if found is None:
            return []
        ledger, entry_id = found
        if entry_id >= ledger.first_cached:
            return ledger.cached(entry_id, max_entries, max_bytes)
        return self.core.read_cache.get(ledger.id, entry_id, max_entries, max_bytes) or None

    async def load(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return confirmed entries like `read`, loading them from disk if needed.

        Cancellation: safe.

        Raises:
            StorageError: the disk failed, or the data is damaged.
        """
        while (found := self.read(start, max_entries, max_bytes)) is None:
            reading = self._reading(start, max_entries, max_bytes)
            if reading is None:
                continue
            ledger, job = reading
            try:
                entries = await self.core.run_reading(job)
            except StorageError:
                if ledger.is_dropped:  # by retention, during the read
                    continue
                raise
            if not ledger.is_dropped:
                return self._keep_read(entries, max_entries, max_bytes)
        return found

    def _keep_read(self, entries: list[StoredEntry], max_entries: int, max_bytes: int) -> list[StoredEntry]:
        self.core.read_cache.put(entries)
        return within(entries[:max_entries], max_bytes)

    def _reading(
        self, start: Position, max_entries: int, max_bytes: int
    ) -> tuple[Ledger, Callable[[], list[StoredEntry]]] | None:
        found = self.locate(start)
        if found is None or found[1] >= found[0].first_cached:
            return None
        ledger, entry_id = found
        file, end, limit = self.core.file_of(ledger), ledger.moved, max(max_bytes, _READ_AHEAD_BYTES)
        return ledger, lambda: file.read(entry_id, end, max_entries, limit)

    async def position_before_time(self, time_ms: int, after: Position = EARLIEST) -> Position:
        """Return the position before the first entry after ``after`` that was published at ``time_ms`` or later.

        Without such an entry, the last position is returned. Publish times are set by producers and may be in any
        order, so later entries may have lower publish times.

        Cancellation: safe.
        """
        return await self._before_first_since(time_ms, after, lambda _: False)

    async def position_before_age(self, time_ms: int, after: Position = EARLIEST) -> Position:
        """Return the last position up to which all entries after ``after`` are older than ``time_ms``.

        An entry is older if it was published or its ledger was closed before that time. Since ledgers are closed by the
        broker's clock, a producer with a fast clock cannot prevent entries from expiring.

        Cancellation: safe.
        """

        def is_old(ledger: Ledger) -> bool:
            # Ledgers from versions without closing times have the closing time set to their creation time.
            return ledger.closed_ms is not None and ledger.created_ms < ledger.closed_ms < time_ms

        return await self._before_first_since(time_ms, after, is_old)

    async def _before_first_since(self, time_ms: int, after: Position, is_old: Callable[[Ledger], bool]) -> Position:
        for ledger in list(self.ledgers_by_id.values()):
            if ledger.id < after.ledger_id or ledger.is_dropped or ledger.totals.newest_ms < time_ms or is_old(ledger):
                continue
            start = after.entry_id + 1 if ledger.id == after.ledger_id else 0
            if start >= ledger.confirmed:
                continue
            entry_id = await self._examined(ledger, self.core.time_search(ledger, time_ms, max(start, 0)), None)
            if entry_id is not None:
                return self.before(ledger.position(entry_id))
        return self.last_confirmed

    async def bytes_behind(self, position: Position) -> int:
        """Return the payload bytes of the entries after ``position``.

        Cancellation: safe.
        """
        size = 0
        for ledger in list(self.ledgers_by_id.values()):
            start = position.entry_id + 1 if ledger.id == position.ledger_id else 0
            if ledger.id < position.ledger_id or ledger.is_dropped or start >= ledger.confirmed:
                continue
            if start <= 0:
                size += ledger.totals.bytes
            else:
                size += await self._examined(ledger, self.core.bytes_from(ledger, start), 0)
        return size

    async def position_leaving(self, max_bytes: int) -> Position:
        """Return the lowest position after which the log contains at most ``max_bytes`` of payload.

        Cancellation: safe.
        """
        for ledger in reversed(list(self.ledgers_by_id.values())):
            if ledger.totals.bytes > max_bytes and not ledger.is_dropped:
                entry_id = await self._examined(ledger, self.core.first_within(ledger, max_bytes), 0)
                return Position(ledger.id, entry_id - 1) if entry_id else self.before(ledger.position(0))
            max_bytes -= ledger.totals.bytes
        return self.before(self.first_position)

    async def _examined(self, ledger: Ledger, job: Callable[[], T], if_dropped: T) -> T:
        try:
            return await self.core.run_reading(job)
        except StorageError:
            if not ledger.is_dropped:
                raise
            return if_dropped  # dropped by retention during the read

    # Cursors.

    def before(self, position: Position) -> Position:
        """Same as `LedgerList.before`, but also supports positions that only exist in the compacted view."""
        if self.view is not None and EARLIEST < position < self.first_position:
            return Position(position.ledger_id, max(position.entry_id, 0) - 1)
        return super().before(position)

    def messages_at_most(self, position: Position) -> int:
        """Return the number of messages in an entry if it is in memory, otherwise an upper bound."""
        ledger = self.ledgers_by_id[position.ledger_id]
        entries = self.read(position, 1, 1)
        return entries[0].messages if entries else ledger.totals.messages

    @property
    def first_compacted(self) -> Position:
        """Position of the oldest entry, including those in the compacted view."""
        if self.view is None or self.view.first is None:
            return self.first_position
        return min(self.view.first, self.first_position)

    def open_cursor(
        self,
        name: str,
        initial: Position,
        properties: Mapping[str, str] | None = None,
        done: Done | None = None,
        *,
        is_internal: bool = False,
    ) -> Cursor:
        """Return the durable cursor with this name, creating it if needed.

        Args:
            name: subscription name.
            initial: mark-delete position of a new cursor.
            properties: properties of a new cursor.
            done: called when the cursor is durable, even if it existed before. If an error is passed, no cursor was
                created.
            is_internal: whether the cursor is internal to the broker and may have a reserved name.

        Raises:
            NotAllowed: the name is reserved, or the name or properties are not valid UTF-8 or too long.
            StorageError: ``done`` is None, and changes are rejected or the log was deleted.
        """
        check_name("subscription name", name)
        if not is_internal:
            refuse_internal(name)
        cursor = self.cursors.get(name)
        if cursor is None:
            check_properties("subscription property", properties or {})
            check_size("subscription properties", (properties or {}).items())
            # A compacted view may contain entries of dropped ledgers, before the log's first entry.
            lowest = self.before(EARLIEST) if self.view is None else EARLIEST
            initial = min(max(initial, lowest), max(self.last_confirmed, self.before(EARLIEST)))
            cursor = Cursor(self, self.core.ids.new_object(), name, initial)
            cursor.properties = dict(properties or {})
            if self.refuses(done or _raise):
                return cursor
            change = {
                "do": "open_cursor", "log": self.id, "cursor": cursor.id, "name": name, "mark": list(initial),
                "properties": cursor.properties,
            }  # fmt: skip
            record = encode_change(change)
            self._create()
            self.add_cursor(cursor)
            self.core.record(partial(self._opened, cursor, done), record)
        elif done is not None:
            self.core.record(done)
        return cursor

    def _opened(self, cursor: Cursor, done: Done | None, error: Exception | None) -> None:
        if error is not None and self.cursors.get(cursor.name) is cursor:
            self.remove_cursor(cursor.name)
        if done is not None:
            done(error)

    def add_cursor(self, cursor: Cursor) -> Cursor:
        """Add a cursor that is durable or will be."""
        self.cursors[cursor.name] = cursor
        self.has_changed()
        return cursor

    async def delete_cursor(self, name: str, *, is_internal: bool = False) -> None:
        """Delete the cursor with this name durably, if it exists.

        Cancellation: the cursor is deleted anyway.

        Raises:
            NotAllowed: the name is reserved, and ``is_internal`` is False.
        """
        if not is_internal:
            refuse_internal(name)
        await called_back(lambda done: self.delete_cursor_with(name, done))

    def delete_cursor_with(self, name: str, done: Done) -> None:
        """Delete a cursor, and call ``done`` when the deletion is durable."""
        if self.is_deleted:
            self.core.record(done)
            return
        if self.core.refuses(done):
            return
        cursor = self.remove_cursor(name)
        parts = [encode_change({"do": "delete_cursor", "log": self.id, "cursor": cursor.id})] if cursor else []
        self.core.record(done, *parts)

    def remove_cursor(self, name: str) -> Cursor | None:
        """Remove and return a cursor of the log, or return None."""
        self.has_changed()
        return self.cursors.pop(name, None)

    def memory_cursor(self, name: str, initial: Position, properties: Mapping[str, str] | None = None) -> MemoryCursor:
        """Return a new cursor that is only kept in memory and retains no entries.

        Args:
            name: subscription name.
            initial: mark-delete position of the cursor.
            properties: subscription properties.
        """
        return MemoryCursor(self, name, initial, properties)

    # Retention.

    @property
    def consumed(self) -> Position:
        """Lowest mark-delete position of all durable cursors, or the last confirmed position without cursors."""
        return min((cursor.mark_delete for cursor in self.cursors.values()), default=self.last_confirmed)

    async def trim(self, retention_ms: int, retention_bytes: int) -> list[int]:
        """Delete ledgers that all durable cursors have passed and that exceed the retention, and return their ids.

        Args:
            retention_ms: retention time of consumed entries; -1 for unlimited.
            retention_bytes: retained size of the log; -1 for unlimited.

        Cancellation: the ledgers are deleted anyway.
        """
        drop: list[int] = []
        await called_back(lambda done: drop.extend(self.trim_with(retention_ms, retention_bytes, done)))
        return drop

    def trim_with(self, retention_ms: int, retention_bytes: int, done: Done) -> list[int]:
        """Same as `trim`, but call ``done`` when the deletion is durable; the files are removed afterwards."""
        now_ms = self.core.now_ms()
        if self._open is not None:
            self.close_old_ledger(self._open, now_ms)
        consumed = self.consumed
        closed = []
        for ledger in self.ledgers_by_id.values():
            if ledger is self._open or ledger.confirmed < ledger.appended:
                break
            is_consumed = consumed >= ledger.position(ledger.confirmed - 1)
            closed_ms = now_ms if ledger.closed_ms is None else ledger.closed_ms
            closed.append(ClosedLedger(ledger.id, ledger.totals.bytes, closed_ms, is_consumed))
        open_bytes = self.total_bytes - sum(ledger.bytes for ledger in closed)
        drop = ledgers_to_drop(closed, open_bytes, retention_ms, retention_bytes, now_ms)
        # Wait for acknowledgements without a record, or the deletion record of their entries would precede them.
        is_behind = self.core.unrecorded > self.core.covered
        if not drop or self.is_compacting or is_behind or self.core.failure is not None:
            self.core.record(done)
            return []
        ledgers = [self.ledgers_by_id[ledger_id] for ledger_id in drop]
        # First memory, then the record, then the files: after a crash before the record, the ledgers still exist, and
        # after a later crash, the next start removes the remaining files.
        self.drop_ledgers(drop)
        change = encode_change({"do": "drop_ledgers", "log": self.id, "ledgers": drop})
        self.core.record_removal(ledgers, done, change)
        return drop

    def next_trim_ms(self, retention_ms: int) -> int | None:
        """Return the time at which trimming may drop a ledger without further changes to the log, or None."""
        first = next(iter(self.ledgers_by_id.values()), None)
        if first is None or first is self._open:
            return None
        if first.confirmed < first.appended or self.is_compacting:
            return self.core.now_ms()
        if retention_ms < 0 or self.consumed < first.position(first.confirmed - 1):
            return None
        return (first.closed_ms or self.core.now_ms()) + retention_ms

    def close_old_ledger(self, ledger: LedgerPort, now_ms: int) -> bool:
        """Close a ledger that exceeds the maximum age, and return whether the ledger is closed."""
        if ledger is self._open and now_ms - ledger.created_ms >= self.core.config.max_ledger_age_s * 1000:
            self.close_ledger()
        return ledger is not self._open

    def drop_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """Drop the oldest ledgers from the log."""
        for ledger_id in ledger_ids:
            self.core.memory.drop_ledger(self.forget(ledger_id))
            self.core.read_cache.forget(ledger_id)
            self.core.lines.open_ledgers.pop(ledger_id, None)
            self.delayed_ledgers.discard(ledger_id)
            for watcher in self._watchers:
                watcher.forget_ledger(ledger_id)
        self.has_changed()

    def drop(self) -> list[Ledger]:
        """Mark the log as deleted, and return its ledgers."""
        self.is_deleted = True
        self._open = None
        ledgers = list(self.ledgers_by_id.values())
        self.drop_ledgers([ledger.id for ledger in ledgers])
        self.core.lines.changed.add(self)
        self.core.touched.discard(self)
        return ledgers

    # Compacted views; see `hidden_logs`.

    def begin_view(self) -> TopicLog:
        """Return a new hidden log for a view of this log, which is unreferenced until `switch_view`."""
        return begin_view(self)

    def switch_view(self, hidden: TopicLog, first: Position | None, horizon: Position, done: Done) -> None:
        """Install a fully synced hidden log as the view of this log, and move the compaction cursor to the horizon.

        Args:
            hidden: log created by `begin_view`.
            first: position in the topic of the first entry; None for an empty view.
            horizon: last position in the topic that the view covers.
            done: called when the change is durable.
        """
        switch_view(self, hidden, first, horizon, done)

    def drop_view(self, hidden: TopicLog, done: Done) -> None:
        """Delete an unreferenced hidden log."""
        drop_hidden(hidden, done)

    def stale_views(self) -> list[TopicLog]:
        """Return the hidden logs of this log that are not its current view and have not been dropped yet."""
        return stale_views(self)

    # The catalogue.

    def snapshot(self) -> Image:
        """Return the catalogue line: the state of the log after all queued records have been written and moved."""
        self.looked_at()
        last = self.last_confirmed
        ledgers = []
        for ledger in self.ledgers_by_id.values():
            totals = ledger.totals
            ledgers.append(
                [ledger.id, ledger.appended, ledger.created_ms, totals.messages, totals.bytes, totals.oldest_ms,
                 totals.newest_ms, ledger.closed_ms]
            )  # fmt: skip
            last = max(last, ledger.position(ledger.appended - 1))
        head = {
            "log": self.id,
            "name": self.name,
            "last": list(last),
            "terminated": self.is_terminated,
            "ledgers": ledgers,
            "view": None if self.view is None else self.view.state(),
        }
        if self.delayed_ledgers:
            head["delayed"] = sorted(self.delayed_ledgers)
        return Image(partial(encode_log, head, [cursor.snapshot() for cursor in self.cursors.values()]))

    @property
    def is_quiet(self) -> bool:
        """Whether the catalogue line is complete and the log will not change without further calls."""
        core = self.core
        return (
            self._is_quiet
            and self not in core.lines.changed
            and self not in core.touched
            and self.is_created
            and self._open is None
            and self.view is None
            and not self.name.startswith(HIDDEN)
            and not self.is_compacting
            and all(ledger.moved == ledger.appended for ledger in self.ledgers_by_id.values())
        )

    @classmethod
    def from_line(cls, core: StorageCore, line: bytes) -> TopicLog:
        """Create a log from its catalogue line."""
        state = json.loads(line)
        log = cls(core, state["log"], state["name"])
        log.is_created = True
        for ledger_id, entries, created_ms, messages, size, oldest_ms, newest_ms, *closed_ms in state["ledgers"]:
            ledger = log.add_ledger(ledger_id, created_ms)
            ledger.restore(entries, LedgerTotals(messages, size, oldest_ms, newest_ms))
            # Ledgers from versions without closing times have the closing time set to their creation time.
            ledger.closed_ms = closed_ms[0] if closed_ms else created_ms
        log.last_confirmed = Position(*state["last"])
        log.is_terminated = state["terminated"]
        log.delayed_ledgers.update(state.get("delayed", ()))
        for cursor in state["cursors"]:
            log.add_cursor(Cursor.from_snapshot(log, cursor))
        core.lines.restore(log, line)
        core.touched.discard(log)
        log.looked_at()
        return log

    def __repr__(self) -> str:
        return f"<TopicLog {self.name} ledgers {list(self.ledgers_by_id)} last {self.last_confirmed}>"


def _raise(error: Exception | None) -> None:
    assert error is not None
    raise error
