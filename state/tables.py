"""SQL statements of the table service. The caller passes the connection, and commits.

Design: one table per function, clustered by key, with one value column: SQLite stores numbers as numbers and bytes as
bytes, so a counter is incremented in place, and the type tells counters from bytes. A CHECK rejects sums beyond 64
bits, which SQLite would convert to floating point. A batch is one ``executemany`` per type of change; only if that
fails are the changes made one by one, to name the key.

Values larger than `LARGE_BYTES` are stored in a separate table, and the row holds their number as text: a row that
overflows its page is read completely whenever a search passes it, so a few values of 1 MiB would make increments of
nearby keys thirty times slower. The alternative, finding rows by a second index, costs three times as much at a million
keys. Versions come from one counter of the database, so a deleted and recreated key never has the same version twice.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat

from ..errors import BadVersion, FencedByPosition, StateRefused
from ..wire import state_pb2 as pb
from ..wire.position import Position
from .codec import decode_changes, decode_outbox, encode_changes
from .limits import DELETE, INCREMENT, PUT, show
from .values import (
    COUNTER_MAX,
    COUNTER_MIN,
    Change,
    Increment,
    Opened,
    OutboxEntry,
    Put,
    Value,
    counter_bytes,
    counter_number,
)

LARGE_BYTES = 700
"""With its key, a row should be smaller than a quarter of a page, about 1,000 bytes, so that it does not overflow."""
_VALUE = "CASE typeof(value) WHEN 'text' THEN (SELECT data FROM large WHERE id = CAST(value AS INTEGER)) ELSE value END"
"""Selects a row's value from either table, in one statement, as the writer may commit between two."""
Row = tuple[bytes, int | bytes, int]
"""Key, value, version."""
READ_KEYS = 128
"""Number of keys per SELECT; fixed, so that SQLite compiles the statement once."""


def create_table(connection: sqlite3.Connection, name: str) -> int:
    """Create a function's table and return its number."""
    cursor = connection.execute("INSERT INTO state_table (name) VALUES (?)", (name,))
    assert cursor.lastrowid is not None
    connection.execute(
        f"CREATE TABLE state_{cursor.lastrowid} (key BLOB PRIMARY KEY, value NOT NULL, version INTEGER NOT NULL,"
        " CHECK (typeof(value) IN ('integer', 'blob', 'text'))) WITHOUT ROWID"
    )
    return cursor.lastrowid


def drop_table(connection: sqlite3.Connection, table_id: int) -> None:
    """Delete a table and all associated data; fast, as SQLite only adds its pages to the free list."""
    connection.execute(f"DROP TABLE state_{table_id}")
    connection.execute(
        "DELETE FROM outbox WHERE partition_id IN (SELECT id FROM partition WHERE table_id = ?)", (table_id,)
    )
    for name in ("large", "partition", "writer"):
        connection.execute(f"DELETE FROM {name} WHERE table_id = ?", (table_id,))
    connection.execute("DELETE FROM state_table WHERE id = ?", (table_id,))


def move_belongings(connection: sqlite3.Connection, table_id: int, new_id: int) -> None:
    """Move a table's data other than rows to another table: positions with their outputs, and call numbers."""
    for name in ("partition", "writer"):
        connection.execute(f"UPDATE {name} SET table_id = ? WHERE table_id = ?", (new_id, table_id))


def rows(connection: sqlite3.Connection, table_id: int) -> sqlite3.Cursor:
    """Return all rows of a table, each a `Row`, in key order."""
    return connection.execute(f"SELECT key, {_VALUE}, version FROM state_{table_id} ORDER BY key")


def insert_rows(connection: sqlite3.Connection, table_id: int, rows: Iterable[Row]) -> None:
    """Insert rows with new keys."""
    put = "INSERT INTO large (table_id, data) VALUES (?, ?)"
    stored = [
        (key, value, version)
        if isinstance(value, int) or len(value) <= LARGE_BYTES
        else (key, str(connection.execute(put, (table_id, value)).lastrowid), version)
        for key, value, version in rows
    ]
    connection.executemany(f"INSERT INTO state_{table_id} VALUES (?, ?, ?)", stored)


