"""A log in memory, and its durable cursors, which outlive their consumers but end with the process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from ....errors import StorageError, TopicTerminated
from ....tasks import called_back
from ....wire.position import EARLIEST, Position
from ..compacted_view import COMPACTION_CURSOR, CompactedView
from ..cursors.cursor import MemoryCursor
from ..cursors.names import check_name, check_properties, check_size, refuse_internal
from ..entry import LedgerInfo, StoredEntry
from ..ledgers.ledger_list import ClosedLedger, LedgerList, ledgers_to_drop
from ..ports import Done, EntryDone, Watcher
from .ledger import MemoryLedger

if TYPE_CHECKING:
    from .store import MemoryStore


class KeptCursor(MemoryCursor):
    """A cursor that retains entries and confirms changes asynchronously, as engines with a disk do."""

    is_durable = True
    log: MemoryLog

    async def reset(self, position: Position) -> None:
        """Make ``position`` the next entry to be delivered, and drop all acknowledgements from there on.

        Cancellation: the cursor moves anyway.

        Raises:
            StorageError: changes are being rejected; nothing has changed.
        """

        def reset(done: Done) -> None:
            if not self.log.refuses(done):
                self.apply_reset(self.log.before(position))
                self.log.changed(done)

        await called_back(reset)

    def note(
        self,
        position: Position,
        numbers: Mapping[str, int],
        forget: Sequence[str] = (),
        done: Done | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Atomically acknowledge everything up to ``position`` and change numbers and properties."""
        self.apply_note(position, numbers, forget, properties)
        self.log.changed(done)

    def _changed(
        self, whole: Sequence[Position], partly: Sequence[Position], *, has_moved: bool, done: Done | None
    ) -> None:
        if whole or partly or has_moved or done is not None:
            self.log.changed(done)


