"""What the broker requires of a storage engine: logs of entries, and durable cursors over them.

Topics, dispatchers, sessions and the admin interface use only these protocols. An engine implements them in a package
of its own; `open_engine` callers choose one. Positions are those of Apache Pulsar: a ledger and an entry in it.

Order is guaranteed within one log only. Callbacks run on the event loop.
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
    """The acknowledgements of one subscription."""

    name: str
    """The subscription's name."""

    mark_delete: Position
    """Everything up to here, inclusive, is acknowledged."""

    properties: dict[str, str]
    """The subscription's properties; change them with `note`."""

    numbers: dict[str, int]
    """Its owner's data about everything up to the mark; change them with `note`."""

    @property
    def is_durable(self) -> bool:
        """Whether it outlives the process and retains entries."""

    @property
    def backlog_entries(self) -> int:
        """Number of unacknowledged entries in the log."""

    @property
    def has_holes(self) -> bool:
        """Whether anything above the mark is acknowledged, fully or partly."""

    @property
    def acknowledged_range_count(self) -> int:
        """Number of ranges that `acknowledged_ranges` would return."""

    def acknowledged_ranges(self) -> list[tuple[Position, Position]]:
        """Return first and last position of each run of acknowledged entries above the mark, in order."""

    def acknowledge(self, acks: Iterable[Ack], done: Done | None = None) -> None:
        """Acknowledge individual entries, or parts of them; ``done`` is called when that is durable."""

    def acknowledge_up_to(
        self, position: Position, ack_set: Sequence[int] | None = None, done: Done | None = None
    ) -> None:
        """Acknowledge everything up to ``position``; of that entry only the messages missing in ``ack_set``."""

    def is_acknowledged(self, position: Position) -> bool:
        """Return whether the whole entry is acknowledged."""

    def remaining(self, position: Position) -> AckSet | None:
        """Return the messages still wanted of a partly acknowledged entry; None for any other entry."""

    def next_unacknowledged(self, after: Position) -> Position:
        """Return the first unacknowledged position after ``after``; the log may not hold it yet."""

    async def reset(self, position: Position) -> None:
        """Make ``position`` the next entry to be delivered and drop all acknowledgements after it, durably.

        Cancellation: the cursor has moved all the same.

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
        """Acknowledge everything up to ``position`` and change numbers and properties, atomically."""


class View(Protocol):
    """The compacted entries of a log up to a horizon, at their original positions."""

    @property
    def horizon(self) -> Position:
        """The last position that it covers."""

    @property
    def first(self) -> Position | None:
        """Position of its first entry; None if it is empty."""

    @property
    def ledger_id(self) -> int:
        """Identifies the view for clients; -1 if it is empty."""

    @property
    def log(self) -> Log:
        """The log that holds it."""

    async def load(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return entries from ``start`` on; empty if there are none."""

    async def last(self) -> StoredEntry | None:
        """Return its last entry, or None."""


