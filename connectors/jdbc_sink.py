"""The ``jdbc`` sink writes rows to a table in PostgreSQL, MariaDB, MySQL or SQLite.

Values are JSON objects whose fields are columns. Missing columns keep their default or current value. A batch is one
transaction. If the database rejects a batch, the sink finds the invalid row by writing parts of the batch under
savepoints. The rows before it are committed, and only the invalid row goes to the dead-letter topic.

Changes from ``postgres-cdc`` do not contain unchanged values that PostgreSQL stores out of line. Such a change updates
the existing row, which keeps these values. A change of the key moves the row. If the new row is rejected, the row
remains under its old key.

With EFFECTIVELY_ONCE, the number of the last written record is stored in the same transaction, in a separate table
(`positionsTable`), so that redelivered records are skipped with every `insertMode`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from ..api.connector import Batching, Record, RecordRefused, Retry, Sink, SinkContext
from ..api.connector_config import Refusal, Unsupported, option
from ..errors import InvalidConfig
from .postgres_changes import NEW_KEY, OLD_KEY
from .sql_databases import away, connect, is_fault_of_row, make_engine, sqlalchemy_url, text_of
from .sql_positions import Positions
from .sql_tables import TABLES, Row, Unfit, Verb, create

if TYPE_CHECKING:
    from sqlalchemy import Connection

_SHAPES_MAX = 1000
_NOTHING: tuple[int, set[int]] = (-1, set())
_CAUTIOUS_ROWS = 8
"""Rows per statement after a rejected row, doubled after each success, because invalid rows often occur in groups."""


@dataclass
class JdbcSinkConfig:
    """Settings of the ``jdbc`` sink."""

    unsupported: ClassVar[Unsupported] = {
        "maxQueueSize": Refusal("waiting records remain in the topic; set batchSize instead"),
    }

    jdbc_url: str = option(
        "Database URL: jdbc:postgresql://host:5432/database, jdbc:mariadb://…, jdbc:mysql://…, "
        "jdbc:sqlite:/path/file.db, or a SQLAlchemy URL.",
        aliases=("url",),
    )
    table_name: str = option("Table name, optionally as schema.table.", aliases=("table",))
    user_name: str = option("User name; empty to use the one in the URL.", default="", secret=True)
    password: str = option("Password of the user.", default="", secret=True)
    key: list[str] = option(
        "Key columns. UPSERT requires a primary key or unique constraint on exactly these columns.", default=[]
    )
    non_key: list[str] = option(
        "Columns that UPSERT and UPDATE change; empty for all columns except the key.", default=[]
    )
    insert_mode: Literal["INSERT", "UPSERT", "UPDATE"] = option(
        "INSERT: add rows; UPSERT: add a row, or update the existing row with the same key; UPDATE: update existing "
        "rows and ignore others.",
        default="INSERT",
    )
    null_value_action: Literal["FAIL", "DELETE"] = option(
        "Action for records without a value. FAIL: reject the record; DELETE: delete the row with the record key, "
        "which is the value of the key column, or a JSON object if there are several key columns.",
        default="FAIL",
    )
    envelope: Literal["none", "change"] = option(
        "Value format. none: values are rows; change: values are changes as written by postgres-cdc and Debezium, with "
        "op, before and after. The ops c, r and u write the row in after, and d deletes the row in before.",
        default="none",
    )
    exclude_non_declared_fields: bool = option(
        "Whether to write only the columns in key and nonKey. If false, records with unknown fields are rejected.",
        default=False,
    )
    create_table: dict[str, str] = option(
        "Columns for creating the table if it does not exist, as types by name: SQL types, or integer, number, text, "
        "boolean, bytes, json, timestamp and date. The key becomes the primary key. If empty, the table must exist.",
        default={},
    )
    batch_size: int = option("Maximum number of rows per transaction.", default=1000, limits=(1, 10_000))
    timeout_ms: int = option(
        "Maximum time to wait for more records after the first, in milliseconds; 0 to write immediately.",
        default=0,
        limits=(0, 60_000),
    )
    use_transactions: bool = option(
        "Whether to use one transaction per batch. One transaction per row is slow.", default=True
    )
    use_jdbc_batch: bool = option(
        "Whether to write multiple rows per statement. One statement per row is slow.", default=True
    )
    positions_table: str = option(
        "Table for the write positions of topics with EFFECTIVELY_ONCE; created if it does not exist.",
        default="magnetar_positions",
    )


class _Shape(NamedTuple):
    """The columns of a value.

    Attributes:
        columns: columns of its fields.
        cause: why they cannot be written, or empty.
    """

    columns: tuple[str, ...]
    cause: str


class JdbcSink(Sink):
    """Inserts, upserts, updates and deletes rows in PostgreSQL, MariaDB, MySQL or SQLite."""

    config = JdbcSinkConfig
    _connection: Connection | None = None

    def check(self, config: JdbcSinkConfig) -> None:
        """Validate the configuration."""
        kind = sqlalchemy_url(config.jdbc_url).partition(":")[0].partition("+")[0]
        if kind not in TABLES:
            raise InvalidConfig(f"unsupported database {kind!r} in jdbcUrl: expected {', '.join(TABLES)}")
        if not config.table_name:
            raise InvalidConfig("tableName must not be empty")
        wants_key = {
            f"insertMode {config.insert_mode}": config.insert_mode != "INSERT",
            "nullValueAction DELETE": config.null_value_action == "DELETE",
            "envelope change": config.envelope == "change",
        }
        for setting, wants in wants_key.items():
            if wants and not config.key:
                raise InvalidConfig(f"{setting} requires key")
        if config.envelope == "change" and config.insert_mode != "UPSERT":
            raise InvalidConfig(f"envelope change requires insertMode UPSERT, not {config.insert_mode}")
        if both := set(config.key) & set(config.non_key):
            raise InvalidConfig(f"column {sorted(both)[0]!r} is in both key and nonKey: remove it from one of them")
        if config.exclude_non_declared_fields and not (config.key or config.non_key):
            raise InvalidConfig("excludeNonDeclaredFields requires key or nonKey")
        if config.create_table and (absent := [name for name in config.key if name not in config.create_table]):
            raise InvalidConfig(f"createTable is missing the key column {absent[0]!r}")
        if not all(isinstance(kind, str) and kind for kind in config.create_table.values()):
            raise InvalidConfig("invalid createTable: each column type must be a non-empty string")

    def not_effectively_once(self, config: JdbcSinkConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        if not config.use_transactions:
            return "without useTransactions, rows and position are not written together: set useTransactions to true"
        return "" if config.positions_table else "positionsTable is empty: set a table name"

    def batching(self, config: JdbcSinkConfig) -> Batching:
        """Return the batch limits."""
        return Batching(config.batch_size, 4 << 20, config.timeout_ms / 1000)

    # -- opening ------------------------------------------------------------------------------------------------------

    def open(self, config: JdbcSinkConfig, context: SinkContext) -> None:
        """Open the connector."""
        engine = make_engine("jdbc", sqlalchemy_url(config.jdbc_url), config.user_name, config.password)
        import sqlalchemy

        self._config = config
        self._engine = engine
        self._errors = (sqlalchemy.exc.StatementError, sqlalchemy.exc.DBAPIError)
        self._shapes: dict[tuple[str, ...], _Shape] = {}
        self._rows_max = config.batch_size if config.use_jdbc_batch and config.use_transactions else 1
        self._at_once = self._rows_max
        connection = self._connection = connect(engine)
        if not config.use_transactions:
            connection.execution_options(isolation_level="AUTOCOMMIT")
        try:
            with connection.begin():
                if config.create_table:
                    create(connection, config.table_name, config.create_table, config.key)
                kind = TABLES[engine.dialect.name]
                self._table = kind(connection, config.table_name, config.key, config.non_key)
                number = self._table.number
                self._decoder = json.JSONDecoder(parse_constant=_no_number, parse_float=number)
                if context.is_exact and not self._table.is_transactional:
                    raise Retry(f"table {config.table_name!r} uses an engine without transactions: use InnoDB")
                self._positions = (
                    Positions(connection, config.positions_table, context.incarnation) if context.is_exact else None
                )
        except self._errors as error:
            raise away(engine, error) from error

    def close(self) -> None:
        """Close the connector."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._engine.dispose()

    # -- writing ------------------------------------------------------------------------------------------------------

    def write_batch(self, records: Sequence[Record]) -> None:
        """Write a batch of records durably."""
        assert self._connection is not None
        refused, count = "", len(records)
        rows: list[Row] = []
        places: list[int] = []
        try:
            with self._connection.begin():
                before = self._written_before(records)
                for index, record in enumerate(records):
                    sequence, refusals = before.get(record.topic, _NOTHING)
                    if record.sequence <= sequence and self._positions is not None:
                        if record.sequence not in refusals:
                            continue
                        refused, count = "record was rejected earlier", index
                        break
                    try:
                        rows.append(self._row(record))
                    except Unfit as unfit:
                        refused, count = str(unfit), index
                        break
                    places.append(index)
                written, cause = self._write(rows)
                if cause:
                    refused, count = cause, places[written]
                if self._positions is not None:
                    if refused:
                        before[records[count].topic][1].add(records[count].sequence)
                    self._positions.keep(records[: count + bool(refused)], before)
        except self._errors as error:
            raise away(self._engine, error) from error
        if refused:
            raise RecordRefused(refused, count, count)

    def _written_before(self, records: Sequence[Record]) -> dict[str, tuple[int, set[int]]]:
        """Return, by topic, the number of the last written record and the numbers of rejected ones."""
        if self._positions is None:
            return {}
        return {topic: self._positions.written(topic) for topic in sorted({record.topic for record in records})}

    def _write(self, rows: Sequence[Row]) -> tuple[int, str]:
        """Write rows up to the first rejected one. Return their number, and why that row was rejected."""
        done = failed_end = 0
        size = self._at_once
        while done < len(rows):
            chunk = rows[done : done + size]
            cause = self._try(chunk)
            if not cause:
                done += len(chunk)
                size = max(1, (failed_end - done) // 2) if done < failed_end else min(size * 2, self._rows_max)
            elif len(chunk) == 1:
                self._at_once = min(_CAUTIOUS_ROWS, self._rows_max)
                return done, cause
            else:
                failed_end = done + len(chunk)
                size = len(chunk) // 2
        self._at_once = max(size, self._at_once)
        return done, ""

    def _try(self, rows: Sequence[Row]) -> str:
        """Write all rows or none. Return why they were rejected, or an empty string if they were written."""
        assert self._connection is not None
        try:
            if not self._config.use_transactions:
                self._write_in_layers(rows)
                return ""
            with self._connection.begin_nested():
                self._write_in_layers(rows)
                if self._table.is_deferring:
                    self._connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")
        except self._errors as error:
            if not is_fault_of_row(self._engine.dialect.name, error):
                raise
            return text_of(error)
        except (ValueError, OverflowError) as error:  # a value that the driver does not support
            return text_of(error)
        return ""

    def _write_in_layers(self, rows: Sequence[Row]) -> None:
        """Write rows grouped by verb and columns. A row with a repeated key waits until the earlier row is written."""
        is_alike = len({(row.verb, row.columns) for row in rows}) == 1
        if is_alike and (not rows[0].key or len({row.key for row in rows}) == len(rows)):
            self._table.write(rows)
            return
        groups: dict[tuple[Verb, tuple[str, ...]], list[Row]] = {}
        keys: set[tuple[str, ...]] = set()
        for row in rows:
            if row.other is not None:  # the row has an old and a new key
                self._write_groups(groups)
                groups, keys = {}, set()
                self._table.write([row])
                continue
            if row.key:
                if row.key in keys:
                    self._write_groups(groups)
                    groups, keys = {}, set()
                keys.add(row.key)
            groups.setdefault((row.verb, row.columns), []).append(row)
        self._write_groups(groups)

    def _write_groups(self, groups: dict[tuple[Verb, tuple[str, ...]], list[Row]]) -> None:
        for group in groups.values():
            self._table.write(group)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _row(self, record: Record) -> Row:
        """Convert a record to a row operation. Raises Unfit."""
        value: Any = record.value
        if value is None or value in (b"", ""):
            return self._leaving(record, self._deletion(record))
        text = ""
        try:
            if isinstance(value, bytes):
                value = value.decode()
            if isinstance(value, str):
                text = value
                value = self._decoded(text)
        except (ValueError, RecursionError) as error:
            raise Unfit(f"value is not valid JSON: {error}") from None
        if not isinstance(value, dict):
            raise Unfit(f"value must be a JSON object, not {type(value).__name__}")
        if self._config.envelope == "change":
            return self._change(record, value)
        return self._written(self._config.insert_mode, value, text)

    def _decoded(self, text: str) -> Any:
        """Parse JSON. Raises ValueError, RecursionError."""
        try:
            value, end = self._decoder.raw_decode(
                text
            )  # skips the search for surrounding spaces, which would double the time
        except ValueError:
            end = -1
        return value if end == len(text) else self._decoder.decode(text)

    def _written(self, verb: Verb, value: dict[str, Any], text: str = "") -> Row:
        fields = tuple(value)
        shape = self._shapes.get(fields)
        if shape is None:
            if len(self._shapes) >= _SHAPES_MAX:
                self._shapes.clear()
            shape = self._shapes[fields] = self._shape(fields)
        if shape.cause:
            raise Unfit(shape.cause)
        key = self._key_of(verb, value) if self._table.key else ()
        return Row(verb, shape.columns, value, text or _json(value), key)

    def _key_of(self, verb: Verb, value: dict[str, Any]) -> tuple[str, ...]:
        names = self._table.key
        key = tuple([str(value[name]) for name in names])
        if "None" in key and verb != "INSERT" and None in [value[name] for name in names]:
            raise Unfit(f"key column is null: {', '.join(names)}")
        return key

    def _shape(self, fields: tuple[str, ...]) -> _Shape:
        config, table = self._config, self._table
        columns = fields
        if config.exclude_non_declared_fields:
            columns = tuple(name for name in fields if name in config.key or name in config.non_key)
        if absent := [name for name in table.key if name not in columns]:
            return _Shape((), f"value has no field {absent[0]!r}, which is in key")
        if unknown := [name for name in columns if name not in table.columns]:
            return _Shape(
                (),
                f"table {config.table_name!r} has no column {unknown[0]!r}: add the column, or set "
                f"excludeNonDeclaredFields",
            )
        if not columns or (config.insert_mode == "UPDATE" and set(columns) <= set(table.key)):
            return _Shape((), "value has no fields to write")
        return _Shape(columns, "")

    def _deletion(self, record: Record) -> Row:
        if self._config.null_value_action == "FAIL":
            raise Unfit("record has no value, and nullValueAction is FAIL")
        key = self._table.key
        if record.key is None:
            raise Unfit("record has neither value nor key, and nullValueAction DELETE requires a key")
        values: Any = {key[0]: record.key}
        if len(key) > 1:
            try:
                values = json.loads(record.key)
            except (ValueError, RecursionError):
                values = None
            if not isinstance(values, dict):
                raise Unfit(f"record key is not a JSON object with {', '.join(key)}")
        return self._deleted(values, "record key")

    def _deleted(self, values: dict[str, Any], whose: str) -> Row:
        key = self._table.key
        if absent := [name for name in key if name not in values]:
            raise Unfit(f"{whose} has no field {absent[0]!r}, which is in key")
        found = {name: values[name] for name in key}
        return Row("DELETE", key, found, _json(found), tuple(map(str, found.values())))

    def _change(self, record: Record, value: dict[str, Any]) -> Row:
        verb = value.get("op")
        row = value.get("before" if verb == "d" else "after")
        if verb not in ("c", "r", "u", "d") or not isinstance(row, dict):
            raise Unfit(f"invalid row change with op {verb!r}: expected op c, r, u or d, and a row in before or after")
        if verb == "d":
            return self._leaving(record, self._deleted(row, "before"))
        written = self._written("PATCH" if value.get("unchanged") else "UPSERT", row)
        old = self._row_of_key(record, OLD_KEY)
        return written if old is None else written._replace(verb="MOVE", other=old)

    def _leaving(self, record: Record, deletion: Row) -> Row:
        """Return a deletion or, if the row gets a new key, one that waits for the new row."""
        new = self._row_of_key(record, NEW_KEY)
        return deletion if new is None else deletion._replace(verb="LEAVE", other=new)

    def _row_of_key(self, record: Record, name: str) -> Row | None:
        """Return the row whose key is in a property, or None if the property is missing."""
        text = record.properties.get(name)
        if text is None:
            return None
        try:
            values = self._decoder.decode(text)
        except (ValueError, RecursionError) as error:
            raise Unfit(f"property {name!r} is not valid JSON: {error}") from None
        if not isinstance(values, dict):
            raise Unfit(f"property {name!r} is not a JSON object with {', '.join(self._table.key)}")
        return self._deleted(values, f"property {name!r}")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")
