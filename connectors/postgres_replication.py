"""Connections of `postgres_cdc_source`: one for queries, one for the log, and two during a snapshot."""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..api.connector import Retry
from .libraries import need
from .pgoutput import Relation, RelationColumn, lsn_of, lsn_text
from .postgres_values import SETTINGS

if TYPE_CHECKING:
    from psycopg import Connection

CONNECT_S = 10
MADE_HERE = "made by a postgres-cdc source of Magnetar"
"""Comment on publications that a source may change."""
STATUS_S = 2.0
"""Interval at which the source reports up to which LSN the log can be released, in seconds."""
_SERVER_WAITS_MS = 300_000
"""The server's timeout for status reports, in milliseconds. A source whose topic is blocked sends none."""
_EPOCH_S = 946_684_800
_DATA_BYTES = 25  # kind, two LSNs, time
_KEEPALIVE = struct.Struct(">cQqB")
_STATUS = struct.Struct(">cQQQqB")


class ReplicationLost(Retry):
    """The replication connection was lost."""


def connect(conninfo: dict[str, Any], *, is_replication: bool = False) -> Connection[Any]:
    """Return an autocommit connection with the settings that `postgres_values` requires.

    Raises:
        InvalidConfig: the library is not installed.
        Retry: the server is unavailable or rejects the user.
    """
    psycopg = need("postgres-cdc", "psycopg")
    more: dict[str, Any] = {"options": SETTINGS + " -c search_path="}
    if is_replication:
        more = {"options": f"{SETTINGS} -c wal_sender_timeout={_SERVER_WAITS_MS}", "replication": "database"}
    try:
        made: Connection[Any] = psycopg.connect(
            **conninfo, **more, connect_timeout=CONNECT_S, autocommit=True, application_name="magnetar"
        )
    except psycopg.Error as error:
        raise Retry(f"{conninfo['host']}:{conninfo['port']}: {_line(error)}") from error
    return made


def command(connection: Connection[Any], text: str) -> list[tuple[str | None, ...]]:
    """Run a statement or a replication command, and return its rows as strings.

    Raises:
        Retry: the server is unavailable or rejects the statement.
    """
    import psycopg

    try:
        result = connection.pgconn.exec_(text.encode())
    except psycopg.Error as error:
        raise Retry(_line(error)) from error
    if result.status not in (psycopg.pq.ExecStatus.TUPLES_OK, psycopg.pq.ExecStatus.COMMAND_OK):
        raise Retry(
            " ".join((result.error_message or connection.pgconn.error_message).decode("utf-8", "replace").split())
        )
    columns = range(result.nfields)
    return [tuple([_decoded(result.get_value(row, column)) for column in columns]) for row in range(result.ntuples)]


def _decoded(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "surrogateescape")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


def literal(text: str) -> str:
    """Quote a string as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def identifier(*names: str) -> str:
    """Quote a name, optionally preceded by its schema, as an SQL identifier."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


# -- slots and publications --------------------------------------------------------------------------------------------


def check_server(connection: Connection[Any]) -> None:
    """Raise Retry if the server is not configured for logical replication."""
    ((level,),) = command(connection, "SHOW wal_level")
    if level != "logical":
        raise Retry(f"server has wal_level = {level}: set wal_level = logical and restart the server")


def create_publication(connection: Connection[Any], name: str, tables: Sequence[tuple[str, str]] | None) -> None:
    """Create a publication if it does not exist. ``tables`` is None for all tables of the database."""
    if command(connection, f"SELECT 1 FROM pg_publication WHERE pubname = {literal(name)}"):
        return
    if tables is not None and not tables:
        raise Retry(f"cannot create publication {name!r}, as no table matches table.include.list: create the tables")
    what = "ALL TABLES" if tables is None else "TABLE " + ", ".join(identifier(*table) for table in tables)
    command(connection, f"CREATE PUBLICATION {identifier(name)} FOR {what}")
    command(connection, f"COMMENT ON PUBLICATION {identifier(name)} IS {literal(MADE_HERE)}")


