"""The table service's database file: opening and checking it, its schema, and explanations of its errors."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from ..errors import StateStoreFailed
from ..wire.printable import one_line
from .wal_check import has_lost_transactions

FILE = "state.sqlite"
FORMAT = 2
"""Format number, stored in the file's ``user_version``; a file with a later format is rejected."""
APPLICATION_ID = 0x4D414754
"""Identifies the file for `file(1)`, and prevents opening another application's database."""
CHECKED_BYTES_MAX = 256 * 1024 * 1024
"""Files up to this size are checked completely at startup, at about 180 MB/s; for larger ones only the header is
checked.
"""
WRITER_CACHE_KIB = 32 * 1024
READER_CACHE_KIB = 512
"""Cache size of read connections: small, as each commit invalidates them and the kernel also caches the pages."""
WAL_PAGES_MAX = 8_000
"""Checkpoint the WAL at this number of pages (32 MiB); a lower number would do so every few batches."""
BUSY_TIMEOUT_MS = 1_000

_SCHEMA = (
    # AUTOINCREMENT: the number of a dropped table is never reused.
    "CREATE TABLE state_table (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE)",
    "CREATE TABLE large (id INTEGER PRIMARY KEY, table_id INTEGER NOT NULL, data BLOB NOT NULL)",
    "CREATE INDEX large_of_table ON large (table_id)",
    "CREATE TABLE writer (id BLOB PRIMARY KEY, table_id INTEGER NOT NULL, sequence INTEGER NOT NULL,"
    " used_minute INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE partition (id INTEGER PRIMARY KEY, table_id INTEGER NOT NULL, function_uuid TEXT NOT NULL,"
    " name TEXT NOT NULL, ledger_id INTEGER NOT NULL, entry_id INTEGER NOT NULL,"
    " UNIQUE (table_id, function_uuid, name))",
    "CREATE TABLE outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, partition_id INTEGER NOT NULL,"
    " ledger_id INTEGER NOT NULL, entry_id INTEGER NOT NULL, topic TEXT NOT NULL, sequence_id INTEGER NOT NULL,"
    " messages INTEGER NOT NULL, payload BLOB NOT NULL)",
    "CREATE INDEX outbox_of_partition ON outbox (partition_id, ledger_id, entry_id)",
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
)


def open_writer(directory: Path) -> sqlite3.Connection:
    """Open or create the database in ``directory``, check and initialise it.

    Raises:
        StateStoreFailed: one of these steps failed; the message contains the remedy.
    """
    file = directory / FILE
    if not (os.access(directory, os.W_OK) and (os.access(file, os.W_OK) or not file.exists())):
        # Checked explicitly, as SQLite reports a full disk here only as "disk I/O error".
        raise StateStoreFailed(_explain_unwritable(file, "permission denied"))
    connection = None
    try:
        if file.exists() and has_lost_transactions(file):
            raise StateStoreFailed(
                f"log {file}-wal is damaged before its end and confirmed transactions are lost: restore database and"
                " log from a backup, or move the log elsewhere to continue without its transactions"
            )
        connection = sqlite3.connect(
            file, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False, cached_statements=512
        )
        _prepare(connection, file)
    except (sqlite3.Error, StateStoreFailed) as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise StateStoreFailed(explain(error, file)) from error
        raise
    return connection


def open_reader(directory: Path) -> sqlite3.Connection:
    """Open the database read-only, for one thread at a time."""
    connection = sqlite3.connect(
        f"{(directory / FILE).absolute().as_uri()}?mode=ro",
        uri=True,
        timeout=BUSY_TIMEOUT_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    connection.execute("PRAGMA query_only = 1")
    connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
    return connection


def _prepare(connection: sqlite3.Connection, file: Path) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = 0")  # some builds overwrite deleted data, so a drop would be slow
    connection.execute(f"PRAGMA cache_size = -{WRITER_CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_MAX}")
    connection.execute(f"PRAGMA journal_size_limit = {2 * WAL_PAGES_MAX * 4096}")
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (user_version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables == 0:
        connection.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
    elif application_id != APPLICATION_ID:
        raise StateStoreFailed(f"{file} is an SQLite file of another program: choose another data directory")
    elif user_version != FORMAT:
        raise StateStoreFailed(
            f"state database {file} has format {user_version}, this version supports {FORMAT}: use the version that"
            " wrote it"
        )
    elif file.stat().st_size <= CHECKED_BYTES_MAX:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StateStoreFailed(f"state database {file} is damaged ({one_line(verdict)}): restore it from a backup")


def explain(error: sqlite3.Error, file: Path) -> str:
    """Return a one-line explanation of an SQLite error for operators."""
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return f"the disk of state database {file} is full: free some space, writes then resume automatically"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return (
                f"state database {file} is locked by another program: stop that program, writes then resume"
                " automatically"
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return _explain_unwritable(file, str(error))
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return f"state database {file} is damaged ({error}): restore it from a backup"
        case sqlite3.SQLITE_IOERR:
            name = getattr(error, "sqlite_errorname", "")
            return f"the disk of state database {file} failed ({name}: {error}): check the disk and its free space"
        case _:
            return f"state database {file}: {error}"


def _explain_unwritable(file: Path, cause: str) -> str:
    return f"state database {file} cannot be written ({cause}): check the permissions of the file and its directory"
