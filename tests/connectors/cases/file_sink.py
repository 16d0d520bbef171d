"""The sink ``file``, in its three formats for objects."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.connectors.cases.base import SinkCase


class FileSinkCase(SinkCase):
    """JSON lines in topic order."""

    connector = "file"
    is_ordered = True
    bad_configs: ClassVar[Sequence[tuple[dict[str, Any], str]]] = (
        ({"outputDirectory": None}, "outputDirectory is missing"),
        ({"format": "xml"}, "format must be one of json, lines, csv, parquet"),
        ({"rollSeconds": 0}, "rollSeconds must be at least 0.1"),
        ({"rollByts": 1}, "rollByts"),
        ({"outputDirectory": "/proc/none"}, "retrying"),
        ({"filePrefix": "a/b"}, "filePrefix"),
    )
    format = "json"

    @property
    def out(self) -> Path:
        return self.directory / "out"

    def configs(self) -> dict[str, object]:
        return {"outputDirectory": str(self.out), "rollSeconds": 0.3, "format": self.format}

    def bad_record(self) -> bytes | None:
        return b'{"id": 1, "text": '

    has_target = True

    def take_away(self) -> None:
        """Replace the directory with a file."""
        self.out.rename(self.directory / "elsewhere")
        self.out.touch()

    def bring_back(self) -> None:
        self.out.unlink()
        (self.directory / "elsewhere").rename(self.out)

    def read_back(self) -> list[tuple[int, str]]:
        records: list[tuple[int, str]] = []
        for path in sorted(self.out.glob("[!.]*")):
            records += self.records_of(path)
        return records

    def records_of(self, path: Path) -> list[tuple[int, str]]:
        values = [json.loads(line) for line in path.read_bytes().decode().removesuffix("\n").split("\n")]
        assert all(value["nothing"] is None for value in values)
        return [(value["id"], value["text"]) for value in values]


class CsvFileSinkCase(FileSinkCase):
    """CSV."""

    format = "csv"
    bad_configs = ()

    def records_of(self, path: Path) -> list[tuple[int, str]]:
        csv.field_size_limit(sys.maxsize)
        with open(path, encoding="utf-8", newline="") as file:
            return [(int(row["id"]), row["text"]) for row in csv.DictReader(file)]


class ParquetFileSinkCase(FileSinkCase):
    """Parquet."""

    format = "parquet"
    bad_configs = ()
    needs_extra = True

    def bad_record(self) -> bytes | None:
        return b'["no", "object"]'

    def records_of(self, path: Path) -> list[tuple[int, str]]:
        from pyarrow import parquet

        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        return [(row["id"], row["text"]) for row in rows]
