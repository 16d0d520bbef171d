"""Groups rows into entries whose boundaries depend only on the rows of a task. No I/O.

Design: the broker drops an entire entry if its first sequence id is not higher than the last one of the producer. A
retried task must therefore create exactly the same entries; otherwise, rows between an old and a new boundary would be
lost. Spark may group rows into different record batches in each attempt, so the end of an entry depends on the number
and size of rows counted from the task's first row, never on the end of a record batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...client.producers.routing import key_partition
from ...wire.pulsar_api_pb2 import SingleMessageMetadata

MAX_ROWS = 1_000
"""Default maximum number of rows per entry."""
MAX_BYTES = 128 * 1024
"""Default maximum size of an entry's payloads and metadata, unless a single row is larger.

Both limits can be changed by options, but runs started with other limits can then no longer be repeated.
"""

Header = SingleMessageMetadata | None


class RowEntry(NamedTuple):
    """Rows published as one entry.

    Attributes:
        first_row: number of the first row within the task, which is its sequence id.
        payloads: payloads of the rows.
        headers: metadata of each row; None if no row has any.
    """

    first_row: int
    payloads: list[bytes]
    headers: list[Header] | None


class EntryBuilder:
    """Groups the rows for a topic or a partition into entries."""

    def __init__(self, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BYTES) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._first_row = 0
        self._payloads: list[bytes] = []
        self._headers: list[Header] = []
        self._has_headers = False
        self._bytes = 0

    def add(self, row: int, payload: bytes, header: Header) -> RowEntry | None:
        """Add a row; return the previous entry if the row did not fit into it."""
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
        """Add consecutive rows that only have a payload, and yield full entries.

        Equivalent to repeated calls of `add`, but faster for small rows.
        """
        start = 0
        while start < len(payloads):
            # A slice is added as a whole only if it cannot contain a boundary.
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
            # Large rows, or a full entry: row by row up to the next boundary, as in `add`.
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
    """Return the partition of a row: by its key, as in all clients, or round-robin in blocks of `MAX_ROWS` rows."""
    if partitions <= 1:
        return 0
    if key is not None:
        return key_partition(key, partitions, "JavaStringHash")
    return row // MAX_ROWS % partitions
