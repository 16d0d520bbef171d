"""Creation of change records from `pgoutput` messages and snapshot rows.

    {"op": "u", "before": null, "after": {"id": 1, "name": "x"}, "table": "public.people", "lsn": "0/16B3748", "ts": 1}

``op`` is c, u or d for INSERT, UPDATE and DELETE, r for a row of the snapshot, t for TRUNCATE, and m for a message.
``before`` is the whole row if the table's REPLICA IDENTITY is FULL, otherwise the key, or null if the server did not
send it. Unchanged values stored out of line are not sent: ``after`` omits them, and ``unchanged`` lists their names.

An UPDATE that changes the key becomes a d of the old key and a c of the new row, because consumers and compaction work
by key. As in Debezium, the d has the new key in the property `NEW_KEY`, and the c has the old key in `OLD_KEY`, both as
JSON objects. With these properties, the ``jdbc`` sink updates the existing row and keeps values that were not sent.
Other consumers lose such values, unless REPLICA IDENTITY is FULL.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring as quoted
from typing import NamedTuple

from ..api.connector import DeadLetter, Record
from .pgoutput import (
    UNCHANGED,
    Begin,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Relation,
    Truncate,
    Tuple,
    Update,
    Value,
    lsn_text,
)
from .postgres_values import encoder_of

NEW_KEY = "__debezium.newkey"
OLD_KEY = "__debezium.oldkey"
_EPOCH_MS = 946_684_800_000  # 2000-01-01
_COLUMN = Callable[[str], str]


class Envelope(NamedTuple):
    """Format of the records.

    Attributes:
        is_debezium: whether to use Debezium's format, with ``source`` and ``ts_ms``.
        server: server name in Debezium's format.
        database: database name in Debezium's format.
        has_tombstones: whether each d is followed by a record without a value.
    """

    is_debezium: bool = False
    server: str = ""
    database: str = ""
    has_tombstones: bool = False


class Moment(NamedTuple):
    """The transaction of a change, and its commit time."""

    lsn: int
    time_ms: int
    xid: int = 0


class TableShape:
    """A table whose rows are converted to JSON.

    Attributes:
        name: table name with schema.
        is_wanted: whether changes of the table are selected.
        key: indexes of the key columns.
    """

    def __init__(self, relation: Relation, key: Sequence[int], *, is_wanted: bool) -> None:
        self.name = f"{relation.schema}.{relation.name}"
        self.relation = relation
        self.is_wanted = is_wanted
        self.key = tuple(key)
        self._columns = [(f"{quoted(column.name)}:", encoder_of(column.type_oid)) for column in relation.columns]

    def row(self, values: Tuple) -> str:
        """Return a row as JSON, without values that were not sent."""
        return (
            "{"
            + ",".join([
                name + ("null" if value is None else encode(value))  # type: ignore[arg-type]
                for (name, encode), value in zip(self._columns, values, strict=True)
                if value is not UNCHANGED
            ])
            + "}"
        )  # fmt: skip

    def key_row(self, values: Tuple) -> str:
        """Return the key columns of a row as JSON."""
        return self.row(tuple(value if place in self.key else UNCHANGED for place, value in enumerate(values)))

    def key_of(self, values: Tuple) -> str | None:
        """Return a row's key, or None: the column value as a string, or a JSON object of several columns."""
        if not self.key:
            return None
        if len(self.key) > 1:
            return self.key_row(values)
        value = values[self.key[0]]
        return value if isinstance(value, str) else None


