"""The ``jdbc-poll`` source polls a table or query in any SQLAlchemy database for new rows, using increasing columns.

The position is the values of these columns in the last row, and later rows are read in order. Each row becomes a JSON
object with its columns as fields: times are ISO 8601 strings, decimals are strings, and bytes are base64. Values
without a Python type, such as PostgreSQL's ``infinity`` and years before 1, are represented as the database displays
them.

A row that the driver cannot read goes to the dead-letter topic with the values of these columns. The source isolates
such a row by reading fewer and fewer rows per query. Rows whose `timestampColumn` is ``infinity`` are read in the order
of `incrementingColumn`; without it, they go to the dead-letter topic each time the source is opened.

Polling does not detect deleted rows, and detects changed rows only with a `timestampColumn`. A transaction that commits
late may add rows with smaller values than those already read, and these rows would be missed. To prevent this, set
`delayMs` to the duration of the longest transactions: only rows up to the largest value seen that long ago are read.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..api.connector import DeadLetter, Record, Retry, Source, SourceContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .json_rows import json_text, plain, unique_names
from .postgres_loaders import JSON_TYPES, SETTINGS, RawJson, SqlText, read_all_times, read_exactly
from .sql_databases import away, connect, is_unreadable, make_engine, sqlalchemy_url, text_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

_PAUSE_S = 0.2
"""Maximum time that an idle `read` waits, in seconds."""
_INFINITY = "infinity"
"""PostgreSQL's representation of the time later than all others."""


@dataclass
class JdbcPollConfig:
    """Settings of the ``jdbc-poll`` source."""

    jdbc_url: str = option(
        "Database URL: jdbc:postgresql://…, jdbc:mariadb://…, jdbc:mysql://…, jdbc:sqlite:/path/file.db, or a "
        "SQLAlchemy URL whose driver is installed.",
        aliases=("url",),
    )
    user_name: str = option("User name; empty to use the one in the URL.", default="", secret=True)
    password: str = option("Password of the user.", default="", secret=True)
    table_name: str = option(
        "Table name, optionally as schema.table. Set either tableName or query.", default="", aliases=("table",)
    )
    query: str = option("SELECT statement that returns the rows. Set either tableName or query.", default="")
    incrementing_column: str = option(
        "Unique column that increases with each new row, such as an ID.",
        default="",
        aliases=("incrementing.column.name",),
    )
    timestamp_column: str = option(
        "Column with the time of a row's last change. Requires incrementingColumn or delayMs.",
        default="",
        aliases=("timestamp.column.name",),
    )
    key_columns: list[str] = option(
        "Columns that form the record key: the value of one column, or a JSON object of several columns.",
        default=[],
        aliases=("keyColumn",),
    )
    batch_size: int = option("Maximum number of rows per query.", default=1000, limits=(1, 100_000))
    poll_interval_ms: int = option(
        "Interval between queries when no more rows are available, in milliseconds.",
        default=1000,
        limits=(10, 86_400_000),
        aliases=("poll.interval.ms",),
    )
    delay_ms: int = option(
        "Time by which to delay reading rows, in milliseconds, so that transactions that commit late are not missed.",
        default=0,
        limits=(0, 86_400_000),
    )
    append_only: bool = option(
        "Set to true if rows are never changed or deleted, and no row ever appears before one already read. Required "
        "for EFFECTIVELY_ONCE.",
        default=False,
    )


