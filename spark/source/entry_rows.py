"""The messages of entries as rows: positions of metadata and payloads, without a Python object per message."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...wire.batch import batch_sizes, uniform_rows
from ...wire.message_rows import HEADER_MASK, HEADER_SHIFT, IS_NULL, IS_REMOVED, PAYLOAD_MASK
from .header_columns import HeaderColumns, attributes_of
from .range_reader import Entry

_GAP = bytes(4)
"""Number of bytes between two rows."""
_PARTS = 3
"""Parts of a row: the gap before the row, its metadata, and its payload."""


class Rows(NamedTuple):
    """The selected messages of one entry.

    Attributes:
        num_rows: number of messages.
        data: for each message, four unused bytes (the metadata size), the metadata and the payload.
        sizes: sizes of each message, as in `wire.message_rows.row_sizes`; only one item if the messages differ only in
            their payload.
        indexes: batch index of each message, or None if all messages of the batch are selected.
        batch_size: number of messages in the batch, 0 if the message was not batched.
    """

    num_rows: int
    data: bytes
    sizes: list[int]
    indexes: list[int] | None
    batch_size: int


def rows_of(entry: Entry, first_index: int, last_index: int | None, *, only_values: bool = False) -> Rows | None:
    """Return the messages of an entry from ``first_index`` to ``last_index``, except those removed by compaction.

    Args:
        entry: the entry.
        first_index: batch index of the first message.
        last_index: batch index of the last message; None for the end of the batch.
        only_values: whether metadata is needed only to find messages without a value.

    Raises:
        ProtocolError: the batch is corrupt.
    """
    metadata, body = entry.metadata, entry.body
    if not entry.is_batch:
        # An index within a batch does not apply to an unbatched message.
        encoded = b"" if only_values else attributes_of(metadata)
        flags = IS_NULL if metadata.null_value else 0
        return Rows(1, b"".join((_GAP, encoded, body)), [len(body) | len(encoded) << HEADER_SHIFT | flags], None, 0)
    size = metadata.num_messages_in_batch
    uniform = uniform_rows(body, size, ignores_sequence_ids=True)
    first = min(first_index, size)
    end = size if last_index is None else min(last_index + 1, size)
    if uniform is not None and not uniform[1].compacted_out:
        if end <= first:
            return None
        start, common = uniform
        each = len(body) // size
        sizes = [each - start | start - len(_GAP) << HEADER_SHIFT | (IS_NULL if common.null_value else 0)]
        indexes = None if end - first == size else list(range(first, end))
        return Rows(end - first, body[each * first : each * end], sizes, indexes, size)
    sizes, flags = batch_sizes(body, size)
    if first == 0 and end == size and not flags & IS_REMOVED:
        return Rows(size, body, sizes, None, size) if size else None
    parts, indexes, at = [], [], 0
    for index, found in enumerate(sizes):
        begin, at = at, at + len(_GAP) + (found >> HEADER_SHIFT & HEADER_MASK) + (found & PAYLOAD_MASK)
        if first <= index < end and not found & IS_REMOVED:
            parts.append(body[begin:at])
            indexes.append(index)
    if not indexes:
        return None
    return Rows(
        len(indexes), b"".join(parts), [sizes[index] for index in indexes],
        None if len(indexes) == size else indexes, size,
    )  # fmt: skip


class SplitRows:
    """Payloads and metadata of rows as Arrow arrays that reference the same bytes."""

    def __init__(self, entries: Sequence[Rows]):
        """Locate the parts of the entries' rows."""
        sizes: np.ndarray = np.fromiter(chain.from_iterable(rows.sizes for rows in entries), np.int64)
        parts: np.ndarray = np.empty((len(sizes), _PARTS), np.int32)
        parts[:, 0] = len(_GAP)
        parts[:, 1] = sizes >> HEADER_SHIFT & HEADER_MASK
        parts[:, 2] = sizes & PAYLOAD_MASK
        self._is_null: np.ndarray = (sizes & IS_NULL) != 0
        self._repeats: np.ndarray | None = None
        """Number of equal consecutive rows; None if each has one row."""
        if len(sizes) < sum(rows.num_rows for rows in entries):
            self._repeats = np.array(list(chain.from_iterable(map(_repeats, entries))))
            parts = np.repeat(parts, self._repeats, axis=0)
            self._is_null = np.repeat(self._is_null, self._repeats)
        bounds: np.ndarray = np.zeros(parts.size + 1, np.int32)
        np.cumsum(parts, out=bounds[1:])
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(b"".join([rows.data for rows in entries]))]
        self._parts = pa.Array.from_buffers(pa.binary(), parts.size, buffers, 0)

    def values(self) -> pa.Array:
        """Return the column of payloads, with null for messages without a payload."""
        mask = self._is_null if self._is_null.any() else None
        return self._parts.take(pa.array(np.arange(2, len(self._parts), _PARTS), mask=mask))

    @cached_property
    def headers(self) -> HeaderColumns:
        """Columns of the metadata."""
        places = np.arange(1, len(self._parts), _PARTS)
        if self._repeats is not None:
            places = places[np.cumsum(self._repeats) - self._repeats]
        taken = self._parts.take(pa.array(places))
        _, offsets, data = taken.buffers()
        ends = np.frombuffer(offsets, np.int32, len(taken) + 1)[1:]
        return HeaderColumns(b"" if data is None else data, ends, self._repeats)


def _repeats(rows: Rows) -> list[int]:
    return [1] * rows.num_rows if len(rows.sizes) == rows.num_rows else [rows.num_rows]
