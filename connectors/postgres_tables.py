"""The tables that `postgres_cdc_source` follows, including tables that join later.

A publication with a list of tables does not include tables that are created later, or added to the include list by an
update of the source. This module adds such tables. Their existing rows are read once all transactions that were running
at that time have ended: until then, some changes may be neither in the log nor visible. The log up to that time is read
first, as it may contain changes of an earlier table with the same name.

Only publications created by a source are changed, and only tables with a replica identity are added: without one, the
server would reject updates and deletes. Other tables are logged, with the command to run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..api.connector import Retry
from .pgoutput import Relation, lsn_of
from .postgres_replication import MADE_HERE, command, identifier, literal, published_tables

if TYPE_CHECKING:
    from psycopg import Connection

LOOK_S = 5.0
"""Interval at which to check for new tables, in seconds."""
WAIT_S = 0.5
"""Interval between checks while a table waits for transactions to end, in seconds."""
AGAIN_S = 60.0
"""Seconds before retrying to add a table."""
LOCK_MS = 1000
"""Lock timeout for adding a table, in milliseconds. No changes are read meanwhile."""


def existing_tables(sql: Connection[Any], is_wanted: Callable[[str], bool]) -> list[tuple[str, str]]:
    """Return schema and name of the selected tables. ``is_wanted`` is called with ``schema.table``."""
    rows = command(
        sql,
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition"
        " AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2",
    )
    tables = [(schema or "", name or "") for schema, name in rows]
    return [table for table in tables if is_wanted(".".join(table))]


class FollowedTables:
    """The tables of a publication that has a list of tables.

    Attributes:
        complete: IDs of the tables whose rows were read, or None if rows are not read.
    """

    def __init__(
        self, sql: Connection[Any], publication: str, is_wanted: Callable[[str], bool], log: logging.Logger
    ) -> None:
        """Create an object without tables."""
        self._sql, self._publication, self._is_wanted, self._log = sql, publication, is_wanted, log
        self.complete: set[int] | None = None
        self._waiting: dict[int, tuple[int, int]] = {}
        self._said: set[str] = set()
        self._again_s: dict[tuple[str, str], float] = {}
        self._due_s = 0.0

    def begin(self, complete: Iterable[int] | None) -> None:
        """Start reading rows, except those of complete tables.

        Args:
            complete: IDs of the tables whose rows were read, or None for all tables in the publication.
        """
        self.complete = {table.id for table in self._published()} if complete is None else set(complete)

    def finish(self, tables: Sequence[Relation]) -> None:
        """Mark the rows of tables as read."""
        if self.complete is not None:
            self.complete.update(table.id for table in tables)
        for table in tables:
            self._waiting.pop(table.id, None)

    @property
    def is_waiting(self) -> bool:
        """Whether the rows of a table are about to be read."""
        return bool(self._waiting)

    def ready(self, seen_lsn: int) -> list[Relation]:
        """Add new tables to the publication, if a check is due, and return those whose rows can be read now.

        Args:
            seen_lsn: LSN up to which the log has been read.

        Raises:
            Retry: the server is unavailable.
        """
        if time.monotonic() < self._due_s:
            return []
        self._due_s = time.monotonic() + LOOK_S
        self._add_missing()
        if self.complete is None:
            return []
        published = self._published()
        self.complete &= {table.id for table in published}
        new = [table for table in published if table.id not in self.complete and self._may_read(table)]
        if not new:
            self._waiting.clear()
            return []
        ((oldest, next_one, end),) = command(
            self._sql,
            "SELECT txid_snapshot_xmin(now), txid_snapshot_xmax(now),"
            " CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END"
            " FROM txid_current_snapshot() AS now",
        )
        joined = (int(next_one or 0), lsn_of(end or "0/0"))
        self._waiting = {table.id: self._waiting.get(table.id, joined) for table in new}
        ready = []
        for table in new:
            transaction, lsn = self._waiting[table.id]
            if transaction <= int(oldest or 0) and lsn <= seen_lsn:
                ready.append(table)
            elif transaction > int(oldest or 0):
                self._say(
                    logging.INFO, f"waiting for transaction {oldest} to end before reading {table.schema}.{table.name}"
                )
        if len(ready) < len(new):
            self._due_s = time.monotonic() + WAIT_S
        return ready

    def _may_read(self, table: Relation) -> bool:
        ((may,),) = command(self._sql, f"SELECT has_table_privilege({table.id}::oid, 'SELECT')")
        if may != "t":
            self._say(
                logging.ERROR,
                f"cannot read the rows of {table.schema}.{table.name}, only its changes: grant SELECT on the table",
            )
        return may == "t"

    def _published(self) -> list[Relation]:
        found = published_tables(self._sql, self._publication)
        return [table for table in found if self._is_wanted(f"{table.schema}.{table.name}")]

    def _add_missing(self) -> None:
        name = literal(self._publication)
        found = command(
            self._sql,
            f"SELECT puballtables, obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = {name}",
        )
        if not found or found[0][0] == "t":
            return
        is_own = found[0][1] == MADE_HERE
        there = command(
            self._sql,
            f"SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = {name}"
            " UNION SELECT n.nspname, c.relname FROM pg_publication_rel r"
            " JOIN pg_publication p ON p.oid = r.prpubid JOIN pg_class c ON c.oid = r.prrelid"
            f" JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = {name}",
        )
        for table in existing_tables(self._sql, self._is_wanted):
            if table not in there and self._again_s.get(table, 0.0) <= time.monotonic():
                self._add(table, is_own=is_own)

    def _add(self, table: tuple[str, str], *, is_own: bool) -> None:
        shown = ".".join(table)
        change = f"ALTER PUBLICATION {identifier(self._publication)} ADD TABLE {identifier(*table)}"
        missing = f"table {shown} is in the include list but not in publication {self._publication}"
        self._again_s[table] = time.monotonic() + AGAIN_S
        if not is_own:
            self._say(logging.ERROR, f"{missing}, which was not created by a source: run {change}")
            return
        if not self._has_identity(table):
            # The server would reject updates and deletes from applications.
            self._say(logging.ERROR, f"{missing}: add a primary key or REPLICA IDENTITY, and run {change}")
            return
        command(self._sql, f"SET lock_timeout = '{LOCK_MS}ms'")
        try:
            command(self._sql, change)
        except Retry as error:
            self._say(logging.ERROR, f"{missing}: {error}; if this persists, run {change} as the table owner")
        else:
            del self._again_s[table]  # the name may be reused
            self._log.info("added table %s to publication %s", shown, self._publication)
        finally:
            command(self._sql, "RESET lock_timeout")

    def _has_identity(self, table: tuple[str, str]) -> bool:
        schema, name = map(literal, table)
        found = command(
            self._sql,
            "SELECT c.relreplident IN ('f', 'i') OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND"
            " i.indisprimary) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            f" WHERE n.nspname = {schema} AND c.relname = {name}",
        )
        return found == [("t",)]

    def _say(self, level: int, text: str) -> None:
        """Log a message, but only once."""
        if text not in self._said:
            self._said.add(text)
            self._log.log(level, text)
