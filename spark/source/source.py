"""The data source ``magnetar``, which reads and writes topics as DataFrames.

Spark creates these objects in separate workers and pickles them between processes, so they contain only options and
plans; sockets are opened where entries are read. Filters are deliberately not pushed down: in Spark 4.3 a pushed filter
remains in the source's plan and leaks into other uses of the same DataFrame. Options set the bounds instead.

Spark imports this module in every session on a machine where magnetar is installed. The module must therefore be
importable without pyarrow, which Spark requires only for this source.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...errors import InvalidConfig
from .between_tasks import shorten_pauses
from .first_line import told_first
from .options import NOT_NULL, ReadOptions, WriteOptions, common_of, read_options, write_options
from .partition import RANGES_PER_CORE, TopicPartition, nothing_but
from .ranges import MIN_ENTRIES_PER_RANGE
from .requirements import READS_AND_WRITES, need

if TYPE_CHECKING:
    from .schemas.layout import Layout, TopicSchemas
    from .writer import Written

log = logging.getLogger(__name__)

FORMAT = "magnetar"
PULSAR_FORMAT = "pulsar"
"""Format name of the JVM connector."""

_TYPES: dict[str, DataType] = {
    "value": BinaryType(),
    "__key": BinaryType(),
    "__topic": StringType(),
    "__messageId": BinaryType(),
    "__publishTime": TimestampType(),
    "__eventTime": TimestampType(),
    "__messageProperties": MapType(StringType(), StringType()),
    "__partition": IntegerType(),
    "__ledgerId": LongType(),
    "__entryId": LongType(),
    "__batchIndex": IntegerType(),
}


class MagnetarSource(DataSource):
    """Reads and writes topics of Magnetar and Apache Pulsar."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return FORMAT

    @told_first
    def schema(self) -> StructType:
        """Return the columns of a read; the columns of a topic's schema are fetched from the broker."""
        shorten_pauses()
        options = common_of(self.options)
        if options.use_topic_schema:
            return self._schemas(options).columns()
        return self._plain(options.columns)

    def _plain(self, columns: Sequence[str]) -> StructType:
        return StructType([StructField(name, _TYPES[name], name not in NOT_NULL) for name in columns])

    @told_first
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the planner and reader of a batch."""
        options = read_options(self.options)
        return TopicReader(*self._laid_out(options, schema))

    @told_first
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the planner and reader of a stream's batches."""
        from .streaming.options import stream_options
        from .streaming.reader import TopicStreamReader

        options = stream_options(self.options)
        read, layout = self._laid_out(options.read, schema)
        return TopicStreamReader(replace(options, read=read), layout)

    @staticmethod
    def _schemas(options: ReadOptions) -> TopicSchemas:
        need(*READS_AND_WRITES)
        from .schemas.layout import TopicSchemas

        return TopicSchemas(options)

    def _laid_out(self, options: ReadOptions, schema: StructType) -> tuple[ReadOptions, Layout | None]:
        """Return the layout of a DataFrame's columns.

        Raises:
            InvalidConfig: the columns do not exist.
        """
        need(*READS_AND_WRITES)
        if options.use_topic_schema:
            layout = self._schemas(options).layout(schema)
            if layout is not None:
                return options, layout
            # The topics have only byte values in common.
            options = replace(options, columns=tuple(name for name in schema.names if name in _TYPES))
        there = self._plain(options.columns)
        if _shape(schema) != _shape(there):
            raise InvalidConfig(
                f"the columns of a topic are fixed: {', '.join(there.names)}; omit .schema(…) and select columns with"
                " option columns or select(), or set useTopicSchema=true to read the columns of its schema"
            )
        return options, None

    @told_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream's batches."""
        need(*READS_AND_WRITES)
        from .rows import GIVEN_BY_BROKER, WRITABLE, check_columns
        from .streaming.sink_options import stream_write_options
        from .streaming.sort_rows import check_sort_columns
        from .streaming.writer import TopicStreamWriter

        if overwrite:
            raise InvalidConfig("topics cannot be overwritten: use .outputMode('append')")
        options = stream_write_options(self.options)
        columns = _shape(schema)
        check_sort_columns(columns, options.sort_by)
        kept = WRITABLE.keys() | GIVEN_BY_BROKER
        write = options.write
        # With a schema, all columns are written.
        dropped = () if write.output_schema else tuple(name for name in options.sort_by if name not in kept)
        check_columns([one for one in columns if one[0] not in dropped], write.topic, write.output_schema)
        if write.output_schema is not None:
            from .schemas.writing import declared

            options = replace(options, write=declared(write, schema))
        return TopicStreamWriter(options, dropped)

    @told_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of a batch's rows."""
        need(*READS_AND_WRITES)
        from .rows import check_columns
        from .writer import pinned, register_schema, switch_deduplication_on

        if overwrite:
            raise InvalidConfig("topics cannot be overwritten: use .mode('append')")
        # Created once per write and pickled for its tasks, so that all attempts of a task have the same name.
        options = write_options(self.options, uuid.uuid4().hex)
        check_columns(_shape(schema), options.topic, options.output_schema)
        if options.output_schema is not None:
            from .schemas.writing import declared

            options = declared(options, schema)
        if options.effectively_once:
            switch_deduplication_on(options)
        options = pinned(options)
        if options.schema is not None and options.topic is not None:
            register_schema(options)
        return TopicWriter(options)


