"""Keys, event times and properties of messages as Arrow columns, without a Python object per message.

Design: the metadata of all messages of a record batch is in one byte array. Each step reads one field of all messages:
first the first field of each message, then the second, and so on. Clients write only a handful of fields, so only a
handful of steps are needed. Messages with unusual metadata (unknown fields, ten-byte numbers, base64 keys, duplicate
properties, very many fields) are detected and parsed one by one by protobuf; the results are appended to the array.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pyarrow as pa

from ...errors import ProtocolError
from ...wire.bulk import varint
from ...wire.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

FIELDS_MAX = 64
"""Maximum number of fields; metadata with more fields is parsed by protobuf."""
EVENT_TIME_MS_MAX = (2**63 - 1) // 1000
"""Maximum event time in Spark, which counts microseconds."""
TIMESTAMP = pa.timestamp("us", "UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
_OFFSET_MAX = 2**31 - 1
_1, _2, _4, _7, _14, _28 = map(np.uint64, (1, 2, 4, 7, 14, 28))
_LAST_BITS = np.uint64(0x8080808080808080)
_PAIRS, _FOURS, _EIGHTS = map(np.uint64, (0x007F007F007F007F, 0x00003FFF00003FFF, 0x000000000FFFFFFF))
_PADDING: np.ndarray = np.zeros(16, np.uint8)
"""Padding after the metadata, so that a truncated number can be read and then rejected."""
_PROPERTY, _KEY, _PAYLOAD_SIZE, _COMPACTED_OUT, _EVENT_TIME = 0x0A, 0x12, 0x18, 0x20, 0x28
_BASE64, _ORDERING_KEY, _SEQUENCE_ID, _NULL_VALUE, _NULL_KEY = 0x30, 0x3A, 0x40, 0x48, 0x50
_IGNORED = (_PAYLOAD_SIZE, _COMPACTED_OUT, _SEQUENCE_ID, _NULL_VALUE, _NULL_KEY)
_PAIR_KEY, _PAIR_VALUE = 0x0A, 0x12


def attributes_of(metadata: MessageMetadata) -> bytes:
    """Return the metadata columns of an unbatched message, encoded as the metadata of a batched message."""
    if not (metadata.properties or metadata.event_time or metadata.HasField("partition_key")):
        return b""
    found = SingleMessageMetadata(
        payload_size=0,
        properties=metadata.properties,
        partition_key_b64_encoded=metadata.partition_key_b64_encoded,
        event_time=metadata.event_time,
    ).SerializeToString()
    if not metadata.HasField("partition_key"):
        return found
    key: str | bytes = metadata.partition_key  # bytes if not valid UTF-8, which protobuf reads but does not set
    encoded = key.encode() if isinstance(key, str) else key
    return b"".join((found, b"\x12", varint(len(encoded)), encoded))


class HeaderColumns:
    """Metadata of the rows of a record batch."""

    def __init__(self, data: bytes | pa.Buffer, ends: np.ndarray, repeats: np.ndarray | None):
        """Read the metadata.

        Args:
            data: concatenated metadata of messages, each valid protobuf.
            ends: offset of the end of each message's metadata.
            repeats: number of rows for each metadata; None if each has one row.
        """
        self._count = count = len(ends)
        self._ends: np.ndarray = ends.astype(np.int64)
        self._starts: np.ndarray = np.concatenate((np.zeros(1, np.int64), self._ends[:-1]))[:count]
        size = int(self._ends[-1]) if count else 0
        self._data: np.ndarray = np.concatenate((np.frombuffer(data, np.uint8, size), _PADDING))
        # The eight bytes that start at each position.
        self._words: np.ndarray = np.ndarray(len(self._data) - 7, "<u8", self._data, strides=(1,))
        self._rows: np.ndarray | None = None if repeats is None else np.repeat(np.arange(count), repeats)
        self._is_odd: np.ndarray = np.zeros(count, np.bool_)
        self._key_at: np.ndarray = np.full(count, -1, np.int64)
        self._key_bytes: np.ndarray = np.zeros(count, np.int64)
        self._event_ms: np.ndarray = np.zeros(count, np.int64)
        self._is_base64: np.ndarray = np.zeros(count, np.bool_)
        self._pairs: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        """For each property: index of the metadata, position and size of the name, position and size of the value."""
        self._latest_ms = 0  # of the messages parsed by protobuf
        self._read(self._starts)
        pairs: list[np.ndarray] = [
            np.concatenate([part[place] for part in self._pairs]) if self._pairs else np.zeros(0, np.int64)
            for place in range(5)
        ]
        self._is_odd |= self._is_base64 & (self._key_at >= 0)
        self._is_odd |= (self._event_ms > EVENT_TIME_MS_MAX) | self._repeated(pairs)
        if self._is_odd.any():
            pairs = self._read_by_protobuf(pairs)
        order = np.argsort(pairs[0], kind="stable")
        self._of, self._name_at, self._name_bytes, self._value_at, self._value_bytes = (part[order] for part in pairs)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, at: np.ndarray) -> None:
        """Read the metadata field by field, starting at the positions ``at``."""
        ends = self._ends
        at = at.copy()
        active = np.flatnonzero(at < ends)
        for _ in range(FIELDS_MAX):
            if not active.size:
                return
            place = at[active]
            tags = self._data[place]
            numbers, after, is_wrong = self._varints(place + 1)
            is_wrong |= after > ends[active]
            first = int(tags[0])
            if (tags == first).all():
                is_wrong |= self._field(first, active, numbers, after)
            else:
                for tag in np.unique(tags).tolist():
                    chosen = np.flatnonzero((tags == tag) & ~is_wrong)
                    some_after = after[chosen]
                    is_wrong[chosen] |= self._field(tag, active[chosen], numbers[chosen], some_after)
                    after[chosen] = some_after
            at[active] = after
            if is_wrong.any():
                self._is_odd[active[is_wrong]] = True
                active = active[~is_wrong]
            active = active[at[active] < ends[active]]
        self._is_odd[active] = True

    def _varints(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the numbers at positions, their end positions, and flags for numbers that are too long."""
        at = np.minimum(at, len(self._words) - 1)
        numbers: np.ndarray = self._data[at].astype(np.int64)
        after: np.ndarray = at + 1
        is_wrong: np.ndarray = np.zeros(len(at), np.bool_)
        more = np.flatnonzero(numbers > 127)
        if more.size:
            words = self._words[at[more]]
            last_bits = ~words & _LAST_BITS
            last = last_bits & -last_bits  # index of the last byte
            is_wrong[more] = last_bits == 0
            # The bits of the number without the first bit of each byte, joined in steps of two, four and eight bytes.
            words &= ((last << _1) - _1) & ~_LAST_BITS
            words = words & _PAIRS | words >> _1 & _PAIRS << _7
            words = words & _FOURS | words >> _2 & _FOURS << _14
            words = words & _EIGHTS | words >> _4 & _EIGHTS << _28
            numbers[more] = words.astype(np.int64)
            after[more] = at[more] + (np.frexp(last.astype(np.float64))[1] >> 3)
        return numbers, after, is_wrong

    def _field(self, tag: int, of: np.ndarray, numbers: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Read one field of some metadata, move ``after`` past its content, and return flags for unusual metadata.

        Args:
            tag: tag of the field.
            of: indexes of the metadata.
            numbers: numbers after the tag.
            after: positions after the numbers.
        """
        is_wrong: np.ndarray = np.zeros(len(of), np.bool_)
        if tag in (_PROPERTY, _KEY, _ORDERING_KEY):
            is_wrong = numbers > self._ends[of] - after
            numbers[is_wrong] = 0
            if tag == _KEY:
                self._key_at[of], self._key_bytes[of] = after, numbers
            elif tag == _PROPERTY:
                is_wrong |= self._pair(of, after, after + numbers)
            after += numbers
        elif tag == _EVENT_TIME:
            self._event_ms[of] = numbers
        elif tag == _BASE64:
            self._is_base64[of] = numbers != 0
        elif tag not in _IGNORED:
            is_wrong[:] = True
        return is_wrong

    def _pair(self, of: np.ndarray, at: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Read properties with a name followed by a value, and return flags for properties of another form."""
        data, last = self._data, len(self._data) - 1
        name_bytes, name_at, is_wrong = self._varints(at + 1)
        is_wrong |= (data[np.minimum(at, last)] != _PAIR_KEY) | (name_bytes > end - name_at)
        name_bytes[is_wrong] = 0
        tag_at = name_at + name_bytes
        value_bytes, value_at, is_long = self._varints(tag_at + 1)
        is_wrong |= is_long | (data[np.minimum(tag_at, last)] != _PAIR_VALUE) | (value_bytes != end - value_at)
        self._pairs.append((of, name_at, name_bytes, value_at, value_bytes))
        return is_wrong

    def _repeated(self, pairs: list[np.ndarray]) -> np.ndarray:
        """Return flags for metadata that may have duplicate properties, with names of equal length and sum."""
        found: np.ndarray = np.zeros(self._count, np.bool_)
        if len(self._pairs) < 2 or not self._may_be_repeated(pairs):
            return found
        of, name_at, name_bytes = pairs[:3]
        plain = np.concatenate((np.zeros(1, np.uint64), np.cumsum(self._data, dtype=np.uint64)))
        places: np.ndarray = np.arange(len(self._data), dtype=np.uint64)
        weighted = np.concatenate((np.zeros(1, np.uint64), np.cumsum(self._data * places)))
        name_end = np.minimum(name_at + name_bytes, len(self._data))  # of metadata that was found invalid
        sums = plain[name_end] - plain[name_at]
        weights = weighted[name_end] - weighted[name_at] - name_at.astype(np.uint64) * sums
        order = np.lexsort((weights, sums, name_bytes, of))
        columns: list[np.ndarray] = [part[order] for part in (of, name_bytes, sums, weights)]
        same: np.ndarray = np.logical_and.reduce([part[1:] == part[:-1] for part in columns])
        found[columns[0][1:][same]] = True
        return found

    def _may_be_repeated(self, pairs: list[np.ndarray]) -> bool:
        """Return whether any metadata may have duplicate names; fast, with false positives but no false negatives."""
        of, name_at, name_bytes = pairs[:3]
        last = len(self._data) - 1
        sketch = of << 8 | name_bytes & 255
        for place in (0, name_bytes >> 2, name_bytes >> 1, np.maximum(name_bytes - 1, 0)):
            sketch = sketch << 8 | self._data[np.minimum(name_at + place, last)]
        sketch.sort()
        return bool((sketch[1:] == sketch[:-1]).any())

    def _read_by_protobuf(self, pairs: list[np.ndarray]) -> list[np.ndarray]:
        """Parse unusual metadata, and return the properties of all metadata."""
        odd = np.flatnonzero(self._is_odd)
        kept = ~self._is_odd[pairs[0]]
        self._key_at[odd] = -1
        more: list[bytes] = []
        size = len(self._data)
        added: list[tuple[int, int, int, int, int]] = []

        def put(content: str | bytes) -> tuple[int, int]:
            nonlocal size
            data = content.encode() if isinstance(content, str) else content
            more.append(data)
            size += len(data)
            return size - len(data), len(data)

        for index in odd.tolist():
            header = SingleMessageMetadata.FromString(self._data[self._starts[index] : self._ends[index]].tobytes())
            if header.HasField("partition_key"):
                key: str | bytes = header.partition_key
                if header.partition_key_b64_encoded:
                    key = base64.b64decode(key)
                self._key_at[index], self._key_bytes[index] = put(key)
            self._latest_ms = max(self._latest_ms, header.event_time)
            self._event_ms[index] = min(header.event_time, EVENT_TIME_MS_MAX)
            # Spark rejects a map with a duplicate key; the last one wins, as in a dictionary.
            for name, value in {pair.key: pair.value for pair in header.properties}.items():
                added.append((index, *put(name), *put(value)))
        self._data = np.concatenate((self._data, np.frombuffer(b"".join(more), np.uint8)))
        new: np.ndarray = np.array(added, np.int64).reshape(-1, 5)
        return [np.concatenate((part[kept], new[:, place])) for place, part in enumerate(pairs)]

    # -- columns -----------------------------------------------------------------------------------------------------

    def _each(self, values: np.ndarray) -> np.ndarray:
        """Return a value for each row."""
        return values if self._rows is None else values[self._rows]

    def keys(self) -> pa.Array:
        """Return the column of keys."""
        at, sizes = self._each(self._key_at), self._each(self._key_bytes)
        is_there = at >= 0
        if not is_there.any():
            return pa.nulls(len(at), pa.binary())
        return self._slices(pa.binary(), at, sizes, is_there)

    def event_times(self) -> pa.Array:
        """Return the column of event times.

        Raises:
            ProtocolError: an event time exceeds Spark's range.
        """
        if self._latest_ms > EVENT_TIME_MS_MAX:
            raise ProtocolError(
                f"event time {self._latest_ms} ms of a message exceeds Spark's maximum of {EVENT_TIME_MS_MAX}: omit"
                " the column __eventTime"
            )
        times = self._each(self._event_ms)
        return pa.array(times * 1000, pa.int64(), mask=times == 0).view(TIMESTAMP)

    def properties(self) -> pa.Array:
        """Return the column of properties.

        Raises:
            ProtocolError: a property is not valid UTF-8.
        """
        all_counts = np.bincount(self._of, minlength=self._count).astype(np.int64)
        counts = self._each(all_counts)
        if not len(self._of):
            return pa.nulls(len(counts), PROPERTIES)
        if self._rows is None:
            chosen: Any = slice(None)
        else:
            firsts = np.cumsum(all_counts) - all_counts
            chosen = _ranges(self._each(firsts), counts)
        names = self._slices(pa.string(), self._name_at[chosen], self._name_bytes[chosen], None)
        values = self._slices(pa.string(), self._value_at[chosen], self._value_bytes[chosen], None)
        try:
            names.validate(full=True)
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            raise ProtocolError(
                f"a message property is not valid UTF-8: {error}: omit the column __messageProperties"
            ) from error
        fields = [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())]
        entries = pa.StructArray.from_arrays([names, values], fields=fields)
        has_some = counts > 0
        buffers = [_bits(has_some), pa.py_buffer(_offsets(counts))]
        return pa.Array.from_buffers(PROPERTIES, len(counts), buffers, -1, children=[entries])

    def _slices(self, type_: pa.DataType, at: np.ndarray, sizes: np.ndarray, is_there: np.ndarray | None) -> pa.Array:
        """Return a column of slices of the byte array."""
        if is_there is not None and is_there.all():
            is_there = None
        if is_there is not None:
            at, sizes = at[is_there], sizes[is_there]
        if len(at) and (at[1:] >= at[:-1] + sizes[:-1]).all() and len(self._data) < _OFFSET_MAX:
            # The bytes between two slices also become a value, so the column consists of every other value.
            bounds: np.ndarray = np.stack((at, at + sizes), axis=1, dtype=np.int32).ravel()
            buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self._data)]
            whole = pa.Array.from_buffers(type_, len(bounds) - 1, buffers, 0)
            if is_there is None:
                return whole.take(pa.array(np.arange(0, len(bounds), 2)))
            return whole.take(pa.array(np.cumsum(is_there) * 2 - 2, mask=~is_there))
        data = self._data[_ranges(at, sizes)]
        valid = None
        if is_there is not None:
            valid = _bits(is_there)
            all_sizes: np.ndarray = np.zeros(len(is_there), np.int64)
            all_sizes[is_there] = sizes
            sizes = all_sizes
        buffers = [valid, pa.py_buffer(_offsets(sizes)), pa.py_buffer(data)]
        return pa.Array.from_buffers(type_, len(sizes), buffers, -1 if valid is not None else 0)


def _ranges(begins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the concatenated integers of all ranges."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    found: np.ndarray = np.repeat(begins - (ends - sizes), sizes) + np.arange(total)
    return found


def _offsets(sizes: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=found[1:])
    return found


def _bits(flags: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little").tobytes())
