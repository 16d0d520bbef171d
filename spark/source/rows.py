"""Conversion of DataFrame rows to messages: supported columns and their values in a record batch."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ...errors import InvalidConfig
from ...wire.pulsar_api_pb2 import KeyValue, SingleMessageMetadata
from .options import POSITION_COLUMNS

WRITABLE = {
    "value": ("binary", "string"),
    "__key": ("binary", "string"),
    "__topic": ("string",),
    "__eventTime": ("timestamp",),
    "__messageProperties": ("map<string,string>",),
}
"""Types allowed for each column of a message."""
GIVEN_BY_BROKER = frozenset(("__messageId", "__publishTime", *POSITION_COLUMNS))
"""Columns of a read that are ignored in a write, because the broker sets them for each message."""


class OutgoingRow(NamedTuple):
    """A row as a message."""

    payload: bytes
    key: str | None
    header: SingleMessageMetadata | None
    topic: str | None


def check_columns(columns: Sequence[tuple[str, str]], topic: str | None, output_schema: str | None = None) -> None:
    """Reject a DataFrame that cannot be written.

    Args:
        columns: name and type of each column, in Spark's notation.
        topic: destination of all rows, or None if a column contains it.
        output_schema: schema type for values made from all other columns; None to write the column ``value``.

    Raises:
        InvalidConfig: a column is missing or unsupported; the message includes the remedy.
    """
    names = [name for name, _ in columns]
    if topic is None and "__topic" not in names:
        raise InvalidConfig("no topic to write to: set option topic or add a column __topic")
    if output_schema is not None:
        _check_of_messages(columns, output_schema)
        return
    if "value" not in names:
        raise InvalidConfig(
            f"the DataFrame has no column value, only {', '.join(names)}: add the column, for example with"
            " df.selectExpr('to_json(struct(*)) AS value'), or set outputSchema to AVRO or JSON to write the columns"
            " with a schema"
        )
    for name, type_ in columns:
        if name in GIVEN_BY_BROKER:
            continue
        if name not in WRITABLE:
            raise InvalidConfig(
                f"column {name} cannot be written to a message: expected {', '.join(WRITABLE)}; drop it, include it in"
                " value, or set outputSchema to AVRO or JSON"
            )
        if type_ not in WRITABLE[name]:
            raise InvalidConfig(f"column {name} has type {type_}: cast it to {' or '.join(WRITABLE[name])}")


def _check_of_messages(columns: Sequence[tuple[str, str]], output_schema: str) -> None:
    """Reject invalid message columns if the value is made from the other columns."""
    of_values = []
    for name, type_ in columns:
        if name in GIVEN_BY_BROKER:
            continue
        if name == "value" or not name.startswith("__"):
            of_values.append(name)
        elif name not in WRITABLE:
            others = ", ".join(one for one in WRITABLE if one != "value")
            raise InvalidConfig(f"column {name} cannot be written: expected {others}; drop or rename it")
        elif type_ not in WRITABLE[name]:
            raise InvalidConfig(f"column {name} has type {type_}: cast it to {' or '.join(WRITABLE[name])}")
    if not of_values:
        raise InvalidConfig(
            f"outputSchema={output_schema} writes columns as values, but the DataFrame has none: add at least one"
        )


def is_plain(batch: pa.RecordBatch, topic: str | None) -> bool:
    """Return whether all rows of a batch only have a payload and the same topic."""
    if topic is None or batch.column("value").null_count:
        return False
    for name in ("__key", "__eventTime", "__messageProperties"):
        if name in batch.schema.names:
            column = batch.column(name)
            if column.null_count < len(column):
                return False
    return True


def payloads_of(batch: pa.RecordBatch) -> list[bytes]:
    """Return the payloads of a batch that has no nulls."""
    column = batch.column("value")
    payloads: list[bytes] = column.cast(pa.binary()).to_pylist()
    return payloads


def outgoing_rows(batch: pa.RecordBatch) -> Iterator[OutgoingRow]:
    """Yield the rows of a batch."""
    names = batch.schema.names
    nothing = [None] * batch.num_rows

    def column(name: str) -> list[Any]:
        if name not in names:
            return nothing
        values = batch.column(name)
        if name == "__eventTime":
            values = values.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        values_list: list[Any] = values.to_pylist()
        return values_list

    wanted = ("value", "__key", "__topic", "__eventTime", "__messageProperties")
    for value, key, topic, event_time_ms, properties in zip(*map(column, wanted), strict=True):
        header = _header(value is None, key, event_time_ms, properties)
        text = header.partition_key if header is not None and header.HasField("partition_key") else None
        yield OutgoingRow(_bytes(value), text, header, topic)


def _bytes(value: str | bytes | None) -> bytes:
    if value is None:
        return b""
    return value.encode() if isinstance(value, str) else value


def _header(
    is_null: bool, key: str | bytes | None, event_time_ms: int | None, properties: list[tuple[str, str]] | None
) -> SingleMessageMetadata | None:
    if not is_null and key is None and not event_time_ms and not properties:
        return None
    header = SingleMessageMetadata(payload_size=0)  # required field, overwritten when the entry is encoded
    if is_null:
        header.null_value = True
    if key is not None:
        _set_key(header, key)
    if event_time_ms:
        header.event_time = event_time_ms
    if properties:
        header.properties.extend(KeyValue(key=name, value=value or "") for name, value in properties)
    return header


def _set_key(header: SingleMessageMetadata, key: str | bytes) -> None:
    """Set the key of a message as a string; bytes that are not valid UTF-8 are base64-encoded, as in Java clients."""
    try:
        header.partition_key = key if isinstance(key, str) else key.decode()
    except UnicodeDecodeError:
        header.partition_key = base64.b64encode(key).decode()  # type: ignore[arg-type]
        header.partition_key_b64_encoded = True
