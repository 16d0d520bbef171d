"""The data source ``magnetar``: topics as DataFrames, both ways.

Spark makes these objects in workers of its own and pickles them between processes, so they hold nothing but options
and plans; sockets are opened where entries are read. There is no filter pushdown on purpose: in Spark 4.3 a pushed
filter stays with the source's plan and leaks into other uses of the same DataFrame. Bounds are options.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...wire.topic_name import parse_topic_name
from .link import Routes
from .options import ReadOptions, read_options
from .range_reader import RangeReader
from .ranges import MIN_ENTRIES_PER_RANGE, TopicRange

FORMAT = "magnetar"
RANGES_PER_CORE = 2
"""How many ranges a read is cut into for each core of the driver's machine, where ``minPartitions`` does not say."""

_TYPES: dict[str, DataType] = {
    "value": BinaryType(),
    "__key": BinaryType(),
    "__topic": StringType(),
    "__messageId": BinaryType(),
    "__publishTime": TimestampType(),
    "__eventTime": TimestampType(),
    "__messageProperties": MapType(StringType(), StringType()),
}
_NOT_NULL = frozenset(("__topic", "__messageId", "__publishTime"))


class MagnetarSource(DataSource):
    """Reads and writes topics of Magnetar and Apache Pulsar."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of a read."""
        columns = read_options(self.options).columns
        return StructType([StructField(name, _TYPES[name], name not in _NOT_NULL) for name in columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what plans and reads."""
        return TopicReader(read_options(self.options))


class TopicPartition(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: TopicRange):
        super().__init__(str(wanted))
        self.wanted = wanted


class TopicReader(DataSourceReader):
    """Plans the ranges of a batch, and reads them."""

    def __init__(self, options: ReadOptions):
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the ranges; the end of the topics is fixed here."""
        from .survey import plan_read

        cores = os.cpu_count() or 1
        ranges = plan_read(self._options, RANGES_PER_CORE * cores, MIN_ENTRIES_PER_RANGE)
        return [TopicPartition(wanted) for wanted in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the messages of a range as record batches."""
        if not isinstance(partition, TopicPartition):
            return iter(())  # what Spark makes of an empty plan
        return read_range(partition.wanted, self._options)


def read_range(wanted: TopicRange, options: ReadOptions) -> Iterator[Any]:
    """Yield the messages of a range as record batches of ``options.columns``."""
    from .columns import BatchBuilder, rows_of

    reader = RangeReader(
        Routes(options.service_url),
        wanted,
        poll_timeout_ms=options.poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
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
