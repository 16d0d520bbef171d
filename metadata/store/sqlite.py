"""Metadata store in an SQLite file.

Design: one thread owns the connection. It runs all queued operations, both reads and writes, in one transaction,
commits with a sync (WAL, ``synchronous=FULL``), and only then reports the results, with one call into each event loop.
A thousand concurrent writes therefore cost one sync, SQLite never runs on an event loop, and operations are ordered
without locks. Reads use the same queue; callers that read often cache in memory.

Invariant: no result is reported before its transaction is committed, not even that of a read, which may have seen a
write of the same group.

The file is locked exclusively, so that two brokers never share it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ...errors import BadVersion, ClosedError, StorageError
from ...tasks import call_in, settle
from .store import Change, Record, check_path, check_value, check_version

FORMAT = 1
"""Format number in the file's ``user_version``; files with any other number are rejected."""
APPLICATION_ID = 0x4D414753
"""Application id, which identifies the file to `file(1)` and prevents opening another application's database."""
MAX_GROUP = 2_000
"""Maximum number of operations in one transaction."""
MAX_QUEUED = 100_000
"""Maximum number of queued operations; beyond it calls fail, because the disk has stalled."""

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class _Operation:
    """A queued call: the work for the thread, the future of its result, and the changes to report if it succeeds."""

    work: Callable[[sqlite3.Connection, list[Change]], object]
    answer: asyncio.Future[Any]
    result: object = None  # or the error
    changes: list[Change] = field(default_factory=list)


class _Watch:
    """A registered callback."""

    def __init__(self, prefix: str, callback: Callable[[Change], None], watches: list[_Watch]) -> None:
        self.prefix = prefix
        self.below = prefix if prefix.endswith("/") else prefix + "/"
        self.callback = callback
        self.loop = asyncio.get_running_loop()
        self._watches = watches
        self.is_open = True
        watches.append(self)

    def close(self) -> None:
        """Stop the watch. The callback is not called afterwards."""
        if self.is_open:
            self.is_open = False
            self._watches.remove(self)

    def deliver(self, changes: list[Change]) -> None:
        for change in changes:
            if self.is_open and (change.path == self.prefix or change.path.startswith(self.below)):
                self.callback(change)


