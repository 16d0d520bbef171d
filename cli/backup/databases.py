"""Copies of the SQLite files of a running server: of the state store's by SQLite, of the metadata's by its files.

The state store lets others read. The broker keeps its metadata file to itself, so that is copied as bytes with its log,
and the copy counts if both are the same afterwards: then no change and no move from the log came in between.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from pathlib import Path

from ...broker.storage.journal_cut import Moved
from ..failure import Failure
from .files import copy_file


class Snapshot:
    """The state store's database as it is at a moment, while the store goes on.

    Args:
        file: the database.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        uri = f"{file.absolute().as_uri()}?mode=ro"
        self._reader = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=5)
        self._watcher = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=5)
        self._version = -1

    def take(self) -> None:
        """Take the database as it is now, in the place of what was taken before."""
        with contextlib.suppress(sqlite3.OperationalError):  # none was taken
            self._reader.execute("ROLLBACK")
        self._version = self._seen()
        self._reader.execute("BEGIN")
        self._reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()

    def is_current(self) -> bool:
        """Return whether nothing was changed from shortly before `take` until now."""
        return self._seen() == self._version

    def write(self, target: Path) -> None:
        """Write what was taken to a new file."""
        copy = sqlite3.connect(target)
        try:
            self._reader.backup(copy)
        finally:
            copy.close()
        check_database(target)

    def close(self) -> None:
        """Let the store's log go on."""
        self._reader.close()
        self._watcher.close()

    def _seen(self) -> int:
        return int(self._watcher.execute("PRAGMA data_version").fetchone()[0])


def is_locked(file: Path) -> bool:
    """Return whether a server keeps a database to itself, as a broker does with its metadata."""
    try:
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=0)
        try:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        finally:
            connection.close()
    except sqlite3.OperationalError as exc:
        return exc.sqlite_errorcode == sqlite3.SQLITE_BUSY
    return False


def log_of(file: Path) -> Path:
    """Return SQLite's log of a database."""
    return file.with_name(f"{file.name}-wal")


def fingerprint(file: Path) -> str:
    """Return what tells whether a database and its log are the same bytes as before."""
    found = hashlib.sha256()
    for path in (file, log_of(file)):
        try:
            found.update(path.read_bytes())
        except FileNotFoundError:
            found.update(b"none")
        found.update(b"|")
    return found.hexdigest()


def copy_database(file: Path, target: Path) -> str:
    """Copy a database with its log as bytes; return the fingerprint that both have to have afterwards still."""
    before = fingerprint(file)
    for old, new in ((file, target), (log_of(file), log_of(target))):
        new.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            copy_file(old, new)
    if fingerprint(target) != before:
        raise Moved(f"{file.name} was changed while it was copied")
    return before


def check_database(file: Path) -> None:
    """Put the log of a copy into its database, so that it is one file, and check it.

    Raises:
        Failure: the copy is damaged.
    """
    try:
        connection = sqlite3.connect(file, isolation_level=None)
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as exc:
        verdict = str(exc)
    if verdict != "ok":
        raise Failure(f"the copy of {file.name} is damaged: {verdict}; check the database of the server")
    for path in (log_of(file), file.with_name(f"{file.name}-shm")):
        path.unlink(missing_ok=True)