class JdbcPollSource(Source):
    """Polls a table or query in any SQL database for new rows, using increasing columns."""

    config = JdbcPollConfig
    _connection: Connection | None = None
    _last: tuple[Any, ...] | None = None
    _infinite: Any = None

    def check(self, config: JdbcPollConfig) -> None:
        """Validate the configuration."""
        sqlalchemy_url(config.jdbc_url)
        if bool(config.table_name) == bool(config.query):
            raise InvalidConfig("set either tableName or query")
        if not (config.incrementing_column or config.timestamp_column):
            raise InvalidConfig("set incrementingColumn or timestampColumn to detect new rows")
        if not config.incrementing_column and not config.delay_ms:
            raise InvalidConfig(
                "timestampColumn without incrementingColumn requires delayMs, as several rows may have "
                "the same timestamp"
            )

    def not_effectively_once(self, config: JdbcPollConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        if config.append_only:
            return ""
        return "rows that change or are committed late would differ on rereading: set appendOnly if rows never change"

    def not_parallel(self, config: JdbcPollConfig) -> str:
        """Return why only one instance can run, or an empty string."""
        return "rows are read in sequence by one instance"

    # -- opening ------------------------------------------------------------------------------------------------------

    def open(self, config: JdbcPollConfig, context: SourceContext) -> None:
        """Open the connector."""
        url = sqlalchemy_url(config.jdbc_url)
        self._engine = make_engine("jdbc-poll", url, config.user_name, config.password, writes=False)
        import sqlalchemy

        self._sql: Any = sqlalchemy
        self._config = config
        self._names = [name for name in (config.timestamp_column, config.incrementing_column) if name]
        self._columns = [sqlalchemy.column(name) for name in self._names]
        if config.query:
            self._rows: Any = sqlalchemy.text(f"({config.query.rstrip().rstrip(';')}) q".replace(":", "\\:"))
        else:
            schema, _, table = config.table_name.rpartition(".")
            self._rows = sqlalchemy.table(table, schema=schema or None)
        position = [_from_json(value) for value in context.position or ()]
        known = position[: len(self._names)]
        self._last = tuple(known) if known and None not in known else None
        self._infinite = position[len(known)] if len(position) > len(known) else None
        self._has_infinite = self._infinite is not None
        self._seen: deque[tuple[float, Any]] = deque()
        self._due_s = 0.0
        self._at_once = config.batch_size
        self._is_tolerant = self._named_infinite = False
        self._json_names: frozenset[str] = frozenset()
        self._connection = self._connected()

    def close(self) -> None:
        """Close the connector."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._engine.dispose()

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self) -> list[Record] | None:
        """Return the next records, or None if none are available yet."""
        if (wait_s := self._due_s - time.monotonic()) > 0:
            time.sleep(min(wait_s, _PAUSE_S))
            return None
        limit = self._at_once
        try:
            rows = self._in_transaction(lambda: self._found(limit))
        except _Unreadable as error:
            return self._narrow(error)
        self._at_once = min(2 * limit, self._config.batch_size)
        if len(rows) < limit:
            self._due_s = time.monotonic() + self._config.poll_interval_ms / 1000
        if self._has_infinite and not self._config.incrementing_column and not self._named_infinite:
            return self._infinite_letters()
        if not rows:
            return None
        if absent := [name for name in (*self._names, *self._config.key_columns) if name not in rows[0]]:
            raise Retry(f"column {absent[0]!r} does not exist: expected one of {', '.join(rows[0])}")
        self._go_behind(rows)
        return [Record(self._text(row), self._key(row)) for row in rows]

    def snapshot(self) -> list[Any] | None:
        """Return the current position."""
        if self._last is None and self._infinite is None:
            return None
        known: Sequence[Any] = self._last or [None] * len(self._names)
        more = [] if self._infinite is None else [_to_json(self._infinite)]
        return [*(None if value is None else _to_json(value) for value in known), *more]

    def _go_behind(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Advance the position past rows. Rows with an infinite time have a separate position."""
        if _is_infinite(rows[-1][self._names[0]]):
            self._has_infinite = True
            self._infinite = rows[-1][self._names[-1]]
            rows = [row for row in rows if not _is_infinite(row[self._names[0]])]
        if rows:
            self._last = tuple(rows[-1][name] for name in self._names)

    # -- unreadable rows ------------------------------------------------------------------------------------------

    def _narrow(self, error: _Unreadable) -> list[Record] | None:
        """Read fewer rows next time. Return a dead letter if the next row alone cannot be read."""
        if not self._is_tolerant:
            self._is_tolerant = True
        elif self._at_once > 1:
            self._at_once //= 2
        else:
            return [self._skipped(error)]
        return None

    def _skipped(self, error: _Unreadable) -> DeadLetter:
        """Advance past the next row, reading only the columns of its position."""
        try:
            rows = self._in_transaction(lambda: self._all(self._query(self._columns).limit(1)))
        except _Unreadable as cause:
            names = ", ".join(self._names)
            raise Retry(f"cannot read {names} of the next row: {cause}: correct the row") from cause
        if not rows:
            raise Retry(f"an unreadable row was removed meanwhile: {error}")
        self._go_behind(rows)
        what = "a row" if self._config.incrementing_column else "rows with the same timestamp"
        return DeadLetter(json_text(rows[0]), reason=f"cannot read {what}: {error}")

    def _infinite_letters(self) -> list[Record]:
        """Return dead letters for the rows with an infinite time, which cannot be ordered."""
        self._named_infinite = True
        self._due_s = 0.0
        reason = (
            f"{self._names[0]} is infinity, so new rows cannot be distinguished from old ones: set incrementingColumn"
        )
        infinite = self._columns[0] == self._value(SqlText(_INFINITY))
        query = self._sql.select(self._sql.literal_column("*")).select_from(self._rows).where(infinite)
        try:
            rows = self._in_transaction(lambda: self._all(query.limit(self._config.batch_size)))
        except _Unreadable as error:
            return [DeadLetter(b"", reason=f"{reason}; one of the rows cannot be read: {error}")]
        return [DeadLetter(self._text(row), self._key(row), reason=reason) for row in rows]

    # -- queries ------------------------------------------------------------------------------------------------------

    def _connected(self) -> Connection:
        """Return a connection that reads values exactly.

        After an unreadable value, also reads values without a Python type.
        """
        connection = connect(self._engine)
        driver: Any = connection.connection.driver_connection
        if self._engine.dialect.name == "postgresql":
            if self._engine.dialect.driver == "psycopg":
                read_exactly(driver)
                if self._is_tolerant:
                    read_all_times(driver)
            try:
                for setting in SETTINGS:
                    connection.exec_driver_sql(setting)
                connection.commit()
            except self._sql.exc.DBAPIError as error:
                raise away(self._engine, error) from error
        elif self._engine.dialect.name == "sqlite" and self._is_tolerant:
            driver.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        return connection

    def _in_transaction(self, read: Callable[[], list[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
        """Read rows in a separate transaction.

        Raises:
            _Unreadable: a value cannot be read.
            Retry: the database is unavailable or rejects the query.
        """
        if self._connection is None:
            self._connection = self._connected()
        try:
            with self._connection.begin():
                return read()
        except Exception as error:
            if is_unreadable(self._engine.dialect.name, error):
                connection, self._connection = self._connection, None  # unread rows may remain on it
                connection.close()
                raise _Unreadable(text_of(error)) from error
            if isinstance(error, self._sql.exc.StatementError):
                raise away(self._engine, error) from error
            raise

    def _query(self, columns: Sequence[Any], bound: Any = None) -> Any:
        """Return a query for rows after the position, up to a bound."""
        moment = self._columns[0]
        infinity = self._value(SqlText(_INFINITY))
        wanted = [moment.is_not(None)]
        if self._last is not None:
            wanted.append(self._behind(self._last))
        if bound is not None:
            wanted.append(moment <= self._value(bound))
        if self._has_infinite:
            wanted.append(moment < infinity)
        condition = self._sql.and_(*wanted)
        if self._has_infinite and self._config.incrementing_column:
            infinite = moment == infinity
            if self._infinite is not None:
                infinite = self._sql.and_(infinite, self._columns[-1] > self._value(self._infinite))
            condition = self._sql.or_(condition, infinite)
        return self._sql.select(*columns).select_from(self._rows).where(condition).order_by(*self._columns)

    def _found(self, limit: int) -> list[Mapping[str, Any]]:
        """Return the next rows after the position."""
        bound = None
        if self._config.delay_ms:
            bound = self._bound()
            if bound is None:
                return []
        query = self._query([self._sql.literal_column("*")], bound)
        rows = self._all(query.limit(limit))
        if self._config.incrementing_column or len(rows) < limit:
            return rows
        # The limit may have cut off rows with the last timestamp, so the next query reads all rows with it.
        moment = rows[-1][self._names[0]]
        whole = [row for row in rows if row[self._names[0]] != moment]
        return whole or self._all(query.where(self._columns[0] == self._value(moment)))

    def _all(self, query: Any) -> list[Mapping[str, Any]]:
        assert self._connection is not None
        result = self._connection.execute(query)
        names = unique_names(list(result.keys()))
        if self._engine.dialect.name == "postgresql":
            types = [column[1] for column in result.cursor.description]
            self._json_names = frozenset(name for name, kind in zip(names, types, strict=True) if kind in JSON_TYPES)
        return [dict(zip(names, row, strict=True)) for row in result]

    def _behind(self, last: tuple[Any, ...]) -> Any:
        values = list(map(self._value, last))
        if len(self._columns) == 1:
            return self._columns[0] > values[0]
        (moment, number), (at, last_number) = self._columns, values
        return self._sql.or_(moment > at, self._sql.and_(moment == at, number > last_number))

    def _value(self, value: Any) -> Any:
        """Convert a position's value for a query. A value without a Python type is cast to the column's type."""
        if not isinstance(value, SqlText):
            return value
        return self._sql.literal_column("'" + value.replace("'", "''") + "'")

    def _bound(self) -> Any:
        """Return the largest column value as of `delayMs` ago, or None if not known yet."""
        largest = self._sql.select(self._sql.func.max(self._columns[0])).select_from(self._rows)
        assert self._connection is not None
        now_s = time.monotonic()
        value = self._connection.execute(largest).scalar()
        if isinstance(value, SqlText) and value == _INFINITY:
            self._has_infinite = True
            finite = self._columns[0] < self._value(value)
            value = self._connection.execute(largest.where(finite)).scalar()
        if value is not None and (not self._seen or self._seen[-1][1] != value):
            self._seen.append((now_s, value))
        old_s = now_s - self._config.delay_ms / 1000
        while len(self._seen) > 1 and self._seen[1][0] <= old_s:
            self._seen.popleft()
        return self._seen[0][1] if self._seen and self._seen[0][0] <= old_s else None

    # -- records ------------------------------------------------------------------------------------------------------

    def _text(self, row: Mapping[str, Any]) -> str:
        names = self._json_names
        if not names:
            return json_text(row)
        fields = (f"{json_text(name)}:{_raw(one) if name in names else json_text(one)}" for name, one in row.items())
        return "{" + ",".join(fields) + "}"

    def _key(self, row: Mapping[str, Any]) -> str | None:
        names = self._config.key_columns
        if not names:
            return None
        if len(names) > 1:
            return self._text({name: row[name] for name in names})
        value = row[names[0]]
        return None if value is None else value if isinstance(value, str) else str(plain(value))


class _Unreadable(Exception):
    """The driver cannot read a value of a row."""


def _is_infinite(moment: Any) -> bool:
    return isinstance(moment, SqlText) and moment == _INFINITY


def _raw(value: Any) -> str:
    """Return the JSON representation of a JSON column, or of an array of JSON."""
    if isinstance(value, RawJson):
        return value
    return "[" + ",".join(map(_raw, value)) + "]" if isinstance(value, list) else json_text(value)


def _to_json(value: Any) -> Any:
    """Convert a position's value to JSON. `_from_json` is the inverse."""
    if isinstance(value, datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, SqlText):
        return {"sql": str(value)}
    return value if isinstance(value, int | float | str) else str(value)


def _from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    readers: Mapping[str, Callable[[str], Any]] = {
        "datetime": datetime.fromisoformat, "date": date.fromisoformat, "decimal": Decimal, "sql": SqlText,
    }  # fmt: skip
    return readers[kind](text)
