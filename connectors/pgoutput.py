"""Decoder for messages of PostgreSQL's output plugin ``pgoutput``, protocol version 1.

This module does no I/O. A `Relation` precedes the first change of a table on a connection, and is resent after each
change of the table's columns. The tuples in changes have these columns, in the same order.

Source: PostgreSQL documentation, chapter "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias


class Unchanged:
    """An unchanged value that is stored out of line and therefore not sent."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()
Value: TypeAlias = "str | bytes | Unchanged | None"
"""A string, bytes in PostgreSQL's binary format, null, or a value that was not sent."""
Tuple: TypeAlias = "tuple[Value, ...]"


class Begin(NamedTuple):
    """Start of a transaction, followed by its changes and its `Commit`."""

    commit_lsn: int
    time_us: int  # microseconds since 2000
    xid: int


class Commit(NamedTuple):
    """End of a transaction."""

    commit_lsn: int
    end_lsn: int
    time_us: int


class Origin(NamedTuple):
    """A transaction that originates from another server."""

    lsn: int
    name: str


class RelationColumn(NamedTuple):
    """A column of a table."""

    name: str
    type_oid: int
    modifier: int
    is_key: bool


class Relation(NamedTuple):
    """A table. ``identity`` is its REPLICA IDENTITY: d(efault), n(othing), f(ull), i(ndex)."""

    id: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Type(NamedTuple):
    """A type that is not built into PostgreSQL."""

    id: int
    schema: str
    name: str


class Insert(NamedTuple):
    """A new row."""

    relation: int
    new: Tuple


class Update(NamedTuple):
    """A changed row. ``old`` is the whole row, its key if ``is_key``, or None if the key did not change."""

    relation: int
    old: Tuple | None
    is_key: bool
    new: Tuple


class Delete(NamedTuple):
    """A deleted row. ``old`` is the whole row, or its key if ``is_key``."""

    relation: int
    old: Tuple
    is_key: bool


class Truncate(NamedTuple):
    """Truncated tables."""

    relations: tuple[int, ...]
    options: int


class LogicalMessage(NamedTuple):
    """A message written with ``pg_logical_emit_message``."""

    is_transactional: bool
    lsn: int
    prefix: str
    content: bytes


Message: TypeAlias = "Begin | Commit | Origin | Relation | Type | Insert | Update | Delete | Truncate | LogicalMessage"


class MalformedMessage(ValueError):
    """The bytes are not a valid message of protocol version 1."""


class _Reader:
    """Reads values from bytes, from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: struct.Struct) -> int:
        (value,) = form.unpack_from(self._data, self._at)
        self._at += form.size
        return int(value)

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        begin, self._at = self._at, end + 1
        return self._data[begin:end].decode()

    def bytes(self, length: int) -> bytes:
        begin, self._at = self._at, self._at + length
        if length < 0 or self._at > len(self._data):
            raise ValueError(f"expected {length} bytes, but only {len(self._data) - begin} remain")
        return self._data[begin : self._at]

    def letter(self) -> str:
        return self.bytes(1).decode("latin-1")

    def tuple(self) -> Tuple:
        values: list[Value] = []
        for _ in range(self.number(_INT16)):
            kind = self.letter()
            if kind == "t":
                # A database with the encoding SQL_ASCII may contain any bytes; only this change is invalid.
                values.append(self.bytes(self.number(_INT32)).decode("utf-8", "surrogateescape"))
            elif kind == "n":
                values.append(None)
            elif kind == "u":
                values.append(UNCHANGED)
            elif kind == "b":
                values.append(self.bytes(self.number(_INT32)))
            else:
                raise ValueError(f"unknown value kind {kind!r}")
        return tuple(values)

    def end(self) -> None:
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} unexpected bytes at the end")


_INT8, _INT16, _INT32, _INT64 = (struct.Struct(form) for form in (">B", ">h", ">i", ">q"))
_OID = struct.Struct(">I")
_LSN = struct.Struct(">Q")


def _begin(reader: _Reader) -> Begin:
    return Begin(reader.number(_LSN), reader.number(_INT64), reader.number(_OID))


def _commit(reader: _Reader) -> Commit:
    reader.number(_INT8)
    return Commit(reader.number(_LSN), reader.number(_LSN), reader.number(_INT64))


def _origin(reader: _Reader) -> Origin:
    return Origin(reader.number(_LSN), reader.text())


def _relation(reader: _Reader) -> Relation:
    number, schema, name, identity = reader.number(_OID), reader.text(), reader.text(), reader.letter()
    columns = []
    for _ in range(reader.number(_INT16)):
        is_key = bool(reader.number(_INT8) & 1)
        columns.append(RelationColumn(reader.text(), reader.number(_OID), reader.number(_INT32), is_key))
    return Relation(number, schema or "pg_catalog", name, identity, tuple(columns))


def _type(reader: _Reader) -> Type:
    return Type(reader.number(_OID), reader.text() or "pg_catalog", reader.text())


def _insert(reader: _Reader) -> Insert:
    relation = reader.number(_OID)
    _expect(reader.letter(), "N")
    return Insert(relation, reader.tuple())


def _update(reader: _Reader) -> Update:
    relation = reader.number(_OID)
    kind, old = reader.letter(), None
    if kind in ("K", "O"):
        old = reader.tuple()
        _expect(reader.letter(), "N")
    else:
        _expect(kind, "N")
    return Update(relation, old, kind == "K", reader.tuple())


def _delete(reader: _Reader) -> Delete:
    relation, kind = reader.number(_OID), reader.letter()
    _expect(kind, "KO")
    return Delete(relation, reader.tuple(), kind == "K")


def _truncate(reader: _Reader) -> Truncate:
    count, options = reader.number(_INT32), reader.number(_INT8)
    return Truncate(tuple(reader.number(_OID) for _ in range(count)), options)


def _message(reader: _Reader) -> LogicalMessage:
    flags, lsn, prefix = reader.number(_INT8), reader.number(_LSN), reader.text()
    return LogicalMessage(bool(flags & 1), lsn, prefix, reader.bytes(reader.number(_INT32)))


def _expect(kind: str, known: str) -> None:
    if kind not in known:
        raise ValueError(f"unexpected tuple kind {kind!r}")


_READERS: Mapping[int, Callable[[_Reader], Message]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("O"): _origin,
    ord("R"): _relation,
    ord("Y"): _type,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("M"): _message,
}


def decode(data: bytes) -> Message:
    """Decode a message.

    Raises:
        MalformedMessage: the bytes are not a valid message.
    """
    if not data or data[0] not in _READERS:
        raise MalformedMessage(f"unknown message kind {data[:1]!r}")
    reader = _Reader(data[1:])
    try:
        message = _READERS[data[0]](reader)
        reader.end()
    except (ValueError, struct.error) as error:
        raise MalformedMessage(f"message {data[:1]!r} of {len(data)} bytes: {error}") from error
    return message


def lsn_text(lsn: int) -> str:
    """Format an LSN like PostgreSQL, as in ``16/B374D848``."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """Parse an LSN. Raises ValueError."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)