def slot_position(connection: Connection[Any], name: str) -> int | None:
    """Return a slot's confirmed LSN, or None if the slot does not exist.

    Raises:
        Retry: the slot cannot be used, or has lost its log.
    """
    rows = command(
        connection,
        "SELECT plugin, database = current_database(), confirmed_flush_lsn, wal_status FROM pg_replication_slots"
        f" WHERE slot_name = {literal(name)}",
    )
    if not rows:
        return None
    plugin, is_here, confirmed, status = rows[0]
    if plugin != "pgoutput" or is_here != "t":
        raise Retry(
            f"replication slot {name!r} belongs to plugin {plugin} or another database: set slot.name to another name"
        )
    if status == "lost":
        raise Retry(f"replication slot {name!r} has lost its log (max_slot_wal_keep_size): {lost_remedy(name)}")
    return lsn_of(confirmed or "0/0")


def lost_remedy(name: str) -> str:
    """Return the advice for a slot that cannot continue."""
    return (
        f"drop the slot, if it exists, with SELECT pg_drop_replication_slot({literal(name)}), and set snapshot.mode to "
        f"when_needed to take a new snapshot"
    )


def published_tables(connection: Connection[Any], publication: str) -> list[Relation]:
    """Return the tables of a publication with their columns. Primary key columns are marked as keys."""
    rows = command(
        connection,
        "SELECT c.oid, p.schemaname, p.tablename, c.relreplident, a.attname, a.atttypid, a.attnum = ANY (i.indkey)"
        " FROM pg_publication_tables p"
        " JOIN pg_namespace n ON n.nspname = p.schemaname"
        " JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''"
        " LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary"
        f" WHERE p.pubname = {literal(publication)} ORDER BY p.schemaname, p.tablename, a.attnum",
    )
    found: dict[tuple[str, ...], list[RelationColumn]] = {}
    for oid, schema, name, identity, column, kind, is_key in rows:
        table = (oid or "0", schema or "", name or "", identity or "d")
        found.setdefault(table, []).append(RelationColumn(column or "", int(kind or 0), -1, is_key == "t"))
    return [
        Relation(int(oid), schema, name, identity, tuple(columns))
        for (oid, schema, name, identity), columns in found.items()
    ]


def primary_key(connection: Connection[Any], relation: Relation) -> list[str]:
    """Return a table's primary key columns, or an empty list if it has none or no longer exists."""
    rows = command(
        connection,
        "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)"
        f" WHERE i.indrelid = {relation.id} AND i.indisprimary",
    )
    return [name or "" for (name,) in rows]


# -- snapshot ----------------------------------------------------------------------------------------------------------