class Log(Protocol):
    """The entries of one topic, in order, and the cursors over them."""

    name: str
    """The full topic name."""

    last_confirmed: Position
    """Position of the newest durable entry, even if retention has dropped it."""

    is_terminated: bool
    """Whether it accepts no more entries."""

    is_deleted: bool
    """Whether it was deleted."""

    is_compacting: bool
    """Set while compaction reads it: no entries are dropped meanwhile."""

    @property
    def view(self) -> View | None:
        """The compacted older entries; None if compaction never ran."""

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        """The durable cursors by name."""

    @property
    def delayed_ledgers(self) -> set[int]:
        """Ids of the ledgers that may hold entries with a delayed delivery; see `expect_delayed`."""

    @property
    def failure(self) -> StorageError | None:
        """Why changes are refused at the moment, or None."""

    # Writing

    def append(self, payload: bytes, messages: int, publish_time_ms: int, done: EntryDone) -> None:
        """Append an entry; ``done`` gets its position once it is durable, or the error, in the order of the calls."""

    def expect_delayed(self) -> None:
        """Record that the next entry has a delayed delivery."""

    def create(self, done: Done) -> None:
        """Make the log itself durable, even while empty."""

    def barrier(self, done: Done) -> None:
        """Call ``done`` once all changes so far are durable, or with the error if they failed."""

    def refuses(self, done: Done) -> bool:
        """Return whether changes are refused now, after reporting that to ``done``."""

    async def terminate(self) -> Position:
        """Accept no more entries and return the position of the last one."""

    def close_ledger(self) -> None:
        """Begin a new ledger with the next entry."""

    def touch(self) -> None:
        """Mark the log for the broker's periodic work without a change."""

    # Reading

    @property
    def first_position(self) -> Position:
        """Position of the oldest entry; for an empty log, the one right after the last confirmed entry."""

    @property
    def first_compacted(self) -> Position:
        """Position of the oldest entry of the compacted view and the log together."""

    @property
    def entry_count(self) -> int:
        """Number of durable entries in the log."""

    @property
    def total_bytes(self) -> int:
        """Payload bytes of the entries in the log."""

    def ledgers(self) -> Sequence[LedgerInfo]:
        """Return the ledgers, oldest first."""

    def read(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry] | None:
        """Return durable entries of one ledger from ``start`` on from memory; None if they have to be loaded.

        At least one entry, which may exceed ``max_bytes``; empty if the log has none from ``start`` on.
        """

    async def load(self, start: Position, max_entries: int, max_bytes: int) -> list[StoredEntry]:
        """Return durable entries as `read` does, from wherever they are stored."""

    def holds(self, position: Position) -> bool:
        """Return whether the log holds a durable entry there."""

    def next_position(self, position: Position) -> Position:
        """Return the first position after ``position`` that exists, or may exist next."""

    def entries_between(self, after: Position, up_to: Position) -> int:
        """Return the number of durable entries after ``after``, up to and including ``up_to``."""

    def position_behind(self, after: Position, entries: int) -> Position:
        """Return the position of the entry ``entries`` places after ``after``, at most the last durable one."""

    def about_bytes_behind(self, position: Position) -> int:
        """Estimate the payload bytes after ``position`` from memory."""

    async def bytes_behind(self, position: Position) -> int:
        """Return the payload bytes of the entries after ``position``."""

    async def position_leaving(self, max_bytes: int) -> Position:
        """Return the earliest position after which there are at most ``max_bytes`` of payload."""

    async def position_before_time(self, time_ms: int, after: Position = EARLIEST) -> Position:
        """Return the position right before the first entry after ``after`` published at ``time_ms`` or later."""

    async def position_before_age(self, time_ms: int, after: Position = EARLIEST) -> Position:
        """Return the position up to which all entries after ``after`` are older than ``time_ms``."""

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
        """Return the durable cursor of that name, creating it if needed; ``done`` is called when it is durable."""

    def memory_cursor(self, name: str, initial: Position, properties: Mapping[str, str] | None = None) -> Cursor:
        """Return a new cursor that ends with the process and retains no entries."""

    async def delete_cursor(self, name: str, *, is_internal: bool = False) -> None:
        """Delete the durable cursor of that name, if it exists; returns when that is durable."""

    def remove_cursor(self, name: str) -> Cursor | None:
        """Take back a cursor whose creation failed."""

    # Retention and compaction

    async def trim(self, retention_ms: int, retention_bytes: int) -> list[int]:
        """Delete ledgers that all durable cursors have passed and retention does not keep; return their ids."""

    def next_trim_ms(self, retention_ms: int) -> int | None:
        """Return when trimming may drop a ledger by age without further changes, or None if never."""

    def begin_view(self) -> Log:
        """Return an empty, unlisted log for a new view of this one; it remains unreferenced until `switch_view`."""

    def switch_view(self, hidden: Any, first: Position | None, horizon: Position, done: Done) -> None:
        """Make a complete log from `begin_view` the view, and move the compaction cursor to its horizon, atomically.

        Args:
            hidden: each entry is `compacted_view.pack` of one of this log.
            first: position in this log of its first entry; None if it is empty.
            horizon: last position of this log that it covers.
            done: called when that is durable.
        """

    def drop_view(self, hidden: Any, done: Done) -> None:
        """Delete the log of a view that is not this log's."""

    def stale_views(self) -> Sequence[Log]:
        """Return the logs of views left over from failed or missed deletions."""


class LogStore(Protocol):
    """All logs of a storage."""

    @property
    def failure(self) -> StorageError | None:
        """Why changes are refused at the moment, or None."""

    @property
    def is_congested(self) -> bool:
        """Whether producers should wait until `on_drained`."""

    def on_drained(self, callback: Callable[[], None]) -> None:
        """Set the callback for when a congested storage has room again."""

    def has_log(self, name: str) -> bool:
        """Return whether there is a durable log of that name."""

    def log_names(self) -> list[str]:
        """Return the names of all durable logs."""

    def open_log(self, name: str) -> Log:
        """Return the log of that name; a new one becomes durable with its first change."""

    def volatile_log(self, name: str) -> Log:
        """Return a log that stays empty, for a non-persistent topic; it is not listed."""

    async def delete_log(self, name: str) -> None:
        """Delete a log with its cursors, if it exists; returns when that is durable."""

    def take_touched(self) -> Sequence[Log]:
        """Return the logs that changed since the last call."""

    def used_names(self) -> list[str]:
        """Return the names of the logs in memory."""

    def unload(self, names: Iterable[str]) -> Callable[[], None] | None:
        """Release the memory of unused logs that are completely stored; the next access loads them again.

        Returns:
            what frees the rest once nothing can be using their objects any longer; None if nothing was unloaded.
        """
