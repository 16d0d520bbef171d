"""Target tables: their columns, and statements for each database that write multiple rows.

PostgreSQL receives the rows of a statement as one JSON string and parses it itself, so that numbers keep all digits and
values are converted by the column's rules. The drivers for MariaDB, MySQL and SQLite receive a list of tuples. PyMySQL
combines the tuples into one statement, and SQLite runs in-process.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ..api.connector import Retry
from .documents import digits_of, digits_text

if TYPE_CHECKING:
    from sqlalchemy import Connection

Verb: TypeAlias = Literal["INSERT", "UPSERT", "UPDATE", "DELETE", "PATCH", "MOVE", "LEAVE"]


class Row(NamedTuple):
    """The operation of one record on the table.

    Attributes:
        verb: the operation. PATCH changes the given columns of a row, or inserts the row if it does not exist. MOVE
          does
            the same for a row whose key has changed. LEAVE deletes a row whose key has changed once the new row exists.
        columns: the given columns; for DELETE, the key columns.
        values: values by column.
        text: a JSON object with at least these columns.
        key: values of the key columns as strings; empty if rows have no key.
        other: the same row under its old key (MOVE) or its new key (LEAVE), with its key columns.
    """

    verb: Verb
    columns: tuple[str, ...]
    values: Mapping[str, Any]
    text: str
    key: tuple[str, ...]
    other: Row | None = None


class Column(NamedTuple):
    """A column of the table.

    Attributes:
        type: type name in the database, without a length.
        kind: how values are converted: ``text``, ``chars`` (like ``text``, but booleans are unchanged), ``bytes``,
            ``time``, ``json``, or ``plain`` for no conversion.
    """

    type: str
    kind: str


class Unfit(ValueError):
    """A value does not fit its column."""


class Table(ABC):
    """A target table.

    Attributes:
        columns: the writable columns, by name.
        is_deferring: whether it has constraints that may be checked only at commit.
        is_transactional: whether a rollback undoes writes.
        number: parses a number with a decimal point or an exponent.
    """

    columns: Mapping[str, Column]
    is_deferring = False
    is_transactional = True
    number: Callable[[str], Any] = float
    quote_mark = '"'

    def __init__(self, connection: Connection, name: str, key: Sequence[str], settable: Sequence[str]) -> None:
        """Read the columns.

        Args:
            connection: an open connection.
            name: table name, optionally preceded by the schema and a dot.
            key: key columns.
            settable: columns that UPSERT and UPDATE change; empty for all columns except the key.

        Raises:
            Retry: the table or a column does not exist.
        """
        self.key = tuple(key)
        self._settable = settable
        self._connection = connection
        self.name, self.columns = self._read(name)
        if not self.columns:
            raise Retry(f"table {name!r} does not exist: create the table, or set createTable")
        if absent := [column for column in (*key, *settable) if column not in self.columns]:
            raise Retry(f"table {name!r} has no column {absent[0]!r}: expected one of {', '.join(self.columns)}")
        self._check_key(name)
        self._statements: dict[tuple[str, tuple[str, ...]], str] = {}

    @abstractmethod
    def _read(self, name: str) -> tuple[str, Mapping[str, Column]]:
        """Return the quoted name and the columns; no columns if the table does not exist."""

    def _check_key(self, name: str) -> None:  # noqa: B027  most databases need no check
        """Raise Retry if upserts would not use the key. PostgreSQL and SQLite report this themselves."""

    def write(self, rows: Sequence[Row]) -> None:
        """Write rows with the same verb and columns and distinct keys."""
        verb = rows[0].verb
        if verb == "PATCH":
            self._patch(rows)
        elif verb == "MOVE":
            for row in rows:
                self._move(row)
        elif verb == "LEAVE":
            for row in rows:
                if row.other is not None and self._count(row.other):
                    self._write("DELETE", [row])
        else:
            self._write(verb, rows)

    def _patch(self, rows: Sequence[Row]) -> None:
        """Update existing rows and insert the others. An UPSERT would fail if a missing column is NOT NULL."""
        if self._write("UPDATE", rows) < len(rows):
            for row in rows:
                if not self._write("UPDATE", [row]):
                    self._write("UPSERT", [row])

    def _move(self, row: Row) -> None:
        """Change a row and its key. Other columns keep their values, and a rejected change leaves the row unchanged."""
        old = row.other
        if old is not None and old.key != row.key and self._count(old):
            if not self._count(row):
                self._change_key(old, row)
                return
            self._patch([row])
            self._write("DELETE", [old])
            return
        self._patch([row])

    @abstractmethod
    def _write(self, verb: Verb, rows: Sequence[Row]) -> int:
        """Write rows with one statement, and return the number of affected rows."""

    @abstractmethod
    def _count(self, row: Row) -> int:
        """Return the number of rows with a row's key."""

    @abstractmethod
    def _change_key(self, old: Row, new: Row) -> None:
        """Change a row including its key."""

    @abstractmethod
    def _upsert(self, columns: Sequence[str], changed: Sequence[str]) -> str:
        """Return the clause of an INSERT that updates an existing row."""

    def quoted(self, name: str) -> str:
        """Quote a name for a statement, with percent signs escaped because they would start a parameter."""
        mark = self.quote_mark
        return mark + name.replace(mark, mark * 2).replace("%", "%%") + mark

    def _list(self, columns: Sequence[str], form: str = "{}", joint: str = ", ") -> str:
        return joint.join(form.replace("{}", self.quoted(column)) for column in columns)

    def _changed(self, columns: Sequence[str]) -> list[str]:
        """Return the given columns that UPSERT and UPDATE change."""
        return [
            column for column in columns
            if column not in self.key and (not self._settable or column in self._settable)
        ]  # fmt: skip

    def _updated(self, columns: Sequence[str]) -> list[str]:
        """Return the columns that an UPDATE sets, or an unchanged key column if there are none."""
        return self._changed(columns) or list(self.key[:1])

    def _execute(self, statement: str, parameters: Any) -> int:
        return int(self._connection.exec_driver_sql(statement, parameters).rowcount)


