"""Table copies: a table's contents when a version of its function was replaced, stored under that version's number.

Design: a copy is an ordinary table, under a name that no function can have, so the database format is unchanged. It is
made in pieces: a separate connection reads a snapshot of the database, and the writer thread writes the rows, a few
thousand per transaction, between other requests. An unfinished copy has a temporary name; the last transaction renames
it, or swaps it with the table. Unfinished copies of a killed process are removed at the next start.

Invariants:
- A copy holds the table's contents at one moment, and never changes.
- `keep` copies a version at most once, and never a version older than an existing copy. So a late call by a leader that
  was frozen does nothing, and cannot overwrite the copy with newer contents.
- `restore` runs once per epoch. It first raises the table's epoch, so that earlier writers can no longer change the
  table, then builds the new contents, and finally swaps them with the old ones in one transaction. Positions, outputs
  and call numbers carry over unchanged.

Rejected: one `INSERT … SELECT`. With a million keys it takes two seconds, during which all functions wait.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator

from ..errors import MagnetarError, StateRefused, StateStoreFailed
from . import tables
from .names import copies_of, kept_name, kept_versions, unfinished_name
from .transaction import Transaction

KEPT_VERSIONS_MAX = 3
"""Maximum number of copies per table; each is as large as the table was."""
PIECE_ROWS = 10_000
PIECE_BYTES = 4 * 1024 * 1024
TURN_WAIT_S = 5.0
"""How long a call waits for another call to finish its copy, in seconds."""
_FETCHED_ROWS = 100

Submit = Callable[[Callable[[Transaction], int], int], int]
"""Runs work in the writer thread: takes the work and its number of rows, returns the result once it is on disk."""


class Copies:
    """Makes and restores copies, one at a time, on the calling threads."""

    def __init__(self, submit: Submit, open_reader: Callable[[], sqlite3.Connection]) -> None:
        """Create a copier; ``open_reader`` opens a read connection, which the copier closes."""
        self._submit = submit
        self._open_reader = open_reader
        self._turn = threading.Lock()

    def keep(self, table: str, version: int) -> None:
        """Copy a table under a version number, unless a copy of this version or a later one exists.

        Raises:
            StateStoreFailed: another copy is in progress, or the disk is full or failed; retry.
        """
        source = copy = 0

        def begin(transaction: Transaction) -> int:
            nonlocal source, copy
            if any(kept >= version for kept in kept_versions(table, transaction.tables)):
                return 0
            source = transaction.table_id(table)
            copy = self._begin(transaction, table)
            return copy

        def finish(transaction: Transaction) -> int:
            _check_there(transaction, table, copy)
            transaction.rename_table(unfinished_name(table), kept_name(table, version))
            for old in kept_versions(table, transaction.tables)[KEPT_VERSIONS_MAX:]:
                transaction.drop_table(kept_name(table, old))
            return 0

        with self._one_at_a_time():
            if self._submit(begin, 1):
                self._fill(table, source, copy, None)
                self._submit(finish, 1)

    def restore(self, table: str, version: int, epoch: int) -> bool:
        """Replace a table's contents by the copy of a version, once per epoch.

        Returns:
            whether the copy exists; if not, nothing is changed.

        Raises:
            StateStoreFailed: another copy is in progress, or the disk is full or failed; retry.
        """
        source = copy = new_version = 0
        is_kept = True

        def begin(transaction: Transaction) -> int:
            nonlocal source, copy, new_version, is_kept
            source = transaction.tables.get(kept_name(table, version), 0)
            is_kept = source > 0
            if not is_kept or epoch <= transaction.restored(table) or epoch < transaction.epoch(table):
                return 0
            transaction.begin_epoch(table, epoch)
            new_version = transaction.next_version()  # newer than any version in the previous contents
            copy = self._begin(transaction, table)
            return copy

        def finish(transaction: Transaction) -> int:
            _check_there(transaction, table, copy)
            tables.move_belongings(transaction.connection, transaction.table_id(table), copy)
            transaction.drop_table(table)
            transaction.rename_table(unfinished_name(table), table)
            transaction.end_restoration(table, epoch)
            transaction.note(table, b"")
            return 0

        with self._one_at_a_time():
            if self._submit(begin, 1):
                self._fill(table, source, copy, new_version)
                self._submit(finish, 1)
        return is_kept

    @contextlib.contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if not self._turn.acquire(timeout=TURN_WAIT_S):
            raise StateStoreFailed("another state copy is in progress: retry later")
        try:
            yield
        finally:
            self._turn.release()

    def _begin(self, transaction: Transaction, table: str) -> int:
        transaction.drop_table(unfinished_name(table))
        return transaction.table_id(unfinished_name(table))

    def _fill(self, table: str, source: int, copy: int, version: int | None) -> None:
        """Copy all rows of a table, with their versions or all with one; remove the copy on failure."""

        def discard(transaction: Transaction) -> int:
            transaction.drop_table(unfinished_name(table))
            return 0

        connection = self._open_reader()
        try:
            connection.execute("BEGIN")  # a consistent snapshot for all statements
            for rows in _pieces(connection, source):
                if version is not None:
                    rows = [(key, value, version) for key, value, _ in rows]

                def insert(transaction: Transaction, rows: list[tables.Row] = rows) -> int:
                    _check_there(transaction, table, copy)
                    tables.insert_rows(transaction.connection, copy, rows)
                    return 0

                self._submit(insert, len(rows))
        except BaseException:
            with contextlib.suppress(MagnetarError):  # otherwise the next call, or the next start, removes it
                self._submit(discard, 1)
            raise
        finally:
            connection.close()


def drop(transaction: Transaction, table: str) -> None:
    """Delete a table with its copies."""
    transaction.note(table, b"")
    for name in (table, *copies_of(table, transaction.tables)):
        transaction.drop_table(name)
    transaction.forget_table(table)


def _check_there(transaction: Transaction, table: str, copy: int) -> None:
    """Raise if a copy's table was deleted meanwhile, as SQLite would fail the whole transaction."""
    if transaction.tables.get(unfinished_name(table)) != copy:
        raise StateRefused(f"state table {table} was deleted while it was being copied")


def _pieces(connection: sqlite3.Connection, table_id: int) -> Iterator[list[tables.Row]]:
    """Yield the rows of a table in key order, in chunks."""
    found, piece, size = tables.rows(connection, table_id), [], 0
    while some := found.fetchmany(_FETCHED_ROWS):
        piece += some
        size += sum(len(key) + (len(value) if isinstance(value, bytes) else 0) for key, value, _ in some)
        if len(piece) >= PIECE_ROWS or size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
