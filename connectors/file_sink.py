"""The sink ``file``: files of lines, JSON lines, CSV or Parquet, that roll.

Records are written as lines to a file whose name begins with a dot and ends in ``.open``, and synced with each batch,
so that a record is durable when its batch is written, whatever the format. When the file is large or old enough it is
finished: what is Parquet or CSV is made of the lines, under another such name, and renamed to its final name, which
nobody ever sees incomplete. What a killed instance left is finished when the next one begins.

A record goes into a file twice if the instance is killed between the sync and the acknowledgement.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

from ..api.connector import Batching, Record, RecordRefused, Retry, Sink, SinkContext
from ..api.connector_config import option
from ..errors import InvalidConfig

_OPEN = ".open"
_ENDINGS = {"lines": ".txt", "json": ".jsonl", "csv": ".csv", "parquet": ".parquet"}


@dataclass
class FileSinkConfig:
    """Where files go, and when one is finished."""

    output_directory: str = option("The directory that files are written to; it is made if need be.", aliases=("path",))
    format: Literal["json", "lines", "csv", "parquet"] = option(
        "json: a JSON value a line; lines: values as they are; csv, parquet: a row for each value, which is an object.",
        default="json",
    )
    roll_bytes: int = option("Bytes after which a file is finished.", default=128 << 20, limits=(1, None))
    roll_records: int = option("Records after which a file is finished; 0 for no limit.", default=0, limits=(0, None))
    roll_seconds: float = option("Seconds after which a file is finished.", default=60.0, limits=(0.1, 86_400))
    file_prefix: str = option("How the names of files begin; empty for the sink's name.", default="")


class FileSink(Sink):
    """Files of JSON lines, CSV or Parquet, complete from the moment they are seen."""

    config = FileSinkConfig

    def check(self, config: FileSinkConfig) -> None:
        """See `Connector.check`."""
        if "/" in config.file_prefix or "\0" in config.file_prefix:
            raise InvalidConfig(
                f"filePrefix {config.file_prefix!r} is no part of a name; outputDirectory takes folders"
            )

    def batching(self, config: FileSinkConfig) -> Batching:
        """See `Sink.batching`."""
        return Batching(records=10_000, size=8 << 20, time_s=0.05)

    def open(self, config: FileSinkConfig, context: SinkContext) -> None:
        """See `Connector.open`."""
        if config.format == "parquet":
            _parquet()  # says what is missing before anything is taken
        self._config = config
        self._log = context.logger
        self._directory = Path(config.output_directory).expanduser()
        name = config.file_prefix or context.name.rpartition("/")[2]
        self._prefix = f"{name}-{context.instance_id}-"
        self._file: IO[bytes] | None = None
        self._path = Path()
        self._records = 0
        self._began_s = 0.0
        self._serial = 0
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            for left in sorted(self._directory.glob(f".{self._prefix}*{_OPEN}")):
                self._recover(left)
        except OSError as error:
            raise Retry(f"{self._directory} cannot be written to: {error.strerror}") from error

    def write_batch(self, records: Sequence[Record]) -> None:
        """See `Sink.write_batch`."""
        lines = [self._line(record, index) for index, record in enumerate(records)]
        try:
            file = self._file or self._begin()
            file.write(b"".join(lines))
            file.flush()
            os.fsync(file.fileno())
            self._records += len(records)
            self._roll_if_due()
        except OSError as error:
            self._give_up()
            raise Retry(f"{self._directory} cannot be written to: {error.strerror}") from error

    def idle(self) -> None:
        """See `Sink.idle`."""
        if self._file is not None:
            self._roll_if_due()

    def close(self) -> None:
        """See `Connector.close`."""
        if getattr(self, "_file", None) is not None:
            self._finish()

    # -- lines ----------------------------------------------------------------------------------------------------

    def _line(self, record: Record, index: int) -> bytes:
        value = record.value
        if self._config.format == "lines":
            data = value if isinstance(value, bytes) else str(value).encode()
            if b"\n" in data:
                raise RecordRefused("the value has a line break, and format is lines; use json", index)
            return data + b"\n"
        try:
            if isinstance(value, bytes | str):
                value = json.loads(value)
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            data = text.encode()
        except (ValueError, TypeError) as error:
            raise RecordRefused(f"the value is no JSON: {error}", index) from error
        if self._config.format != "json" and not isinstance(value, dict):
            kind = type(value).__name__
            raise RecordRefused(f"a row of {self._config.format} is an object, and the value is {kind}", index)
        return data + b"\n"

    def _give_up(self) -> None:
        """Leave the file that could not be written; what of it was synced is finished when the sink is opened again."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    # -- files ----------------------------------------------------------------------------------------------------

    def _begin(self) -> IO[bytes]:
        self._serial += 1
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        self._path = self._directory / f".{self._prefix}{now}-{self._serial}{_OPEN}"
        self._file = open(self._path, "xb")  # noqa: SIM115  it stays open until it rolls
        self._records, self._began_s = 0, time.monotonic()
        return self._file

    def _roll_if_due(self) -> None:
        assert self._file is not None
        config = self._config
        if (
            self._file.tell() >= config.roll_bytes
            or (config.roll_records and self._records >= config.roll_records)
            or time.monotonic() - self._began_s >= config.roll_seconds
        ):
            self._finish()

    def _finish(self) -> None:
        """Give the file its final name."""
        assert self._file is not None
        self._file.close()
        self._file = None
        self._convert(self._path)

    def _recover(self, left: Path) -> None:
        """Finish a file of an instance that was killed: its whole lines are what was acknowledged, or comes again."""
        with open(left, "r+b") as file:
            content = file.read()
            whole = content.rfind(b"\n") + 1
            file.truncate(whole)
            file.flush()
            os.fsync(file.fileno())
        if whole:
            self._log.info("%s was left by an instance that was killed, and is finished now", left)
            self._convert(left)
        else:
            left.unlink()

    def _convert(self, path: Path) -> None:
        kind = self._config.format
        final = path.with_name(path.name[1:].removesuffix(_OPEN) + _ENDINGS[kind])
        made = path
        if kind in ("csv", "parquet"):
            made = path.with_name(path.name.removesuffix(_OPEN) + ".made")
            (_write_csv if kind == "csv" else _write_parquet)(path, made)
            with open(made, "rb") as file:
                os.fsync(file.fileno())
        made.rename(final)
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if made != path:
            path.unlink()


def _write_csv(lines: Path, made: Path) -> None:
    """Write the objects of a file of JSON lines as CSV; the columns are all keys, in the order of their appearance."""
    columns: dict[str, None] = {}
    with open(lines, "rb") as file:
        for line in file:
            columns.update(dict.fromkeys(json.loads(line)))
    with open(lines, "rb") as file, open(made, "w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(columns))
        writer.writeheader()
        for line in file:
            row: dict[str, Any] = json.loads(line)
            writer.writerow({key: json.dumps(v) if isinstance(v, dict | list) else v for key, v in row.items()})


def _write_parquet(lines: Path, made: Path) -> None:
    arrow_json, parquet = _parquet()
    options = arrow_json.ReadOptions(block_size=64 << 20)
    parquet.write_table(arrow_json.read_json(io.BytesIO(lines.read_bytes()), read_options=options), made)


def _parquet() -> tuple[Any, Any]:
    try:
        import pyarrow.json
        import pyarrow.parquet
    except ImportError as error:
        raise InvalidConfig("format parquet needs pyarrow: pip install 'magnetar[parquet]'") from error
    return pyarrow.json, pyarrow.parquet