class PostgresTable(Table):
    """A table of PostgreSQL."""

    def _read(self, name: str) -> tuple[str, Mapping[str, Column]]:
        quoted = ".".join(f'"{part}"' for part in name.split("."))
        oid, shown = self._connection.exec_driver_sql(
            "SELECT r::oid, r::text FROM coalesce(to_regclass(%s), to_regclass(%s)) AS r", (quoted, name)
        ).one()
        rows = self._connection.exec_driver_sql(
            "SELECT attname, format_type(atttypid, -1), atttypid = 'bytea'::regtype FROM pg_attribute"
            " WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
            (oid or 0,),
        )
        columns = {name: Column(kind, "bytes" if is_bytes else "plain") for name, kind, is_bytes in rows}
        (self.is_deferring,) = self._connection.exec_driver_sql(
            "SELECT count(*) > 0 FROM pg_constraint WHERE conrelid = %s AND condeferrable", (oid or 0,)
        ).one()
        return (shown or name).replace("%", "%%"), columns

    def _write(self, verb: Verb, rows: Sequence[Row]) -> int:
        columns = rows[0].columns
        statement = self._statements.get((verb, columns))
        if statement is None:
            statement = self._statements[verb, columns] = self._statement(verb, columns)
        return self._execute(statement, ("[" + ",".join([row.text for row in rows]) + "]",))

    def _count(self, row: Row) -> int:
        rows, values = self._rows("x", self.key)
        statement = f"SELECT 1 FROM {self.name} AS t, {rows} WHERE {self._matched(values)}"
        return len(self._connection.exec_driver_sql(statement, (f"[{row.text}]",)).all())

    def _change_key(self, old: Row, new: Row) -> None:
        rows, values = self._rows("x", new.columns)
        old_rows, old_values = self._rows("o", self.key)
        changes = self._changes((*self.key, *self._changed(new.columns)), values)
        statement = (
            f"UPDATE {self.name} AS t SET {changes} FROM {rows}, {old_rows} WHERE {self._matched(old_values)}"
        )  # fmt: skip
        self._execute(statement, (f"[{new.text}]", f"[{old.text}]"))

    def _rows(self, alias: str, columns: Sequence[str]) -> tuple[str, Mapping[str, str]]:
        """Return a table expression for rows passed as JSON, and the expressions of their columns."""
        types = {name: "text" if self.columns[name].kind == "bytes" else self.columns[name].type for name in columns}
        shape = ", ".join(f"{self.quoted(name)} {kind}" for name, kind in types.items())
        values = {
            name: f"decode({alias}.{self.quoted(name)}, 'base64')"
            if self.columns[name].kind == "bytes"
            else f"{alias}.{self.quoted(name)}"
            for name in columns
        }
        return f"json_to_recordset(%s::json) AS {alias}({shape})", values

    def _matched(self, values: Mapping[str, str]) -> str:
        return " AND ".join(f"t.{self.quoted(name)} = {values[name]}" for name in self.key if name in values)

    def _changes(self, columns: Sequence[str], values: Mapping[str, str]) -> str:
        return ", ".join(f"{self.quoted(name)} = {values[name]}" for name in columns)

    def _statement(self, verb: str, columns: Sequence[str]) -> str:
        rows, values = self._rows("x", columns)
        matched = self._matched(values)
        if verb == "DELETE":
            return f"DELETE FROM {self.name} AS t USING {rows} WHERE {matched}"
        if verb == "UPDATE":
            changes = self._changes(self._updated(columns), values)
            return f"UPDATE {self.name} AS t SET {changes} FROM {rows} WHERE {matched}"
        insert = f"INSERT INTO {self.name} ({self._list(columns)}) SELECT {', '.join(values.values())} FROM {rows}"
        return insert if verb == "INSERT" else insert + self._upsert(columns, self._changed(columns))

    def _upsert(self, columns: Sequence[str], changed: Sequence[str]) -> str:
        if not changed:
            return f" ON CONFLICT ({self._list(self.key)}) DO NOTHING"
        return f" ON CONFLICT ({self._list(self.key)}) DO UPDATE SET {self._list(changed, '{} = excluded.{}')}"


