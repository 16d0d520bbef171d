"""The ``file`` sink writes rolling files of lines, JSON lines, CSV or Parquet.

Records are first written as lines to a file whose name starts with a dot and ends in ``.open``. The file is synced
after each batch, so a record is durable once its batch is written, in all formats. When the file is large or old
enough, the sink converts it to Parquet or CSV if necessary, under another hidden name, and renames it to its final
name. A file with a final name is therefore always complete. Files left behind by a killed instance are finished by the
next instance that starts, regardless of its number; a lock on the file shows that its writer is still running. Files
are named ``<sink>-<instance>-<time>-<number>``, so that instances and sinks can share a directory.

If a batch cannot be written completely, for example because the disk is full, it is truncated from the file before the
retry. Records may be duplicated if the instance is killed between the sync and the acknowledgement.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from json import JSONDecodeError
from json.encoder import encode_basestring
from pathlib import Path
from typing import IO, Any, Literal, NoReturn

from ..api.connector import Batching, Record, RecordRefused, Retry, Sink, SinkContext
from ..api.connector_config import option
from ..errors import InvalidConfig
from .csv_rows import CsvOptions, check_csv, write_csv
from .documents import digits_of
from .libraries import need
from .lines_to_parquet import write_parquet

_OPEN = ".open"
_MADE = ".made"
_SIGNS = ("\n", "\r", "\\u", "NaN", "Infinity")
"""Substrings showing that JSON may span several lines or be invalid."""
_ENDINGS = {"lines": ".txt", "json": ".jsonl", "csv": ".csv", "parquet": ".parquet"}
COLUMNS_MAX = 1000
"""Maximum number of columns in a CSV or Parquet row, and in all rows of a file together."""
_TAIL_BYTES = 1 << 16


@dataclass
class FileSinkConfig(CsvOptions):
    """Settings of the ``file`` sink."""

    output_directory: str = option("Output directory; created if it does not exist.", aliases=("path",))
    format: Literal["json", "lines", "csv", "parquet"] = option(
        "File format. json: one JSON value per line; lines: values unchanged; csv, parquet: one row per value.",
        default="json",
    )
    value_type: Literal["json", "text"] = option(
        "Type of the record values. Text values become JSON strings with format json, and a column named value with "
        "csv and parquet.",
        default="json",
    )
    with_metadata: bool = option(
        "Whether to add the columns __key, __topic, __messageId, __eventTime (milliseconds since 1970) and "
        "__messageProperties. Values other than objects are then written to a column named value.",
        default=False,
    )
    roll_bytes: int = option("Maximum bytes per file, before conversion.", default=128 << 20, limits=(1, None))
    roll_records: int = option("Maximum number of records per file; 0 for unlimited.", default=0, limits=(0, None))
    roll_seconds: float = option("Seconds after which a file is finished.", default=60.0, limits=(0.1, 86_400))
    file_prefix: str = option("File name prefix; empty for the sink name.", default="")


class FileSink(Sink):
    """Writes files of JSON lines, CSV or Parquet. A visible file is always complete."""

    config = FileSinkConfig

    def check(self, config: FileSinkConfig) -> None:
        """Validate the configuration."""
        if "/" in config.file_prefix or "\0" in config.file_prefix:
            raise InvalidConfig(
                f"invalid filePrefix {config.file_prefix!r}: must not contain slashes; use outputDirectory for "
                f"directories"
            )
        if config.format == "lines" and config.with_metadata:
            raise InvalidConfig("withMetadata does not support format lines: use json, csv or parquet")
        check_csv(config)

    def not_effectively_once(self, config: FileSinkConfig) -> str:
        """Return why a configuration does not support EFFECTIVELY_ONCE, or an empty string."""
        return "the file sink may write a record again if its acknowledgement was lost"

    def batching(self, config: FileSinkConfig) -> Batching:
        """Return the batch limits."""
        return Batching(min(config.roll_records or 10_000, 10_000), min(config.roll_bytes, 8 << 20), time_s=0.05)

    def open(self, config: FileSinkConfig, context: SinkContext) -> None:
        """Open the connector."""
        if config.format == "parquet":
            need("parquet", "pyarrow.parquet", "file")  # fail early if the library is missing
        self._config = config
        self._log = context.logger
        self._directory = Path(config.output_directory).expanduser()
        self._name = config.file_prefix or context.name.rpartition("/")[2]
        self._instance_id = context.instance_id
        self._file: IO[bytes] | None = None
        self._path = Path()
        self._bytes = self._records = 0  # synced data only
        self._columns: set[str] = set()
        self._began_s = 0.0
        self._has_left = False  # whether a file could not be finished
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._finish_left()
        except OSError as error:
            self._away(error)

    def write_batch(self, records: Sequence[Record]) -> None:
        """Write a batch of records durably."""
        lines: list[bytes] = []
        refusal: RecordRefused | None = None
        for index, record in enumerate(records):
            try:
                lines.append(self._line(record))
            except (ValueError, TypeError, RecursionError) as error:
                hint = ": set valueType to text for plain text" if isinstance(error, JSONDecodeError) else ""
                refusal = RecordRefused(f"value is not valid {self._config.value_type}: {error}{hint}", index, index)
                break
            except RecordRefused as error:
                refusal = RecordRefused(str(error), index, index)
                break
        try:
            self._finish_behind()
            if lines:
                self._write(b"".join(lines), len(lines))
        except OSError as error:
            self._away(error)
        if refusal is not None:
            raise refusal
        with contextlib.suppress(OSError):  # the records are written; the next call retries and raises on failure
            self._roll_if_due()

    def idle(self) -> None:
        """Do periodic work while no records arrive."""
        try:
            self._finish_behind()
            self._roll_if_due()
        except OSError as error:
            self._away(error)

    def close(self) -> None:
        """Close the connector."""
        if getattr(self, "_file", None) is None:
            return
        try:
            self._finish()
        except OSError as error:
            self._log.warning("cannot finish %s: %s; retrying when the sink is next opened", self._path, error)

    def _away(self, error: OSError) -> NoReturn:
        raise Retry(f"cannot write to {self._directory}: {error.strerror or error}") from error

    # -- lines ----------------------------------------------------------------------------------------------------

    def _line(self, record: Record) -> bytes:
        config, value = self._config, record.value
        if config.format == "lines":
            data = value if isinstance(value, bytes) else str(value).encode()
            if b"\n" in data:
                raise RecordRefused(
                    "value contains a line break, which format lines does not allow: set format to json"
                )
            return data + b"\n"
        text = value.decode() if isinstance(value, bytes) else value
        if config.value_type == "text" and not config.with_metadata and isinstance(text, str):
            text = encode_basestring(text)
            return f"{text}\n".encode() if config.format == "json" else f'{{"value":{text}}}\n'.encode()
        parsed = json.loads(text) if config.value_type == "json" and isinstance(text, str) else text
        if config.with_metadata or config.format != "json":
            if isinstance(parsed, dict):
                parsed = dict(parsed)
            elif config.with_metadata or config.value_type == "text":
                parsed = {"value": parsed}
            else:
                kind = type(parsed).__name__
                raise RecordRefused(f"value must be a JSON object for format {config.format}, not {kind}")
            if config.with_metadata:
                parsed |= _metadata_of(record)
            if config.format != "json":
                self._add_columns(parsed)
        keeps_text = isinstance(text, str) and not config.with_metadata and config.format != "parquet"
        if keeps_text and parsed is not text and not any(sign in text for sign in _SIGNS):
            return f"{text.strip()}\n".encode()  # unchanged, so that numbers keep their digits
        return json.dumps(parsed, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n"

    def _add_columns(self, row: dict[str, Any]) -> None:
        if not row:
            raise RecordRefused(f"value is an empty object: format {self._config.format} requires at least one field")
        if not self._columns.issuperset(row):
            if len(self._columns.union(row)) > COLUMNS_MAX:
                raise RecordRefused(f"too many columns: a file may contain at most {COLUMNS_MAX} distinct fields")
            self._columns.update(row)

    # -- files ----------------------------------------------------------------------------------------------------

    def _write(self, data: bytes, count: int) -> None:
        """Write and sync all lines, or write none of them and raise."""
        config = self._config
        if self._bytes and (
            self._bytes + len(data) > config.roll_bytes
            or (config.roll_records and self._records + count > config.roll_records)
        ):
            self._finish()
        file = self._file or self._begin()
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(self._bytes)
                file.seek(self._bytes)
            raise
        self._bytes += len(data)
        self._records += count

    def _begin(self) -> IO[bytes]:
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        ending = _ENDINGS[self._config.format]
        for number in itertools.count(1):
            name = f"{self._name}-{self._instance_id}-{now}-{number}{ending}"
            self._path = self._directory / f".{name}{_OPEN}"
            if not (self._directory / name).exists():
                with contextlib.suppress(FileExistsError):
                    file = open(self._path, "xb", buffering=0)  # noqa: SIM115  stays open until the file rolls
                    break
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._file = file
        self._bytes = self._records = 0
        self._columns = set()
        self._began_s = time.monotonic()
        return file

    def _roll_if_due(self) -> None:
        config = self._config
        if self._file is not None and (
            self._bytes >= config.roll_bytes
            or (config.roll_records and self._records >= config.roll_records)
            or time.monotonic() - self._began_s >= config.roll_seconds
        ):
            self._finish()

    def _finish(self) -> None:
        """Rename the file to its final name; on failure, the next call retries."""
        assert self._file is not None
        file, self._file = self._file, None
        self._has_left = True
        with file:  # keeps the lock until the file is converted
            self._convert(self._path)
        self._has_left = False

    def _finish_behind(self) -> None:
        if self._has_left:
            self._finish_left()
            self._has_left = False

    def _finish_left(self) -> None:
        """Finish files of killed instances. Their complete lines were acknowledged or will be redelivered."""
        endings = "|".join(map(re.escape, _ENDINGS.values()))
        mine = re.compile(rf"\.{re.escape(self._name)}-\d+-\d{{8}}T\d{{6}}\.\d{{6}}-\d+({endings}){re.escape(_OPEN)}")
        for entry in sorted(os.listdir(self._directory)):
            if not mine.fullmatch(entry):
                continue
            left = self._directory / entry
            with contextlib.suppress(FileNotFoundError), open(left, "r+b") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # its writer is still running
                file.truncate(_end_of_lines(file))
                os.fsync(file.fileno())
                self._log.info("finishing %s, left behind by a killed instance", left)
                self._convert(left)

    def _convert(self, path: Path) -> None:
        """Convert a locked file of lines to its format, and rename it to its final name."""
        if not path.stat().st_size:
            path.unlink()
            return
        final = path.with_name(path.name[1:].removesuffix(_OPEN))
        made = path
        if final.suffix in (".csv", ".parquet"):
            made = path.with_name(path.name.removesuffix(_OPEN) + _MADE)
            try:
                if final.suffix == ".csv":
                    _write_csv(path, made, self._config)
                else:
                    write_parquet(path, made)
                with open(made, "rb") as file:
                    os.fsync(file.fileno())
            except BaseException:
                made.unlink(missing_ok=True)  # frees space if the disk is full
                raise
        made.rename(final)
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if made != path:
            path.unlink()


def _metadata_of(record: Record) -> dict[str, Any]:
    return {
        "__key": record.key,
        "__topic": record.topic,
        "__messageId": record.message_id,
        "__eventTime": record.event_time_ms or None,
        "__messageProperties": dict(record.properties) or None,
    }


def _end_of_lines(file: IO[bytes]) -> int:
    """Return the end offset of the last complete line of a file."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - _TAIL_BYTES)
        file.seek(begin)
        if (found := file.read(end - begin).rfind(b"\n")) >= 0:
            return begin + found + 1
        end = begin
    return 0


def _write_csv(lines: Path, made: Path, options: CsvOptions) -> None:
    """Convert a file of JSON lines to CSV; the columns are all keys, in order of first appearance."""
    columns: dict[str, None] = {}
    with open(lines, "rb") as file:
        for line in file:
            columns.update(dict.fromkeys(json.loads(line)))
    with open(lines, "rb") as file, open(made, "w", encoding="utf-8", newline="") as out:
        write_csv(out, columns, map(digits_of, file), options)
