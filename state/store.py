"""The table store: all functions' tables in one database file, with one writer thread and concurrent readers.

Design: all functions share one file, so commits of many functions need only one sync, and a thousand functions need
neither a thousand threads nor three thousand open files. The writer thread runs queued requests, each in a savepoint,
commits when the queue is empty or the transaction has reached 5 ms or 2,000 rows, and only then responds. So a rejected
request does not affect others in its transaction, and a thousand small ones cost one sync. Reads do not wait for the
writer: each uses one of a few read-only connections, in the calling thread.

Invariant: a request is answered after its transaction's commit with ``synchronous=FULL``, so every confirmed change is
on disk. A failed commit fails every request of its transaction, and leaves the database unchanged.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..errors import ClosedError, MagnetarError, StateStoreFailed
from ..wire import state_pb2 as pb
from . import copies, tables
from .codec import decode_position
from .copies import Copies
from .database import FILE, explain, open_reader, open_writer
from .generations import Generations
from .limits import (
    COMMIT_CHANGES_MAX,
    NAMES_PER_ANSWER,
    READ_ANSWER_BYTES,
    check_changes,
    check_keys,
    check_put,
    check_table,
    check_writer,
)
from .names import is_copy, is_useless, kept_versions
from .transaction import Transaction
from .values import Opened, Value

TRANSACTION_S = 0.005
TRANSACTION_ROWS = 2_000
READERS = 4
WRITER_KEPT_MINUTES = 7 * 24 * 60
"""How long the last call of an idle writer is remembered, in minutes of service running time."""
SWEEP_S = 600.0

logger = logging.getLogger(__name__)

Work = Callable[[Transaction], int]
"""Makes the changes of one request and returns its result, a version or another number."""


class _Request:
    """A queued call: its work for the writer thread, and a lock that is released on completion."""

    __slots__ = ("answered", "error", "result", "rows", "work")

    def __init__(self, work: Work, rows: int) -> None:
        self.work = work
        self.rows = rows
        self.result = 0
        self.error: MagnetarError | None = None
        self.answered = threading.Lock()
        self.answered.acquire()


class TableStore:
    """The tables in one directory; created by `open`."""

    def __init__(self, directory: Path, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._file = directory / FILE
        self._connection = open_writer(directory)
        try:
            self._transaction = Transaction(self._connection)
            self._remove_useless_copies()
            # Replaced, never modified, as readers look up tables without a lock.
            self._tables = dict(self._transaction.tables)
            self._generations = Generations()
            self._readers: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
            for _ in range(READERS):
                self._readers.put(open_reader(directory))
        except sqlite3.Error as error:
            self._connection.close()
            raise StateStoreFailed(explain(error, self._file)) from error
        self._started_s = self._clock()
        self._first_minute = self._transaction.minute
        self._swept_s = float("-inf")
        self._queue: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._is_closed = False
        self._transactions = self._rows = 0
        self._failure = ""
        self._copies = Copies(self._submit, lambda: open_reader(directory))
        self._thread = threading.Thread(target=self._run, name="state-writer", daemon=True)

    @classmethod
    def open(cls, directory: Path, clock: Callable[[], float] = time.monotonic) -> TableStore:
        """Open or create the store. Blocking.

        Args:
            directory: directory of its files.
            clock: monotonic seconds.

        Raises:
            StateStoreFailed: the database cannot be opened, is damaged or locked, or belongs to another program.
        """
        store = cls(directory, clock)
        store._thread.start()
        return store

    def __repr__(self) -> str:
        return f"TableStore({str(self._file)!r})"

    def _remove_useless_copies(self) -> None:
        """Delete unfinished copies of a killed process, and copies of deleted functions left by an older version."""
        transaction = self._transaction
        self._connection.execute("BEGIN IMMEDIATE")
        for name in [name for name in transaction.tables if is_useless(name, transaction.tables)]:
            transaction.drop_table(name)
        self._connection.execute("COMMIT")
        transaction.is_changed = False

    def read(self, table: str, keys: Sequence[bytes]) -> list[Value | None]:
        """Return the values of the first keys, in order: as many as fit a response, and at least one."""
        check_table(table)
        check_keys(keys)
        while keys and (table_id := self._tables.get(table)) is not None:
            with self._reader(table, table_id) as connection:
                return tables.read(connection, table_id, keys, READ_ANSWER_BYTES)
        return [None] * len(keys)

    def generation(self, table: str, writer: bytes) -> int:
        """Return a number that changes with each change of a table by a writer other than ``writer``.

        Values read afterwards are at least as new as this generation (see `Generations`).
        """
        return self._generations.of(table, writer)

    def names(self, prefix: str, after: str) -> list[str]:
        """Return the first table names that begin with ``prefix`` and sort after ``after``, sorted."""
        tables = self._tables
        found = (name for name in tables if name.startswith(prefix) and name > after and not is_copy(name))
        return heapq.nsmallest(NAMES_PER_ANSWER, found)

    def open_partition(self, table: str, function_uuid: str, partition: str) -> Opened:
        """Return the position of an input partition and its outbox."""
        check_table(table)
        table_id = self._tables.get(table)
        if table_id is None:
            return Opened(None, [])
        with self._reader(table, table_id) as connection:
            return tables.opened(connection, table_id, function_uuid, partition)
        return Opened(None, [])

    def apply(self, request: pb.ApplyRequest) -> None:
        """Apply changes once per writer and sequence number."""
        check_table(request.table)
        check_writer(request.writer, request.sequence)
        check_changes(request.changes)
        changes = request.changes

        def work(transaction: Transaction) -> int:
            transaction.check_epoch(request.table, request.epoch)
            connection, table_id = transaction.connection, transaction.table_id(request.table)
            if not tables.is_repeated(connection, table_id, request.writer, request.sequence, transaction.minute):
                transaction.note(request.table, request.writer)
                tables.make_changes(connection, table_id, changes, transaction.next_version())
            return 0

        self._submit(work, len(changes.kinds))

    def commit(self, request: pb.CommitRequest) -> None:
        """Commit a position with changes and outputs."""
        check_table(request.table)
        expected = decode_position(request.expected) if request.HasField("expected") else None
        new = decode_position(request.new)
        if request.writer:
            check_writer(request.writer, 1)
        check_changes(request.changes, request.outbox, (expected, new), COMMIT_CHANGES_MAX)

        def work(transaction: Transaction) -> int:
            transaction.check_epoch(request.table, request.epoch)
            connection, table_id = transaction.connection, transaction.table_id(request.table)
            partition_id, is_repeated = tables.move_position(connection, table_id, request, expected, new)
            if request.HasField("published"):
                tables.remove_outbox(connection, partition_id, decode_position(request.published))
            if not is_repeated:
                transaction.note(request.table, request.writer)
                tables.make_changes(connection, table_id, request.changes, transaction.next_version())
                tables.add_outbox(connection, partition_id, request.outbox)
            return 0

        self._submit(work, len(request.changes.kinds) + len(request.outbox))

    def put(self, table: str, key: bytes, data: bytes, expected_version: int | None, epoch: int = 0) -> int:
        """Set a key if it has the expected version, and return the new version."""
        check_table(table)
        check_put(key, data)

        def work(transaction: Transaction) -> int:
            transaction.check_epoch(table, epoch)
            version = transaction.next_version()
            table_id = transaction.table_id(table)
            transaction.note(table, b"")
            tables.put_expected(transaction.connection, table_id, key, data, expected_version, version)
            return version

        return self._submit(work, 1)

    def keep(self, table: str, version: int) -> None:
        """Copy a table under a version number (see `Copies.keep`)."""
        check_table(table)
        self._copies.keep(table, version)

    def restore(self, table: str, version: int, epoch: int) -> bool:
        """Restore the copy of a version (see `Copies.restore`)."""
        check_table(table)
        return self._copies.restore(table, version, epoch)

    def kept(self, table: str) -> list[int]:
        """Return the versions of a table's copies, newest first."""
        check_table(table)
        return kept_versions(table, self._tables)

    def drop(self, table: str) -> None:
        """Delete a table with all associated data."""
        check_table(table)

        def work(transaction: Transaction) -> int:
            copies.drop(transaction, table)
            return 0

        self._submit(work, 1)

    def statistics(self) -> pb.StatisticsResponse:
        """Return statistics; the counters start at 0 with the process."""
        return pb.StatisticsResponse(
            tables=sum(not is_copy(name) for name in self._tables),
            database_bytes=self._file.stat().st_size,
            requests_queued=self._queue.qsize(),
            transactions=self._transactions,
            rows_written=self._rows,
            failure=self._failure,
        )

    def close(self) -> None:
        """Finish queued requests, checkpoint the WAL, and end the thread."""
        if self._is_closed:
            return
        self._is_closed = True
        self._queue.put(None)
        self._thread.join()
        for _ in range(READERS):
            self._readers.get().close()
        self._connection.close()  # closing a database's last connection checkpoints its WAL

    @contextlib.contextmanager
    def _reader(self, table: str, table_id: int) -> Iterator[sqlite3.Connection]:
        """Provide a read connection, ignoring errors caused by a table that is dropped or replaced meanwhile."""
        if self._is_closed:
            raise ClosedError(f"state database {self._file} is closed")
        connection = self._readers.get()
        try:
            yield connection
        except sqlite3.Error as error:
            if "no such table" in str(error) and self._is_gone(table, table_id):
                return
            raise StateStoreFailed(explain(error, self._file)) from error
        finally:
            self._readers.put(connection)

    def _is_gone(self, table: str, table_id: int) -> bool:
        """Return whether a table was replaced or dropped, as of the end of the current transaction."""
        self._submit(lambda _: 0, 0)  # changes already visible in the database are published at that transaction's end
        return self._tables.get(table) != table_id

    def _submit(self, work: Work, rows: int) -> int:
        if self._is_closed:
            raise ClosedError(f"state database {self._file} is closed")
        request = _Request(work, rows)
        self._queue.put(request)
        request.answered.acquire()
        if request.error is not None:
            raise request.error
        return request.result

    # The rest runs in the writer thread.

    def _run(self) -> None:
        is_open = True
        while is_open:
            request = self._queue.get()
            if request is None:
                return
            group = [request]
            try:
                is_open = self._execute(request, group)
            except sqlite3.Error as error:
                self._fail(group, StateStoreFailed(f"{explain(error, self._file)}; the call was rolled back"), error)
            except Exception as error:  # the thread's top level: an escaping exception would make the service hang
                logger.exception("state store transaction failed")
                self._fail(
                    group,
                    StateStoreFailed(f"unexpected error in state database {self._file}: {error!r}; see the log"),
                    error,
                )
            else:
                self._failure = ""
                if self._transaction.is_changed:
                    self._tables = dict(self._transaction.tables)
                    self._transaction.is_changed = False
            self._transactions += 1
            # This includes rolled-back changes, which only cause one unnecessary read.
            for table, writer in self._transaction.written:
                self._generations.change(table, writer)
            self._transaction.written.clear()
            # Respond only now: the response guarantees that the change is on disk, and that readers see a new table and
            # a new generation.
            for answered in group:
                answered.answered.release()

    def _execute(self, request: _Request, group: list[_Request]) -> bool:
        """Run one transaction with the queued requests; return whether more may follow."""
        connection, deadline_s = self._connection, self._clock() + TRANSACTION_S
        is_open, rows = True, 0
        connection.execute("BEGIN IMMEDIATE")
        self._sweep()
        while True:
            self._run_one(request)
            rows += request.rows
            if rows >= TRANSACTION_ROWS or self._clock() > deadline_s or self._queue.empty():
                break
            following = self._queue.get()
            if following is None:
                is_open = False
                break
            request = following
            group.append(request)
        connection.execute("COMMIT")
        self._rows += rows
        return is_open

    def _run_one(self, request: _Request) -> None:
        connection = self._connection
        # One savepoint per request: a rejected request undoes only its own changes, and the transaction continues with
        # the next request.
        connection.execute("SAVEPOINT request")
        try:
            request.result = request.work(self._transaction)
        except MagnetarError as error:
            request.error = error
            connection.execute("ROLLBACK TO request")
            self._transaction.forget()
        connection.execute("RELEASE request")  # needed after ROLLBACK TO as well, which leaves the savepoint open

    def _fail(self, group: list[_Request], failure: StateStoreFailed, cause: Exception) -> None:
        if str(failure) != self._failure:  # log a repeated failure only once
            logger.error("%s", failure)
        self._failure = str(failure)
        failure.__cause__ = cause
        for request in group:
            request.error = failure
        try:
            if self._connection.in_transaction:
                self._connection.rollback()
            self._transaction.forget()
        except sqlite3.Error as error:
            logger.error("cannot roll back a failed transaction: %s", explain(error, self._file))

    def _sweep(self) -> None:
        """Every `SWEEP_S`, store the service's running time and delete writers that have been idle for too long."""
        now_s = self._clock()
        if now_s - self._swept_s < SWEEP_S:
            return
        self._swept_s = now_s
        self._transaction.set_minute(self._first_minute + int((now_s - self._started_s) / 60))
        tables.sweep_writers(self._connection, self._transaction.minute - WRITER_KEPT_MINUTES)