class TupleTable(Table):
    """A table of a database whose driver accepts multiple parameter tuples per statement."""

    mark = "%s"

    def _write(self, verb: Verb, rows: Sequence[Row]) -> int:
        columns = rows[0].columns
        order = columns if verb in ("INSERT", "UPSERT") else (*self._updated(columns), *self.key)
        if verb == "DELETE":
            order = self.key
        statement = self._statements.get((verb, columns))
        if statement is None:
            statement = self._statements[verb, columns] = self._statement(verb, columns)
        return self._execute(statement, self._parameters(rows, order))

    def _count(self, row: Row) -> int:
        statement = f"SELECT count(*) FROM {self.name} WHERE {self._of_key}"
        (parameters,) = self._parameters([row], self.key)
        return int(self._connection.exec_driver_sql(statement, parameters).scalar_one())

    def _change_key(self, old: Row, new: Row) -> None:
        columns = (*self.key, *self._changed(new.columns))
        statement = f"UPDATE {self.name} SET {self._list(columns, f'{{}} = {self.mark}')} WHERE {self._of_key}"
        (values,), (key,) = self._parameters([new], columns), self._parameters([old], self.key)
        self._execute(statement, (*values, *key))

    @property
    def _of_key(self) -> str:
        return self._list(self.key, f"{{}} = {self.mark}", " AND ")

    def _parameters(self, rows: Sequence[Row], order: Sequence[str]) -> list[tuple[Any, ...]]:
        columns = []
        for name in order:
            kind = self.columns[name].kind
            values = [row.values[name] for row in rows]
            if not _AS_THEY_ARE[kind].issuperset(map(type, values)):
                if kind in _TEXTS:
                    values = [_exact(row, name) for row in rows]
                values = list(map(_MAKERS[kind], values))
            columns.append(values)
        return list(zip(*columns, strict=True))

    def _statement(self, verb: str, columns: Sequence[str]) -> str:
        if verb == "DELETE":
            return f"DELETE FROM {self.name} WHERE {self._of_key}"
        if verb == "UPDATE":
            changes = self._list(self._updated(columns), f"{{}} = {self.mark}")
            return f"UPDATE {self.name} SET {changes} WHERE {self._of_key}"
        marks = ", ".join([self.mark] * len(columns))
        insert = f"INSERT INTO {self.name} ({self._list(columns)}) VALUES ({marks})"
        return insert if verb == "INSERT" else insert + self._upsert(columns, self._changed(columns))


