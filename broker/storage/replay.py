"""Applying the journal's records to logs, ledgers and cursors, during recovery."""

from __future__ import annotations

from typing import Any

from .compacted_view import forget_unreferenced, restore_view
from .core import StorageCore
from .cursor import Cursor
from .ledger import Ledger
from .position import Position, StoredEntry
from .records import MARKED, AckRecord, EntryRecord, decode_records
from .topic_log import TopicLog


class Replay:
    """Takes records in the journal's order. Records about logs or cursors deleted since are passed over."""

    def __init__(self, core: StorageCore) -> None:
        self._core = core
        self._logs = {log.id: log for log in core.logs.values()}
        self._cursors = {cursor.id: cursor for log in core.logs.values() for cursor in log.cursors.values()}
        self._ledgers = {ledger.id: ledger for log in core.logs.values() for ledger in log.ledgers_by_id.values()}

    def apply(self, body: bytes) -> None:
        """Apply the records of one group.

        Raises:
            ValueError: a record does not fit to those before.
            KeyError: a record lacks a field.
        """
        for record in decode_records(body):
            if isinstance(record, EntryRecord):
                self._append(record)
            elif isinstance(record, AckRecord):
                self._acknowledge(record)
            else:
                self._change(record)

    def finish(self) -> None:
        """Leave nothing half begun: a ledger without entries was never seen by anybody."""
        for log in self._core.logs.values():
            if any(not ledger.confirmed for ledger in log.ledgers_by_id.values()):
                log.drop_pending()
        forget_unreferenced(self._core)

    def _append(self, record: EntryRecord) -> None:
        ledger = self._ledgers.get(record.ledger_id)
        if ledger is None:
            return
        if record.entry_id != ledger.appended:
            raise ValueError(f"entry {record.entry_id} of ledger {ledger.id} comes where {ledger.appended} is due")
        core = self._core
        if not ledger.unmoved:
            core.unmoved_ledgers[ledger.id] = ledger
        position = Position(record.ledger_id, record.entry_id)
        size = len(record.payload)
        entry = StoredEntry(position, record.payload, record.messages)
        ledger.append(entry, record.head, size, record.publish_time_ms)
        ledger.confirmed = ledger.appended
        ledger.log.last_confirmed = position
        ledger.log.has_changed()
        core.unmoved_bytes += size
        core.tail.add(ledger, size)

    def _acknowledge(self, record: AckRecord) -> None:
        cursor = self._cursors.get(record.cursor_id)
        if cursor is None:
            return
        if record.kind == MARKED:
            cursor.apply_up_to(record.positions[0])
        else:
            ack_set = record.ack_set or None
            cursor.apply_acknowledge([(position, ack_set) for position in record.positions])
        cursor.log.has_changed()

    def _change(self, change: dict[str, Any]) -> None:
        what = change["do"]
        if what == "create_log":
            self._create_log(change["log"], change["name"])
        elif what == "reset_cursor":
            cursor = self._cursors.get(change["cursor"])
            if cursor is not None:
                cursor.apply_reset(Position(*change["mark"]))
                cursor.log.has_changed()
        elif what == "note":
            cursor = self._cursors.get(change["cursor"])
            if cursor is not None:
                cursor.apply_note(Position(*change["mark"]), change["numbers"], change.get("forget", ()))
                cursor.log.has_changed()
        elif (log := self._logs.get(change["log"])) is not None:
            self._change_log(log, what, change)

    def _create_log(self, log_id: int, name: str) -> None:
        log = TopicLog(self._core, log_id, name)
        log.is_created = True
        self._core.logs[name] = self._logs[log_id] = log
        self._core.ids.saw(an_object=log_id)

    def _change_log(self, log: TopicLog, what: str, change: dict[str, Any]) -> None:
        if what == "begin_ledger":
            ledger_id = change["ledger"]
            self._core.ids.saw(ledger=ledger_id)
            self._ledgers[ledger_id] = log.add_ledger(ledger_id, change["created_ms"])
        elif what == "open_cursor":
            cursor = Cursor(log, change["cursor"], change["name"], Position(*change["mark"]))
            cursor.properties = dict(change["properties"])
            self._cursors[cursor.id] = log.add_cursor(cursor)
            self._core.ids.saw(an_object=cursor.id)
        elif what == "delete_cursor":
            cursor_or_none = self._cursors.pop(change["cursor"], None)
            if cursor_or_none is not None:
                log.remove_cursor(cursor_or_none.name)
        elif what == "drop_ledgers":
            dropped: list[Ledger] = [self._ledgers.pop(ledger_id) for ledger_id in change["ledgers"]]
            log.drop_ledgers([ledger.id for ledger in dropped])
        elif what == "switch_view":
            restore_view(log, change, self._logs)
            if (moved := self._cursors.get(change["cursor"])) is not None:
                moved.apply_up_to(Position(*change["horizon"]))
        elif what == "terminate":
            log.is_terminated = True
            log.has_changed()
        elif what == "delete_log":
            for ledger in log.drop():
                del self._ledgers[ledger.id]
            for cursor in log.cursors.values():
                del self._cursors[cursor.id]
            del self._logs[log.id]
            del self._core.logs[log.name]
        else:
            raise ValueError(f"change {what!r} is unknown")
