"""Converts entries into Arrow record batches column by column, with little Python code per message.

Design: if all messages of a batch have the same metadata and size, their values are copied in one strided operation.
Otherwise the batch is split into payloads and metadata, and metadata columns are read for all rows of a record batch in
one pass (`header_columns`). This module requires pyarrow, but not Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ...wire.bulk import varint
from ...wire.message_id import MessageId
from ...wire.topic_name import TopicName, parse_topic_name
from .between_tasks import shorten_pauses
from .connection import Routes
from .entry_rows import Rows, SplitRows, rows_of
from .header_columns import PROPERTIES, TIMESTAMP
from .options import NOT_NULL, ReadOptions
from .position_columns import POSITION_TYPES, position_column
from .range_reader import Entry, RangeReader
from .ranges import TopicRange

if TYPE_CHECKING:
    from .schemas.decoding import RowDecoder
    from .schemas.layout import Layout

BATCH_ROWS = 10_000
"""Number of rows at which a record batch is yielded; it may have more, because entries are not split."""
BATCH_BYTES = 8 * 1024 * 1024
"""Number of bytes of values and metadata at which a record batch is yielded."""
SHOWN_OF_METADATA = ("__key", "__eventTime", "__messageProperties")

ARROW_TYPES: dict[str, pa.DataType] = {
    "value": pa.binary(),
    "__key": pa.binary(),
    "__topic": pa.string(),
    "__messageId": pa.binary(),
    "__publishTime": TIMESTAMP,
    "__eventTime": TIMESTAMP,
    "__messageProperties": PROPERTIES,
    **POSITION_TYPES,
}
"""Type that Spark expects for each column."""


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of the record batches, which equals Spark's conversion of the DataFrame's schema."""
    return pa.schema([pa.field(name, ARROW_TYPES[name], name not in NOT_NULL) for name in columns])


class BatchBuilder:
    """Collects entries of one topic into record batches."""

    def __init__(self, columns: Sequence[str], topic: str, partition: int, decoder: RowDecoder | None = None):
        """Create a builder; with a decoder, ``columns`` must be its `RowDecoder.raw_columns`."""
        self.rows = 0
        self._columns = columns
        self._decoder = decoder
        self._schema = arrow_schema(columns)
        self._topic = topic.encode()
        self._partition = partition
        self._entries: list[tuple[Entry, Rows]] = []
        self._bytes = 0
        makers: dict[str, Callable[[], pa.Array]] = {
            "value": lambda: self._split.values(),
            "__key": lambda: self._split.headers.keys(),
            "__topic": self._topics,
            "__messageId": self._message_ids,
            "__publishTime": self._publish_times,
            "__eventTime": lambda: self._split.headers.event_times(),
            "__messageProperties": lambda: self._split.headers.properties(),
            **{name: partial(self._positions, name) for name in POSITION_TYPES},
        }
        self._makers = [makers[name] for name in columns]

    @property
    def is_full(self) -> bool:
        """Whether the batch is large enough to be taken."""
        return self.rows >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def add(self, entry: Entry, rows: Rows) -> None:
        """Add the messages of an entry."""
        self._entries.append((entry, rows))
        self.rows += rows.num_rows
        self._bytes += len(rows.data)

    def take(self) -> pa.RecordBatch:
        """Return the collected rows and reset the builder."""
        self._split = SplitRows([rows for _, rows in self._entries])
        arrays = [make() for make in self._makers]
        if self._decoder is None:
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        else:
            runs = [(entry.metadata.schema_version, rows.num_rows) for entry, rows in self._entries]
            raw = dict(zip(self._columns, arrays, strict=True))
            batch = self._decoder.batch(raw, runs, self._message_ids)
        self._entries = []
        self.rows = self._bytes = 0
        return batch

    # -- columns ---------------------------------------------------------------------------------------------------

    def _topics(self) -> pa.Array:
        lengths: np.ndarray = np.full(self.rows, len(self._topic), np.int32)
        return _binary([self._topic * self.rows], lengths).view(pa.string())

    def _publish_times(self) -> pa.Array:
        times = np.array([entry.metadata.publish_time for entry, _ in self._entries], np.int64)
        counts = [rows.num_rows for _, rows in self._entries]
        return pa.array(np.repeat(times * 1000, counts), pa.int64()).view(ARROW_TYPES["__publishTime"])

    def _positions(self, name: str) -> pa.Array:
        return position_column(name, self._entries, self._partition)

    def _message_ids(self) -> pa.Array:
        data: list[bytes] = []
        lengths: list[np.ndarray] = []
        for entry, rows in self._entries:
            # The bytes of MessageId.serialize: ledger, entry and partition are the same for a whole entry.
            head = MessageId(*entry.position, self._partition).serialize()
            if rows.batch_size == 0:
                data.append(head)
                lengths.append(np.array([len(head)], np.int32))
                continue
            tails, tail_lengths = _id_tails(rows.batch_size)
            if rows.indexes is not None:
                tails = [tails[index] for index in rows.indexes]
                tail_lengths = tail_lengths[rows.indexes]
            data += (head, head.join(tails))
            lengths.append(tail_lengths + np.int32(len(head)))
        return _binary(data, np.concatenate(lengths))


def _binary(data: Sequence[bytes], lengths: np.ndarray) -> pa.Array:
    offsets: np.ndarray = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(data))]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers, 0)


@lru_cache(maxsize=64)
def _id_tails(batch_size: int) -> tuple[list[bytes], np.ndarray]:
    """Return the end of each message id of a batch: fields 4 and 6, the batch index and size."""
    end = b"\x30" + varint(batch_size)
    tails = [b"\x20" + varint(index) + end for index in range(batch_size)]
    return tails, np.fromiter(map(len, tails), np.int32, batch_size)


def read_range(wanted: TopicRange, options: ReadOptions, layout: Layout | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range as record batches.

    Args:
        wanted: range to read.
        options: read options; without a layout, their ``columns`` are the columns of the batches.
        layout: columns from the topic's schema.
    """
    shorten_pauses()
    reader = RangeReader(wanted, options)
    name = parse_topic_name(wanted.topic)
    decoder = None if layout is None else _decoder(layout, name, options)
    columns = options.columns if decoder is None else decoder.raw_columns
    builder = BatchBuilder(columns, wanted.topic, name.partition, decoder)
    start, end = wanted.start, wanted.end
    only_values = not any(name in SHOWN_OF_METADATA for name in columns)
    for entry in reader.entries():
        first_index = wanted.first_index if entry.position == start else 0
        last_index = wanted.last_index if entry.position == end else None
        rows = rows_of(entry, first_index, last_index, only_values=only_values)
        if rows is None:
            continue
        builder.add(entry, rows)
        if builder.is_full:
            yield builder.take()
    if builder.rows:
        yield builder.take()


def _decoder(layout: Layout, topic: TopicName, options: ReadOptions) -> RowDecoder:
    from .schemas.decoding import RowDecoder
    from .schemas.registry import SchemaRegistry

    routes = Routes(options.service_url, options.security, options.timeouts)
    registry = SchemaRegistry(routes, options.poll_timeout_ms / 1000)
    return RowDecoder(layout, topic, registry, is_permissive=options.is_permissive)
