"""A range of a topic as Arrow record batches; needs pyarrow, but no Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ...wire.topic_name import parse_topic_name
from .columns import BatchBuilder, rows_of
from .connection import Routes
from .options import ReadOptions
from .range_reader import REMEDY, RangeReader
from .ranges import TopicRange


def read_range(wanted: TopicRange, options: ReadOptions, remedy: str = REMEDY) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range as record batches of ``options.columns``; ``remedy`` is for what is gone."""
    reader = RangeReader(
        Routes(options.service_url),
        wanted,
        poll_timeout_ms=options.poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
        remedy=remedy,
    )
    builder = BatchBuilder(options.columns, wanted.topic, parse_topic_name(wanted.topic).partition)
    start, end = wanted.start, wanted.end
    for entry in reader.entries():
        first_index = wanted.first_index if entry.position == start else 0
        last_index = wanted.last_index if entry.position == end else None
        rows = rows_of(entry, first_index, last_index)
        if rows is None:
            continue
        builder.add(entry, rows)
        if builder.is_full:
            yield builder.take()
    if builder.rows:
        yield builder.take()