def tables(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the numbers of all tables by name."""
    return dict(connection.execute("SELECT name, id FROM state_table").fetchall())


def read(connection: sqlite3.Connection, table_id: int, keys: Sequence[bytes], bytes_max: int) -> list[Value | None]:
    """Return the values of the first keys, in order, until they reach ``bytes_max``, but of at least one key."""
    if len(keys) == 1:
        return [read_one(connection, table_id, keys[0])]
    values: list[Value | None] = []
    bytes_left = bytes_max
    marks = ",".join("?" * READ_KEYS)
    for start in range(0, len(keys), READ_KEYS):
        asked = keys[start : start + READ_KEYS]
        padded = [*asked, *[asked[-1]] * (READ_KEYS - len(asked))]
        found: dict[bytes, Value] = {}
        for key, value, version in connection.execute(
            f"SELECT key, {_VALUE}, version FROM state_{table_id} WHERE key IN ({marks})", padded
        ):
            found[key] = kept = _value(value, version)
            bytes_left -= len(kept.data)
            if bytes_left < 0:  # rows are in arbitrary order, so read the first keys one by one
                return values or _read_in_order(connection, table_id, asked, bytes_max)
        values += map(found.get, asked)
    return values


def _read_in_order(
    connection: sqlite3.Connection, table_id: int, keys: Sequence[bytes], bytes_max: int
) -> list[Value | None]:
    values: list[Value | None] = []
    for key in keys:
        values.append(read_one(connection, table_id, key))
        held = values[-1]
        bytes_max -= 0 if held is None else len(held.data)
        if bytes_max < 0:
            break
    return values


def read_one(connection: sqlite3.Connection, table_id: int, key: bytes) -> Value | None:
    """Return a key's value."""
    row = connection.execute(f"SELECT {_VALUE}, version FROM state_{table_id} WHERE key = ?", (key,)).fetchone()
    return None if row is None else _value(*row)


def _value(stored: int | bytes, version: int) -> Value:
    if isinstance(stored, int):
        return Value(counter_bytes(stored), stored, version)
    return Value(stored, None, version)


def make_changes(connection: sqlite3.Connection, table_id: int, changes: pb.Changes, version: int) -> None:
    """Apply changes in order.

    Raises:
        StateRefused: an increment of a value that is not a number, or beyond 64 bits; the caller rolls back.
    """
    if len(set(changes.keys)) < len(changes.keys):
        changes = _make_doubled(connection, table_id, changes, version)
    kinds, keys = changes.kinds, changes.keys
    puts, deletes = _keys_of(PUT, kinds, keys), _keys_of(DELETE, kinds, keys)
    if puts or deletes:
        _forget_large(connection, table_id, [*puts, *deletes])
    if puts:
        stored = _stored(connection, table_id, changes.data)
        connection.executemany(_put_sql(table_id), zip(puts, stored, repeat(version)))
    if deletes:
        connection.executemany(f"DELETE FROM state_{table_id} WHERE key = ?", zip(deletes))
    if increments := _keys_of(INCREMENT, kinds, keys):
        _increment(connection, table_id, increments, changes.amounts, version)


def _keys_of(kind: int, kinds: bytes, keys: Sequence[bytes]) -> list[bytes]:
    count = kinds.count(kind)
    if count == len(kinds):
        return list(keys)
    return [key for key, this in zip(keys, kinds, strict=True) if this == kind] if count else []


def _put(connection: sqlite3.Connection, table_id: int, key: bytes, data: bytes, version: int) -> None:
    _forget_large(connection, table_id, [key])
    connection.execute(_put_sql(table_id), (key, *_stored(connection, table_id, [data]), version))


def _delete(connection: sqlite3.Connection, table_id: int, key: bytes) -> None:
    _forget_large(connection, table_id, [key])
    connection.execute(f"DELETE FROM state_{table_id} WHERE key = ?", (key,))


def _stored(connection: sqlite3.Connection, table_id: int, data: Sequence[bytes]) -> Sequence[bytes | str]:
    """Return the row contents for values, after storing large values separately."""
    if max(map(len, data)) <= LARGE_BYTES:
        return data
    put = "INSERT INTO large (table_id, data) VALUES (?, ?)"
    return [
        value if len(value) <= LARGE_BYTES else str(connection.execute(put, (table_id, value)).lastrowid)
        for value in data
    ]


def _forget_large(connection: sqlite3.Connection, table_id: int, keys: Sequence[bytes]) -> None:
    """Delete the large values of keys that are about to change."""
    if connection.execute("SELECT 1 FROM large WHERE table_id = ? LIMIT 1", (table_id,)).fetchone() is None:
        return
    connection.executemany(
        "DELETE FROM large WHERE id ="
        f" (SELECT CAST(value AS INTEGER) FROM state_{table_id} WHERE key = ? AND typeof(value) = 'text')",
        zip(keys),
    )


def _put_sql(table_id: int) -> str:
    return (
        f"INSERT INTO state_{table_id} VALUES (?, ?, ?)"
        " ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = excluded.version"
    )


def _increment(
    connection: sqlite3.Connection, table_id: int, keys: list[bytes], amounts: Iterable[int], version: int
) -> None:
    # One statement for all; if it fails, it is undone and repeated one by one, so that the error names the key.
    connection.execute("SAVEPOINT increments")
    try:
        counted = connection.executemany(
            f"INSERT INTO state_{table_id} VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET"
            " value = value + excluded.value, version = excluded.version WHERE typeof(value) = 'integer'",
            zip(keys, amounts, repeat(version)),
        ).rowcount
    except sqlite3.IntegrityError:
        counted = -1
    if counted < len(keys):  # WHERE skipped bytes, or CHECK rejected a sum beyond 64 bits
        connection.execute("ROLLBACK TO increments")
        for key, amount in zip(keys, amounts, strict=True):
            increment_one(connection, table_id, key, amount, version)
    connection.execute("RELEASE increments")


def increment_one(connection: sqlite3.Connection, table_id: int, key: bytes, amount: int, version: int) -> None:
    """Add to one counter.

    Raises:
        StateRefused: the key's value is not a number, or the sum exceeds 64 bits.
    """
    held = read_one(connection, table_id, key)
    number = 0 if held is None else counter_number(held.data)
    if number is None:
        assert held is not None
        raise StateRefused(
            f"state key {show(key)} holds {len(held.data)} bytes, not a counter: delete it or use another key",
            key,
        )
    if not COUNTER_MIN <= number + amount <= COUNTER_MAX:
        raise StateRefused(f"counter {show(key)} is at {number}: adding {amount} exceeds 64 bits", key)
    connection.execute(_put_sql(table_id), (key, number + amount, version))


def _make_doubled(connection: sqlite3.Connection, table_id: int, changes: pb.Changes, version: int) -> pb.Changes:
    """Apply the changes of keys that occur more than once, one by one in order, and return the remaining changes."""
    times = Counter(changes.keys)
    others: list[Change] = []
    for change in decode_changes(changes):
        if times[change.key] == 1:
            others.append(change)
        elif isinstance(change, Put):
            _put(connection, table_id, change.key, change.data, version)
        elif isinstance(change, Increment):
            increment_one(connection, table_id, change.key, change.amount, version)
        else:
            _delete(connection, table_id, change.key)
    return encode_changes(others)


def put_expected(
    connection: sqlite3.Connection, table_id: int, key: bytes, data: bytes, expected: int | None, version: int
) -> None:
    """Set a key if it has the expected version.

    Raises:
        BadVersion: the key has another version.
    """
    if expected is not None:
        held = read_one(connection, table_id, key)
        if expected != (held.version if held else 0):
            found = f"found version {held.version}" if held else "found none"
            wanted = f"version {expected}" if expected else "no such key"
            raise BadVersion(
                f"version mismatch on state key {show(key)}: expected {wanted}, {found}; read the key again"
            )
    _put(connection, table_id, key, data, version)


def is_repeated(connection: sqlite3.Connection, table_id: int, writer: bytes, sequence: int, minute: int) -> bool:
    """Return whether the writer has used this sequence number already; if not, record it."""
    row = connection.execute("SELECT sequence FROM writer WHERE id = ?", (writer,)).fetchone()
    if row is not None and sequence <= row[0]:
        return True
    connection.execute(
        "INSERT INTO writer VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET sequence = excluded.sequence,"
        " used_minute = excluded.used_minute, table_id = excluded.table_id",
        (writer, table_id, sequence, minute),
    )
    return False


def sweep_writers(connection: sqlite3.Connection, before_minute: int) -> int:
    """Delete writers last used before a minute of the service's running time; return their number."""
    return connection.execute("DELETE FROM writer WHERE used_minute < ?", (before_minute,)).rowcount


def move_position(
    connection: sqlite3.Connection, table_id: int, request: pb.CommitRequest, expected: Position | None, new: Position
) -> tuple[int, bool]:
    """Move an input partition's position; return the partition's number, and whether the commit is a repetition.

    Raises:
        FencedByPosition: the stored position is neither the expected nor the new one.
    """
    where = (table_id, request.function_uuid, request.partition)
    row = connection.execute(
        "SELECT id, ledger_id, entry_id FROM partition WHERE table_id = ? AND function_uuid = ? AND name = ?", where
    ).fetchone()
    stored = None if row is None else Position(row[1], row[2])
    # Check for a repetition first: a commit whose response was lost is resent, and the stored position is its own.
    if row is not None and stored == new:
        return row[0], True
    # The fence: the instance that processes this input partition moves its position with each commit. A stored position
    # other than the expected one was moved by another instance, so nothing of this commit may be kept.
    if stored != expected:
        raise FencedByPosition(
            f"input {request.partition} of {request.table} is at {_show(stored)}, expected {_show(expected)}: another"
            " instance took over, stopping this one"
        )
    if row is None:
        cursor = connection.execute(
            "INSERT INTO partition (table_id, function_uuid, name, ledger_id, entry_id) VALUES (?, ?, ?, ?, ?)",
            (*where, *new),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid, False
    connection.execute("UPDATE partition SET ledger_id = ?, entry_id = ? WHERE id = ?", (*new, row[0]))
    return row[0], False


def _show(position: Position | None) -> str:
    return "the start" if position is None else f"{position.ledger_id}:{position.entry_id}"


def add_outbox(connection: sqlite3.Connection, partition_id: int, entries: Iterable[pb.OutboxEntry]) -> None:
    """Store output entries until they are published."""
    connection.executemany(
        "INSERT INTO outbox (partition_id, ledger_id, entry_id, topic, sequence_id, messages, payload)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(partition_id, *entry.position, *entry[:-1]) for entry in decode_outbox(entries)],
    )


def remove_outbox(connection: sqlite3.Connection, partition_id: int, published: Position) -> None:
    """Remove the outputs of inputs up to ``published``."""
    connection.execute(
        "DELETE FROM outbox WHERE partition_id = ? AND (ledger_id, entry_id) <= (?, ?)", (partition_id, *published)
    )


def opened(connection: sqlite3.Connection, table_id: int, function_uuid: str, partition: str) -> Opened:
    """Return an input partition's position and outbox, from one snapshot."""
    connection.execute("BEGIN")  # a snapshot for both statements, as the writer may commit in between
    try:
        row = connection.execute(
            "SELECT id, ledger_id, entry_id FROM partition WHERE table_id = ? AND function_uuid = ? AND name = ?",
            (table_id, function_uuid, partition),
        ).fetchone()
        if row is None:
            return Opened(None, [])
        rows = connection.execute(
            "SELECT topic, sequence_id, messages, payload, ledger_id, entry_id FROM outbox WHERE partition_id = ?"
            " ORDER BY id",
            (row[0],),
        )
        outbox = [OutboxEntry(row[0], row[1], row[2], row[3], Position(row[4], row[5])) for row in rows]
        return Opened(Position(row[1], row[2]), outbox)
    finally:
        connection.execute("COMMIT")
