"""Replay of journal records during recovery.

Design: records of deleted objects are skipped, since acknowledgements may follow the deletion of their cursor. A log
with records that was neither created nor deleted is different, because its entries were confirmed to a producer. Its
records are applied to a log with a generated name, and recovery either fails the startup or adopts that log.

All ids found in records count as used, even for unknown objects, so that a position never identifies two entries.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ....wire.position import Position
from ..compacted_view import COMPACTION_CURSOR
from ..core import StorageCore
from ..cursors.cursor import Cursor
from ..entry import StoredEntry
from ..hidden_logs import forget_unreferenced, restore_view
from ..journal.format import MARKED, AckRecord, EntryRecord, decode_records
from ..ledgers.ledger import Ledger
from ..topic_log import TopicLog

SALVAGED = "persistent://public/default/salvaged-"
"""Name prefix of salvaged logs, followed by the log id."""

_INTERNAL_CURSORS = {COMPACTION_CURSOR, "pulsar.dedup"}
_BEGINS = {"begin_ledger", "open_cursor"}  # changes that prove that the log existed
T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class UnknownLog:
    """A log that has records but was neither created nor deleted.

    Attributes:
        log: log to which the records were applied, with a generated name.
        place: file and offset of the first record.
        records: number of records.
    """

    log: TopicLog
    place: str
    records: int = 0

    def describe(self) -> str:
        """Return a description for error messages."""
        entries, cursors = self.log.entry_count, sorted(self.log.cursors)
        named = f", subscriptions {', '.join(map(repr, cursors))}" if cursors else ""
        return f"log {self.log.id} with {self.records} records ({entries} entries{named}) in {self.place}"


class _Names:
    """Log names by id, stored as two arrays until the first lookup; after a clean shutdown, there are no lookups.

    With many logs, a dictionary would fragment memory during startup.
    """

    def __init__(self) -> None:
        self._ids = array("q")
        self._names: list[str] = []
        self._by_id: dict[int, str] | None = None

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids if self._by_id is None else self._by_id)

    def add(self, id_: int, name: str) -> None:
        """Add an id; must not be called after the first lookup."""
        self._ids.append(id_)
        self._names.append(name)

    def _read(self) -> dict[int, str]:
        if self._by_id is None:
            self._by_id = dict(zip(self._ids, self._names, strict=True))
        return self._by_id

    def get(self, id_: int) -> str | None:
        """Return the log name for an id, or None."""
        return self._read().get(id_)

    def remove(self, id_: int) -> None:
        """Remove an id."""
        del self._read()[id_]


class RestingIds:
    """The ids of unloaded logs, their cursors and their ledgers, each mapped to the log name."""

    def __init__(self) -> None:
        self.logs = _Names()
        self.cursors = _Names()
        self.ledgers = _Names()

    def add(self, state: Mapping[str, Any]) -> None:
        """Add the ids in a catalogue line."""
        name = state["name"]
        self.logs.add(state["log"], name)
        for cursor in state["cursors"]:
            self.cursors.add(cursor["id"], name)
        for ledger in state["ledgers"]:
            self.ledgers.add(ledger[0], name)

    def remove(self, log: TopicLog) -> None:
        """Remove the ids of a log that has been loaded."""
        self.logs.remove(log.id)
        for cursor in log.cursors.values():
            self.cursors.remove(cursor.id)
        for ledger_id in log.ledgers_by_id:
            self.ledgers.remove(ledger_id)


class Replay:
    """Applies records in journal order.

    Args:
        core: storage that the records are applied to.
        at_rest: ids of unloaded logs; the ids of logs that have records are removed, because these logs are loaded.
    """

    def __init__(self, core: StorageCore, at_rest: RestingIds) -> None:
        self._core = core
        self._at_rest = at_rest
        self._logs: dict[int, TopicLog] = {}
        self._cursors: dict[int, Cursor] = {}
        self._ledgers: dict[int, Ledger] = {}
        for log in core.logs.used.values():
            self._take(log)
        self._deleted_logs: set[int] = set()
        self._deleted_ledgers: set[int] = set()
        self._unknown: dict[int, UnknownLog] = {}
        # Lower ids are older than the catalogue: if such an object is missing in it, the object was deleted.
        self._first_new_object = core.ids.next_object
        self._deleted_cursors: set[int] = set()
        self._lost_cursors: dict[int, int] = {}
        self._place = ""

    def _take(self, log: TopicLog) -> None:
        self._logs[log.id] = log
        self._cursors.update((cursor.id, cursor) for cursor in log.cursors.values())
        self._ledgers.update(log.ledgers_by_id)

    def _find(self, found: Mapping[int, T], at_rest: _Names, id_: int) -> T | None:
        """Return the object with this id, loading its log if needed, or None."""
        if (name := at_rest.get(id_)) is not None:
            log = self._core.logs.get(name)
            assert log is not None
            self._at_rest.remove(log)
            self._take(log)
        return found.get(id_)

    def apply(self, body: bytes, place: str) -> None:
        """Apply the records of one group.

        Args:
            body: body of the group.
            place: file and offset, for error messages.

        Raises:
            ValueError: a record is invalid or contradicts earlier records.
            KeyError: a record lacks a field.
        """
        self._place = place
        for record in decode_records(body):
            if isinstance(record, EntryRecord):
                self._append(record)
            elif isinstance(record, AckRecord):
                self._acknowledge(record)
            else:
                self._change(record)

    def unknown_logs(self) -> list[UnknownLog]:
        """Return the logs that were neither created nor deleted; call this after the last group.

        Logs that only have an internal cursor are omitted, because older versions could create that cursor while the
        log was being deleted.
        """
        return [
            each
            for each in self._unknown.values()
            if each.log.ledgers_by_id or set(each.log.cursors) - _INTERNAL_CURSORS
        ]

    def adopt(self, unknown: UnknownLog) -> TopicLog:
        """Add an unknown log to the storage and return it."""
        log = unknown.log
        while log.name in self._core.logs:
            log.name += "-again"
        self._core.logs.add(log)
        log.has_changed()
        logger.warning("salvaged %s as %s", unknown.describe(), log.name)
        return log

    def finish(self) -> None:
        """Remove ledgers without entries, which were never visible, and unreferenced hidden logs."""
        for log in self._core.logs.used.values():
            log.close_ledger()
            if any(not ledger.confirmed for ledger in log.ledgers_by_id.values()):
                log.drop_pending()
        forget_unreferenced(self._core)
        if self._lost_cursors:
            logger.warning(
                "skipped %d records of %d subscriptions that were neither created nor deleted",
                sum(self._lost_cursors.values()), len(self._lost_cursors),
            )  # fmt: skip

    def _append(self, record: EntryRecord) -> None:
        ledger = self._find(self._ledgers, self._at_rest.ledgers, record.ledger_id)
        if ledger is None:
            self._core.ids.saw(ledger=record.ledger_id)
            if record.ledger_id not in self._deleted_ledgers:
                raise ValueError(
                    f"entry {record.entry_id} belongs to ledger {record.ledger_id}, which was never created"
                )
            return
        if record.entry_id != ledger.appended:
            raise ValueError(f"found entry {record.entry_id} of ledger {ledger.id}, expected entry {ledger.appended}")
        position = Position(record.ledger_id, record.entry_id)
        size = len(record.payload)
        entry = StoredEntry(position, record.payload, record.messages)
        self._core.memory.append(ledger, entry, record.head, size, record.publish_time_ms)
        ledger.confirmed = ledger.appended
        ledger.log.last_confirmed = position
        ledger.log.has_changed()
        if self._unknown:
            self._count(ledger.log.id)

    def _acknowledge(self, record: AckRecord) -> None:
        cursor = self._cursor(record.cursor_id)
        if cursor is None:
            return
        if record.kind == MARKED:
            cursor.apply_up_to(record.positions[0])
        else:
            ack_set = record.ack_set or None
            cursor.apply_acknowledge([(position, ack_set) for position in record.positions])
        cursor.log.has_changed()

    def _cursor(self, cursor_id: int) -> Cursor | None:
        cursor = self._find(self._cursors, self._at_rest.cursors, cursor_id)
        if cursor is not None:
            if self._unknown:
                self._count(cursor.log.id)
        else:
            self._core.ids.saw(an_object=cursor_id)
            if cursor_id >= self._first_new_object and cursor_id not in self._deleted_cursors:
                self._lost_cursors[cursor_id] = self._lost_cursors.get(cursor_id, 0) + 1
        return cursor

    def _count(self, log_id: int) -> None:
        unknown = self._unknown.get(log_id)
        if unknown is not None:
            unknown.records += 1

    def _change(self, change: dict[str, Any]) -> None:
        what = change["do"]
        if what == "create_log":
            self._create_log(change["log"], change["name"])
        elif what in ("reset_cursor", "note"):
            cursor, mark = self._cursor(change["cursor"]), Position(*change["mark"])
            if cursor is None:
                return
            if what == "note":
                cursor.apply_note(mark, change["numbers"], change.get("forget", ()), change.get("properties"))
            else:
                cursor.apply_reset(mark)
            cursor.log.has_changed()
        else:
            self._saw_ids(change)
            log = self._log(change["log"], what)
            if log is not None:
                self._change_log(log, what, change)

    def _saw_ids(self, change: dict[str, Any]) -> None:
        ids = self._core.ids
        ids.saw(an_object=max(change["log"], change.get("cursor", -1), change.get("view", -1)))
        ids.saw(ledger=max([change.get("ledger", -1), *change.get("ledgers", ())]))

    def _log(self, log_id: int, what: str) -> TopicLog | None:
        """Return the log that a change applies to, or None if it was deleted."""
        log = self._find(self._logs, self._at_rest.logs, log_id)
        if log is None:
            if what == "delete_log":
                self._deleted_logs.add(log_id)
            if log_id in self._deleted_logs or what not in _BEGINS:
                return None
            log = self._logs[log_id] = TopicLog(self._core, log_id, f"{SALVAGED}{log_id}")
            self._unknown[log_id] = UnknownLog(log, self._place)
        if self._unknown:
            self._count(log_id)
        return log

    def _create_log(self, log_id: int, name: str) -> None:
        self._core.ids.saw(an_object=log_id)
        unknown = self._unknown.pop(log_id, None)
        log = TopicLog(self._core, log_id, name) if unknown is None else unknown.log
        log.name = name
        log.is_created = True
        log.has_changed()
        self._logs[log_id] = log
        self._core.logs.add(log)

    def _change_log(self, log: TopicLog, what: str, change: dict[str, Any]) -> None:
        if what == "begin_ledger":
            ledger_id = change["ledger"]
            self._ledgers[ledger_id] = log.add_ledger(ledger_id, change["created_ms"])
        elif what == "expect_delayed":
            log.delayed_ledgers.add(change["ledger"])
            log.has_changed()
        elif what == "open_cursor":
            cursor = Cursor(log, change["cursor"], change["name"], Position(*change["mark"]))
            cursor.properties = dict(change["properties"])
            self._cursors[cursor.id] = log.add_cursor(cursor)
        elif what == "delete_cursor":
            self._deleted_cursors.add(change["cursor"])
            cursor_or_none = self._cursors.pop(change["cursor"], None)
            if cursor_or_none is not None and log.cursors.get(cursor_or_none.name) is cursor_or_none:
                log.remove_cursor(cursor_or_none.name)
        elif what == "drop_ledgers":
            for ledger_id in change["ledgers"]:
                del self._ledgers[ledger_id]
            self._deleted_ledgers.update(change["ledgers"])
            log.drop_ledgers(change["ledgers"])
        elif what == "switch_view":
            restore_view(log, change, self._logs)
            if (moved := self._cursors.get(change["cursor"])) is not None:
                moved.apply_up_to(Position(*change["horizon"]))
        elif what == "terminate":
            log.is_terminated = True
            log.has_changed()
        elif what == "delete_log":
            self._delete_log(log)
        else:
            raise ValueError(f"unknown change {what!r}")

    def _delete_log(self, log: TopicLog) -> None:
        for ledger in log.drop():
            self._deleted_ledgers.add(ledger.id)
            del self._ledgers[ledger.id]
        for cursor in log.cursors.values():
            self._deleted_cursors.add(cursor.id)
            del self._cursors[cursor.id]
        self._deleted_logs.add(log.id)
        del self._logs[log.id]
        if self._unknown.pop(log.id, None) is None and self._core.logs.get(log.name) is log:
            self._core.logs.pop(log.name)
