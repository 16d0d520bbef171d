"""The ``s3`` sink writes objects of JSON lines, lines, CSV or Parquet.

A batch becomes one object per topic, written with a single put, and is acknowledged once the object is stored. Batches
are therefore large: many records, or several seconds' worth of records.

Objects are named ``<topic>/<last>-<sink>-<digest>``: the number of the last record, an ID of the sink's creation, and a
digest of the contained records. The same records result in the same name. With EFFECTIVELY_ONCE, the names show how far
a topic has been written: for the first batch after a start, the sink lists the objects after the batch's first record,
and skips records that are already stored. This requires that objects remain in place while the sink is not running.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..api.connector import Batching, Record, RecordRefused, Sink, SinkContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .csv_rows import CsvOptions, check_csv, write_csv
from .documents import digits_of, document_of, json_of
from .libraries import need
from .rows import RowReader, inferred_schema
from .s3 import S3Config, bucket_and_prefix, check_s3, make_client, retried

_ENDINGS = {"json": ".jsonl", "lines": ".txt", "csv": ".csv", "parquet": ".parquet"}
_NUMBER_DIGITS = 19  # digits of 2^63 - 1, so that names sort by number


@dataclass(kw_only=True)
class S3SinkConfig(CsvOptions, S3Config):
    """Settings of the ``s3`` sink."""

    format: Literal["json", "lines", "csv", "parquet"] = option(
        "Object format. json: one JSON value per line; lines: values unchanged; csv, parquet: one row per value, which "
        "must be a JSON object.",
        default="json",
        aliases=("formatType",),
    )
    compression: Literal["none", "gzip"] = option(
        "Compression of json, lines and csv. Parquet has built-in compression.", default="none"
    )
    batch_size: int = option("Maximum number of records per object.", default=10_000, limits=(1, 10_000))
    max_batch_bytes: int = option("Maximum bytes of records per object.", default=64 << 20, limits=(1, 1 << 30))
    batch_time_ms: int = option(
        "Maximum time to wait for more records, in milliseconds.", default=10_000, limits=(0, 60_000)
    )


class S3Sink(Sink):
    """Writes each batch as an object to an S3 bucket. A visible object is always complete."""

    config = S3SinkConfig

    def __init__(self) -> None:
        self._rows = RowReader()

    def check(self, config: S3SinkConfig) -> None:
        """Validate the configuration."""
        check_s3(config)
        check_csv(config)
        if config.format == "parquet" and config.compression != "none":
            raise InvalidConfig(
                "compression does not apply to format parquet, which has built-in compression: remove compression"
            )

    def not_effectively_once(self, config: S3SinkConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return ""

    def batching(self, config: S3SinkConfig) -> Batching:
        """Return the batch limits."""
        return Batching(config.batch_size, config.max_batch_bytes, config.batch_time_ms / 1000)

    def open(self, config: S3SinkConfig, context: SinkContext) -> None:
        """Open the connector."""
        if config.format == "parquet":
            need("s3", "pyarrow.parquet")
        self._config = config
        self._context = context
        self._bucket, self._prefix = bucket_and_prefix(config)
        self._sink = hashlib.blake2b(context.incarnation.encode(), digest_size=4).hexdigest()
        self._written: dict[str, int] = {}
        self._client = make_client(config)

    def close(self) -> None:
        """Close the connector."""
        if hasattr(self, "_client"):
            self._client.close()

    def write_batch(self, records: Sequence[Record]) -> None:
        """Write a batch of records durably."""
        is_parquet = self._config.format == "parquet"
        if is_parquet:
            self._rows.name_refused(records)
        parts = [self._part(record, index) for index, record in enumerate(records)]
        table = (
            self._table(records, parts) if is_parquet else None
        )  # before any put, so that all invalid records are reported first
        topics: dict[str, list[int]] = {}
        for index, record in enumerate(records):
            topics.setdefault(record.topic, []).append(index)
        for topic, indexes in topics.items():
            if chosen := self._unwritten(topic, records, indexes):
                self._put(topic, [records[index] for index in chosen], self._body(parts, table, chosen))

    def _table(self, records: Sequence[Record], parts: Sequence[dict[str, Any]]) -> Any:
        schema = inferred_schema(parts)
        if not schema.names:
            raise RecordRefused("value has no non-null fields")
        return self._rows.table(records, parts, schema)

    def _unwritten(self, topic: str, records: Sequence[Record], indexes: Sequence[int]) -> Sequence[int]:
        """Return the indexes of a topic's records that are not stored yet."""
        if not self._context.is_exact:
            return indexes
        if topic not in self._written:
            self._written[topic] = self._last_written(self._directory(topic), records[indexes[0]].sequence)
        before = self._written[topic]
        return [index for index in indexes if records[index].sequence > before]

    def _put(self, topic: str, records: Sequence[Record], body: bytes) -> None:
        places = hashlib.blake2b(digest_size=8)
        for record in records:
            places.update(f"{record.message_id}\n".encode())
        last = records[-1].sequence
        ending = _ENDINGS[self._config.format] + (".gz" if self._config.compression == "gzip" else "")
        name = f"{last:0{_NUMBER_DIGITS}d}-{self._sink}-{places.hexdigest()}{ending}"
        with retried(self._config.path):
            self._client.put_object(Bucket=self._bucket, Key=self._directory(topic) + name, Body=body)
        if self._context.is_exact:
            self._written[topic] = last

    def _directory(self, topic: str) -> str:
        """Return the name prefix of a topic's objects."""
        place = topic.partition("://")[2] or topic
        return f"{self._prefix.rstrip('/')}/{place}/".lstrip("/")

    def _last_written(self, directory: str, first: int) -> int:
        """Return the number of a topic's last stored record, if it is not before ``first``, or -1."""
        last = -1
        after = f"{directory}{first:0{_NUMBER_DIGITS}d}"
        with retried(self._config.path):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=directory, StartAfter=after
            )
            for page in pages:
                for found in page.get("Contents", ()):
                    number, _, rest = found["Key"][len(directory) :].partition("-")
                    if rest.startswith(f"{self._sink}-") and number.isdigit():
                        last = max(last, int(number))
        return last

    # -- object content -------------------------------------------------------------------------------------------

    def _part(self, record: Record, index: int) -> Any:
        """Return a record's line, or its JSON object for a table.

        Raises:
            RecordRefused: the value is not valid for the format.
        """
        value = record.value
        kind = self._config.format
        try:
            if kind == "lines":
                data = value if isinstance(value, bytes) else str(value).encode()
                if b"\n" in data:
                    raise RecordRefused(
                        "value contains a line break, which format lines does not allow: set format to json"
                    )
                return data
            if kind != "json":
                document = document_of(record, digits_of if kind == "csv" else json_of)
                json.dumps(document, ensure_ascii=False).encode()  # fails for invalid UTF-8
                return document
            if isinstance(value, bytes | str):
                parsed = json_of(value)
                if isinstance(value, bytes) and b"\n" not in value and b"\r" not in value:
                    return value
                value = parsed
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except RecordRefused as error:
            raise RecordRefused(str(error), index) from error
        except (ValueError, TypeError, RecursionError) as error:
            raise RecordRefused(f"value is not valid JSON: {error}", index) from error

    def _body(self, parts: Sequence[Any], table: Any, chosen: Sequence[int]) -> bytes:
        if table is not None:
            from pyarrow import parquet

            out = io.BytesIO()
            parquet.write_table(table.take(list(chosen)), out)
            return out.getvalue()
        some = [parts[index] for index in chosen]
        body = _csv_of(some, self._config) if self._config.format == "csv" else b"\n".join([*some, b""])
        return gzip.compress(body, 6, mtime=0) if self._config.compression == "gzip" else body


def _csv_of(documents: Sequence[dict[str, Any]], options: CsvOptions) -> bytes:
    """Convert objects to CSV; the columns are all keys, in order of first appearance."""
    columns = dict.fromkeys(key for document in documents for key in document)
    out = io.StringIO(newline="")
    write_csv(out, columns, documents, options)
    return out.getvalue().encode()
