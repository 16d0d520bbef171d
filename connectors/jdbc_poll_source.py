"""The source ``jdbc-poll``: new rows of a table or a query of any database of SQLAlchemy, found by columns that grow.

The position is the last row's values of these columns; what lies behind it is read, in their order. Each row is a JSON
object with its columns as fields: times are ISO texts, decimals texts, bytes base64.

What cannot be seen like this: rows that are deleted, and rows that are changed where there is no `timestampColumn`. A
transaction that commits late brings rows with smaller values than what was read already; they would be missed.
`delayMs` holds rows back for as long as transactions take: only what lies before the largest value of that time ago is
read.
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ..api.connector import Record, Retry, Source, SourceContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .sql_databases import away, connect, make_engine, sqlalchemy_url

if TYPE_CHECKING:
    from sqlalchemy import Connection

_PAUSE_S = 0.2
"""How long a `read` that has nothing to do waits at most."""


@dataclass
class JdbcPollConfig:
    """Which rows are read, and how new ones are known."""

    jdbc_url: str = option(
        "Where the database is: jdbc:postgresql://…, jdbc:mariadb://…, jdbc:mysql://…, jdbc:sqlite:/path/file.db, or a"
        " URL of SQLAlchemy, whose driver must be installed.",
        aliases=("url",),
    )
    user_name: str = option("Who connects; empty for the one that the URL names.", default="", secret=True)
    password: str = option("Of that user.", default="", secret=True)
    table_name: str = option("The table, or schema.table; this or query.", default="", aliases=("table",))
    query: str = option("A SELECT whose rows are read; this or tableName.", default="")
    incrementing_column: str = option(
        "A column that is larger in each new row, such as an id; unique.",
        default="",
        aliases=("incrementing.column.name",),
    )
    timestamp_column: str = option(
        "A column that says when a row was changed last; with incrementingColumn, or with delayMs.",
        default="",
        aliases=("timestamp.column.name",),
    )
    key_columns: list[str] = option(
        "Columns whose values are the key of a record: one as text, several as a JSON object.",
        default=[],
        aliases=("keyColumn",),
    )
    batch_size: int = option("Rows of one query at most.", default=1000, limits=(1, 100_000))
    poll_interval_ms: int = option(
        "Milliseconds between two queries once there is nothing more.",
        default=1000,
        limits=(10, 86_400_000),
        aliases=("poll.interval.ms",),
    )
    delay_ms: int = option(
        "Milliseconds that rows are held back, for transactions that commit late.", default=0, limits=(0, 86_400_000)
    )
    append_only: bool = option(
        "Whether rows are never changed nor deleted, and none appears before others that were read; EFFECTIVELY_ONCE"
        " needs that.",
        default=False,
    )


class JdbcPollSource(Source):
    """New rows of a table or a query of any SQL database, by columns that grow."""

    config = JdbcPollConfig
    _connection: Connection | None = None
    _last: tuple[Any, ...] | None = None

    def check(self, config: JdbcPollConfig) -> None:
        """See `Connector.check`."""
        sqlalchemy_url(config.jdbc_url)
        if bool(config.table_name) == bool(config.query):
            raise InvalidConfig("give one of tableName and query")
        if not (config.incrementing_column or config.timestamp_column):
            raise InvalidConfig("give incrementingColumn or timestampColumn, by which new rows are known")
        if not config.incrementing_column and not config.delay_ms:
            raise InvalidConfig("timestampColumn alone needs delayMs, as several rows may be of one moment")

    def not_effectively_once(self, config: JdbcPollConfig) -> str:
        """See `Connector.not_effectively_once`."""
        if config.append_only:
            return ""
        return "rows that are changed or committed late are others when read again; set appendOnly if there are none"

    # -- opening ------------------------------------------------------------------------------------------------------

    def open(self, config: JdbcPollConfig, context: SourceContext) -> None:
        """See `Connector.open`."""
        if context.parallelism > 1:
            raise InvalidConfig(f"parallelism must be 1, not {context.parallelism}: rows are read in one order")
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
        self._last = None if context.position is None else tuple(map(_from_json, context.position))
        self._seen: deque[tuple[float, Any]] = deque()
        self._due_s = 0.0
        self._connection = connect(self._engine)

    def close(self) -> None:
        """See `Connector.close`."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._engine.dispose()

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self) -> list[Record] | None:
        """See `Source.read`."""
        if (wait_s := self._due_s - time.monotonic()) > 0:
            time.sleep(min(wait_s, _PAUSE_S))
            return None
        assert self._connection is not None
        try:
            with self._connection.begin():
                rows = self._found()
        except self._sql.exc.StatementError as error:
            raise away(self._engine, error) from error
        if len(rows) < self._config.batch_size:
            self._due_s = time.monotonic() + self._config.poll_interval_ms / 1000
        if not rows:
            return None
        if absent := [name for name in (*self._names, *self._config.key_columns) if name not in rows[0]]:
            raise Retry(f"there is no column {absent[0]}; there are {', '.join(rows[0])}")
        self._last = tuple(rows[-1][name] for name in self._names)
        return [Record(_text(row), self._key(row)) for row in rows]

    def snapshot(self) -> list[Any] | None:
        """See `Source.snapshot`."""
        return None if self._last is None else [_to_json(value) for value in self._last]

    def _found(self) -> Sequence[Mapping[str, Any]]:
        """Return the next rows behind the position."""
        first, limit = self._columns[0], self._config.batch_size
        query = self._sql.select(self._sql.literal_column("*")).select_from(self._rows)
        query = query.where(first.is_not(None)).order_by(*self._columns)
        if self._last is not None:
            query = query.where(self._behind(self._last))
        if self._config.delay_ms:
            bound = self._bound()
            if bound is None:
                return []
            query = query.where(first <= bound)
        rows = self._all(query.limit(limit))
        if len(self._columns) > 1 or self._config.incrementing_column or len(rows) < limit:
            return rows
        # Rows of the last moment may be cut off: they come together, with the next query.
        moment = rows[-1][self._names[0]]
        whole = [row for row in rows if row[self._names[0]] != moment]
        return whole or self._all(query.where(first == moment))

    def _all(self, query: Any) -> list[Mapping[str, Any]]:
        assert self._connection is not None
        return [dict(row) for row in self._connection.execute(query).mappings()]

    def _behind(self, last: tuple[Any, ...]) -> Any:
        if len(self._columns) == 1:
            return self._columns[0] > last[0]
        (moment, number), (at, last_number) = self._columns, last
        return self._sql.or_(moment > at, self._sql.and_(moment == at, number > last_number))

    def _bound(self) -> Any:
        """Return the largest value that there was `delayMs` ago; None if that is not known yet."""
        largest = self._sql.select(self._sql.func.max(self._columns[0])).select_from(self._rows)
        assert self._connection is not None
        now_s = time.monotonic()
        value = self._connection.execute(largest).scalar()
        if value is not None and (not self._seen or self._seen[-1][1] != value):
            self._seen.append((now_s, value))
        old_s = now_s - self._config.delay_ms / 1000
        while len(self._seen) > 1 and self._seen[1][0] <= old_s:
            self._seen.popleft()
        return self._seen[0][1] if self._seen and self._seen[0][0] <= old_s else None

    def _key(self, row: Mapping[str, Any]) -> str | None:
        names = self._config.key_columns
        if not names:
            return None
        if len(names) > 1:
            return _text({name: row[name] for name in names})
        value = row[names[0]]
        return None if value is None else value if isinstance(value, str) else str(_plain(value))


def _text(row: Mapping[str, Any]) -> str:
    try:
        return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False)
    except ValueError:  # JSON has no such numbers
        kept = {name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in row.items()}  # fmt: skip
        return json.dumps(kept, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return str(value)


def _to_json(value: Any) -> Any:
    """Return a value of a position as JSON can hold it, and `_from_json` knows it again."""
    if isinstance(value, datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    return value if isinstance(value, int | float | str) else str(value)


def _from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    readers: Mapping[str, Callable[[str], Any]] = {
        "datetime": datetime.fromisoformat, "date": date.fromisoformat, "decimal": Decimal
    }  # fmt: skip
    return readers[kind](text)