_OF_TABLE = "WHERE table_schema = coalesce(%s, DATABASE()) AND table_name = %s"


class MySqlTable(TupleTable):
    """A table of MariaDB or MySQL."""

    quote_mark = "`"

    def _read(self, name: str) -> tuple[str, Mapping[str, Column]]:
        schema, dot, table = name.rpartition(".")
        place = (schema, table) if dot else (None, table)
        rows = self._connection.exec_driver_sql(
            "SELECT column_name, data_type, extra LIKE '%%GENERATED' FROM information_schema.columns"
            f" {_OF_TABLE} ORDER BY ordinal_position",
            place,
        ).all()
        if any(kind == "decimal" for _, kind, _ in rows):
            self.number = _decimal
        checks = self._connection.exec_driver_sql(
            "SELECT constraint_name FROM information_schema.check_constraints"
            " WHERE constraint_schema = coalesce(%s, DATABASE()) AND check_clause LIKE 'json_valid(%%'"
            + (" AND table_name = %s" if self._connection.dialect.is_mariadb else " AND %s <> ''"),
            place,
        )
        of_json = {constraint for (constraint,) in checks}
        columns = {
            column: Column(kind, "json" if kind == "json" or column in of_json else _MYSQL_KINDS.get(kind, "plain"))
            for column, kind, is_generated in rows
            if not is_generated
        }
        engines = self._connection.exec_driver_sql(f"SELECT engine FROM information_schema.tables {_OF_TABLE}", place)
        self.is_transactional = engines.scalar() in ("InnoDB", "ROCKSDB", "ndbcluster")
        return ".".join(map(self.quoted, (schema, table) if dot else (table,))), columns

    def _check_key(self, name: str) -> None:
        """Raise Retry unless the key is unique. An upsert uses any unique key, so it must be the configured one."""
        if not self.key:
            return
        schema, _, table = name.rpartition(".")
        parts = self._connection.exec_driver_sql(
            f"SELECT index_name, column_name FROM information_schema.statistics {_OF_TABLE} AND non_unique = 0",
            (schema or None, table),
        )
        keys: dict[str, set[str]] = {}
        for index, column in parts:
            keys.setdefault(index, set()).add(column)
        if set(self.key) not in keys.values():
            raise Retry(f"table {name!r} has no unique key on {', '.join(self.key)}: create one")

    def _upsert(self, columns: Sequence[str], changed: Sequence[str]) -> str:
        changed = changed or self.key[:1]
        return f" ON DUPLICATE KEY UPDATE {self._list(changed, '{} = VALUES({})')}"


class SqliteTable(TupleTable):
    """A SQLite table, which accepts values of any type unless the table is STRICT."""

    mark = "?"

    def quoted(self, name: str) -> str:
        """Quote a name for a statement. Percent signs need no escaping here."""
        return '"' + name.replace('"', '""') + '"'

    def _read(self, name: str) -> tuple[str, Mapping[str, Column]]:
        rows = self._connection.exec_driver_sql("SELECT name, type, hidden FROM pragma_table_xinfo(?)", (name,))
        columns = {
            column: Column(kind, _sqlite_kind(kind.upper())) for column, kind, hidden in rows if hidden in (0, 1)
        }
        return self.quoted(name), columns

    def _upsert(self, columns: Sequence[str], changed: Sequence[str]) -> str:
        if not changed:
            return f" ON CONFLICT ({self._list(self.key)}) DO NOTHING"
        return f" ON CONFLICT ({self._list(self.key)}) DO UPDATE SET {self._list(changed, '{} = excluded.{}')}"


TABLES: Mapping[str, type[Table]] = {
    "postgresql": PostgresTable,
    "mysql": MySqlTable,
    "mariadb": MySqlTable,
    "sqlite": SqliteTable,
}
"""Table classes by SQLAlchemy dialect name."""

