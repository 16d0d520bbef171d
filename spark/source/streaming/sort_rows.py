"""Sorts the rows of a task by a unique key, so that they have the same order when the task is repeated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ....errors import InvalidConfig

MAX_BYTES = 512 * 1024 * 1024
"""Default maximum size of the rows of a task; sorting briefly takes twice as much memory."""
_ROWS = 10_000
_SORTABLE = (
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "boolean",
)
"""Spark types with exact equality, which excludes floating-point types."""


def check_sort_columns(columns: Sequence[tuple[str, str]], sort_by: Sequence[str]) -> None:
    """Reject a sort key that is not in the DataFrame or has no definite order.

    Args:
        columns: name and type of each column, in Spark's notation.
        sort_by: columns of the sort key.

    Raises:
        InvalidConfig: the key is invalid; the message names the column and the remedy.
    """
    types = dict(columns)
    for name in sort_by:
        if name not in types:
            raise InvalidConfig(f"sortBy names {name!r}, but the DataFrame only has {', '.join(types)}: add the column")
        if types[name] not in _SORTABLE and not types[name].startswith("decimal"):
            raise InvalidConfig(
                f"sortBy names {name!r} of type {types[name]}: cast it to an integer, string, binary, date or timestamp"
            )


def sorted_rows(
    batches: Iterable[pa.RecordBatch], sort_by: Sequence[str], dropped: Sequence[str] = (), max_bytes: int = MAX_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task sorted by a key.

    Args:
        batches: rows in any order.
        sort_by: columns of the sort key.
        dropped: columns that are used only for sorting.
        max_bytes: memory limit for the rows.

    Raises:
        InvalidConfig: the key contains null or is not unique, or there are too many rows. Raised before any row is
            yielded.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > max_bytes:
            raise InvalidConfig(
                f"sortBy: the rows of a task exceed {max_bytes} bytes: use smaller batches (maxOffsetsPerTrigger of"
                " the source), or more tasks (spark.sql.shuffle.partitions in a new checkpoint)"
            )
        held.append(batch)
    if not size:
        return
    table = pa.Table.from_batches(held).combine_chunks()
    held.clear()
    _check_key(table, sort_by)
    rest = table.drop_columns(list(dropped))
    order = pc.sort_indices(table, [(name, "ascending") for name in sort_by])
    keys = table.select(list(sort_by)).take(order)
    _check_unique(keys, sort_by)
    for start in range(0, len(order), _ROWS):
        yield from rest.take(order.slice(start, _ROWS)).combine_chunks().to_batches()


def _check_key(table: pa.Table, sort_by: Sequence[str]) -> None:
    for name in sort_by:
        if table.column(name).null_count:
            raise InvalidConfig(
                f"sortBy: {name} is null in {table.column(name).null_count} of {table.num_rows} rows: sort by columns"
                " that are never null"
            )


def _check_unique(keys: pa.Table, sort_by: Sequence[str]) -> None:
    rows = keys.num_rows
    repeated = None
    for name in sort_by:
        column = keys.column(name)
        same = pc.equal(column.slice(1), column.slice(0, rows - 1))
        repeated = same if repeated is None else pc.and_(repeated, same)
    count = pc.sum(repeated).as_py() or 0
    if count:
        raise InvalidConfig(
            f"sortBy: {count} of {rows} rows have the same {', '.join(sort_by)} as another row of their task, so their"
            " order may change when a batch is repeated: add columns until the rows are unique"
        )
