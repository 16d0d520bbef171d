"""The ``s3`` source reads objects of a bucket, or files of a directory, as lines, JSON, CSV or Parquet.

It is a batch source: a discovery lists the objects under the prefix, each new object is a task, and the instances share
the tasks. A changed object counts as new. Objects are not deleted or moved.

Invalid lines and rows go to the source's dead-letter topic. If the rest of an object cannot be read, for example
because of a damaged gzip block, the object's name goes there. A byte order mark is not part of the text; a UTF-16 or
UTF-32 mark determines the encoding. Values without a JSON type become strings: times in ISO 8601
(``+10000-01-01T00:00:00`` for years after 9999), bytes in base64, decimals with all digits, and the numbers ``NaN``,
``Infinity`` and ``-Infinity``.

The state contains the objects discovered in the last `REMEMBERED_DAYS` days, as hashes of name and version, but at most
`REMEMBERED` objects. Objects older than all of these count as known. An object that appears late, with an earlier time,
is therefore never read; in S3, that is an object whose upload took longer than `REMEMBERED_DAYS` days.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, cast

from ..api.connector import BatchSource, DeadLetter, Record, Retry, SourceContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .csv_rows import CsvOptions, CsvReader, check_csv
from .libraries import need
from .parquet_rows import rows_of_parquet
from .s3 import S3Config, bucket_and_prefix, check_s3, make_client, retried
from .text_lines import BROKEN, csv_rows, json_lines, text_lines
from .texts import shown_path

REMEMBERED = 20_000
REMEMBERED_DAYS = 7.0
BATCH = 1000
BATCH_BYTES = 1 << 20
_STATE = "discovered"
_SPOOLED_BYTES = 64 << 20


@dataclass(kw_only=True)
class S3SourceConfig(CsvOptions, S3Config):
    """Settings of the ``s3`` source."""

    path: str = option(
        "Bucket and prefix, such as s3://bucket/orders/, or a directory, such as file:///var/orders.", aliases=("url",)
    )
    format: Literal["lines", "json", "csv", "parquet"] = option(
        "Object format. lines: one record per line; json: like lines, but lines that are not valid JSON go to the "
        "dead-letter topic; csv, parquet: one record per row, a JSON object, which contains only strings for csv.",
        default="lines",
        aliases=("formatType",),
    )
    suffix: str = option("Suffix of the names of objects to read; empty for all objects.", default="")


class _Found(NamedTuple):
    """A listed object: name, version, and time of writing in seconds since 1970."""

    name: str
    version: str
    written_s: float

    @property
    def mark(self) -> str:
        return hashlib.blake2b(
            f"{self.name}\n{self.version}".encode(errors="surrogateescape"), digest_size=8
        ).hexdigest()


class S3Source(BatchSource):
    """Reads lines and rows from the objects in an S3 bucket, or from the files in a directory."""

    config = S3SourceConfig

    def __init__(self) -> None:
        self._client: Any = None
        self._records: Iterator[Record] | None = None
        self._files = contextlib.ExitStack()

    def check(self, config: S3SourceConfig) -> None:
        """Validate the configuration."""
        if config.path.startswith("file://"):
            if not config.path.startswith("file:///"):
                raise InvalidConfig(f"invalid path {config.path!r}: expected file:/// and an absolute directory")
        elif config.path.startswith("s3://"):
            check_s3(config)
        else:
            raise InvalidConfig(f"invalid path {config.path!r}: expected s3://bucket/prefix or file:///directory")
        check_csv(config)

    def open(self, config: S3SourceConfig, context: SourceContext) -> None:
        """Open the connector."""
        if config.format == "parquet":
            need("s3", "pyarrow.parquet")
        self._config = config
        self._context = context
        self._directory: Path | None = None
        self._handed_over: dict[str, float] | None = None
        if config.path.startswith("file://"):
            self._directory = Path(config.path.removeprefix("file://"))
        else:
            self._bucket, self._prefix = bucket_and_prefix(config)
            self._client = make_client(config)

    def close(self) -> None:
        """Close the connector."""
        self._leave()
        if self._client is not None:
            self._client.close()

    # -- tasks ----------------------------------------------------------------------------------------------------

    def discover(self) -> list[bytes]:
        """Return the current tasks."""
        self._remember()
        until_s, known = self._remembered()
        found = [one for one in self._list() if one.name.endswith(self._config.suffix)]
        new = [one for one in found if one.written_s >= until_s and one.mark not in known]
        new.sort(key=lambda one: (one.written_s, one.name))
        self._handed_over = known | {one.mark: one.written_s for one in new}
        return [json.dumps({"name": one.name, "version": one.version}).encode() for one in new]

    def _remembered(self) -> tuple[float, dict[str, float]]:
        """Return the time before which all objects are known, and the known objects after it."""
        kept = self._context.get_state(_STATE)
        state: dict[str, Any] = json.loads(kept) if kept else {"until": 0.0, "known": {}}
        return state["until"], state["known"]

    def _remember(self) -> None:
        """Save the discovered objects. At this point, their tasks have been stored."""
        known, self._handed_over = self._handed_over, None
        if known is None:
            return
        until_s, _ = self._remembered()
        newest_s = max(known.values(), default=0.0)
        latest = sorted(known.items(), key=lambda item: item[1], reverse=True)
        if len(latest) > REMEMBERED:
            until_s = max(until_s, latest[REMEMBERED - 1][1])
        until_s = max(until_s, newest_s - REMEMBERED_DAYS * 86_400)
        kept = {mark: written_s for mark, written_s in latest if written_s >= until_s}
        self._context.put_state(_STATE, json.dumps({"until": until_s, "known": kept}, separators=(",", ":")))

    def _list(self) -> Iterator[_Found]:
        if self._directory is None:
            with retried(self._config.path):
                pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
                for page in pages:
                    for one in page.get("Contents", ()):
                        if not one["Key"].endswith("/"):
                            yield _Found(one["Key"], one["ETag"], one["LastModified"].timestamp())
            return
        if not self._directory.is_dir():
            raise Retry(f"{self._directory} is not a directory")
        for directory, _, names in os.walk(self._directory, onerror=_raise):
            for name in names:
                path = Path(directory, name)
                try:
                    found = path.stat()
                except FileNotFoundError:
                    continue  # deleted since it was listed
                version = f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}"
                # Unlike mtime, ctime changes when a file is moved into the directory.
                yield _Found(os.fspath(path.relative_to(self._directory)), version, found.st_ctime)

    # -- tasks -------------------------------------------------------------------------------------------------

    def prepare(self, task: bytes) -> None:
        """Start a task."""
        self._remember()
        self._leave()
        name = json.loads(task)["name"]
        self._records = self._read(name)

    def read(self) -> Sequence[Record] | None:
        """Return the next records of the task, or None at its end."""
        records: list[Record] = []
        size = 0
        assert self._records is not None
        with retried(self._config.path):
            for record in self._records:
                records.append(record)
                size += len(record.value)
                if len(records) >= BATCH or size >= BATCH_BYTES:
                    return records
        if not records:
            self._leave()
        return records or None

    def _leave(self) -> None:
        self._records = None
        self._files.close()

    def _read(self, name: str) -> Iterator[Record]:
        """Yield an object's records, and dead letters for invalid content, which rereading would not change."""
        shown = shown_path(name)
        properties = {"object": shown}
        count = 0
        try:
            for value in self._values(name):
                count += 1
                if isinstance(value, DeadLetter):
                    value.properties, value.reason = properties, f"{shown}: {value.reason}"
                    yield value
                else:
                    yield Record(value, properties=properties)
        except FileNotFoundError:
            self._context.logger.error("skipped %s: deleted before it was read", shown)
        except BROKEN as error:
            reason = " ".join(str(error).split())[:300]
            yield DeadLetter(b"", properties=properties, reason=f"cannot read {shown} after record {count}: {reason}")

    def _values(self, name: str) -> Iterator[bytes | DeadLetter]:
        stream = self._open(name)
        match self._config.format:
            case "parquet":
                return rows_of_parquet(stream)
            case "csv":
                return csv_rows(stream, CsvReader(self._config))
            case "json":
                return json_lines(stream)
        return text_lines(stream)

    def _open(self, name: str) -> IO[bytes]:
        """Open an object, decompressed if it is gzip.

        Raises:
            FileNotFoundError: the object no longer exists.
            Retry: the directory does not exist.
        """
        if self._directory is not None:
            raw: IO[bytes] = self._files.enter_context(_open_inside(self._directory, name))
        else:
            try:
                body = self._client.get_object(Bucket=self._bucket, Key=name)["Body"]
            except self._client.exceptions.NoSuchKey as error:
                raise FileNotFoundError(name) from error
            spooled = self._files.enter_context(tempfile.SpooledTemporaryFile(_SPOOLED_BYTES))  # noqa: SIM115
            with contextlib.closing(body):
                shutil.copyfileobj(body, spooled, 1 << 20)
            spooled.seek(0)
            raw = cast(IO[bytes], spooled)
        head = raw.read(2)
        raw.seek(0)
        if head != b"\x1f\x8b":
            return raw
        return cast(IO[bytes], self._files.enter_context(gzip.open(raw)))


def _open_inside(directory: Path, name: str) -> IO[bytes]:
    """Open a file in a directory. Raises the same exceptions as `S3Source._open`."""
    try:
        # A missing directory, for example an unmounted one, must not be mistaken for a deleted file.
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Retry(f"{directory} is not a directory") from error
    try:
        return open(name, "rb", opener=lambda path, flags: os.open(path, flags, dir_fd=held))
    finally:
        os.close(held)


def _raise(error: OSError) -> None:
    raise error