class PulsarSource(MagnetarSource):
    """Same as `MagnetarSource`, registered under the name of the JVM connector."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return PULSAR_FORMAT


def _shape(schema: StructType) -> list[tuple[str, str]]:
    """Return names and types without nullability, which Spark adds inconsistently."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


class TopicReader(DataSourceReader):
    """Plans the ranges of a batch and reads them."""

    def __init__(self, options: ReadOptions, layout: Layout | None = None):
        self._options = options
        self._layout = layout

    @told_first
    def partitions(self) -> list[InputPartition]:
        """Return the ranges, and fix the end of the topics."""
        from .streaming.places import to_json
        from .topic_metadata import plan_with_ends

        shorten_pauses()
        cores = os.cpu_count() or 1
        ranges, places = plan_with_ends(self._options, RANGES_PER_CORE * cores, MIN_ENTRIES_PER_RANGE)
        ends = json.dumps(to_json(places))
        if not ranges:
            return [nothing_but(ends)]
        return [TopicPartition(ranges[0], ends), *map(TopicPartition, ranges[1:])]

    @told_first
    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the messages of a range as record batches."""
        if not isinstance(partition, TopicPartition):
            return iter(())  # the result for Spark's empty plan
        from .columns import read_range

        return read_range(partition.wanted, self._options, self._layout)


@dataclass
class TaskWritten(WriterCommitMessage):
    """Outcome of a task, sent to the driver."""

    written: Written


class TopicWriter(DataSourceArrowWriter):
    """Writes the rows of each task."""

    def __init__(self, options: WriteOptions):
        self._options = options

    @told_first
    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """Write the rows of one task, and return once they are stored."""
        from .writer import write_rows

        context = TaskContext.get()
        assert context is not None
        return TaskWritten(write_rows(self._options, context.partitionId(), iterator))

    def commit(self, messages: list[Any]) -> None:
        """Log the number of written rows, which are visible already, and warn if the topic does not retain them."""
        from .keeping import warn_unless_kept

        parts = [message.written for message in messages if message is not None]
        log.info(
            "wrote %d rows with producers %s-*; %d more were already stored",
            sum(part.rows for part in parts),
            self._options.name_prefix,
            sum(part.duplicates for part in parts),
        )
        warn_unless_kept(self._options)

    def abort(self, messages: list[Any]) -> None:
        """Log how many rows of a failed write remain in the topic."""
        log.warning(
            "write failed with at least %d rows stored in the topic; if the topic is deduplicated, retry with"
            " producer.name.prefix=%s to complete the write without duplicates",
            sum(message.written.rows for message in messages if message is not None),
            self._options.name_prefix,
        )