class SqliteStore:
    """`MetadataStore` in an SQLite file; created by `open`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._connection = _connect(file)
        self._queue: queue.SimpleQueue[_Operation | None] = queue.SimpleQueue()
        self._watches: list[_Watch] = []
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="metadata-store", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, file: str | Path) -> SqliteStore:
        """Open or create the store at ``file``. Blocking.

        Raises:
            StorageError: the file cannot be opened, is in use, is damaged, or belongs to another program.
        """
        return cls(Path(file))

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._file)!r})"

    async def get(self, path: str) -> Record | None:
        """Return the record at ``path``, or None."""
        check_path(path)
        return await self._submit(lambda connection, _: _get(connection, path))

    async def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        """Write a record and return its new version."""
        check_value(check_path(path), value)
        return await self._submit(lambda connection, changes: _put(connection, changes, path, value, expected_version))

    async def delete(self, path: str, expected_version: int | None = None) -> bool:
        """Delete a record, and return whether it existed."""
        check_path(path)
        return await self._submit(lambda connection, changes: _delete(connection, changes, path, expected_version))

    async def children(self, path: str) -> list[str]:
        """Return the names directly below ``path``."""
        if path != "/":
            check_path(path)
        return await self._submit(lambda connection, _: _children(connection, path))

    def watch(self, prefix: str, callback: Callable[[Change], None]) -> _Watch:
        """Call ``callback`` on the running loop for each change at ``prefix`` or below it."""
        if prefix != "/":
            check_path(prefix)
        if self._is_closed:
            raise ClosedError(f"metadata store {self._file} is closed")
        return _Watch(prefix, callback, self._watches)

    async def close(self) -> None:
        """Finish queued operations, close the file and end the thread."""
        if not self._is_closed:
            self._is_closed = True
            self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        for watch in tuple(self._watches):
            watch.close()

    async def _submit(self, work: Callable[[sqlite3.Connection, list[Change]], T]) -> T:
        if self._is_closed:
            raise ClosedError(f"metadata store {self._file} is closed")
        if self._queue.qsize() >= MAX_QUEUED:
            raise StorageError(
                f"{MAX_QUEUED} operations are queued for metadata store {self._file}: its disk may be stalled"
            )
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put(_Operation(work, answer))
        return await answer

    # The rest runs in the thread.

    def _run(self) -> None:
        is_open = True
        while is_open:
            group, is_open = self._next_group()
            if group:
                self._execute(group)
                self._report(group)
        self._connection.close()

    def _next_group(self) -> tuple[list[_Operation], bool]:
        """Wait for queued work; return it, and whether more may follow."""
        group: list[_Operation] = []
        operation = self._queue.get()
        while operation is not None:
            group.append(operation)
            if len(group) >= MAX_GROUP:
                return group, True
            try:
                operation = self._queue.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _execute(self, group: list[_Operation]) -> None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            for operation in group:
                try:
                    operation.result = operation.work(connection, operation.changes)
                except BadVersion as error:
                    operation.result = error
            connection.execute("COMMIT")
        except Exception as error:
            # Any failure concerns only this group; the thread must continue to serve others.
            if not isinstance(error, sqlite3.Error):
                log.exception("metadata change failed")
            if connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # an open transaction would also make the next group fail
                    connection.rollback()
            for operation in group:
                cause = str(error) if isinstance(error, sqlite3.Error) else repr(error)
                failure = StorageError(f"metadata file {self._file}: {cause}; the change was rolled back")
                failure.__cause__ = error
                operation.result = failure
                operation.changes.clear()

    def _report(self, group: list[_Operation]) -> None:
        # Copied before the results are delivered: a watch set after an operation returned must not report it.
        watches = tuple(self._watches)
        by_loop: dict[asyncio.AbstractEventLoop, list[_Operation]] = {}
        for operation in group:
            by_loop.setdefault(operation.answer.get_loop(), []).append(operation)
        for loop, operations in by_loop.items():
            call_in(loop, _answer, operations)
        if changes := [change for operation in group for change in operation.changes]:
            for watch in watches:
                call_in(watch.loop, watch.deliver, changes)


def _answer(operations: list[_Operation]) -> None:
    for operation in operations:
        settle(operation.answer, operation.result)


def _connect(file: Path) -> sqlite3.Connection:
    """Open, lock, check and initialize the file.

    Raises:
        StorageError: one of these steps failed; the message contains a remedy.
    """
    directory = file.parent
    if directory.is_dir() and not (os.access(directory, os.W_OK) and (os.access(file, os.W_OK) or not file.exists())):
        # Checked explicitly, as SQLite reports a full disk here only as "disk I/O error".
        raise StorageError(_explain_unwritable(file, "permission denied"))
    try:
        # isolation_level None: transactions are explicit. timeout 0: a locked file belongs to another broker.
        connection = sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise StorageError(
            f"cannot open the metadata file {file}: {error}; check that its directory exists and is writable"
        ) from error
    try:
        _prepare(connection, file)
    except sqlite3.Error as error:
        connection.close()
        raise StorageError(_explain(error, file)) from error
    except StorageError:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, file: Path) -> None:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN EXCLUSIVE")
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (user_version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables == 0:
        connection.execute(
            "CREATE TABLE record (path TEXT PRIMARY KEY, value BLOB NOT NULL, version INTEGER NOT NULL) WITHOUT ROWID"
        )
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    elif application_id != APPLICATION_ID:
        raise StorageError(f"{file} is another program's SQLite file: choose another data directory")
    elif user_version != FORMAT:
        raise StorageError(
            f"metadata file {file} has format {user_version}, expected {FORMAT}: use the version that wrote it"
        )
    else:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StorageError(f"metadata file {file} is damaged ({verdict}): restore it from a backup")
    connection.execute("COMMIT")


def _explain(error: sqlite3.Error, file: Path) -> str:
    """Return a user-readable explanation of an error at opening."""
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return (
                f"metadata file {file} is in use by another broker: stop that broker or choose another data directory"
            )
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return _explain_unwritable(file, str(error))
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return f"metadata file {file} is damaged ({error}): restore it from a backup"
        case _:
            return f"metadata file {file}: {error}"


def _explain_unwritable(file: Path, cause: str) -> str:
    return f"metadata file {file} is not writable ({cause}): check the permissions of the file and its directory"


def _get(connection: sqlite3.Connection, path: str) -> Record | None:
    row = connection.execute("SELECT value, version FROM record WHERE path = ?", (path,)).fetchone()
    return None if row is None else Record(*row)


def _version(connection: sqlite3.Connection, path: str, expected: int | None) -> int | None:
    """Return the version at ``path``, or None, after comparing it with the expected version."""
    row = connection.execute("SELECT version FROM record WHERE path = ?", (path,)).fetchone()
    version: int | None = None if row is None else row[0]
    if expected is not None:
        check_version(path, version, expected)
    return version


def _put(connection: sqlite3.Connection, changes: list[Change], path: str, value: bytes, expected: int | None) -> int:
    held = _version(connection, path, expected)
    version = 0 if held is None else held + 1
    connection.execute(
        "INSERT INTO record VALUES (?, ?, ?) ON CONFLICT (path) DO UPDATE SET value = excluded.value,"
        " version = excluded.version",
        (path, value, version),
    )
    changes.append(Change(path, version))
    return version


def _delete(connection: sqlite3.Connection, changes: list[Change], path: str, expected: int | None) -> bool:
    if _version(connection, path, expected) is None:
        return False
    connection.execute("DELETE FROM record WHERE path = ?", (path,))
    changes.append(Change(path, None))
    return True


def _children(connection: sqlite3.Connection, path: str) -> list[str]:
    below = "/" if path == "/" else path + "/"
    # The upper bound ends with the character after the slash: all paths below sort between the two.
    rows = connection.execute(
        "SELECT DISTINCT substr(path, :start, instr(substr(path, :start) || '/', '/') - 1) AS name FROM record"
        " WHERE path > :below AND path < :end ORDER BY name",
        {"start": len(below) + 1, "below": below, "end": below[:-1] + "0"},
    )
    return [name for (name,) in rows]