_NANOSECONDS = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")
_MYSQL_KINDS = {
    **dict.fromkeys(("date", "datetime", "timestamp"), "time"),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), "bytes"),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), "text"),
}


def _sqlite_kind(declared: str) -> str:
    """Return the kind of a column, by the rules of SQLite's type affinity."""
    if "INT" not in declared and any(part in declared for part in ("CHAR", "CLOB", "TEXT")):
        return "chars"
    return "bytes" if "BLOB" in declared else "plain"


def _exact(row: Row, name: str) -> Any:
    """Return a value for a text column. A number that may have lost digits is reparsed from the JSON."""
    value = row.values[name]
    if type(value) not in _NUMBERS:
        return value
    if not _LONG.search(row.text) and not (isinstance(value, float) and math.isinf(value)):
        return repr(value) if isinstance(value, float) else value
    return digits_text(digits_of(row.text)[name])


def _decimal(text: str) -> Decimal:
    if math.isinf(float(text)):
        raise ValueError(f"number {text} is too large")
    return Decimal(text)


def _plain(value: Any) -> Any:
    return _json(value) if isinstance(value, dict | list) else value


def _text(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else _json(value)


def _json(value: Any) -> Any:
    return None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)


def _bytes(value: Any) -> Any:
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise Unfit(f"invalid base64 for a bytes column: {error}") from None


def _time(value: Any) -> Any:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Unfit(f"invalid time {str(value)[:60]!r}: expected an ISO 8601 string") from None
    if value[26:27].isdigit() and _NANOSECONDS.search(value):  # Python drops nanoseconds
        raise Unfit(f"invalid time {value[:60]!r}: expected at most 6 fractional digits")
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


_MAKERS: Mapping[str, Callable[[Any], Any]] = {
    "plain": _plain, "chars": _plain, "text": _text, "json": _json, "bytes": _bytes, "time": _time
}  # fmt: skip
_AS_THEY_ARE: Mapping[str, frozenset[type]] = {
    "plain": frozenset((type(None), bool, int, float, str, Decimal)),
    "chars": frozenset((type(None), bool, str)),
    "text": frozenset((type(None), str)),
    "json": frozenset((type(None),)),
    "bytes": frozenset((type(None),)),
    "time": frozenset((type(None),)),
}
"""Types of values that need no conversion, by kind."""
_TEXTS = ("chars", "text")
_LONG = re.compile(r"[0-9.]{16}")
"""Matches all numbers that a float or SQLite's integers might not represent, and some others."""
_NUMBERS = frozenset((int, float, Decimal, dict, list))
"""Types of values that are numbers or may contain numbers."""


_TYPES = {
    "integer": ("bigint", "bigint", "integer"),
    "number": ("double precision", "double", "real"),
    "text": ("text", "longtext", "text"),
    "boolean": ("boolean", "boolean", "boolean"),
    "bytes": ("bytea", "longblob", "blob"),
    "json": ("jsonb", "json", "text"),
    "timestamp": ("timestamptz", "datetime(6)", "text"),
    "date": ("date", "date", "text"),
}
"""Types that `create` supports in all databases, as in PostgreSQL, in MariaDB and MySQL, and in SQLite."""


def create(connection: Connection, name: str, columns: Mapping[str, str], key: Sequence[str]) -> None:
    """Create a table if it does not exist.

    Args:
        connection: an open connection.
        name: table name.
        columns: types by column name: integer, number, text, boolean, bytes, json, timestamp or date, or any type of
          the
            database.
        key: columns of the primary key; empty for no primary key.
    """
    dialect = connection.dialect.name
    place = {"postgresql": 0, "sqlite": 2}.get(dialect, 1)
    mark = "`" if place == 1 else '"'

    def quoted(text: str) -> str:
        return mark + text.replace(mark, mark * 2) + mark

    parts = []
    for column, given in columns.items():
        kind = _TYPES[given.lower()][place] if given.lower() in _TYPES else given
        parts.append(f"{quoted(column)} {'varchar(255)' if kind == 'longtext' and column in key else kind}")
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
    shown = quoted(name) if dialect == "sqlite" else ".".join(map(quoted, name.split(".")))
    connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {shown} ({', '.join(parts)})".replace("%", "%%"))
