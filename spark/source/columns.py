"""Turns entries into Arrow record batches, column by column, without a Python object per message where that can be.

Design: a batch is a table of bytes already. Where its messages have the same metadata, which is the common case, the
values are one strided copy and every other column a constant. Only batches whose messages differ are taken apart.
It needs pyarrow, but no Spark.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ...wire.batch import decode_batch, uniform_rows
from ...wire.bulk import varint
from ...wire.message_id import MessageId
from ...wire.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata
from ...wire.topic_name import parse_topic_name
from .options import NOT_NULL, ReadOptions
from .range_reader import Entry, RangeReader
from .ranges import TopicRange

BATCH_ROWS = 10_000
"""A record batch is handed on when it has so many rows; entries are not cut, so it may have more."""
BATCH_BYTES = 8 * 1024 * 1024
"""Or when its values have so many bytes."""

Header = SingleMessageMetadata | MessageMetadata

ARROW_TYPES: dict[str, pa.DataType] = {
    "value": pa.binary(),
    "__key": pa.binary(),
    "__topic": pa.string(),
    "__messageId": pa.binary(),
    "__publishTime": pa.timestamp("us", "UTC"),
    "__eventTime": pa.timestamp("us", "UTC"),
    "__messageProperties": pa.map_(pa.string(), pa.string()),
}
"""What Spark expects for each column."""


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of the batches, equal to what Spark makes of the DataFrame's schema."""
    return pa.schema([pa.field(name, ARROW_TYPES[name], name not in NOT_NULL) for name in columns])


class Rows(NamedTuple):
    """The selected messages of one entry.

    Attributes:
        num_rows: how many.
        data: their payloads, joined.
        lengths: of each payload.
        indexes: of each in its batch, None for all of them.
        headers: metadata of each; one for all if they are the same.
        batch_size: messages in the batch, 0 if the message came alone.
    """

    num_rows: int
    data: bytes
    lengths: np.ndarray
    indexes: list[int] | None
    headers: Sequence[Header]
    batch_size: int


def rows_of(entry: Entry, first_index: int, last_index: int | None) -> Rows | None:
    """Return the messages of an entry from ``first_index`` to ``last_index``, without those that compaction removed.

    Raises:
        ProtocolError: the batch is damaged.
    """
    metadata = entry.metadata
    if not entry.is_batch:
        # A position inside a batch says nothing about a message that came alone.
        return Rows(1, entry.body, np.array([len(entry.body)], np.int32), None, (metadata,), 0)
    size = metadata.num_messages_in_batch
    body = entry.body
    uniform = uniform_rows(body, size, ignores_sequence_ids=True)
    first = min(first_index, size)
    end = size if last_index is None else min(last_index + 1, size)
    if uniform is not None and not uniform[1].compacted_out:
        start, header = uniform
        table = np.frombuffer(body, np.uint8).reshape(size, -1)[first:end, start:]
        count, width = table.shape
        if count <= 0:
            return None
        indexes = None if count == size else list(range(first, end))
        return Rows(count, table.tobytes(), np.full(count, width, np.int32), indexes, (header,), size)
    payloads, headers = decode_batch(body, size)
    chosen = [index for index in range(first, end) if not headers[index].compacted_out]
    if not chosen:
        return None
    if len(chosen) < size:
        payloads = [payloads[index] for index in chosen]
        headers = [headers[index] for index in chosen]
    lengths = np.fromiter(map(len, payloads), np.int32, len(payloads))
    same = len(set(map(id, headers))) == 1
    return Rows(
        len(payloads),
        b"".join(payloads),
        lengths,
        None if len(chosen) == size else chosen,
        headers[:1] if same else headers,
        size,
    )


