"""The interface of a storage engine: logs of entries, and durable cursors over them.

Topics, dispatchers, sessions and the admin interface only use these protocols. Each engine implements them in a
separate package, and the code that opens the storage chooses the engine. As in Apache Pulsar, a position consists of a
ledger id and an entry id.

Order is only guaranteed within a log. Callbacks run on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ...errors import StorageError
from ...wire.ack_set import AckSet
from ...wire.position import EARLIEST, Position
from .cursors.cursor import Ack
from .entry import LedgerInfo, StoredEntry
from .ports import Done, EntryDone

__all__ = ["EARLIEST", "Ack", "Cursor", "Done", "EntryDone", "Log", "LogStore", "View"]


class Cursor(Protocol):
    """The acknowledgements of a subscription."""

    name: str
    """Subscription name."""

    mark_delete: Position
    """Position up to which, inclusive, everything is acknowledged."""

    properties: dict[str, str]
    """Subscription properties; only changed by `note`."""

    numbers: dict[str, int]
    """Integers that the cursor's owner stores with the mark, by name; only changed by `note`."""

    @property
    def is_durable(self) -> bool:
        """Whether the cursor outlives its consumers and retains entries."""

    @property
    def backlog_entries(self) -> int:
        """Number of unacknowledged entries in the log."""

    @property
    def has_holes(self) -> bool:
        """Whether an entry above the mark is fully or partly acknowledged."""

    @property
    def acknowledged_range_count(self) -> int:
        """Number of ranges in `acknowledged_ranges`."""

    def acknowledged_ranges(self) -> list[tuple[Position, Position]]:
        """Return the first and last position of each run of acknowledged entries above the mark, in order."""

    def acknowledge(self, acks: Iterable[Ack], done: Done | None = None) -> None:
        """Acknowledge individual entries, or parts of them, and call ``done`` when that is durable."""

    def acknowledge_up_to(
        self, position: Position, ack_set: Sequence[int] | None = None, done: Done | None = None
    ) -> None:
        """Acknowledge everything up to ``position``; of that entry, messages in ``ack_set`` remain unacknowledged."""

    def is_acknowledged(self, position: Position) -> bool:
        """Return whether the whole entry is acknowledged."""

    def remaining(self, position: Position) -> AckSet | None:
        """Return the unacknowledged messages of a partly acknowledged entry, or None for any other entry."""

    def next_unacknowledged(self, after: Position) -> Position:
        """Return the first unacknowledged position after ``after``, which may not exist yet."""

    async def reset(self, position: Position) -> None:
        """Durably make ``position`` the next entry to be delivered, and drop all acknowledgements from there on.

        Cancellation: the cursor moves anyway.

        Raises:
            StorageError: the engine failed.
        """

    def note(
        self,
        position: Position,
        numbers: Mapping[str, int],
        forget: Sequence[str] = (),
        done: Done | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Atomically acknowledge everything up to ``position`` and change numbers and properties.

        Args:
            position: new mark.
            numbers: new or changed numbers.
            forget: names of numbers to remove.
            done: called when the change is durable.
            properties: new subscription properties, or None to keep the current ones.
        """


class View(Protocol):
    """The compacted entries of a log up to a horizon, at their original positions."""

    @property
    def horizon(self) -> Position:
        """Last position in the topic that the view covers."""

    @property
    def first(self) -> Position | None:
        """Position in the topic of the first entry; None for an empty view."""

    @property
    def ledger_id(self) -> int:
        """Id of the first ledger, which identifies the view to clients; -1 for an empty view."""

    @property
    def log(self) -> Log:
        """The log that stores the view."""

    async def load(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return entries from ``start`` on, with their positions in the topic."""

    async def last(self) -> StoredEntry | None:
        """Return the last entry, or None for an empty view."""


class Log(Protocol):
    """The entries of a topic, in order, and its cursors."""

    name: str
    """Full topic name."""

    last_confirmed: Position
    """Position of the newest durable entry, even if it has been dropped by retention."""

    is_terminated: bool
    """Whether the log has been terminated and accepts no more entries."""

    is_deleted: bool
    """Whether the log was deleted and must be reopened."""

    is_compacting: bool
    """Whether a compaction is running, during which entries must not be deleted; set by the compaction."""

    @property
    def view(self) -> View | None:
        """Compacted view of older entries, or None if there was no compaction."""

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        """Durable cursors by name."""

    @property
    def delayed_ledgers(self) -> set[int]:
        """Ids of the ledgers that may contain delayed entries; see `expect_delayed`."""

    @property
    def failure(self) -> StorageError | None:
        """Error that currently prevents changes, or None."""

    # Writing

    def append(self, payload: bytes, messages: int, publish_time_ms: int, done: EntryDone) -> None:
        """Append an entry.

        Args:
            payload: the entry exactly as received.
            messages: number of messages in the entry.
            publish_time_ms: publish time, for searches by time.
            done: called in append order, with the position and None once the entry is durable, or with an error. If the
                entry is rejected, it is called immediately.
        """

    def expect_delayed(self) -> None:
        """Record durably that the next entry has a delayed delivery."""

    def create(self, done: Done) -> None:
        """Make the log durable, even if it is empty."""

    def barrier(self, done: Done) -> None:
        """Call ``done`` once all previous changes are durable, or with the error if they have failed."""

    def refuses(self, done: Done) -> bool:
        """Return whether changes are currently rejected; if so, ``done`` is called with the error."""

    async def terminate(self) -> Position:
        """Terminate the log, so that it accepts no more entries, and return the position of the last entry."""

    def close_ledger(self) -> None:
        """Close the last ledger if it is open, so that the next append creates a new one."""

    def touch(self) -> None:
        """Mark the log for the broker's periodic work, although it has not changed."""

    # Reading

    @property
    def first_position(self) -> Position:
        """Position of the oldest entry; for an empty log, the position after the last confirmed entry."""

    @property
    def first_compacted(self) -> Position:
        """Position of the oldest entry, including those in the compacted view."""

    @property
    def entry_count(self) -> int:
        """Number of durable entries in the log."""

    @property
    def total_bytes(self) -> int:
        """Payload bytes of the entries in the log."""

    def ledgers(self) -> Sequence[LedgerInfo]:
        """Return the ledgers, oldest first."""

    def read(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry] | None:
        """Return durable entries from memory, from ``start`` on, or None if they must be loaded.

        All returned entries are in the same ledger. At least one is returned if the log contains any, even if it
        exceeds ``max_bytes``.
        """

    async def load(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return durable entries like `read`, loading them if needed."""

    def holds(self, position: Position) -> bool:
        """Return whether the log contains a durable entry at ``position``."""

    def next_position(self, position: Position) -> Position:
        """Return the next position after ``position``, which may not exist yet."""

    def entries_between(self, after: Position, up_to: Position) -> int:
        """Return the number of durable entries after ``after`` up to and including ``up_to``."""

    def position_behind(self, after: Position, entries: int) -> Position:
        """Return the position ``entries`` entries after ``after``, but at most the last durable one."""

    def about_bytes_behind(self, position: Position) -> int:
        """Estimate the payload bytes after ``position``, without loading entries."""

    async def bytes_behind(self, position: Position) -> int:
        """Return the payload bytes of the entries after ``position``."""

    async def position_leaving(self, max_bytes: int) -> Position:
        """Return the lowest position after which the log contains at most ``max_bytes`` of payload."""

    async def position_before_time(self, time_ms: int, after: Position = EARLIEST) -> Position:
        """Return the position before the first entry after ``after`` that was published at ``time_ms`` or later.

        Without such an entry, the last position is returned.
        """

    async def position_before_age(self, time_ms: int, after: Position = EARLIEST) -> Position:
        """Return the last position up to which all entries after ``after`` are older than ``time_ms``.

        An entry is older if it was published or its ledger was closed before that time.
        """

    # Cursors

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
        """

    def memory_cursor(self, name: str, initial: Position, properties: Mapping[str, str] | None = None) -> Cursor:
        """Return a new cursor that is only kept in memory and retains no entries."""

    async def delete_cursor(self, name: str, *, is_internal: bool = False) -> None:
        """Delete the cursor with this name durably, if it exists."""

    def remove_cursor(self, name: str) -> Cursor | None:
        """Remove and return a cursor whose creation failed, or return None."""

    # Retention and compaction

    async def trim(self, retention_ms: int, retention_bytes: int) -> list[int]:
        """Delete ledgers that all durable cursors have passed and that exceed the retention, and return their ids.

        Args:
            retention_ms: retention time of consumed entries; -1 for unlimited.
            retention_bytes: retained size of the log; -1 for unlimited.
        """

    def next_trim_ms(self, retention_ms: int) -> int | None:
        """Return the time at which trimming may drop a ledger without further changes to the log, or None."""

    def begin_view(self) -> Log:
        """Return a new, unlisted log for a view of this log, which is unreferenced until `switch_view`."""

    def switch_view(self, hidden: Any, first: Position | None, horizon: Position, done: Done) -> None:
        """Atomically install a complete log from `begin_view` as the view, and move the compaction cursor.

        Args:
            hidden: log whose entries were created from entries of this log by `compacted_view.pack`.
            first: position in this log of the first entry; None for an empty view.
            horizon: last position in this log that the view covers; the compaction cursor moves there.
            done: called when the change is durable.
        """

    def drop_view(self, hidden: Any, done: Done) -> None:
        """Delete the log of a view that is not the current one."""

    def stale_views(self) -> Sequence[Log]:
        """Return the logs of views that are not the current view and have not been dropped yet."""


class LogStore(Protocol):
    """All logs of a broker."""

    @property
    def failure(self) -> StorageError | None:
        """Error that currently prevents changes, or None."""

    @property
    def is_congested(self) -> bool:
        """Whether producers should wait until the storage calls the callback of `on_drained`."""

    def on_drained(self, callback: Callable[[], None]) -> None:
        """Set the callback that is called when a congested storage accepts entries again."""

    def has_log(self, name: str) -> bool:
        """Return whether a durable log with this name exists."""

    def log_names(self) -> list[str]:
        """Return the names of all durable logs."""

    def open_log(self, name: str) -> Log:
        """Return the log with this name; a new log becomes durable with its first change."""

    def volatile_log(self, name: str) -> Log:
        """Return a log that is always empty, for a non-persistent topic; it is not listed."""

    async def delete_log(self, name: str) -> None:
        """Delete a log and its cursors durably, if it exists."""

    def take_touched(self) -> Sequence[Log]:
        """Return the logs that have changed since the last call."""

    def used_names(self) -> list[str]:
        """Return the names of the loaded logs that `unload` may be called with."""

    def unload(self, names: Iterable[str]) -> Sequence[Callable[[], bool]]:
        """Unload those logs that are completely stored; the next access reloads them.

        The objects of unloaded logs may still be used.

        Returns:
            A function for each unloaded log that frees its memory, and returns False if that must be tried again later,
            because something still uses the object.
        """
