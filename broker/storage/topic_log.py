"""One topic's log: its ledgers, its cursors, and their positions.

Design: the log's state belongs to the loop lane. `append` assigns the entry's position at once, but the entry is
invisible until the journal has synced it. A ledger is begun by the first append that needs one, never in advance, so
idle topics cost neither ids nor files; after a start or a disk failure the next append begins a new one, because the
fate of positions that were assigned but never confirmed is unknown. Only the last ledger accepts entries.
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
_NOBODY: WeakSet[Watcher] = WeakSet()  # never changed: saves thousands of logs a set each


class TopicLog(LedgerList[Ledger]):
    """The entries of one topic, in order, and the cursors over them.

    Attributes:
        name: the full topic name.
        id: identifies the log in journal records.
        cursors: durable cursors by name; change them only through the log.
        is_terminated: True if the log accepts no more entries.
        view: the compacted older entries; None if compaction never ran.
        is_compacting: True while entries must stay because compaction reads them.
        delayed_ledgers: ids of the ledgers that may hold entries with a delayed delivery.
    """

    def __init__(self, core: StorageCore, log_id: int, name: str) -> None:
        super().__init__()
        self.core = core
        self.id = log_id
        self.name = name
        self.cursors: dict[str, Cursor] = {}
        self.is_terminated = False
        self.is_created = False  # its creation record has been queued
        self.is_deleted = False
        self.view: HiddenView | None = None
        self.is_compacting = False
        self.delayed_ledgers: set[int] = set()
        self._open: Ledger | None = None
        self._is_quiet = True  # no change since the catalogue and the broker last looked
        self._watchers: WeakSet[Watcher] = _NOBODY

    # Writing.

    def append(self, payload: bytes, messages: int, publish_time_ms: int, done: EntryDone) -> None:
        """Append one entry; ``done`` is called on the loop in append order, except that a refusal is reported at once.

        Args:
            payload: the entry exactly as received.
            messages: number of messages in it.
            publish_time_ms: its publish time, for searches by time.
            done: gets the position and None once the entry is on disk, or the error.
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
        # The position is assigned now and confirmed later; readers stop at `Ledger.confirmed`.
        entry_id, size = ledger.appended, len(payload)
        # tuple.__new__ makes a named tuple in less than half the time.
        position = tuple.__new__(Position, (ledger.id, entry_id))
        head = pack_entry_head(ENTRY, size + ENTRY_FIELDS_BYTES, ledger.id, entry_id, messages, publish_time_ms)
        entry = tuple.__new__(StoredEntry, (position, payload, messages))
        memory.append(ledger, entry, head, size, publish_time_ms)
        if self._is_quiet:
            self.has_changed()
        # Last: memory must have the entry before the journal can report.
        core.journal.put_entry((ledger, position, done), head, payload)
        if ledger.appended >= core.config.max_ledger_entries or ledger.totals.bytes >= core.config.max_ledger_bytes:
            self.close_ledger()

    def expect_delayed(self) -> None:
        """Record, durably, that the next entry has a delayed delivery.

        Recorded per ledger: dispatchers need not inspect entries of other ledgers. Does nothing if the log accepts no
        entries now, because the append then reports the reason.
        """
        if self.core.refusal() is None and self._refusal() is None:
            ledger = self._open or self._begin_ledger()
            if ledger.id not in self.delayed_ledgers:
                self.delayed_ledgers.add(ledger.id)
                self.has_changed()
                # Before the entry, so that no delayed entry is on disk without it.
                self.core.journal.put(
                    None, encode_change({"do": "expect_delayed", "log": self.id, "ledger": ledger.id})
                )

    def free(self) -> None:
        """Break the reference cycles of an unloaded log that has no users left, which frees its memory."""
        self.is_deleted = True  # any user left must reopen it, as there may be a second object now
        for cursor in self.cursors.values():
            del cursor.log
        for ledger in self.ledgers_by_id.values():
            del ledger.log

    def create(self, done: Done) -> None:
        """Make the log itself durable, even while empty."""
        if not self.refuses(done):
            self._create()
            self.core.record(done)

    def terminate_with(self, done: Done) -> None:
        """Accept no more entries; existing ones are kept."""
        if self.refuses(done):
            return
        self._create()
        self.is_terminated = True
        self.close_ledger()
        self.has_changed()
        self.core.record(done, encode_change({"do": "terminate", "log": self.id}))

    async def terminate(self) -> Position:
        """Accept no more entries and return the position of the last one.

        Cancellation: the log is terminated all the same.
        """
        await called_back(self.terminate_with)
        return self.last_confirmed

    @property
    def failure(self) -> StorageError | None:
        """Why changes are refused at the moment, or None."""
        return self.core.failure

    def _refusal(self) -> Exception | None:
        if self.is_deleted:
            return StorageError(f"log {self.name} was deleted: reopen it")
        if self.is_terminated:
            return TopicTerminated(f"topic {self.name} is terminated and takes no more messages")
        return None

    def barrier(self, done: Done) -> None:
        """Call ``done`` once all changes so far are durable, or with the error if they failed."""
        self.core.record(done)

    def refuses(self, done: Done) -> bool:
        """Return whether changes are refused now, after reporting that to ``done``: call it before changing memory."""
        if self.is_deleted:
            done(self._refusal())
            return True
        return self.core.refuses(done)

    def _create(self) -> None:
        """Queue the log's creation record, unless that was done; if writing it fails, the log does not exist."""
        if self.is_created:
            return
        record = encode_change({"do": "create_log", "log": self.id, "name": self.name})
        self.is_created = True
        self.has_changed()

        def created(error: Exception | None) -> None:
            if error is not None:  # everything queued after this has failed with it
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
        """Append a new ledger, which closes the previous one."""
        last = self.last_ledger
        if last is not None and last.closed_ms is None:
            last.closed_ms = created_ms
        self.has_changed()
        return self.take(Ledger(self, ledger_id, created_ms, self.entries_ever()))

    def close_ledger(self) -> None:
        """Close the last ledger, if it is open: the next append begins a new one."""
        self._open = None
        last = self.last_ledger
        if last is not None and last.closed_ms is None:
            last.closed_ms = self.core.now_ms()
            self.has_changed()

    def has_changed(self) -> None:
        """Note that the catalogue line is out of date, and that the broker may have work with the log.

        Called for each change; only the first one after a look of either has a cost.
        """
        if self._is_quiet:
            self._is_quiet = False
            self.core.logs.changed(self)
            self.core.lines.changed.add(self)
            self.core.touched.add(self)

    def touch(self) -> None:
        """Mark the log for the broker's periodic work without a change."""
        self.core.touched.add(self)

    def looked_at(self) -> None:
        """Note that the catalogue, or the broker, has seen all changes so far."""
        self._is_quiet = True

    def watch(self, watcher: Watcher) -> None:
        """Notify ``watcher``, which does not retain entries, of dropped ledgers."""
        if self._watchers is _NOBODY:
            self._watchers = WeakSet()
        self._watchers.add(watcher)

    def drop_pending(self) -> int:
        """Drop unconfirmed entries after a journal failure; return their bytes."""
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
        """Return confirmed entries from ``start`` on from memory, or None if they have to be loaded.

        The entries are of one ledger, at least one if the log has any from ``start`` on; that one may exceed
        ``max_bytes``.
        """
        found = self.locate(start)
        if found is None:
            return []
        ledger, entry_id = found
        if entry_id >= ledger.first_cached:
            return ledger.cached(entry_id, max_entries, max_bytes)
        return self.core.read_cache.get(ledger.id, entry_id, max_entries, max_bytes) or None

    async def load(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return confirmed entries as `read` does, from disk where they are not in memory.

        Cancellation: safe.

        Raises:
            StorageError: the disk failed or holds damaged data.
        """
        while (found := self.read(start, max_entries, max_bytes)) is None:
            reading = self._reading(start, max_entries, max_bytes)
            if reading is None:
                continue
            ledger, job = reading
            try:
                entries = await self.core.run_reading(job)
            except StorageError:
                if ledger.is_dropped:  # retention was faster
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
        """Return the position right before the first entry after ``after`` published at ``time_ms`` or later.

        Publish times come from the producers, in any order: an entry whose producer's clock is behind does not make
        those before it old. Without such an entry, the last position is returned.

        Cancellation: safe.
        """
        return await self._before_first_since(time_ms, after, lambda _: False)

    async def position_before_age(self, time_ms: int, after: Position = EARLIEST) -> Position:
        """Return the position up to which all entries after ``after`` are older than ``time_ms``.

        An entry is older by its publish time, or because its ledger was closed before: the broker's own clock bounds
        how long a producer with a fast clock can keep entries from expiring.

        Cancellation: safe.
        """

        def is_old(ledger: Ledger) -> bool:
            # Ledgers of versions without closing times count as closed when they were begun.
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
        """Return the earliest position after which there are at most ``max_bytes`` of payload.

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
            return if_dropped  # retention was faster

    # Cursors.

    def before(self, position: Position) -> Position:
        """Return `LedgerList.before`, also for positions that only the compacted view still has."""
        if self.view is not None and EARLIEST < position < self.first_position:
            return Position(position.ledger_id, max(position.entry_id, 0) - 1)
        return super().before(position)

    def messages_at_most(self, position: Position) -> int:
        """Return how many messages an entry has: exact for an entry in memory, otherwise an upper bound."""
        ledger = self.ledgers_by_id[position.ledger_id]
        entries = self.read(position, 1, 1)
        return entries[0].messages if entries else ledger.totals.messages

    @property
    def first_compacted(self) -> Position:
        """Position of the oldest entry of the compacted view and the log together."""
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
        """Return the durable cursor of that name, creating it if needed.

        Args:
            name: the subscription's name.
            initial: mark-delete position of a new cursor.
            properties: of a new cursor.
            done: called when the cursor is durable, also for an existing one. After an error, no cursor was created.
            is_internal: the cursor is the broker's own, and may have a reserved name.

        Raises:
            NotAllowed: name or properties are not UTF-8 or too long, or the name is reserved; nothing changed.
            StorageError: changes are refused or the log was deleted, and ``done`` is None.
        """
        check_name("a subscription's name", name)
        if not is_internal:
            refuse_internal(name)
        cursor = self.cursors.get(name)
        if cursor is None:
            check_properties("subscription property", properties or {})
            check_size("subscription properties", (properties or {}).items())
            # A compacted view has entries of dropped ledgers; its readers begin before the first entry of the log.
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
        """Add a cursor that is durable already, or about to be."""
        self.cursors[cursor.name] = cursor
        self.has_changed()
        return cursor

    async def delete_cursor(self, name: str, *, is_internal: bool = False) -> None:
        """Delete the cursor of that name, if it exists; returns when that is durable.

        Cancellation: the cursor is deleted all the same.

        Raises:
            NotAllowed: it is the broker's own, and ``is_internal`` is False.
        """
        if not is_internal:
            refuse_internal(name)
        await called_back(lambda done: self.delete_cursor_with(name, done))

    def delete_cursor_with(self, name: str, done: Done) -> None:
        """Delete a cursor, and call ``done`` when that is durable."""
        if self.is_deleted:
            self.core.record(done)
            return
        if self.core.refuses(done):
            return
        cursor = self.remove_cursor(name)
        parts = [encode_change({"do": "delete_cursor", "log": self.id, "cursor": cursor.id})] if cursor else []
        self.core.record(done, *parts)

    def remove_cursor(self, name: str) -> Cursor | None:
        """Remove a cursor from the log and return it."""
        self.has_changed()
        return self.cursors.pop(name, None)

    def memory_cursor(self, name: str, initial: Position, properties: Mapping[str, str] | None = None) -> MemoryCursor:
        """Return a new cursor that ends with the process and retains no entries.

        Args:
            name: the subscription's name.
            initial: its mark-delete position.
            properties: of the subscription.
        """
        return MemoryCursor(self, name, initial, properties)

    # Retention.

    @property
    def consumed(self) -> Position:
        """Position that all durable cursors have reached; the last confirmed one without cursors."""
        return min((cursor.mark_delete for cursor in self.cursors.values()), default=self.last_confirmed)

    async def trim(self, retention_ms: int, retention_bytes: int) -> list[int]:
        """Delete ledgers that all durable cursors have passed and retention does not keep; return their ids.

        Args:
            retention_ms: how long consumed entries are kept; -1 is forever.
            retention_bytes: how much of the log is kept; -1 is unlimited.

        Cancellation: the ledgers are deleted all the same.
        """
        drop: list[int] = []
        await called_back(lambda done: drop.extend(self.trim_with(retention_ms, retention_bytes, done)))
        return drop

    def trim_with(self, retention_ms: int, retention_bytes: int, done: Done) -> list[int]:
        """Trim, and call ``done`` when that is durable; the files are removed afterwards."""
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
        # Otherwise acknowledgements without a record would be followed by the record that their entries are deleted.
        is_behind = self.core.unrecorded > self.core.covered
        if not drop or self.is_compacting or is_behind or self.core.failure is not None:
            self.core.record(done)
            return []
        ledgers = [self.ledgers_by_id[ledger_id] for ledger_id in drop]
        # Memory, then the record, then the files: a crash before the record keeps the ledgers; after a crash before the
        # last file is removed, the next start removes it.
        self.drop_ledgers(drop)
        change = encode_change({"do": "drop_ledgers", "log": self.id, "ledgers": drop})
        self.core.record_removal(ledgers, done, change)
        return drop

    def next_trim_ms(self, retention_ms: int) -> int | None:
        """Return when trimming may drop a ledger by age without further changes, or None if never."""
        first = next(iter(self.ledgers_by_id.values()), None)
        if first is None or first is self._open:
            return None
        if first.confirmed < first.appended or self.is_compacting:
            return self.core.now_ms()
        if retention_ms < 0 or self.consumed < first.position(first.confirmed - 1):
            return None
        return (first.closed_ms or self.core.now_ms()) + retention_ms

    def close_old_ledger(self, ledger: LedgerPort, now_ms: int) -> bool:
        """Close a ledger if it is too old; return whether it is closed."""
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
        """Mark the log as deleted; return its ledgers."""
        self.is_deleted = True
        self._open = None
        ledgers = list(self.ledgers_by_id.values())
        self.drop_ledgers([ledger.id for ledger in ledgers])
        self.core.lines.changed.add(self)
        self.core.touched.discard(self)
        return ledgers

    # Compacted views; see `hidden_logs`.

    def begin_view(self) -> TopicLog:
        """Return a new hidden log for a view of this log; it stays unreferenced until `switch_view`."""
        return begin_view(self)

    def switch_view(self, hidden: TopicLog, first: Position | None, horizon: Position, done: Done) -> None:
        """Make a fully synced hidden log the view of this log, and move its compaction cursor to the horizon.

        Args:
            hidden: from `begin_view`.
            first: position in the topic of its first entry; None if it is empty.
            horizon: last position of the topic that it covers.
            done: called when that is durable.
        """
        switch_view(self, hidden, first, horizon, done)

    def drop_view(self, hidden: TopicLog, done: Done) -> None:
        """Delete an unreferenced hidden log."""
        drop_hidden(hidden, done)

    def stale_views(self) -> list[TopicLog]:
        """Return hidden logs of this log that are not its view, left over from failed or missed drops."""
        return stale_views(self)

    # The catalogue.

    def snapshot(self) -> Image:
        """Return the log's catalogue line: its state once everything queued now has been written and moved."""
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
        """Whether the catalogue line is complete, and nothing will change by itself."""
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
        """Return the log described by a line of the catalogue."""
        state = json.loads(line)
        log = cls(core, state["log"], state["name"])
        log.is_created = True
        for ledger_id, entries, created_ms, messages, size, oldest_ms, newest_ms, *closed_ms in state["ledgers"]:
            ledger = log.add_ledger(ledger_id, created_ms)
            ledger.restore(entries, LedgerTotals(messages, size, oldest_ms, newest_ms))
            # Ledgers of versions without closing times count as closed when they were begun.
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
