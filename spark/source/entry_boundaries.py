"""Groups rows into entries whose boundaries depend on the rows of one task alone. Pure code.

Design: the broker drops an entry whole when its first sequence id is not above what it has of that producer name. So a
task that is tried again must make exactly the same entries, or rows between an old boundary and a new one are lost. How
Spark groups rows into record batches may differ from one attempt to the next; therefore an entry ends by the number and
size of the rows in it, counted from the task's first row, and never where a record batch happens to end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...client.producers.routing import key_partition
from ...wire.pulsar_api_pb2 import SingleMessageMetadata

MAX_ROWS = 1_000
"""Rows in an entry."""
MAX_BYTES = 128 * 1024
"""Bytes of payloads and metadata in an entry, unless one row alone has more. Both are the defaults of options; another
value breaks the repetition of older runs."""

Header = SingleMessageMetadata | None


class RowEntry(NamedTuple):
    """Rows that are published as one entry.

    Attributes:
        first_row: number of its first row in the task, which is its sequence id.
        payloads: of its rows.
        headers: metadata of each; None if none has any.
    """

    first_row: int
    payloads: list[bytes]
    headers: list[Header] | None


class EntryBuilder:
    """Groups the rows that go to one topic, or to one partition of a topic."""

    def __init__(self, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._first_row = 0
        self._payloads: list[bytes] = []
        self._headers: list[Header] = []
        self._has_headers = False
        self._bytes = 0

    def add(self, row: int, payload: bytes, header: Header) -> RowEntry | None:
        """Add a row; return the entry before it if the row did not fit into that any more."""
        entry = None
        size = len(payload) + (0 if header is None else header.ByteSize())
        if self._payloads and (len(self._payloads) == self._max_rows or self._bytes + size > self._max_bytes):
            entry = self.rest()
        if not self._payloads:
            self._first_row = row
        self._payloads.append(payload)
        self._headers.append(header)
        self._has_headers = self._has_headers or header is not None
        self._bytes += size
        return entry

    def add_plain(self, first_row: int, payloads: Sequence[bytes]) -> Iterator[RowEntry]:
        """Add rows that follow each other and have nothing but their payload; yield the entries that are full.

        The same as `add` row by row, without its steps where rows are small.
        """
        start = 0
        while start < len(payloads):
            # A piece is taken whole only where no boundary can lie inside it.
            room = self._max_rows - len(self._payloads)
            piece = payloads[start : start + room]
            size = sum(map(len, piece))
            if room and self._bytes + size <= self._max_bytes:
                if not self._payloads:
                    self._first_row = first_row + start
                self._payloads += piece
                self._headers += [None] * len(piece)
                self._bytes += size
                start += len(piece)
                continue
            # Large rows, or an entry that is full: row by row up to the next boundary, as `add` sets it.
            while start < len(payloads):
                entry = self.add(first_row + start, payloads[start], None)
                start += 1
                if entry is not None:
                    yield entry
                    break

    def rest(self) -> RowEntry | None:
        """Return the incomplete entry, or None."""
        if not self._payloads:
            return None
        entry = RowEntry(self._first_row, self._payloads, self._headers if self._has_headers else None)
        self._payloads, self._headers, self._bytes, self._has_headers = [], [], 0, False
        return entry


def partition_of(row: int, key: str | None, partitions: int) -> int:
    """Return the partition of a row: by its key, as all clients do, else by blocks of `MAX_ROWS` rows in turn."""
    if partitions <= 1:
        return 0
    if key is not None:
        return key_partition(key, partitions, "JavaStringHash")
    return row // MAX_ROWS % partitions