class RowReader:
    """Reads the current rows of tables in one transaction."""

    def __init__(self, conninfo: dict[str, Any]) -> None:
        """Connect, and start the transaction."""
        self._reader: Connection[Any] | None = connect(conninfo)
        self._begin()

    def _begin(self) -> None:
        assert self._reader is not None
        command(self._reader, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def rows(self, table: Relation, count: int) -> Iterator[list[tuple[str | None, ...]]]:
        """Yield the rows of a table in batches of `count`, with all values as strings."""
        assert self._reader is not None
        columns = ", ".join(f"{identifier(column.name)}::text" for column in table.columns)
        query = f"SELECT {columns} FROM ONLY {identifier(table.schema, table.name)}"
        if command(self._reader, f"SELECT 1 FROM pg_partitioned_table WHERE partrelid = {table.id}"):
            query = query.replace(" FROM ONLY ", " FROM ")
        command(self._reader, f"DECLARE rows NO SCROLL CURSOR FOR {query}")
        while rows := command(self._reader, f"FETCH {count} FROM rows"):
            yield rows
        command(self._reader, "CLOSE rows")

    def close(self) -> None:
        """Close the connection."""
        if self._reader is not None:
            self._reader.close()


class Snapshot(RowReader):
    """Reads the rows of tables as of one LSN."""

    def __init__(self, conninfo: dict[str, Any], slot: str) -> None:
        """Take a snapshot, held by a temporary slot with the name ``slot``."""
        self._holder = connect(conninfo, is_replication=True)
        self._reader = None
        try:
            ((_, point, name, _),) = command(
                self._holder, f"CREATE_REPLICATION_SLOT {identifier(slot)} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT"
            )
            self._reader = connect(conninfo)
            self._begin()
            command(self._reader, f"SET TRANSACTION SNAPSHOT {literal(name or '')}")
        except BaseException:
            self.close()
            raise
        self.lsn = lsn_of(point or "0/0")

    def close(self) -> None:
        """Close both connections."""
        super().close()
        self._holder.close()


# -- the log -----------------------------------------------------------------------------------------------------------


class LogStream:
    """The log, starting at an LSN, over one connection.

    Attributes:
        seen_lsn: LSN up to which the server has sent the whole log, as last reported.
    """

    def __init__(self, connection: Connection[Any], slot: str, start_lsn: int, options: dict[str, str]) -> None:
        """Start replication.

        Raises:
            Retry: the slot is in use or does not exist.
        """
        from psycopg.pq import ExecStatus

        self._connection = connection
        self._pg = connection.pgconn
        self._socket = self._pg.socket
        self.seen_lsn = 0
        self._told_s = 0.0
        self._must_tell = False
        given = ", ".join(f"{name} {literal(text)}" for name, text in options.items())
        text = f"START_REPLICATION SLOT {identifier(slot)} LOGICAL {lsn_text(start_lsn)} ({given})"
        result = self._pg.exec_(text.encode())
        if result.status != ExecStatus.COPY_BOTH:
            raise Retry(" ".join(result.error_message.decode("utf-8", "replace").split()))

    def next(self, wait_s: float) -> bytes | None:
        """Return the plugin's next message, or None on timeout.

        Raises:
            ReplicationLost: the connection was lost.
        """
        import psycopg

        deadline_s = time.monotonic() + wait_s
        try:
            while True:
                count, data = self._pg.get_copy_data(1)
                if count > 0:
                    if (message := self._taken(bytes(data))) is not None:
                        return message
                    continue
                if count < 0:
                    result = self._pg.get_result()
                    cause = result.error_message if result is not None else b""
                    raise ReplicationLost(_text(cause) or "server ended replication")
                left_s = 0.0 if self._must_tell else max(deadline_s - time.monotonic(), 0.0)
                if not select.select([self._socket], [], [], left_s)[0]:
                    return None
                self._pg.consume_input()
        except (psycopg.Error, OSError, ValueError) as error:
            raise ReplicationLost(f"replication connection lost: {_line(error)}") from error

    def _taken(self, data: bytes) -> bytes | None:
        kind = data[:1]
        if kind == b"w":
            return data[_DATA_BYTES:]
        if kind == b"k":
            _, end, _, wants_reply = _KEEPALIVE.unpack(data)
            self.seen_lsn = max(self.seen_lsn, end)
            self._must_tell = self._must_tell or bool(wants_reply)
        return None

    def tell(self, durable_lsn: int, *, asks: bool = False) -> None:
        """Report the LSN up to which the log can be released, if a report is due or requested.

        Args:
            durable_lsn: LSN to report.
            asks: whether to report immediately and request the LSN up to which the server has sent its log.

        Raises:
            ReplicationLost: the connection was lost.
        """
        import psycopg

        now_s = time.monotonic()
        if not (asks or self._must_tell) and now_s - self._told_s < STATUS_S:
            return
        self._must_tell, self._told_s = False, now_s
        time_us = int((time.time() - _EPOCH_S) * 1_000_000)
        seen = max(self.seen_lsn, durable_lsn)
        try:
            self._pg.put_copy_data(_STATUS.pack(b"r", seen, durable_lsn, durable_lsn, time_us, asks))
            while self._pg.flush():
                if not select.select([], [self._socket], [], CONNECT_S)[1]:
                    raise ReplicationLost(f"server accepted no data for {CONNECT_S} s")
        except (psycopg.Error, OSError, ValueError) as error:
            raise ReplicationLost(f"replication connection lost: {_line(error)}") from error

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _text(data: bytes) -> str:
    return " ".join(data.decode("utf-8", "replace").split())
