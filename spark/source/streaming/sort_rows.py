"""Sorts the rows of a task by a unique key, so that they have the same order when the task is run again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ....errors import InvalidConfig

MAX_BYTES = 512 * 1024 * 1024
"""Maximum bytes of rows held while sorting; they briefly take twice as much."""
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
"""Spark types with exact equality: no fractions."""


def check_sort_columns(columns: Sequence[tuple[str, str]], sort_by: Sequence[str]) -> None:
    """Reject a key that a DataFrame does not have, or without a definite order.

    Args:
        columns: name and type of each column, in Spark's notation.
        sort_by: columns of the key.

    Raises:
        InvalidConfig: names the column and what to do.
    """
    types = dict(columns)
    for name in sort_by:
        if name not in types:
            raise InvalidConfig(f"sortBy names {name!r}, and the DataFrame has {', '.join(types)}; add it")
        if types[name] not in _SORTABLE and not types[name].startswith("decimal"):
            raise InvalidConfig(
                f"sortBy names {name!r}, which is {types[name]}; cast it to a whole number, text, bytes or a time"
            )


def sorted_rows(
    batches: Iterable[pa.RecordBatch], sort_by: Sequence[str], dropped: Sequence[str] = (), max_bytes: int = MAX_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task in the order of a key.

    Args:
        batches: the rows, in any order.
        sort_by: columns of the key.
        dropped: columns that are only used for sorting.
        max_bytes: memory limit for the rows.

    Raises:
        InvalidConfig: the key has a null or is not unique, or there are too many rows; nothing has been yielded then.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > max_bytes:
            raise InvalidConfig(
                f"sortBy: the rows of a task exceed {max_bytes} bytes; have smaller batches (maxOffsetsPerTrigger of"
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
                f"sortBy: {name} is null in {table.column(name).null_count} of {table.num_rows} rows; sort by columns"
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
            f"sortBy: {count} of {rows} rows have the same {', '.join(sort_by)} as another of their task; add columns"
            " until they are unique, for rows with one key may change places when a batch is run again"
        )
