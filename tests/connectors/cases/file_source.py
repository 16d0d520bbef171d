"""The source ``file``: complete files, and a growing one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pulsar

from tests.connectors.cases.base import SourceCase


def line_of(record: tuple[int, str]) -> bytes:
    return json.dumps({"id": record[0], "text": record[1]}, ensure_ascii=False).encode() + b"\n"


class FileSourceCase(SourceCase):
    """A directory of files, every second one compressed."""

    connector = "file"
    bad_configs: ClassVar[Sequence[tuple[dict[str, Any], str]]] = (
        ({"inputDirectory": None}, "inputDirectory is missing"),
        ({"pollingInterval": "soon"}, "pollingInterval must be a whole number"),
        ({"fileFilter": "("}, "fileFilter"),
        ({"keepFile": True, "processedFileSuffix": ".done"}, "processedFileSuffix"),
        ({"inputDirectory": "/no/such/directory"}, "retrying"),
        ({"keepFiles": True}, "keepFiles"),
    )
    has_target = True
    fed = 0

    @property
    def files(self) -> Path:
        return self.directory / "in"

    def prepare(self) -> None:
        self.files.mkdir(exist_ok=True)

    def configs(self) -> dict[str, object]:
        return {"inputDirectory": str(self.files), "pollingInterval": 50}

    def take_away(self) -> None:
        """Rename the directory."""
        self.files.rename(self.directory / "elsewhere")

    def bring_back(self) -> None:
        (self.directory / "elsewhere").rename(self.files)

    def feed(self, records: list[tuple[int, str]]) -> None:
        self.put(b"".join(map(line_of, records)))

    def feed_bad(self) -> None:
        """Write a file that starts like gzip but is not gzip."""
        self.put(b"\x1f\x8b not compressed at all")

    def put(self, data: bytes) -> None:
        """Create a file that is complete when it becomes visible."""
        self.fed += 1
        path = self.files / f".{self.fed:03}"
        path.write_bytes(data if self.fed % 2 else gzip.compress(data, 1))
        path.rename(path.with_name(path.name[1:]))

    def identify(self, message: pulsar.Message) -> tuple[int, str]:
        value = json.loads(message.data())
        assert message.properties()["file"].startswith("0")
        return value["id"], value["text"]


class TailFileSourceCase(FileSourceCase):
    """A growing file that is rotated meanwhile."""

    bad_configs = (({"processedFileSuffix": ".done"}, "tail and processedFileSuffix"),)

    def configs(self) -> dict[str, object]:
        return {**super().configs(), "tail": True}

    def feed(self, records: list[tuple[int, str]]) -> None:
        """Append half of the records to the existing file and half to its replacement."""
        half = len(records) // 2
        self.append(records[:half])
        log = self.files / "01.log"
        self.fed += 1
        log.rename(self.files / f"00-{self.fed}.log")
        self.append(records[half:])

    def append(self, records: list[tuple[int, str]]) -> None:
        with open(self.files / "01.log", "ab") as file:
            for record in records:
                file.write(line_of(record))

    def feed_bad(self) -> None:
        """Write nothing: no data is invalid, because bytes that are not text are sent unchanged."""
