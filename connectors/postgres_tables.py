"""The tables that `postgres_cdc_source` follows, including those that join later.

A publication with a list of tables does not include tables that are created later, or that an update of the source adds
to its include list. They are added here. The existing rows of such a table are read once all transactions that were
running at that time have ended: until then, some of its changes may be neither in the log nor visible. The log up to
that time is read first, as it may contain changes of an earlier table with the same name.

Only publications that a source created are changed, and only tables with a replica identity are added: without one the
server would refuse updates and deletes. Other tables are named in the log, with the command to run.
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
"""Seconds between two looks while a table waits for transactions to end."""
AGAIN_S = 60.0
"""Seconds before a table that could not be added is tried again."""
LOCK_MS = 1000
"""Adding a table waits so long for its lock: meanwhile nothing else is read."""


def existing_tables(sql: Connection[Any], is_wanted: Callable[[str], bool]) -> list[tuple[str, str]]:
    """Return schema and name of the selected tables; ``is_wanted`` is called with ``schema.table``."""
    rows = command(
        sql,
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition"
        " AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2",
    )
    tables = [(schema or "", name or "") for schema, name in rows]
    return [table for table in tables if is_wanted(".".join(table))]


class FollowedTables:
    """The tables of a publication with a list.

    Attributes:
        complete: ids of the tables whose rows were read; None if rows are not read.
    """

    def __init__(
        self, sql: Connection[Any], publication: str, is_wanted: Callable[[str], bool], log: logging.Logger
    ) -> None:
        """Create it without tables."""
        self._sql, self._publication, self._is_wanted, self._log = sql, publication, is_wanted, log
        self.complete: set[int] | None = None
        self._waiting: dict[int, tuple[int, int]] = {}
        self._said: set[str] = set()
        self._again_s: dict[tuple[str, str], float] = {}
        self._due_s = 0.0

    def begin(self, complete: Iterable[int] | None) -> None:
        """Start reading rows, except those of complete tables.

        Args:
            complete: ids of the tables whose rows were read; None for all tables of the publication.
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
                self._say(logging.INFO, f"{table.schema}.{table.name} is read once transaction {oldest} has ended")
        if len(ready) < len(new):
            self._due_s = time.monotonic() + WAIT_S
        return ready

    def _may_read(self, table: Relation) -> bool:
        ((may,),) = command(self._sql, f"SELECT has_table_privilege({table.id}::oid, 'SELECT')")
        if may != "t":
            self._say(
                logging.ERROR,
                f"the rows of {table.schema}.{table.name} cannot be read, only its changes: grant SELECT on the table",
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
        missing = f"{shown} is in the include list, but the publication {self._publication} does not have it"
        self._again_s[table] = time.monotonic() + AGAIN_S
        if not is_own:
            self._say(logging.ERROR, f"{missing}, and was not made by a source: run {change}")
            return
        if not self._has_identity(table):
            # The server would refuse updates and deletes of applications.
            self._say(logging.ERROR, f"{missing}: it needs a primary key, or a REPLICA IDENTITY, and {change}")
            return
        command(self._sql, f"SET lock_timeout = '{LOCK_MS}ms'")
        try:
            command(self._sql, change)
        except Retry as error:
            self._say(logging.ERROR, f"{missing}: {error}. If this persists, have its owner run {change}")
        else:
            del self._again_s[table]  # one of the same name may follow
            self._log.info("added %s to the publication %s", shown, self._publication)
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
        """Log a text once."""
        if text not in self._said:
            self._said.add(text)
            self._log.log(level, text)
