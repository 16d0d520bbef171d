"""The writer thread's connection, and its cached information about tables.

After a rollback, `forget` reloads the cache: names, marks and the reserved versions.
"""

from __future__ import annotations

import sqlite3

from ..errors import FencedByPosition
from . import tables

VERSIONS_RESERVED = 1 << 20
"""Versions are reserved in blocks of this size, so that not every commit must store the last version."""
_EPOCH, _RESTORED = "epoch ", "restored "


class Transaction:
    """Connection and counters, for the work of a request.

    Attributes:
        connection: the write connection.
        tables: numbers of all tables, including copies, by name.
        minute: total running time of the service in minutes, over all its processes.
        is_changed: whether `tables` differs from what readers see.
        written: changed tables with their writers, including those of undone requests.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.tables = tables.tables(connection)
        self.is_changed = False
        self.written: dict[tuple[str, bytes], None] = {}
        self._marks = _read_meta(connection)
        self.minute = self._marks.get("minute", 0)
        self._reserved = self._version = self._marks.get("version", 0)

    def note(self, table: str, writer: bytes) -> None:
        """Remember that a writer changes a table; ``writer`` is empty if unknown."""
        self.written[table, writer] = None

    def table_id(self, name: str) -> int:
        """Return the number of a table, creating the table if it is missing."""
        found = self.tables.get(name)
        if found is None:
            found = self.tables[name] = tables.create_table(self.connection, name)
            self.is_changed = True
        return found

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table to an unused name."""
        table_id = self.tables[new_name] = self.tables.pop(name)
        self.is_changed = True
        self.connection.execute("UPDATE state_table SET name = ? WHERE id = ?", (new_name, table_id))

    def drop_table(self, name: str) -> None:
        """Delete a table if it exists."""
        found = self.tables.pop(name, None)
        if found is not None:
            self.is_changed = True
            tables.drop_table(self.connection, found)

    def epoch(self, table: str) -> int:
        """Return a table's epoch, which identifies the last restore; 0 if it was never restored."""
        return self._marks.get(_EPOCH + table, 0)

    def restored(self, table: str) -> int:
        """Return the epoch of the last complete restore, or 0."""
        return self._marks.get(_RESTORED + table, 0)

    def begin_epoch(self, table: str, epoch: int) -> None:
        """Raise a table's epoch, so that changes with an earlier one are rejected."""
        self._mark(_EPOCH + table, epoch)

    def end_restoration(self, table: str, epoch: int) -> None:
        """Record that a restore is complete."""
        self._mark(_RESTORED + table, epoch)

    def check_epoch(self, table: str, epoch: int) -> None:
        """Reject a change by an instance from before a restore.

        Raises:
            FencedByPosition: the table has a later epoch.
        """
        held = self.epoch(table)
        if epoch < held:
            raise FencedByPosition(
                f"state {table} was restored to an earlier version by version {held} of the function: instances"
                " started before that can no longer change it"
            )

    def forget_table(self, table: str) -> None:
        """Delete a table's marks."""
        for name in (_EPOCH + table, _RESTORED + table):
            if self._marks.pop(name, None) is not None:
                self.is_changed = True
                self.connection.execute("DELETE FROM meta WHERE name = ?", (name,))

    def _mark(self, name: str, value: int) -> None:
        self._marks[name] = value
        self.is_changed = True  # makes a rollback read the marks again
        _set_meta(self.connection, name, value)

    def next_version(self) -> int:
        """Return a version that was never assigned before."""
        if self._version == self._reserved:
            self._reserved += VERSIONS_RESERVED
            _set_meta(self.connection, "version", self._reserved)
        self._version += 1
        return self._version

    def set_minute(self, minute: int) -> None:
        """Store the service's total running time in minutes."""
        self.minute = minute
        _set_meta(self.connection, "minute", minute)

    def forget(self) -> None:
        """Reload the cached information after a rollback."""
        if self.is_changed:
            self.tables = tables.tables(self.connection)
            self._marks = _read_meta(self.connection)
        # The rollback may have undone the reservation in the database, so the next version makes a new one. Versions
        # assigned to a request that was rolled back are skipped, never assigned twice.
        self._reserved = self._version


def _read_meta(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the service's running time, the last reserved version, and the marks of tables."""
    return dict(connection.execute("SELECT name, value FROM meta").fetchall())


def _set_meta(connection: sqlite3.Connection, name: str, value: int) -> None:
    connection.execute(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", (name, value)
    )
