"""Message positions as integer columns: partition, ledger, entry and batch index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from .entry_rows import Rows
    from .range_reader import Entry

Entries = Sequence[tuple["Entry", "Rows"]]

POSITION_TYPES: dict[str, pa.DataType] = {
    "__partition": pa.int32(),
    "__ledgerId": pa.int64(),
    "__entryId": pa.int64(),
    "__batchIndex": pa.int32(),
}
"""Type that Spark expects for each column."""


def position_column(name: str, entries: Entries, partition: int) -> pa.Array:
    """Return one of `POSITION_TYPES` for the rows of entries.

    Args:
        name: column name.
        entries: entries with the selected rows.
        partition: partition number; -1 for a non-partitioned topic, which results in null.
    """
    counts = [rows.num_rows for _, rows in entries]
    if name == "__partition":
        type_ = POSITION_TYPES[name]
        return pa.nulls(sum(counts), type_) if partition < 0 else pa.repeat(pa.scalar(partition, type_), sum(counts))
    if name == "__batchIndex":
        return pa.concat_arrays([_batch_indexes(rows) for _, rows in entries])
    place = 0 if name == "__ledgerId" else 1
    return pa.array(np.repeat(np.array([entry.position[place] for entry, _ in entries], np.int64), counts))


def _batch_indexes(rows: Rows) -> pa.Array:
    """Return the batch index of each row; null for unbatched messages."""
    type_ = POSITION_TYPES["__batchIndex"]
    if rows.batch_size == 0:
        return pa.nulls(rows.num_rows, type_)
    return pa.array(np.arange(rows.num_rows, dtype=np.int32) if rows.indexes is None else rows.indexes, type_)