class ChangeMaker:
    """Converts the messages of a connection to records.

    Attributes:
        moment: the current transaction and its commit time.
    """

    def __init__(
        self, envelope: Envelope, is_wanted: Callable[[str], bool], key_columns: Callable[[Relation], Sequence[str]]
    ) -> None:
        """Create a converter.

        Args:
            envelope: format of the records.
            is_wanted: returns whether a table is selected, called with schema.table.
            key_columns: returns a table's primary key columns, called if the server does not mark them.
        """
        self.moment = Moment(0, 0)
        self._envelope = envelope
        self._is_wanted = is_wanted
        self._key_columns = key_columns
        self._tables: dict[int, TableShape] = {}

    def table(self, relation: Relation) -> TableShape:
        """Return the shape of a table."""
        names = [column.name for column in relation.columns if column.is_key]
        if relation.identity == "f":  # the server marks all columns
            names = list(self._key_columns(relation))
        key = [place for place, column in enumerate(relation.columns) if column.name in names]
        return TableShape(relation, key, is_wanted=self._is_wanted(f"{relation.schema}.{relation.name}"))

    def records(self, message: Message) -> list[Record]:
        """Return the records for a message, usually one or none."""
        if isinstance(message, Insert):
            table = self._tables[message.relation]
            return [self._made(table, "c", None, message.new)] if table.is_wanted else []
        if isinstance(message, Update):
            table = self._tables[message.relation]
            return self._updated(table, message) if table.is_wanted else []
        if isinstance(message, Delete):
            table = self._tables[message.relation]
            return self._deleted(table, message.old, is_key=message.is_key) if table.is_wanted else []
        if isinstance(message, Begin):
            self.moment = Moment(message.commit_lsn, message.time_us // 1000 + _EPOCH_MS, message.xid)
        elif isinstance(message, Relation):
            self._tables[message.id] = self.table(message)
        elif isinstance(message, Truncate):
            tables = [self._tables[relation] for relation in message.relations]
            return [self._record(table, "t", "null", "null", None) for table in tables if table.is_wanted]
        elif isinstance(message, LogicalMessage):
            content = base64.b64encode(message.content).decode()
            more = f',"message":{{"prefix":{quoted(message.prefix)},"content":"{content}"}}'
            return [self._record(None, "m", "null", "null", None, more)]
        return []

    def snapshot_row(self, table: TableShape, values: Tuple, moment: Moment) -> Record:
        """Return the record for a snapshot row."""
        self.moment = moment
        return self._record(table, "r", "null", table.row(values), table.key_of(values))

    def _updated(self, table: TableShape, message: Update) -> list[Record]:
        new, old = message.new, message.old
        if old is None:
            return [self._made(table, "u", None, new)]
        if not message.is_key:  # whole old row, including values missing from the new one
            new = tuple(before if value is UNCHANGED else value for value, before in zip(new, old, strict=True))
        if table.key and any(_differ(old[place], new[place]) for place in table.key):
            deleted = self._deleted(table, old, is_key=message.is_key)
            for record in deleted:
                record.properties = {NEW_KEY: table.key_row(new)}
            made = self._made(table, "c", None, new)
            made.properties = {OLD_KEY: table.key_row(old)}
            return [*deleted, made]
        return [self._made(table, "u", None if message.is_key else old, new)]

    def _deleted(self, table: TableShape, old: Tuple, *, is_key: bool) -> list[Record]:
        row = table.key_row(old) if is_key else table.row(old)
        key = table.key_of(old)
        made = [self._record(table, "d", row, "null", key)]
        if self._envelope.has_tombstones and key is not None:
            made.append(Record(b"", key, event_time_ms=self.moment.time_ms))
        return made

    def _made(self, table: TableShape, op: str, old: Tuple | None, new: Tuple) -> Record:
        more = ""
        if UNCHANGED in new:
            columns = table.relation.columns
            names = [quoted(column.name) for column, value in zip(columns, new, strict=True) if value is UNCHANGED]
            more = f',"unchanged":[{",".join(names)}]'
        before = "null" if old is None else table.row(old)
        return self._record(table, op, before, table.row(new), table.key_of(new), more)

    def _record(
        self, table: TableShape | None, op: str, before: str, after: str, key: str | None, more: str = ""
    ) -> Record:
        lsn, time_ms, _ = self.moment
        if self._envelope.is_debezium:
            place = self._source(table, op)
            text = f'{{"before":{before},"after":{after},"source":{place},"op":"{op}","ts_ms":{time_ms}{more}}}'
        else:
            name = "null" if table is None else quoted(table.name)
            text = (
                f'{{"op":"{op}","before":{before},"after":{after},"table":{name},"lsn":"{lsn_text(lsn)}"'
                f',"ts":{time_ms}{more}}}'
            )
        try:
            return Record(text.encode(), key, event_time_ms=time_ms)
        except UnicodeEncodeError:
            reason = f"a change of {'a table' if table is None else table.name} contains invalid UTF-8"
            content = text.encode("utf-8", "surrogateescape")
            return DeadLetter(content, key, event_time_ms=time_ms, reason=reason)

    def _source(self, table: TableShape | None, op: str) -> str:
        lsn, time_ms, xid = self.moment
        envelope = self._envelope
        schema, name = (
            ("null", "null") if table is None else (quoted(table.relation.schema), quoted(table.relation.name))
        )
        snapshot = "true" if op == "r" else "false"
        return (
            f'{{"connector":"postgresql","name":{quoted(envelope.server)},"ts_ms":{time_ms},"snapshot":"{snapshot}"'
            f',"db":{quoted(envelope.database)},"schema":{schema},"table":{name},"txId":{xid or "null"},"lsn":{lsn}}}'
        )


def _differ(before: Value, after: Value) -> bool:
    return after is not UNCHANGED and before != after