class BatchBuilder:
    """Collects entries of one topic until they make a record batch."""

    def __init__(self, columns: Sequence[str], topic: str, partition: int):
        self.rows = 0
        self._schema = arrow_schema(columns)
        self._topic = topic.encode()
        self._partition = partition
        self._entries: list[tuple[Entry, Rows]] = []
        self._bytes = 0
        makers: dict[str, Callable[[], pa.Array]] = {
            "value": self._values,
            "__key": partial(self._per_message, _key, ARROW_TYPES["__key"]),
            "__topic": self._topics,
            "__messageId": self._message_ids,
            "__publishTime": self._publish_times,
            "__eventTime": partial(self._per_message, _event_time_us, ARROW_TYPES["__eventTime"]),
            "__messageProperties": partial(self._per_message, _properties, ARROW_TYPES["__messageProperties"]),
        }
        self._makers = [makers[name] for name in columns]

    @property
    def is_full(self) -> bool:
        """Whether the batch is large enough to `take`."""
        return self.rows >= BATCH_ROWS or self._bytes >= BATCH_BYTES

    def add(self, entry: Entry, rows: Rows) -> None:
        """Add the messages of an entry."""
        self._entries.append((entry, rows))
        self.rows += rows.num_rows
        self._bytes += len(rows.data)

    def take(self) -> pa.RecordBatch:
        """Return what was collected, and begin anew."""
        batch = pa.RecordBatch.from_arrays([make() for make in self._makers], schema=self._schema)
        self._entries = []
        self.rows = self._bytes = 0
        return batch

    # -- columns ---------------------------------------------------------------------------------------------------

    def _values(self) -> pa.Array:
        data = [rows.data for _, rows in self._entries]
        lengths = [rows.lengths for _, rows in self._entries]
        nulls: np.ndarray | None = None
        start = 0
        for _, rows in self._entries:
            for place in _tombstones(rows):
                if nulls is None:
                    nulls = np.zeros(self.rows, np.bool_)
                nulls[start + place] = True
            start += rows.num_rows
        return _binary(data, np.concatenate(lengths), nulls)

    def _per_message(self, get: Callable[[Header], Any], type_: pa.DataType) -> pa.Array:
        """Return a column of what few messages have; ``get`` returns None for the others."""
        pieces: list[pa.Array] = []
        empty = 0
        for _, rows in self._entries:
            headers = rows.headers
            found = list(map(get, headers))
            if found == [None]:
                empty += rows.num_rows
                continue
            if len(headers) == 1:
                found *= rows.num_rows
            if empty:
                pieces.append(pa.nulls(empty, type_))
                empty = 0
            pieces.append(pa.array(found, type_))
        if empty or not pieces:
            pieces.append(pa.nulls(empty, type_))
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)

    def _topics(self) -> pa.Array:
        lengths: np.ndarray = np.full(self.rows, len(self._topic), np.int32)
        return _binary([self._topic * self.rows], lengths, None).view(pa.string())

    def _publish_times(self) -> pa.Array:
        times = np.array([entry.metadata.publish_time for entry, _ in self._entries], np.int64)
        counts = [rows.num_rows for _, rows in self._entries]
        return pa.array(np.repeat(times * 1000, counts), pa.int64()).view(ARROW_TYPES["__publishTime"])

    def _message_ids(self) -> pa.Array:
        data: list[bytes] = []
        lengths: list[np.ndarray] = []
        for entry, rows in self._entries:
            # The bytes of MessageId.serialize: ledger, entry and partition are the same for all of an entry.
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
        return _binary(data, np.concatenate(lengths), None)


def _binary(data: Sequence[bytes], lengths: np.ndarray, nulls: np.ndarray | None) -> pa.Array:
    offsets: np.ndarray = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little").tobytes())
    joined = data[0] if len(data) == 1 else b"".join(data)
    return pa.Array.from_buffers(
        pa.binary(), len(lengths), [valid, pa.py_buffer(offsets), pa.py_buffer(joined)], -1 if valid is not None else 0
    )


@lru_cache(maxsize=64)
def _id_tails(batch_size: int) -> tuple[list[bytes], np.ndarray]:
    """Return the end of each message id of a batch: fields 4 and 6, index and size."""
    end = b"\x30" + varint(batch_size)
    tails = [b"\x20" + varint(index) + end for index in range(batch_size)]
    return tails, np.fromiter(map(len, tails), np.int32, batch_size)


def _tombstones(rows: Rows) -> Iterator[int]:
    if len(rows.headers) == 1:
        if rows.headers[0].null_value:
            yield from range(rows.num_rows)
        return
    for place, header in enumerate(rows.headers):
        if header.null_value:
            yield place


def _key(header: Header) -> bytes | None:
    if not header.HasField("partition_key"):
        return None
    key = header.partition_key
    return base64.b64decode(key) if header.partition_key_b64_encoded else key.encode()


def _event_time_us(header: Header) -> int | None:
    return header.event_time * 1000 or None


def _properties(header: Header) -> list[tuple[str, str]] | None:
    # Spark refuses a map with a key twice; the last one counts, as in a dictionary.
    return list({pair.key: pair.value for pair in header.properties}.items()) or None


def read_range(wanted: TopicRange, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range as record batches of ``options.columns``."""
    reader = RangeReader(wanted, options)
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
