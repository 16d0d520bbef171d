"""Decodes the columns of a record batch, using the schema version of each message.

All messages of a batch with the same schema version are decoded together. If a message is invalid, it is found by
bisection; the error then contains its id, or in permissive mode its columns are null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ....client.schemas.schema import SchemaInfo
from ....errors import SchemaSerializationError
from ....wire.message_id import deserialize
from ....wire.topic_name import TopicName
from .fitting import fit
from .layout import KEY, OF_MESSAGES, VALUE, ColumnTypes, Layout
from .primitive_columns import split_pairs
from .registry import SchemaRegistry
from .values import Decode, decoder, parts_of

REMEDY = "set mode=PERMISSIVE to read such values as null, or omit useTopicSchema to read values as bytes"


class Pair(NamedTuple):
    """Columns of values and keys."""

    value: pa.Array
    key: pa.Array

    def part(self, begin: int, end: int) -> Pair:
        """Return a slice of the rows."""
        return Pair(self.value.slice(begin, end - begin), self.key.slice(begin, end - begin))


class RowDecoder:
    """Decodes the messages of one topic."""

    def __init__(self, layout: Layout, topic: TopicName, registry: SchemaRegistry, *, is_permissive: bool):
        """Create a decoder.

        Args:
            layout: layout of the resulting columns.
            topic: topic of the messages.
            registry: provides the topic's schemas.
            is_permissive: whether to return null for invalid values instead of raising an error.
        """
        self._layout = layout
        self._wanted: ColumnTypes = layout.of(topic)
        self._topic = topic
        self._registry = registry
        self._is_permissive = is_permissive
        self._readings: dict[bytes, Callable[[Pair], Pair]] = {}
        names = layout.schema.names
        self._shows_values = any(name not in OF_MESSAGES for name in names)
        self._shows_keys = KEY in names

    @property
    def raw_columns(self) -> tuple[str, ...]:
        """Names of the input columns, in any order: value, key, and message columns that are passed through."""
        of_messages = [name for name in self._layout.schema.names if name in OF_MESSAGES and name != KEY]
        return (VALUE, *([KEY] if self._shows_keys else []), *of_messages)

    def batch(
        self, raw: Mapping[str, pa.Array], runs: Sequence[tuple[bytes, int]], ids: Callable[[], pa.Array]
    ) -> pa.RecordBatch:
        """Return rows as a record batch.

        Args:
            raw: `raw_columns` by name.
            runs: schema version and number of rows of consecutive runs.
            ids: returns the message ids for error messages.

        Raises:
            SchemaSerializationError: a message is invalid; the message contains its id and the remedy.
            MagnetarError: a schema cannot be fetched from the broker.
        """
        values = raw[VALUE]
        found = self._decoded(Pair(values, raw.get(KEY, pa.nulls(len(values), pa.binary()))), runs, ids)
        schema = self._layout.schema
        columns = []
        is_record = pa.types.is_struct(self._wanted.value)
        fields = found.value.flatten() if is_record else [found.value]
        by_name = dict(zip([field.name for field in self._wanted.value] if is_record else [VALUE], fields, strict=True))
        for field in schema:
            if field.name == KEY:
                columns.append(found.key)
            elif field.name in by_name:
                columns.append(by_name[field.name])
            else:
                columns.append(raw[field.name])
            if not field.nullable and columns[-1].null_count:
                raise SchemaSerializationError(
                    f"{self._topic}: column {field.name} is null in {columns[-1].null_count} messages, but .schema(…)"
                    " declares it NOT NULL: declare it nullable"
                )
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _decoded(self, rows: Pair, runs: Sequence[tuple[bytes, int]], ids: Callable[[], pa.Array]) -> Pair:
        if not self._shows_values and not self._shows_keys:
            return self._nulls(rows)
        versions = list(dict.fromkeys(version for version, _ in runs))
        everything: np.ndarray = np.arange(len(rows.value))
        if len(versions) == 1:
            return self._of_version(versions[0], rows, everything, ids)
        numbers = {version: number for number, version in enumerate(versions)}
        of: np.ndarray = np.repeat([numbers[version] for version, _ in runs], [count for _, count in runs])
        places = [everything[of == number] for number in range(len(versions))]
        parts = [
            self._of_version(version, Pair(*(column.take(pa.array(place)) for column in rows)), place, ids)
            for version, place in zip(versions, places, strict=True)
        ]
        order = pa.array(np.argsort(np.concatenate(places), kind="stable"))
        return Pair(*(pa.concat_arrays(columns).take(order) for columns in zip(*parts, strict=True)))

    def _of_version(self, version: bytes, rows: Pair, places: np.ndarray, ids: Callable[[], pa.Array]) -> Pair:
        """Decode rows of one version; ``places`` are their row numbers in the batch."""
        try:
            reading = self._readings.get(version)
            if reading is None:
                reading = self._readings[version] = self._reading(self._registry.of_version(self._topic, version))
            if self._is_permissive:
                return self._tolerant(reading, rows)
            return reading(rows)
        except SchemaSerializationError as error:
            if self._is_permissive:  # no value of this version can be decoded
                return self._nulls(rows)
            place, why = self._first_failure(version, rows) or (0, error)
            id_ = deserialize(ids()[int(places[place])].as_py())
            said = (
                f"version {int.from_bytes(version)}" if version else ("the newest version (the message has no version)")
            )
            raise SchemaSerializationError(
                f"{self._topic}: cannot decode message {id_} with {said} of the topic's schema: {why}; {REMEDY}"
            ) from error

    def _reading(self, info: SchemaInfo) -> Callable[[Pair], Pair]:
        parts = parts_of(info)
        wanted = self._wanted
        of_values: Decode | None = decoder(parts.value, wanted.value) if self._shows_values else None
        of_keys: Decode | None = None
        if self._shows_keys:
            of_keys = (lambda keys: fit(keys, wanted.key, KEY)) if parts.key is None else decoder(parts.key, wanted.key)

        def read(rows: Pair) -> Pair:
            values, keys = rows
            if parts.is_inline:
                keys, values = split_pairs(values)
            return Pair(
                pa.nulls(len(values), wanted.value) if of_values is None else of_values(values),
                pa.nulls(len(keys), wanted.key) if of_keys is None else of_keys(keys),
            )

        return read

    def _nulls(self, rows: Pair) -> Pair:
        """Return null values and keys; keys that are bytes are kept."""
        count, wanted = len(rows.value), self._wanted
        key = rows.key if rows.key.type == wanted.key else pa.nulls(count, wanted.key)
        return Pair(pa.nulls(count, wanted.value), key)

    def _tolerant(self, read: Callable[[Pair], Pair], rows: Pair) -> Pair:
        """Decode the valid rows, and return null for all others."""
        try:
            return read(rows)
        except SchemaSerializationError:
            count = len(rows.value)
            if count < 2:
                return self._nulls(rows)
            half = count // 2
            parts = [self._tolerant(read, part) for part in (rows.part(0, half), rows.part(half, count))]
            return Pair(*(pa.concat_arrays(columns) for columns in zip(*parts, strict=True)))

    def _first_failure(self, version: bytes, rows: Pair) -> tuple[int, SchemaSerializationError] | None:
        """Return the first invalid row and its error, or None if each row is valid on its own."""
        read = self._readings.get(version)
        begin, end = 0, len(rows.value)
        why = None
        while read is not None and end > begin:
            half = begin + max(1, (end - begin) // 2)
            try:
                read(rows.part(begin, half))
                begin = half
            except SchemaSerializationError as error:
                why = error
                if half - begin == 1:
                    return begin, error
                end = half
        return None if why is None else (begin, why)
