"""Copies of a running server's SQLite databases: the state store's through SQLite, the metadata's file by file.

The state store allows concurrent reads. The broker locks its metadata file exclusively, so that file and its log are
copied as bytes. The copy is valid if both are unchanged afterwards, as then no write or checkpoint happened meanwhile.
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
    """A point-in-time snapshot of the state store's database while the store is running.

    Args:
        file: the database file.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        uri = f"{file.absolute().as_uri()}?mode=ro"
        self._reader = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=5)
        self._watcher = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=5)
        self._version = -1

    def take(self) -> None:
        """Take a new snapshot, replacing the previous one."""
        with contextlib.suppress(sqlite3.OperationalError):  # no previous snapshot
            self._reader.execute("ROLLBACK")
        self._version = self._seen()
        self._reader.execute("BEGIN")
        self._reader.execute("SELECT count(*) FROM sqlite_schema").fetchone()

    def is_current(self) -> bool:
        """Return whether the database is unchanged since shortly before `take`."""
        return self._seen() == self._version

    def write(self, target: Path) -> None:
        """Write the snapshot to a new file."""
        copy = sqlite3.connect(target)
        try:
            self._reader.backup(copy)
        finally:
            copy.close()
        check_database(target)

    def close(self) -> None:
        """Release the snapshot, so that the store can checkpoint its log."""
        self._reader.close()
        self._watcher.close()

    def _seen(self) -> int:
        return int(self._watcher.execute("PRAGMA data_version").fetchone()[0])


def is_locked(file: Path) -> bool:
    """Return whether a server has locked a database exclusively, as a broker does with its metadata."""
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
    """Return the path of a database's SQLite log."""
    return file.with_name(f"{file.name}-wal")


def fingerprint(file: Path) -> str:
    """Return a fingerprint that changes with the bytes of a database and its log."""
    found = hashlib.sha256()
    for path in (file, log_of(file)):
        try:
            found.update(path.read_bytes())
        except FileNotFoundError:
            found.update(b"none")
        found.update(b"|")
    return found.hexdigest()


def copy_database(file: Path, target: Path) -> str:
    """Copy a database and its log as bytes; return the fingerprint that they must still have afterwards."""
    before = fingerprint(file)
    for old, new in ((file, target), (log_of(file), log_of(target))):
        new.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            copy_file(old, new)
    if fingerprint(target) != before:
        raise Moved(f"{file.name} changed while it was being copied")
    return before


def check_database(file: Path) -> None:
    """Merge the log of a copied database into it, so that a single file remains, and check it.

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
        raise Failure(f"the copy of {file.name} is damaged: {verdict}: check the server's database")
    for path in (log_of(file), file.with_name(f"{file.name}-shm")):
        path.unlink(missing_ok=True)