class MemoryLog(LedgerList[MemoryLedger]):
    """The entries of a topic, in order, and its cursors; implements `broker.storage.port.Log`."""

    def __init__(self, store: MemoryStore, name: str) -> None:
        super().__init__()
        self.core = store
        self.name = name
        self.cursors: dict[str, KeptCursor] = {}
        self.is_created = False
        self.is_terminated = False
        self.is_deleted = False
        self.is_compacting = False
        self.view: CompactedView | None = None
        self.delayed_ledgers: set[int] = set()
        self._watchers: WeakSet[Watcher] = WeakSet()

    @property
    def failure(self) -> StorageError | None:
        """Error that currently prevents changes, or None."""
        return self.core.failure

    # Writing

    def append(self, payload: bytes, messages: int, publish_time_ms: int, done: EntryDone) -> None:
        """Append an entry, and call ``done`` with its position or the error."""
        error = self._refusal()
        if error is not None:
            done(EARLIEST, error)
            return
        ledger = self._open_ledger()
        position = ledger.append(payload, messages, publish_time_ms)
        self.core.later(partial(self._confirm, ledger, position, done))
        config = self.core.config
        if ledger.appended >= config.max_ledger_entries or ledger.totals.bytes >= config.max_ledger_bytes:
            self.close_ledger()
        self._created()

    def _confirm(self, ledger: MemoryLedger, position: Position, done: EntryDone) -> None:
        ledger.confirmed = position.entry_id + 1
        self.last_confirmed = position
        done(position, None)

    def expect_delayed(self) -> None:
        """Record that the next entry has a delayed delivery."""
        if self._refusal() is None:
            self.delayed_ledgers.add(self._open_ledger().id)

    def create(self, done: Done) -> None:
        """Make the store list the log, even if it is empty."""
        if not self.refuses(done):
            self._created()
            self.changed(done)

    def barrier(self, done: Done) -> None:
        """Call ``done`` after the callbacks of all previous changes."""
        self.changed(done)

    def refuses(self, done: Done) -> bool:
        """Return whether changes are currently rejected; if so, ``done`` is called with the error."""
        if self.is_deleted:
            done(StorageError(f"log {self.name} was deleted: reopen it"))
        return self.is_deleted

    def changed(self, done: Done | None) -> None:
        """Record a change, and call ``done`` later."""
        self.touch()
        if done is not None:
            self.core.later(partial(done, None))

    def touch(self) -> None:
        """Mark the log for the broker's periodic work, although it has not changed."""
        self.core.touched[self] = None

    async def terminate(self) -> Position:
        """Terminate the log, so that it accepts no more entries, and return the position of the last entry.

        Cancellation: the log is terminated anyway.
        """

        def terminate(done: Done) -> None:
            if not self.refuses(done):
                self._created()
                self.is_terminated = True
                self.close_ledger()
                self.changed(done)

        await called_back(terminate)
        return self.last_confirmed

    def close_ledger(self) -> None:
        """Close the last ledger if it is open, so that the next append creates a new one."""
        last = self.last_ledger
        if last is not None and last.closed_ms is None:
            last.closed_ms = self.core.now_ms()
            self.touch()

    def _refusal(self) -> Exception | None:
        if self.is_deleted:
            return StorageError(f"log {self.name} was deleted: reopen it")
        if self.is_terminated:
            return TopicTerminated(f"topic {self.name} is terminated and accepts no more messages")
        return None

    def _created(self) -> None:
        self.is_created = True
        self.touch()

    def _open_ledger(self) -> MemoryLedger:
        last = self.last_ledger
        if last is not None and last.closed_ms is None:
            return last
        return self.take(MemoryLedger(self.core.new_ledger_id(), self.entries_ever(), self.core.now_ms()))

    # Reading

    def ledgers(self) -> tuple[LedgerInfo, ...]:
        """Return the ledgers, oldest first."""
        return tuple(ledger.info() for ledger in self.ledgers_by_id.values())

    def read(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return confirmed entries of one ledger from ``start`` on: at least one if the log contains any."""
        found = self.locate(start)
        return [] if found is None else found[0].read(found[1], max_entries, max_bytes)

    async def load(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return confirmed entries like `read`.

        Cancellation: safe.
        """
        return self.read(start, max_entries, max_bytes)

    def messages_at_most(self, position: Position) -> int:
        """Return the number of messages in an entry."""
        return self.ledgers_by_id[position.ledger_id].entries[position.entry_id].messages

    @property
    def first_compacted(self) -> Position:
        """Position of the oldest entry, including those in the compacted view."""
        if self.view is None or self.view.first is None:
            return self.first_position
        return min(self.view.first, self.first_position)

    def before(self, position: Position) -> Position:
        """Same as `LedgerList.before`, but also supports positions that only exist in the compacted view."""
        if self.view is not None and EARLIEST < position < self.first_position:
            return Position(position.ledger_id, max(position.entry_id, 0) - 1)
        return super().before(position)

    async def bytes_behind(self, position: Position) -> int:
        """Return the payload bytes of the entries after ``position``.

        Cancellation: safe.
        """
        return self.about_bytes_behind(position)

    async def position_leaving(self, max_bytes: int) -> Position:
        """Return the lowest position after which the log contains at most ``max_bytes`` of payload.

        Cancellation: safe.
        """
        for ledger in reversed(self.ledgers_by_id.values()):
            for entry in reversed(ledger.entries[: ledger.confirmed]):
                max_bytes -= len(entry.payload)
                if max_bytes < 0:
                    return entry.position
        return self.before(self.first_position)

    async def position_before_time(self, time_ms: int, after: Position = EARLIEST) -> Position:
        """Return the position before the first entry after ``after`` that was published at ``time_ms`` or later.

        Cancellation: safe.
        """
        return self._before_first_since(time_ms, after, is_by_age=False)

    async def position_before_age(self, time_ms: int, after: Position = EARLIEST) -> Position:
        """Return the last position up to which all entries after ``after`` are older than ``time_ms``.

        An entry is older if it was published or its ledger was closed before that time.

        Cancellation: safe.
        """
        return self._before_first_since(time_ms, after, is_by_age=True)

    def _before_first_since(self, time_ms: int, after: Position, *, is_by_age: bool) -> Position:
        for ledger in self.ledgers_by_id.values():
            if ledger.id < after.ledger_id:
                continue
            if is_by_age and ledger.closed_ms is not None and ledger.created_ms < ledger.closed_ms < time_ms:
                continue
            start = max(after.entry_id + 1, 0) if ledger.id == after.ledger_id else 0
            entry_id = ledger.first_since(start, time_ms)
            if entry_id is not None:
                return self.before(ledger.position(entry_id))
        return self.last_confirmed

    # Cursors

    def watch(self, watcher: Watcher) -> None:
        """Notify ``watcher`` of dropped ledgers, without retaining entries for it."""
        self._watchers.add(watcher)

    def open_cursor(
        self,
        name: str,
        initial: Position,
        properties: Mapping[str, str] | None = None,
        done: Done | None = None,
        *,
        is_internal: bool = False,
    ) -> KeptCursor:
        """Return the durable cursor with this name, creating it if needed.

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
            lowest = self.before(EARLIEST) if self.view is None else EARLIEST
            initial = min(max(initial, lowest), max(self.last_confirmed, self.before(EARLIEST)))
            cursor = KeptCursor(self, name, initial, properties)
            if self.refuses(done or _raise):
                return cursor
            self._created()
            self.cursors[name] = cursor
        self.changed(done)
        return cursor

    def memory_cursor(self, name: str, initial: Position, properties: Mapping[str, str] | None = None) -> MemoryCursor:
        """Return a new cursor that retains no entries and is not listed."""
        return MemoryCursor(self, name, initial, properties)

    async def delete_cursor(self, name: str, *, is_internal: bool = False) -> None:
        """Delete the durable cursor with this name, if it exists.

        Cancellation: the cursor is deleted anyway.

        Raises:
            NotAllowed: the name is reserved, and ``is_internal`` is False.
        """
        if not is_internal:
            refuse_internal(name)

        def delete(done: Done) -> None:
            if self.is_deleted or not self.refuses(done):
                self.remove_cursor(name)
                self.changed(done)

        await called_back(delete)

    def remove_cursor(self, name: str) -> KeptCursor | None:
        """Remove and return a cursor of the log, or return None."""
        self.touch()
        return self.cursors.pop(name, None)

    # Retention and compaction

    @property
    def consumed(self) -> Position:
        """Lowest mark-delete position of all durable cursors, or the last confirmed position without cursors."""
        return min((cursor.mark_delete for cursor in self.cursors.values()), default=self.last_confirmed)

    async def trim(self, retention_ms: int, retention_bytes: int) -> list[int]:
        """Delete ledgers that all durable cursors have passed and that exceed the retention, and return their ids.

        Cancellation: safe.
        """
        now_ms, consumed = self.core.now_ms(), self.consumed
        last = self.last_ledger
        if last is not None and now_ms - last.created_ms >= self.core.config.max_ledger_age_s * 1000:
            self.close_ledger()
        closed = []
        for ledger in self.ledgers_by_id.values():
            if ledger.closed_ms is None or ledger.confirmed < ledger.appended:
                break
            is_consumed = consumed >= ledger.position(ledger.confirmed - 1)
            closed.append(ClosedLedger(ledger.id, ledger.totals.bytes, ledger.closed_ms, is_consumed))
        open_bytes = self.total_bytes - sum(ledger.bytes for ledger in closed)
        drop = ledgers_to_drop(closed, open_bytes, retention_ms, retention_bytes, now_ms)
        if self.is_compacting:
            return []
        self._drop_ledgers(drop)
        return drop

    def next_trim_ms(self, retention_ms: int) -> int | None:
        """Return the time at which trimming may drop a ledger without further changes to the log, or None."""
        first = next(iter(self.ledgers_by_id.values()), None)
        if first is None or first.closed_ms is None:
            return None
        if first.confirmed < first.appended or self.is_compacting:
            return self.core.now_ms()
        if retention_ms < 0 or self.consumed < first.position(first.confirmed - 1):
            return None
        return first.closed_ms + retention_ms

    def _drop_ledgers(self, ledger_ids: Sequence[int]) -> None:
        for ledger_id in ledger_ids:
            self.forget(ledger_id)
            self.delayed_ledgers.discard(ledger_id)
            for watcher in self._watchers:
                watcher.forget_ledger(ledger_id)
        self.touch()

    def begin_view(self) -> MemoryLog:
        """Return a new, unlisted log for a view of this log."""
        return MemoryLog(self.core, f"view of {self.name}")

    def switch_view(self, hidden: MemoryLog, first: Position | None, horizon: Position, done: Done) -> None:
        """Install a complete log from `begin_view` as the view, and move the compaction cursor to the horizon."""
        if self.refuses(done):
            return
        self.view = CompactedView(hidden, first, horizon)
        if (cursor := self.cursors.get(COMPACTION_CURSOR)) is not None:
            cursor.apply_up_to(horizon)
        self.changed(done)

    def drop_view(self, hidden: MemoryLog, done: Done) -> None:
        """Delete the log of a view that is not the current one."""
        hidden.delete()
        self.changed(done)

    def stale_views(self) -> list[MemoryLog]:
        """Return an empty list: Python frees unreferenced logs of views."""
        return []

    def delete(self) -> None:
        """Mark the log as deleted, and drop all entries."""
        self.is_deleted = True
        self._drop_ledgers(list(self.ledgers_by_id))
        self.core.touched.pop(self, None)


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error
